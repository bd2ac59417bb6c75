//! Facts about the node, read once. Nothing is judged here.
//!
//! Everything below `/proc` and `/sys` is read under the roots of [`DoctorOptions`]; what is
//! no file there (pidfd_open, access, the socket) is asked of the kernel.
//! A fact that could not be had carries the reason.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lrs_host::trust;
use procfs::FromRead;
use rustix::fs::Access;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::DoctorOptions;
use super::cgroups::Carrier;
use super::cpus::Cpus;
use super::finding::{self, Finder};
use super::neighbours::{self, Neighbour};
use super::services::Services;
use super::yarn::Yarn;
use crate::cgroup::mounts::{Mount, Mounts};
use crate::cgroup::obstacle::{self, Obstacle};
pub(super) use crate::cgroup::probe::Disk;
use crate::cgroup::{MemoryGroups, OwnGroups};
use crate::config::{Auto, Config, Mode};
use crate::core::sample::MemoryLimit;
use crate::units::Bytes;

/// A fact, or why it is not known.
pub(super) type Reading<T> = Result<T, String>;

#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// Effective uid of the process that asks.
    pub(super) uid: u32,
    pub(super) kernel: Reading<Kernel>,
    /// Whether pidfd_open(2) works here.
    pub(super) pidfd: Result<(), Obstacle>,
    /// CPUs that LRS's tasks may use.
    pub(super) cpus: Reading<Cpus>,
    pub(super) cgroups: Reading<Cgroups>,
    pub(super) disks: Reading<Vec<Disk>>,
    /// The scheduler in BPF that all tasks run under.
    pub(super) sched_ext: Option<String>,
    /// Resources of /proc/pressure that can be read, or why none.
    pub(super) pressure: Reading<Vec<&'static str>>,
    pub(super) memory: Reading<Memory>,
    pub(super) memory_limits: MemoryLimits,
    /// `None`: the kernel has no autogroups.
    pub(super) autogroup: Reading<Option<bool>>,
    pub(super) runtime_dir: DirFacts,
    /// Whether the group of [`DoctorOptions::group`] exists.
    pub(super) group: Reading<bool>,
    pub(super) descriptors: Descriptors,
    /// The first socket of `grpc.listen`.
    pub(super) socket: Socket,
    /// Whether a process holds `<runtime_dir>/lock`.
    pub(super) locked: Reading<bool>,
    /// The LRS root in the CPU controller's hierarchy and whether a process holds its lock;
    /// `None`: there is no such hierarchy.
    pub(super) root_lock: Option<(PathBuf, Reading<bool>)>,
    /// Busy groups beside the LRS root; `None`: there is no hierarchy with the CPU controller.
    pub(super) neighbours: Option<Reading<Vec<Neighbour>>>,
    pub(super) services: Services,
    /// The daemon's thread that finds tasks; `None`: no daemon is seen.
    pub(super) finder: Option<Reading<Finder>>,
    /// `None`: `yarn.enabled` is off.
    pub(super) yarn: Option<Yarn>,
}

/// The release of the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    pub(super) text: String,
    /// Major and minor number.
    pub(super) version: (u32, u32),
}

/// The cgroup mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cgroups {
    pub(super) v1: Vec<Hierarchy>,
    pub(super) v2: Option<Unified>,
}

impl Cgroups {
    /// The v1 hierarchy with `controller`.
    pub(super) fn v1_with(&self, controller: &str) -> Option<&Hierarchy> {
        self.v1.iter().find(|h| h.controllers.iter().any(|name| name == controller))
    }
}

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// The mount point.
    pub(super) point: PathBuf,
    /// v1: those that LRS uses.
    pub(super) controllers: Vec<String>,
    /// Where the LRS root is or would be.
    pub(super) root: DirFacts,
    /// Whether this process may make and use it.
    pub(super) usable: Result<(), Obstacle>,
    /// Whether the mount shows the group this process is in.
    pub(super) in_sight: Result<(), Obstacle>,
    /// Which of [`FILES`] the mount's own group has.
    pub(super) own_files: Vec<&'static str>,
    /// Which of [`FILES`] a group one below has.
    pub(super) child_files: Vec<&'static str>,
}

impl Hierarchy {
    /// Whether the file is in the mount's own group or in one below.
    pub(super) fn has(&self, file: &str) -> bool {
        self.own_files.contains(&file) || self.child_has(file)
    }

    /// Whether the file is in a group below the mount.
    pub(super) fn child_has(&self, file: &str) -> bool {
        self.child_files.contains(&file)
    }
}

/// The cgroup2 mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unified {
    pub(super) hierarchy: Hierarchy,
    /// `cgroup.controllers`: what is to be had.
    pub(super) available: Vec<String>,
    /// `cgroup.subtree_control`: what groups below have.
    pub(super) enabled: Vec<String>,
    /// Whether `cgroup.subtree_control` may be written.
    pub(super) delegable: Reading<()>,
    /// Processes live in the mount's own group and it is not the hierarchy's real root, so
    /// that controllers cannot be enabled below (cgroup-v2.rst, "No Internal Process
    /// Constraint").
    pub(super) internal_processes: bool,
    /// Devices ("8:0") with `enable=1` in `io.cost.qos`.
    pub(super) iocost: Vec<String>,
}

/// Whether something can be made at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DirFacts {
    /// What was asked for.
    pub(super) path: PathBuf,
    pub(super) exists: bool,
    /// Whether this process may write there, or where it would be made.
    pub(super) writable: Reading<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total: Bytes,
    pub(super) available: Option<Bytes>,
    pub(super) swap_total: Bytes,
    pub(super) swap_free: Bytes,
}

/// Limits of memory above the tasks, as lrsd reads them, and what could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryLimits {
    pub(super) found: Vec<MemoryLimit>,
    pub(super) problems: Vec<String>,
}

/// RLIMIT_NOFILE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// Of the daemon where it answers, else of this process.
    pub(super) of_daemon: bool,
    /// `None` is unlimited.
    pub(super) soft: Option<u64>,
    /// `None` is unlimited.
    pub(super) hard: Option<u64>,
}

/// What is at the socket's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Socket {
    /// No file.
    Absent,
    /// A file without a listener.
    Stale,
    /// A process listens: which, if in this pid namespace, and whether they speak HTTP/2.
    Served { pid: Option<i32>, answers: bool },
    /// Not known.
    Unknown(String),
}

impl Facts {
    pub(super) fn read(config: &Config, options: &DoctorOptions) -> Facts {
        let (proc, sys) = (options.proc.as_path(), options.sys.as_path());
        let runtime_dir = config.daemon.runtime_dir.as_path();
        let socket = match config.grpc.listen.first() {
            Some(path) => socket(path),
            None => Socket::Unknown(String::from("grpc.listen is empty")),
        };
        let services = Services::read();
        let cgroups = cgroups(proc, sys, config, &services);
        let root_lock = cgroups.as_ref().ok().and_then(|cgroups| {
            let carrier = super::cgroups::carrier(cgroups, config)?;
            let root = &carrier.hierarchy().root.path;
            Some((root.clone(), locked(proc, &root.join(crate::cgroup::LOCK))))
        });
        let memory_limits = memory_limits((proc, sys), config, &services, &cgroups, &socket);
        // The topmost group of LRS stands directly below the mount.
        let neighbours = root_lock.as_ref().and_then(|(root, _)| {
            let depth = Path::new(root_name(config, &services)).components().count();
            let own = root.ancestors().nth(depth.checked_sub(1)?)?;
            Some(neighbours::read(own.parent()?, own))
        });
        Facts {
            uid: rustix::process::geteuid().as_raw(),
            kernel: kernel(proc),
            pidfd: obstacle::pidfd(),
            cpus: super::cpus::read(
                (proc, sys),
                config,
                root_name(config, &services),
                &cgroups,
                &socket,
            ),
            cgroups,
            disks: disks(sys),
            sched_ext: crate::cgroup::probe::sched_ext(sys),
            pressure: pressure(proc),
            memory: memory(proc),
            memory_limits,
            autogroup: autogroup(proc),
            runtime_dir: believed(place(runtime_dir)),
            group: nix::unistd::Group::from_name(&options.group)
                .map(|group| group.is_some())
                .map_err(|errno| format!("cannot look up group {}: {errno}", options.group)),
            descriptors: descriptors(proc, &socket),
            locked: locked(proc, &runtime_dir.join("lock")),
            root_lock,
            neighbours,
            finder: finding::read(proc, &socket),
            yarn: Yarn::read(config, &socket, services.systemd),
            services,
            socket,
        }
    }
}

/// The text of a small file; the error names the file.
fn text(path: &Path) -> Reading<String> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn kernel(proc: &Path) -> Reading<Kernel> {
    let text = text(&proc.join("sys/kernel/osrelease"))?.trim().to_owned();
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok(Kernel { version: (major, minor), text }),
        _ => Err(format!("kernel release {text:?} does not start with two numbers")),
    }
}

/// Whether `path` is there and may be written, or else the nearest directory above it.
fn place(path: &Path) -> DirFacts {
    DirFacts { path: path.to_owned(), exists: path.exists(), writable: writable(nearest(path)) }
}

/// A place in which lrsd works only if no other user could have put or changed what is there.
fn believed(place: DirFacts) -> DirFacts {
    let refused = trust::check_path(&place.path).err();
    let objection = refused.and_then(|refused| {
        let remedy = trust::objection_in(&refused.source)?.remedy();
        Some(format!("{}: {}; {remedy}", refused.path.display(), refused.source))
    });
    match objection {
        Some(objection) => DirFacts { writable: Err(objection), ..place },
        None => place,
    }
}

fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|above| above.exists()).unwrap_or(path)
}

/// Whether the LRS root may be made at `root`, and its groups filled.
fn usable(root: &Path) -> Result<(), Obstacle> {
    let asked = rustix::fs::access(nearest(root), Access::WRITE_OK);
    asked.map_err(|errno| obstacle::unusable(root, &errno.into()))
}

fn writable(path: &Path) -> Reading<()> {
    rustix::fs::access(path, Access::WRITE_OK)
        .map_err(|errno| format!("no write access to {}: {}", path.display(), errno.kind()))
}

/// Files that exist if the kernel can do something, and, for those that groups only have
/// with a controller, whether there is a group to look at.
const FILES: [&str; 8] = [
    "cpu.idle",
    "cpu.shares",
    "cpu.weight",
    "cpu.pressure",
    "io.stat",
    "io.bfq.weight",
    "blkio.throttle.io_serviced",
    "blkio.bfq.weight",
];

/// Groups looked at below a mount: they are alike, a few suffice.
const CHILDREN: usize = 32;

/// Path of the LRS root below the mount.
pub(super) fn root_name<'a>(config: &'a Config, services: &Services) -> &'a str {
    match &config.cgroup.root {
        Auto::Auto if services.use_scope(config) => crate::systemd::SCOPE_PATH,
        Auto::Auto => "lrs",
        Auto::Fixed(root) => &root.0,
    }
}

pub(super) fn cgroups(
    proc: &Path,
    sys: &Path,
    config: &Config,
    services: &Services,
) -> Reading<Cgroups> {
    let mounts = Mounts::read_file(&proc.join("self/mountinfo")).map_err(|e| e.to_string())?;
    let root = root_name(config, services);
    let own = OwnGroups::read_file(&proc.join("self/cgroup"));
    let own = own.map_err(|error| error.to_string())?;
    let mut cgroups = Cgroups::default();
    for mount in mounts.iter() {
        let dir = below_sys(&mount.point, sys);
        match &mount.controllers {
            Some(_) => cgroups.v1.push(hierarchy(mount, &dir, &own, root)),
            None if cgroups.v2.is_none() => {
                let hierarchy = hierarchy(mount, &dir, &own, root);
                cgroups.v2 = Some(unified(&dir, hierarchy));
            }
            None => {}
        }
    }
    Ok(cgroups)
}

/// Mounts below /sys move with its root; others are taken as they are.
fn below_sys(dir: &Path, sys: &Path) -> PathBuf {
    match dir.strip_prefix("/sys") {
        Ok(below) => sys.join(below),
        Err(_) => dir.to_owned(),
    }
}

fn hierarchy(mount: &Mount, dir: &Path, own: &OwnGroups, root: &str) -> Hierarchy {
    let seen = |dirs: &[PathBuf]| -> Vec<&'static str> {
        let seen = |file: &&str| dirs.iter().any(|dir| dir.join(file).exists());
        FILES.into_iter().filter(seen).collect()
    };
    let below: Vec<PathBuf> = match std::fs::read_dir(dir) {
        Ok(entries) => entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .take(CHILDREN)
            .collect(),
        // No children to look at; why is seen where the LRS root would be made.
        Err(_) => Vec::new(),
    };
    let root = dir.join(root);
    Hierarchy {
        point: mount.point.clone(),
        controllers: mount.controllers.clone().unwrap_or_default(),
        usable: usable(&root).and_then(|()| match mount.controllers {
            Some(_) => Ok(()),
            None => obstacle::no_thread_root(nearest(&root)),
        }),
        in_sight: own.in_sight(mount),
        root: place(&root),
        own_files: seen(&[dir.to_owned()]),
        child_files: seen(&below),
    }
}

fn unified(dir: &Path, hierarchy: Hierarchy) -> Unified {
    // Each of these files is missing somewhere (the real root has no cgroup.type, io.cost.qos
    // comes with a kernel option); then there is nothing in them.
    let words = |file: &str| -> Vec<String> {
        let text = std::fs::read_to_string(dir.join(file)).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    };
    let qos = std::fs::read_to_string(dir.join("io.cost.qos")).unwrap_or_default();
    Unified {
        available: words("cgroup.controllers"),
        enabled: words("cgroup.subtree_control"),
        delegable: writable(&dir.join("cgroup.subtree_control")),
        internal_processes: dir.join("cgroup.type").exists() && !words("cgroup.procs").is_empty(),
        iocost: crate::cgroup::probe::iocost_devices(&qos),
        hierarchy,
    }
}

fn disks(sys: &Path) -> Reading<Vec<Disk>> {
    let path = sys.join("block");
    crate::cgroup::probe::disks(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn pressure(proc: &Path) -> Reading<Vec<&'static str>> {
    let dir = proc.join("pressure");
    let mut reason = None;
    let readable: Vec<&str> = ["cpu", "io", "memory"]
        .into_iter()
        // With psi=0 the files are there and reading them fails (EOPNOTSUPP).
        .filter(|name| match text(&dir.join(name)) {
            Ok(_) => true,
            Err(why) => {
                reason.get_or_insert(why);
                false
            }
        })
        .collect();
    match reason {
        Some(reason) if readable.is_empty() => Err(reason),
        _ => Ok(readable),
    }
}

fn memory(proc: &Path) -> Reading<Memory> {
    let path = proc.join("meminfo");
    let meminfo = procfs::Meminfo::from_file(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(Memory {
        total: Bytes(meminfo.mem_total),
        available: meminfo.mem_available.map(Bytes),
        swap_total: Bytes(meminfo.swap_total),
        swap_free: Bytes(meminfo.swap_free),
    })
}

/// The groups are those that lrsd goes by: its own where it runs, else as it would start.
fn memory_limits(
    (proc, sys): (&Path, &Path),
    config: &Config,
    services: &Services,
    cgroups: &Reading<Cgroups>,
    socket: &Socket,
) -> MemoryLimits {
    let carrier = cgroups.as_ref().ok().and_then(|found| super::cgroups::carrier(found, config));
    let groups = match carrier {
        None => None,
        Some(Carrier::V2(unified)) => {
            let point = &unified.hierarchy.point;
            let root =
                if config.daemon.mode == Mode::Enforce { root_name(config, services) } else { "/" };
            Some(MemoryGroups::v2(point, root))
        }
        Some(Carrier::V1(_)) => {
            let of = match socket {
                _ if services.use_scope(config) => String::from("1"),
                Socket::Served { pid: Some(pid), .. } => pid.to_string(),
                _ => String::from("self"),
            };
            let mounts = Mounts::read_file(&proc.join("self/mountinfo")).ok();
            mounts.and_then(|mounts| MemoryGroups::v1(&mounts, &proc.join(of).join("cgroup")))
        }
    };
    let groups = groups.map(|groups| MemoryGroups {
        dirs: groups.dirs.iter().map(|dir| below_sys(dir, sys)).collect(),
        ..groups
    });
    let (found, problems) = crate::sample::read_memory_limits(groups.as_ref());
    MemoryLimits { found, problems }
}

fn autogroup(proc: &Path) -> Reading<Option<bool>> {
    let path = proc.join("sys/kernel/sched_autogroup_enabled");
    if !path.exists() {
        return Ok(None);
    }
    match text(&path)?.trim() {
        "0" => Ok(Some(false)),
        "1" => Ok(Some(true)),
        other => Err(format!("{} holds {other:?}", path.display())),
    }
}

fn descriptors(proc: &Path, socket: &Socket) -> Descriptors {
    if let Socket::Served { pid: Some(pid), .. } = socket {
        // Another user's limits may be hidden; then our own have to do.
        if let Ok(limits) = procfs::process::Limits::from_file(proc.join(format!("{pid}/limits"))) {
            let number = |limit| match limit {
                procfs::process::LimitValue::Value(number) => Some(number),
                procfs::process::LimitValue::Unlimited => None,
            };
            return Descriptors {
                of_daemon: true,
                soft: number(limits.max_open_files.soft_limit),
                hard: number(limits.max_open_files.hard_limit),
            };
        }
    }
    let own = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    Descriptors { of_daemon: false, soft: own.current, hard: own.maximum }
}

/// How long a daemon may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Start of every HTTP/2 connection and an empty SETTINGS frame (RFC 9113, 3.4 and 6.5); a
/// server answers with its own settings.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn socket(path: &Path) -> Socket {
    let fd = match connect(path) {
        Ok(fd) => fd,
        Err(Errno::NOENT | Errno::NOTDIR) => return Socket::Absent,
        Err(Errno::CONNREFUSED) => return Socket::Stale,
        // The queue of connections is full: a process listens and does not accept.
        Err(Errno::AGAIN) => return Socket::Served { pid: None, answers: false },
        Err(errno) => {
            return Socket::Unknown(format!("cannot connect to {}: {errno}", path.display()));
        }
    };
    let pid = nix::sys::socket::getsockopt(&fd, nix::sys::socket::sockopt::PeerCredentials)
        .ok()
        .map(|peer| peer.pid())
        // A listener outside this pid namespace shows as 0.
        .filter(|&pid| pid > 0);
    Socket::Served { pid, answers: answers(fd).is_ok_and(|answers| answers) }
}

/// A connection without waiting: connect(2) on a full unix socket would block.
fn connect(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(fd)
}

fn answers(fd: OwnedFd) -> std::io::Result<bool> {
    let mut stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    stream.write_all(GREETING)?;
    let mut first = [0u8; 1];
    Ok(std::io::Read::read(&mut stream, &mut first)? > 0)
}

/// Whether a lock on the file or directory is listed in /proc/locks (proc_locks(5)).
fn locked(proc: &Path, file: &Path) -> Reading<bool> {
    use std::os::unix::fs::MetadataExt;
    let metadata = match std::fs::metadata(file) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(format!("cannot look at {}: {error}", file.display())),
    };
    let device = metadata.dev();
    let wanted = format!(
        "{:02x}:{:02x}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device),
        metadata.ino()
    );
    // A line with "->" is a process that waits for a lock.
    let locks = text(&proc.join("locks"))?;
    let held = |line: &str| !line.contains("->") && line.split_whitespace().any(|w| w == wanted);
    Ok(locks.lines().any(held))
}

#[cfg(test)]
mod tests;
