//! Who is at the other end of a connection.
//!
//! Credentials are those the kernel noted at connect(2) (SO_PEERCRED, SO_PEERGROUPS;
//! unix(7)): a client cannot choose them, and a process that inherits or is sent the
//! connected descriptor speaks with the rights of the one that connected. The process likewise is
//! the one that called connect(2); it is the caller itself as long as it lives, which holds for a
//! client that waits for its answer. It is known by a pidfd (SO_PEERPIDFD, Linux 6.5), and before by
//! the number that the kernel noted. The kernel shows pid 0 for a process outside the daemon's pid
//! namespace; then there is none.
//!
//! Limit: before Linux 6.5 a process that connects and ends at once is taken for another one that gets
//! its number before the connection is taken in.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::Arc;

use tokio::net::UnixStream;

use crate::command::{Caller, CallerProcess};
use crate::server::pidfd;
use crate::units::Pid;

/// Who is at the other end, as every request of the connection finds it in its extensions.
#[derive(Clone, Debug)]
pub struct Peer(pub Arc<Caller>);

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
        process: process(stream.as_fd(), credentials.pid().and_then(Pid::new)),
        granted: None,
    })
}

/// Who connected: `pid`, by the kernel's pidfd where it has one.
fn process(socket: BorrowedFd<'_>, pid: Option<Pid>) -> CallerProcess {
    let Some(pid) = pid else { return CallerProcess::Unseen };
    match peer_pidfd(socket) {
        Ok(pidfd) => pidfd::caller(&pidfd),
        Err(error) => match error.raw_os_error() {
            // The socket option is not known.
            Some(libc::ENOPROTOOPT) => pidfd::caller_by_number(pid),
            // It has ended: one or the other, by version (net/core/sock.c, kernel/fork.c).
            Some(libc::ESRCH | libc::ENODATA | libc::EINVAL) => CallerProcess::Ended,
            _ => CallerProcess::Unknown(format!("no pidfd of process {pid}: {error}")),
        },
    }
}

/// SO_PEERPIDFD (Linux 6.5). Neither rustix nor nix wraps it for use with older kernels.
fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut pidfd: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `pidfd` is a writable int of `bytes` bytes and both live through the call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut pidfd).cast(),
            &mut bytes,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
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
        assert_eq!(caller.process.pid().map(Pid::raw), Some(std::process::id() as i32));
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
        assert_eq!(caller.process.pid().map(Pid::raw), Some(std::process::id() as i32));
    }
}
