//! Noticing containers in `nmPrivate`, the directory a NodeManager keeps to itself below each of
//! its local directories:
//!
//! ```text
//! <local-dir>/nmPrivate/<application id>/<container id>/<container id>.pid
//! ```
//!
//! The pid file is renamed into place, so that with it the container is there at once. Each level
//! is watched first and listed then: nothing that is made between the two is missed, and what is
//! seen twice is one entry of a set. What inotify(7) loses or cannot watch (a full queue, no
//! watches left) a listing finds, and so it does a directory that was away.
//!
//! Under DefaultContainerExecutor containers may write here. Names are ids or nothing, links are
//! not followed, and of files only regular ones are read, up to a bound.
//!
//! Limit: of two pid files of a container, which a relaunch leaves on two disks, the later is the
//! one with the later time of its last change, by the wall clock. Where that was set back in
//! between, the one of the earlier launch is taken until it is gone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::ids::{ApplicationId, ContainerId};
use crate::units::{Pid, WallTime};

/// Which of the local directories.
type Root = usize;

/// A pid file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PidFile {
    pub(super) pid: Pid,
    pub(super) written: WallTime,
    /// Owner of the nmPrivate it is in: the NodeManager's user.
    pub(super) manager_uid: u32,
    root: Root,
}

/// Longest launch script that is read.
const MAX_SCRIPT_BYTES: u64 = 4 << 20;

/// What a watch is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WatchedDir {
    Private(Root),
    Application(Root, ApplicationId),
    Container(Root, ContainerId),
}

impl WatchedDir {
    fn root(self) -> Root {
        match self {
            WatchedDir::Private(root)
            | WatchedDir::Application(root, _)
            | WatchedDir::Container(root, _) => root,
        }
    }
}

#[derive(Debug)]
struct LocalDir {
    private: PathBuf,
    /// Owner of nmPrivate, once it was there.
    owner: Option<u32>,
    /// Owner of the directory it is in, until then.
    above: Option<u32>,
    /// Why it cannot be listed. Logged when it changes, not each time.
    trouble: Option<String>,
}

fn no_instance(errno: Errno) -> io::Error {
    match errno {
        // Or descriptors, of which lrsd has thousands.
        Errno::MFILE => io::Error::other(format!(
            "no inotify instance ({errno}); this user has as many as fs.inotify.max_user_instances \
             allows: raise it (sysctl) and restart lrsd"
        )),
        _ => errno.into(),
    }
}

/// The watches on all local directories of a node.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: OwnedFd,
    dirs: Vec<LocalDir>,
    places: HashMap<i32, WatchedDir>,
    watched: HashSet<WatchedDir>,
    /// Why a watch could not be made, as of the last listing.
    unwatched: Option<Errno>,
    buffer: Vec<MaybeUninit<u8>>,
}

impl Watch {
    /// No directory is looked at before [`Watch::list`].
    pub(super) fn new(local_dirs: &[PathBuf]) -> io::Result<Watch> {
        // Some thousand events at once; those left are read with the next call of read(2).
        const BUFFER_BYTES: usize = 64 << 10;
        let dir = |local_dir: &PathBuf| LocalDir {
            private: local_dir.join("nmPrivate"),
            owner: None,
            above: None,
            trouble: None,
        };
        Ok(Watch {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
                .map_err(no_instance)?,
            dirs: local_dirs.iter().map(dir).collect(),
            places: HashMap::new(),
            watched: HashSet::new(),
            unwatched: None,
            buffer: vec![MaybeUninit::uninit(); BUFFER_BYTES],
        })
    }

    /// Readable when there are events.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Why directories cannot be listed, each with its reason.
    pub(super) fn troubles(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.dirs.iter().filter_map(|dir| Some((dir.private.as_path(), dir.trouble.as_deref()?)))
    }

    /// Who NodeManagers run as: those who own nmPrivate or, where it never was there, the local
    /// directory. One below a directory in which everybody may make some is its first maker's.
    pub(super) fn owners(&self) -> BTreeSet<u32> {
        self.dirs.iter().filter_map(|dir| dir.owner.or(dir.above)).collect()
    }

    /// Adds the containers with a new pid file. `true`: something may have been missed,
    /// list all.
    pub(super) fn events(&mut self, found: &mut BTreeSet<ContainerId>) -> bool {
        let mut missed = false;
        let mut seen = Vec::new();
        let mut reader = inotify::Reader::new(&self.inotify, &mut self.buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().and_then(|name| name.to_str().ok());
                    seen.push((event.wd(), event.events(), name.map(str::to_owned)));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    tracing::warn!("events of nmPrivate cannot be read: {errno}; it is listed");
                    missed = true;
                    break;
                }
            }
        }
        for (wd, events, name) in seen {
            missed |= self.event(wd, events, name.as_deref(), found);
        }
        missed
    }

    fn event(
        &mut self,
        wd: i32,
        events: ReadFlags,
        name: Option<&str>,
        found: &mut BTreeSet<ContainerId>,
    ) -> bool {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            return true;
        }
        let Some(place) = self.places.get(&wd).copied() else { return false };
        if events.contains(ReadFlags::IGNORED) {
            self.places.remove(&wd);
            self.watched.remove(&place);
            return matches!(place, WatchedDir::Private(_));
        }
        if events.intersects(ReadFlags::MOVE_SELF) {
            // A NodeManager that starts afresh renames nmPrivate and makes a new one.
            self.forget(place.root());
            return true;
        }
        let Some(name) = name else { return false };
        match place {
            WatchedDir::Private(root) => {
                if let Ok(application) = name.parse() {
                    self.list_application(root, application, found);
                }
            }
            WatchedDir::Application(root, application) => match name.parse::<ContainerId>() {
                Ok(container) if container.application == application => {
                    self.list_container(root, container, found);
                }
                _ => {}
            },
            WatchedDir::Container(_, container) => {
                if name.strip_suffix(".pid") == Some(&container.to_string()) {
                    found.insert(container);
                }
            }
        }
        false
    }

    fn forget(&mut self, root: Root) {
        let gone: Vec<i32> = self
            .places
            .iter()
            .filter(|(_, place)| place.root() == root)
            .map(|(wd, _)| *wd)
            .collect();
        for wd in gone {
            // EINVAL: the kernel dropped it with its directory.
            let _ = inotify::remove_watch(&self.inotify, wd);
            self.places.remove(&wd);
        }
        self.watched.retain(|place| place.root() != root);
    }

    /// Lists all directories, watches what is not watched yet, and adds each container there is.
    pub(super) fn list(&mut self, found: &mut BTreeSet<ContainerId>) {
        let before = self.unwatched.take();
        for root in 0..self.dirs.len() {
            let outcome = self.list_root(root, found);
            self.note(root, outcome.err());
        }
        if let Some(errno) = self.unwatched.filter(|now| before != Some(*now)) {
            tracing::warn!(
                "nmPrivate cannot be watched in whole ({errno}), so that some containers are \
                 found late; raise fs.inotify.max_user_watches"
            );
        }
    }

    /// One disk that fails says so once, and once more when it is back.
    fn note(&mut self, root: Root, error: Option<io::Error>) {
        let Some(dir) = self.dirs.get_mut(root) else { return };
        let trouble = error.map(|error| match error.kind() {
            io::ErrorKind::NotFound => "it is not there: has the NodeManager started?".to_owned(),
            io::ErrorKind::PermissionDenied => {
                format!("{error}; lrsd needs root or CAP_DAC_READ_SEARCH")
            }
            _ => error.to_string(),
        });
        if trouble != dir.trouble {
            let private = dir.private.display();
            match &trouble {
                Some(why) => tracing::warn!(
                    "{private} cannot be listed: {why}; its containers are looked for in /proc"
                ),
                None => tracing::info!("{private} can be listed again"),
            }
            dir.trouble = trouble;
        }
    }

    fn list_root(&mut self, root: Root, found: &mut BTreeSet<ContainerId>) -> io::Result<()> {
        let Some(dir) = self.dirs.get_mut(root) else { return Ok(()) };
        let private = dir.private.clone();
        // If it cannot be read, neither can nmPrivate; the error of the latter is reported.
        if let Some(Ok(above)) = private.parent().map(fs::metadata) {
            dir.above = Some(above.uid());
        }
        let metadata = fs::symlink_metadata(&private)?;
        if !metadata.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        dir.owner = Some(metadata.uid());
        self.watch(WatchedDir::Private(root), &private);
        for application in names(&private)? {
            if let Ok(application) = application.parse() {
                self.list_application(root, application, found);
            }
        }
        Ok(())
    }

    fn list_application(
        &mut self,
        root: Root,
        application: ApplicationId,
        found: &mut BTreeSet<ContainerId>,
    ) {
        let Some(dir) = self.dirs.get(root) else { return };
        let path = dir.private.join(application.to_string());
        if !is_dir(&path) {
            return;
        }
        self.watch(WatchedDir::Application(root, application), &path);
        for container in gone_is_empty(&path, names(&path)) {
            match container.parse::<ContainerId>() {
                Ok(container) if container.application == application => {
                    self.list_container(root, container, found);
                }
                _ => {}
            }
        }
    }

    fn list_container(
        &mut self,
        root: Root,
        container: ContainerId,
        found: &mut BTreeSet<ContainerId>,
    ) {
        let Some(path) = self.container_dir(root, container).filter(|path| is_dir(path)) else {
            return;
        };
        self.watch(WatchedDir::Container(root, container), &path);
        if fs::symlink_metadata(path.join(format!("{container}.pid"))).is_ok() {
            found.insert(container);
        }
    }

    fn watch(&mut self, place: WatchedDir, path: &Path) {
        if self.watched.contains(&place) && !matches!(place, WatchedDir::Private(_)) {
            return;
        }
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        match inotify::add_watch(&self.inotify, path, flags) {
            Ok(wd) => {
                self.places.insert(wd, place);
                self.watched.insert(place);
            }
            // Gone since it was listed, or no directory.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => self.unwatched = Some(errno),
        }
    }

    fn container_dir(&self, root: Root, container: ContainerId) -> Option<PathBuf> {
        let application = container.application.to_string();
        Some(self.dirs.get(root)?.private.join(application).join(container.to_string()))
    }

    /// Reads the pid file of a container, the latest one where a relaunch has put it on another
    /// disk; `Ok(None)` when there is none that is whole.
    pub(super) fn pid_file(&self, container: ContainerId) -> io::Result<Option<PidFile>> {
        let mut latest: Option<PidFile> = None;
        let mut failed = None;
        for root in 0..self.dirs.len() {
            match self.pid_file_at(root, container) {
                Ok(file) => {
                    let later = |file: &PidFile| latest.is_none_or(|l| file.written > l.written);
                    latest = file.filter(later).or(latest);
                }
                Err(error) => failed = Some(error),
            }
        }
        match (latest, failed) {
            (None, Some(error)) => Err(error),
            (latest, _) => Ok(latest),
        }
    }

    fn pid_file_at(&self, root: Root, container: ContainerId) -> io::Result<Option<PidFile>> {
        let Some(dir) = self.container_dir(root, container) else { return Ok(None) };
        let Some((text, metadata)) = read(&dir.join(format!("{container}.pid")), 32)? else {
            return Ok(None);
        };
        let owner = self.dirs.get(root).and_then(|dir| dir.owner);
        let pid = text.trim().parse().ok().and_then(Pid::new);
        Ok(pid.zip(owner).map(|(pid, manager_uid)| PidFile {
            pid,
            written: written(&metadata),
            manager_uid,
            root,
        }))
    }

    /// Whether this is the container's pid file still, without reading it.
    pub(super) fn is_unchanged(&self, container: ContainerId, file: &PidFile) -> bool {
        self.container_dir(file.root, container).is_some_and(|dir| {
            fs::symlink_metadata(dir.join(format!("{container}.pid")))
                .is_ok_and(|metadata| metadata.is_file() && written(&metadata) == file.written)
        })
    }

    /// Reads the NodeManager's copy of `launch_container.sh`, which may be on another disk than
    /// the pid file.
    pub(super) fn script(&self, container: ContainerId) -> io::Result<Option<String>> {
        let mut last = Ok(None);
        for root in 0..self.dirs.len() {
            let Some(dir) = self.container_dir(root, container) else { continue };
            match read(&dir.join("launch_container.sh"), MAX_SCRIPT_BYTES) {
                Ok(Some((text, _))) => return Ok(Some(text)),
                Ok(None) => {}
                Err(error) => last = Err(error),
            }
        }
        last
    }
}

/// Names of directories in a directory that are UTF-8; ids are.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if is_listed(&entry.path(), entry.file_type().map(|kind| kind.is_dir())) {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

/// Whether an entry is a directory. One that is gone since, or that alone cannot be looked at,
/// hides none of the others: a file system that keeps no types in its directories is asked for
/// each.
fn is_listed(path: &Path, is_dir: io::Result<bool>) -> bool {
    is_dir.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::debug!("{} cannot be looked at: {error}", path.display());
        }
        false
    })
}

fn written(metadata: &fs::Metadata) -> WallTime {
    let seconds = metadata.mtime().saturating_mul(1_000_000);
    WallTime::from_unix_micros(seconds.saturating_add(metadata.mtime_nsec() / 1_000))
}

/// Whether it is one itself, and not a link to one.
fn is_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

/// A directory that went away while it was read holds no container any more.
fn gone_is_empty(dir: &Path, names: io::Result<Vec<String>>) -> Vec<String> {
    names.unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::debug!("{} cannot be listed: {error}", dir.display());
        }
        Vec::new()
    })
}

/// A regular file, up to `most` bytes of it.
fn read(path: &Path, most: u64) -> io::Result<Option<(String, fs::Metadata)>> {
    // A pipe in the place of a file must not hold the reader up, nor a link lead it elsewhere.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => fs::File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(None);
    }
    let mut text = Vec::new();
    file.take(most).read_to_end(&mut text)?;
    Ok(Some((String::from_utf8_lossy(&text).into_owned(), metadata)))
}

#[cfg(test)]
mod tests;
