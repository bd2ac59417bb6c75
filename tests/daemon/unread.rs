//! An unread stderr stops nothing: not the tiers, not an answer, not the end.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::mpsc;
use std::time::Duration;

use rustix::termios::{Action, tcflow};

use crate::harness::{Daemon, PATIENCE, weights};

// No loans: on a slow node a task that is about to sleep still computes, and would borrow.
const TWO: &str = "daemon.sample_period = \"100ms\"\n\
    [slots]\nactive = 2\npassive = 2\nexpand = false\nlend = false\n";

/// Both ends of a pipe that is full from the beginning; the first is to be kept open and unread.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    // Opened anew: not to wait is a property of the open file, which the daemon shares.
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let other = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).expect("the pipe again");
    let mut other = fs::File::from(other);
    while other.write(b"never read\n").is_ok() {}
    (reader, writer)
}

/// A terminal on which Ctrl-S was typed: the end of the screen, and that of the program.
fn stopped_terminal() -> (OwnedFd, OwnedFd) {
    let (mut screen, mut program) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: both outlive the call; name, modes and size may be left out (openpty(3)).
    let made =
        unsafe { libc::openpty(&raw mut screen, &raw mut program, none, none.cast(), none.cast()) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: made just now, and no other owner has them.
    let (screen, program) =
        unsafe { (OwnedFd::from_raw_fd(screen), OwnedFd::from_raw_fd(program)) };
    tcflow(&program, Action::OOff).expect("tcflow");
    (screen, program)
}

/// A promotion, answers and the end, on a daemon with a stderr that takes nothing.
fn goes_on(name: &str, stderr: OwnedFd) {
    let mut daemon = Daemon::new(name, TWO);
    daemon.stderr = Some(stderr);
    daemon.launch();
    let [a1, _a2, p1] = ["a1", "a2", "p1"].map(|name| {
        let pid = daemon.run(&["--name", name], &["cat"]);
        daemon.task_of(pid);
        pid
    });
    assert_eq!(daemon.task_of(p1)["tier"], "passive");
    daemon.ok(&["drain"]);
    daemon.ok(&["resume"]);
    daemon.ok(&["reload"]);
    daemon.finish(a1);
    let promoted = daemon.eventually("the promotion", |daemon| {
        let task = daemon.task_of(p1);
        (task["tier"] == "active").then_some(task)
    });
    assert_ne!(weights(&daemon.cpu_dir(&promoted)).0, Some(1), "it is active by its weights");
    daemon.ok(&["run", "--", "true"]);
    let (code, took) = daemon.stop();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(5), "two seconds are promised: {took:?}");
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_full_unread_pipe_stops_nothing() {
    let (_reader, writer) = full_pipe();
    goes_on("pipe", writer);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_terminal_that_is_stopped_stops_nothing() {
    let (_screen, program) = stopped_terminal();
    goes_on("terminal", program);
}

#[test]
#[ignore = "needs root and cgroups"]
fn lines_that_are_lost_are_counted_in_status_and_then_in_the_log() {
    let loud = format!("daemon.log = \"trace\"\n{TWO}");
    let mut daemon = Daemon::new("lost", &loud);
    let (reader, writer) = full_pipe();
    daemon.stderr = Some(writer);
    daemon.launch();
    let lost = |daemon: &Daemon| {
        let status = daemon.status();
        let warnings = status["warnings"].as_array().expect("a list").clone();
        warnings.iter().any(|warning| {
            warning.as_str().is_some_and(|text| text.contains("lines of lrsd's log were lost"))
        })
    };
    daemon.eventually("a warning of lost lines", |daemon| lost(daemon).then_some(()));
    daemon.configure(TWO);
    daemon.ok(&["reload"]);
    let (say, ended) = mpsc::channel();
    let file = fs::File::from(reader);
    std::thread::spawn(move || {
        for line in BufReader::new(file).lines().map_while(Result::ok) {
            if line.contains("lines of the log before this one were lost") {
                // The test may have failed.
                let _ = say.send(line);
            }
        }
    });
    ended.recv_timeout(PATIENCE).expect("the log says that lines were lost");
    daemon.eventually("no warning", |daemon| (!lost(daemon)).then_some(()));
    assert_eq!(daemon.stop().0, Some(0));
}
