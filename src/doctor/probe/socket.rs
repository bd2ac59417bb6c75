//! What is at the daemon's socket.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// What is at the socket's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) enum Socket {
    /// No file.
    Absent,
    /// A file without a listener.
    Stale,
    /// A process listens: which, if in this pid namespace, and whether they speak HTTP/2.
    Served { pid: Option<i32>, answers: bool },
    /// Not known.
    Unknown(String),
}

/// How long a daemon may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Start of every HTTP/2 connection and an empty SETTINGS frame (RFC 9113, 3.4 and 6.5); a
/// server answers with its own settings.
pub(super) const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

pub(super) fn socket(path: &Path) -> Socket {
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
