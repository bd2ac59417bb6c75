//! The unix socket: never seen with the wrong mode, taken over only
//! from the dead, removed only while it is still ours.
//!
//! A socket file lets no client in before `listen(2)`: connect(2) answers ECONNREFUSED, as it
//! does for a stale one. So the order bind, chmod, listen has no window in which the wrong
//! people get in (or the right ones are turned away with EACCES by a daemon that serves), and
//! needs neither the process-wide umask nor a second name in the directory. A client that
//! connects between here and [`super::serve`] is queued by the kernel and waits.
//!
//! A socket that is removed while the daemon runs is put back within a second ([`keep`]); one
//! that another process has put in its place is taken over from the dead only, as at the start.
//!
//! Limit: two daemons started in the same instant on one path *and* different runtime
//! directories may both find it stale; the last one then has the path. The lock in the
//! runtime directory keeps daemons that share one from getting here together.

use std::convert::Infallible;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::sync::mpsc::Sender;

use super::ServeError;

/// Bytes of a path in `sockaddr_un` less the closing NUL (unix(7)).
pub const MAX_PATH_BYTES: usize = 107;

/// Connections the kernel queues for us; it cuts this to net.core.somaxconn (4096 since
/// 5.4). With a full queue a non-blocking connect(2) fails with EAGAIN, so be generous: on a
/// saturated node many clients may come between two accepts.
const BACKLOG: i32 = 4096;

/// Everyone may connect; who may do what is decided for each request (spec 5).
const MODE: u32 = 0o666;

/// A listening socket in its place. Dropping it removes the file if it is still this one.
#[derive(Debug)]
pub struct BoundSocket {
    pub(super) listener: UnixListener,
    pub(super) file: SocketFile,
}

/// The name of a socket in the file system, removed on drop if it still names it.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl BoundSocket {
    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl SocketFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is this socket that the name leads to.
    fn is_in_place(&self) -> bool {
        // Its number is no other file's while the socket is open.
        let found = fs::symlink_metadata(&self.path);
        found.is_ok_and(|now| (now.dev(), now.ino()) == self.identity)
    }
}

/// How often the name is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Looks after the name of a socket that is served: puts it back when it was removed, and gives
/// `replace` the socket to listen on then. Dropped, it removes the name.
pub(super) async fn keep(
    mut file: SocketFile,
    replace: Sender<tokio::net::UnixListener>,
) -> Infallible {
    let mut reported = false;
    loop {
        tokio::time::sleep(LOOK).await;
        if file.is_in_place() {
            reported = false;
            continue;
        }
        let path = file.path().display();
        match bind(file.path()).and_then(watched) {
            Ok((listener, placed)) => {
                tracing::warn!(%path, "the socket {path} was removed; it is there again");
                reported = false;
                file = placed;
                // There is no receiver any more while the server ends.
                let _ = replace.send(listener).await;
            }
            Err(error) if !reported => {
                reported = true;
                tracing::warn!(
                    %path,
                    %error,
                    "the socket {path} was removed, and it cannot be put back, so that no client \
                     reaches lrsd there; it is tried every second: {error}"
                );
            }
            Err(_) => {}
        }
    }
}

/// A listener that the runtime waits for, and its name; where it cannot, the name goes again, so that no
/// client waits in vain.
pub(super) fn watched(
    socket: BoundSocket,
) -> Result<(tokio::net::UnixListener, SocketFile), ServeError> {
    let BoundSocket { listener, file } = socket;
    match tokio::net::UnixListener::from_std(listener) {
        Ok(listener) => Ok((listener, file)),
        Err(source) => {
            let path = file.path().to_owned();
            Err(ServeError::Io { action: "watch for connections on", path, source })
        }
    }
}

/// Places a listening socket of mode 0666 at `path`, replacing a stale one.
///
/// # Errors
/// [`ServeError::PathTooLong`], [`ServeError::InUse`] when a server answers there,
/// [`ServeError::NotASocket`] when a file, directory or symbolic link is in the way (it
/// stays), [`ServeError::Io`] for the rest.
pub fn bind(path: &Path) -> Result<BoundSocket, ServeError> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > MAX_PATH_BYTES {
        return Err(ServeError::PathTooLong { path: path.to_owned(), bytes });
    }
    let failed = |action| {
        move |errno: Errno| ServeError::Io { action, path: path.to_owned(), source: errno.into() }
    };
    // An empty name would make the kernel choose an abstract address (unix(7), autobind).
    if bytes == 0 {
        return Err(failed("bind")(Errno::NOENT));
    }
    let address = SocketAddrUnix::new(path).map_err(failed("bind"))?;
    remove_stale(path, &address)?;

    let socket = new_socket().map_err(failed("make a socket for"))?;
    rustix::net::bind(&socket, &address).map_err(|errno| match errno {
        // Another process was faster than we between the check above and here.
        Errno::ADDRINUSE => ServeError::InUse { path: path.to_owned() },
        errno => failed("bind")(errno),
    })?;
    let file = open_to_all(path)?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed("listen on"))?;
    Ok(BoundSocket { listener: UnixListener::from(socket), file })
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Sets the mode through a handle on the very file, so that a directory that other users may
/// write to cannot turn this into a chmod of another file.
fn open_to_all(path: &Path) -> Result<SocketFile, ServeError> {
    let failed =
        |action| move |source: io::Error| ServeError::Io { action, path: path.to_owned(), source };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| failed("look at")(errno.into()))?;
    let handle = fs::File::from(handle);
    let metadata = handle.metadata().map_err(failed("look at"))?;
    if !metadata.file_type().is_socket() {
        return Err(ServeError::NotASocket { path: path.to_owned() });
    }
    // fchmod(2) refuses O_PATH handles; their magic link is the documented way (open(2)).
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    rustix::fs::chmod(link, Mode::from_raw_mode(MODE))
        .map_err(|errno| failed("set the mode of")(errno.into()))?;
    Ok(SocketFile { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) })
}

/// Removes a socket that has no listener; anything else in the way is an error and stays.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), ServeError> {
    let failed =
        |action| move |source: io::Error| ServeError::Io { action, path: path.to_owned(), source };
    let found = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at")(error)),
    };
    if !found.file_type().is_socket() {
        return Err(ServeError::NotASocket { path: path.to_owned() });
    }
    let probe = new_socket().map_err(|errno| failed("make a socket for")(errno.into()))?;
    match rustix::net::connect(&probe, address) {
        // EAGAIN: a full queue, so a server listens. EPROTOTYPE: bound by a live process, as
        // another type of socket.
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => {
            Err(ServeError::InUse { path: path.to_owned() })
        }
        Err(Errno::NOENT) => Ok(()),
        Err(Errno::CONNREFUSED) => {
            let same = |now: &fs::Metadata| (now.dev(), now.ino()) == (found.dev(), found.ino());
            if !fs::symlink_metadata(path).is_ok_and(|now| same(&now)) {
                return Err(ServeError::InUse { path: path.to_owned() });
            }
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(failed("remove the stale socket")(error))
                }
                _ => {
                    let path = path.display();
                    tracing::info!(%path, "removed the stale socket {path}");
                    Ok(())
                }
            }
        }
        Err(errno) => Err(failed("find out who answers on")(errno.into())),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.is_in_place() {
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "cannot remove our socket {path}: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn everyone_may_connect() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let socket = bind(&path).unwrap();
        assert_eq!(mode(&path), 0o666);
        UnixStream::connect(&path).unwrap();
        assert_eq!(socket.path(), path);
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std leaves the file behind");
        let socket = bind(&path).unwrap();
        assert!(matches!(bind(&path), Err(ServeError::InUse { .. })));
        UnixStream::connect(&path).unwrap();
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn anything_but_a_socket_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "precious").unwrap();
        let link = dir.path().join("l");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link, &dir.path().to_owned()] {
            assert!(matches!(bind(path), Err(ServeError::NotASocket { .. })), "{path:?}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    }

    #[test]
    fn path_length_has_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let room = MAX_PATH_BYTES - dir.path().as_os_str().len() - 1;
        bind(&dir.path().join("x".repeat(room))).unwrap();
        let error = bind(&dir.path().join("x".repeat(room + 1))).unwrap_err();
        assert!(matches!(error, ServeError::PathTooLong { bytes: 108, .. }), "{error}");
        assert!(bind(Path::new("")).is_err());
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = bind(&dir.path().join("missing/s")).unwrap_err();
        assert!(error.to_string().contains("missing/s"), "{error}");
    }

    #[test]
    fn a_file_that_took_our_place_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let socket = bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        drop(socket);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
    }

    /// What `keep` puts in the place of a socket that is gone.
    async fn put_back(
        kept: &mut tokio::sync::mpsc::Receiver<tokio::net::UnixListener>,
    ) -> tokio::net::UnixListener {
        tokio::time::timeout(Duration::from_secs(20), kept.recv()).await.unwrap().unwrap()
    }

    /// Without a runtime nothing waits for it, as without room for one more descriptor.
    #[test]
    fn a_socket_that_nothing_waits_for_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let entered = handle.enter();
        assert!(matches!(watched(bind(&path).unwrap()), Err(ServeError::Io { .. })));
        drop(entered);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_removed_socket_is_put_back_and_anothers_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let BoundSocket { listener: _first, file } = bind(&path).unwrap();
        let (replace, mut kept) = tokio::sync::mpsc::channel(1);
        let keeping = tokio::spawn(keep(file, replace));
        fs::remove_file(&path).unwrap();
        let second = put_back(&mut kept).await;
        assert_eq!(mode(&path), 0o666);
        let client = UnixStream::connect(&path).unwrap();
        assert!(second.accept().await.is_ok());
        drop(client);
        // Another daemon has the place: its socket is taken over only when it has ended.
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        let other_file = fs::metadata(&path).unwrap().ino();
        tokio::time::sleep(2 * LOOK).await;
        assert!(kept.try_recv().is_err());
        assert_eq!(fs::metadata(&path).unwrap().ino(), other_file);
        drop(other);
        let third = put_back(&mut kept).await;
        let _client = UnixStream::connect(&path).unwrap();
        assert!(third.accept().await.is_ok());
        keeping.abort();
        assert!(keeping.await.unwrap_err().is_cancelled());
        assert!(!path.exists(), "removed with the server");
    }
}
