//! A client that asks for very much and reads nothing: HTTP/2 by hand, for no library of HTTP/2
//! behaves like that.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest window there is (RFC 9113, 6.9.1).
pub const HUGE: u32 = (1 << 31) - 1;

/// Connects as `uid`, without groups. Credentials are a thread's on Linux; only libc's wrappers
/// change those of all threads together (nptl(7)). So one thread can be another user.
pub fn connect_as(uid: u32, path: &Path) -> io::Result<UnixStream> {
    let path = path.to_owned();
    let connected = std::thread::spawn(move || {
        let none: *const libc::gid_t = std::ptr::null();
        // SAFETY: plain system calls on valid arguments, which change this thread only.
        let changed = unsafe {
            libc::syscall(libc::SYS_setgroups, 0, none) == 0
                && libc::syscall(libc::SYS_setresgid, uid, uid, uid) == 0
                && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
        };
        if !changed {
            return Err(io::Error::last_os_error());
        }
        UnixStream::connect(path)
    });
    connected.join().expect("no panic")
}

/// A frame (RFC 9113, 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Fields that no table knows (RFC 7541, 6.2.2).
fn fields(path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// A call with its only message (the framing of gRPC over HTTP/2).
fn whole_call(stream: u32, path: &str, message: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    body.extend((message.len() as u32).to_be_bytes());
    body.extend_from_slice(message);
    let mut bytes = frame(1, 4, stream, &fields(path)); // END_HEADERS
    bytes.extend(frame(0, 1, stream, &body)); // END_STREAM
    bytes
}

/// Asks `path` so often on `connection`, each with the same `message`, and grants `window` to
/// each answer. What cannot be sent at once because the daemon reads no more is not sent.
pub fn ask(
    connection: &mut UnixStream,
    path: &str,
    message: &[u8],
    calls: u32,
    window: u32,
) -> io::Result<()> {
    let mut bytes = opening(window);
    for call in 0..calls {
        bytes.extend(whole_call(2 * call + 1, path, message));
    }
    send(connection, &bytes)
}

/// Asks `path` so often on `connection` and takes each call back at once (CVE-2023-44487); as with
/// [`ask`], what the daemon does not read is not sent.
pub fn reset(
    connection: &mut UnixStream,
    path: &str,
    message: &[u8],
    calls: u32,
) -> io::Result<()> {
    const CANCEL: u32 = 8;
    let mut bytes = opening(HUGE);
    for call in 0..calls {
        let stream = 2 * call + 1;
        bytes.extend(whole_call(stream, path, message));
        bytes.extend(frame(3, 0, stream, &CANCEL.to_be_bytes())); // RST_STREAM
    }
    send(connection, &bytes)
}

/// Begins so many calls of `path` that announce `claimed` bytes, sends `sent` of each and no end.
pub fn half_ask(
    connection: &mut UnixStream,
    path: &str,
    claimed: u32,
    sent: usize,
    calls: u32,
) -> io::Result<()> {
    let mut bytes = opening(HUGE);
    let mut body = vec![0];
    body.extend(claimed.to_be_bytes());
    body.resize(body.len() + sent, 0);
    for call in 0..calls {
        let stream = 2 * call + 1;
        bytes.extend(frame(1, 4, stream, &fields(path))); // END_HEADERS
        for part in body.chunks(16_384) {
            bytes.extend(frame(0, 0, stream, part));
        }
    }
    send(connection, &bytes)
}

/// The preface, and a window of `window` for each answer and the largest for all.
fn opening(window: u32) -> Vec<u8> {
    let mut settings = vec![0, 4]; // SETTINGS_INITIAL_WINDOW_SIZE
    settings.extend(window.to_be_bytes());
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(4, 0, 0, &settings));
    bytes.extend(frame(8, 0, 0, &(HUGE - 65_535).to_be_bytes()));
    bytes
}

/// What cannot be sent within a second is not sent.
fn send(connection: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    connection.set_write_timeout(Some(std::time::Duration::from_secs(1)))?;
    match connection.write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other,
    }
}

/// The resident memory of a process in KiB, "VmRSS" or "VmHWM" (proc_pid_status(5)).
pub fn memory(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.expect("a number of kB")
}
