//! A client's connection: who is at the other end, and the bounds on how long it may hold a
//! descriptor.
//!
//! Credentials are those the kernel noted at connect(2) (SO_PEERCRED, SO_PEERGROUPS;
//! unix(7)): a client cannot choose them, and a process that inherits or is sent the
//! connected descriptor speaks with the rights of the one that connected. The pid likewise is
//! that of the process that called connect(2); it means the caller itself as long as that
//! process lives, which holds for a client that waits for its answer. The kernel shows pid 0
//! for a process outside the daemon's pid namespace; then there is none.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::transport::server::Connected;

use super::Phase;
use crate::command::Caller;
use crate::quota::Permit;
use crate::units::Pid;

/// Length of the HTTP/2 client preface (RFC 9113, 3.4). A client that has sent that much has
/// begun to speak; from there on HTTP/2 keepalive looks after it.
const PREFACE_BYTES: usize = 24;

/// Who is at the other end, as every request of the connection finds it in its extensions.
#[derive(Clone, Debug)]
pub struct Peer(pub Arc<Caller>);

/// An accepted connection.
#[derive(Debug)]
pub(super) struct PeerStream {
    stream: UnixStream,
    peer: Peer,
    /// Bytes read so far, up to [`PREFACE_BYTES`].
    heard: usize,
    /// Until when [`PREFACE_BYTES`] must have come; `None` once they have.
    speak_by: Option<Pin<Box<tokio::time::Sleep>>>,
    phase: WatchStream<Phase>,
    closed: bool,
    _place: Permit,
}

impl PeerStream {
    pub(super) fn new(
        stream: UnixStream,
        peer: Peer,
        first_words: Duration,
        phase: watch::Receiver<Phase>,
        place: Permit,
    ) -> PeerStream {
        PeerStream {
            stream,
            peer,
            heard: 0,
            speak_by: Some(Box::pin(tokio::time::sleep(first_words))),
            phase: WatchStream::new(phase),
            closed: false,
            _place: place,
        }
    }

    /// Whether the connection is to end now; registers `cx` for the moment it is. HTTP/2's own
    /// shutdown waits for the client (its preface, its acknowledgements, its reading), so the
    /// connection is ended from below.
    fn ends(&mut self, cx: &mut Context<'_>) -> bool {
        let silent = self.heard < PREFACE_BYTES;
        while !self.closed {
            match Pin::new(&mut self.phase).poll_next(cx) {
                Poll::Ready(Some(Phase::Serving)) => {}
                Poll::Ready(Some(Phase::Stopping)) => self.closed = silent,
                // The sender lives as long as the server: without it nobody serves.
                Poll::Ready(Some(Phase::Cut) | None) => self.closed = true,
                Poll::Pending => break,
            }
        }
        if let Some(deadline) = &mut self.speak_by {
            if !silent {
                self.speak_by = None;
            } else if deadline.as_mut().poll(cx).is_ready() {
                let uid = self.peer.0.uid;
                tracing::debug!(uid, "closed a connection of uid {uid} that said nothing");
                self.closed = true;
            }
        }
        self.closed
    }

    fn end<T>(&self) -> Poll<io::Result<T>> {
        Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
    }
}

impl Connected for PeerStream {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ends(cx) {
            return self.end();
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.heard = (self.heard + (buf.filled().len() - before)).min(PREFACE_BYTES);
        polled
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.ends(cx) {
            return self.end();
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ends(cx) {
            return self.end();
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.ends(cx) {
            return self.end();
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Who connected `stream`.
pub(super) fn caller(stream: &UnixStream) -> io::Result<Caller> {
    let credentials = stream.peer_cred()?;
    let mut gids = vec![credentials.gid()];
    for gid in supplementary_groups(stream.as_fd())? {
        if !gids.contains(&gid) {
            gids.push(gid);
        }
    }
    Ok(Caller {
        uid: credentials.uid(),
        gids,
        pid: credentials.pid().and_then(Pid::new),
        granted: None,
    })
}

/// SO_PEERGROUPS (Linux 4.13). Neither rustix nor nix wraps it.
fn supplementary_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<libc::gid_t>> {
    const GID_BYTES: usize = size_of::<libc::gid_t>();
    // Enough for nearly everybody; the kernel says how much it takes otherwise.
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut bytes = libc::socklen_t::try_from(groups.len() * GID_BYTES)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // SAFETY: `groups` is a writable buffer of `bytes` bytes, `bytes` is a valid in-out
        // length, and both live through the call. The kernel writes whole gids.
        let answer = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut bytes,
            )
        };
        let needed = bytes as usize / GID_BYTES;
        if answer == 0 {
            groups.truncate(needed);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // ERANGE comes with the length that is needed (net/core/sock.c, sk_getsockopt).
        if error.raw_os_error() != Some(libc::ERANGE) || needed <= groups.len() {
            return Err(error);
        }
        groups.resize(needed, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_names_the_peer() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let caller = caller(&ours).unwrap();
        assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
        assert_eq!(caller.pid.map(Pid::raw), Some(std::process::id() as i32));
        assert_eq!(caller.gids[0], rustix::process::getegid().as_raw());
        let mut expected: Vec<u32> =
            rustix::process::getgroups().unwrap().iter().map(|gid| gid.as_raw()).collect();
        expected.push(caller.gids[0]);
        expected.sort_unstable();
        expected.dedup();
        let mut found = caller.gids.clone();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
    /// Credentials are a thread's on Linux; only libc's wrappers change those of all threads
    /// together (nptl(7)). So one thread can be another user.
    #[tokio::test]
    #[ignore = "needs root and cgroups"]
    async fn the_groups_of_a_user_in_very_many_groups() {
        const UID: u32 = 4_000_001;
        const GID: u32 = 4_000_002;
        let groups: Vec<u32> = (5_000_000..5_000_300).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let socket = super::super::bind(&path).unwrap();
        let search = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), search).unwrap();
        let listener = tokio::net::UnixListener::from_std(socket.listener).unwrap();

        let wanted = groups.clone();
        let connected = std::thread::spawn(move || {
            // SAFETY: plain system calls on valid arguments, which change this thread only.
            unsafe {
                let set = libc::syscall(libc::SYS_setgroups, wanted.len(), wanted.as_ptr());
                assert_eq!(set, 0, "setgroups: {}", io::Error::last_os_error());
                assert_eq!(libc::syscall(libc::SYS_setresgid, GID, GID, GID), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, UID, UID, UID), 0);
            }
            std::os::unix::net::UnixStream::connect(path).unwrap()
        })
        .join()
        .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let caller = caller(&stream).unwrap();
        drop(connected);
        assert_eq!(caller.uid, UID);
        assert_eq!(caller.gids[0], GID);
        assert_eq!(caller.gids[1..], groups);
        assert_eq!(caller.pid.map(Pid::raw), Some(std::process::id() as i32));
    }
}
