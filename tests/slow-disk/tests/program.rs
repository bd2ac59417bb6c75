//! The built program: a disk is made and goes away with its starter.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn without_root_or_memory_nothing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_lrs-slow-disk"));
    server.args(["--size-bytes", "1000000000000000", "--bandwidth-bytes-per-sec", "1", "--mount"]);
    let ended = server.arg(directory.path()).stdin(Stdio::null()).output().unwrap();
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(1), &b""[..]));
    let message = String::from_utf8(ended.stderr).unwrap();
    assert!(message.contains("takes root") || message.contains("of memory"), "{message}");
}

#[test]
#[ignore = "needs root"]
fn the_disk_is_there_until_standard_input_ends() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_lrs-slow-disk"));
    server.args(["--size-bytes", "67108864", "--bandwidth-bytes-per-sec", "67108864"]);
    server.args(["--scheduler", "none", "--mount"]).arg(directory.path());
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut device = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut device).unwrap();
    assert!(device.starts_with("loop"), "{device}");
    let mounted = || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.contains(&format!("/dev/{} {} ext4 ", device.trim(), directory.path().display()))
    };
    assert!(mounted());
    std::fs::write(directory.path().join("file"), "kept").unwrap();
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
    assert!(!mounted());
}
