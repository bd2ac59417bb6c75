//! A loop that hangs is seen from outside, by whoever asks. A tracer stops its thread and no other
//! (ptrace(2)).

use std::fs;
use std::time::{Duration, Instant};

use crate::harness::Daemon;

/// The thread of this name, stopped until this is dropped.
struct Stopped(i32);

fn ptrace(request: libc::c_uint, thread: i32) {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: these requests read and write no memory of ours.
    let answer = unsafe { libc::ptrace(request, thread, none, none) };
    assert_ne!(answer, -1, "ptrace {request:#x}: {}", std::io::Error::last_os_error());
}

impl Stopped {
    fn new(process: i32, name: &str) -> Stopped {
        let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let mut threads = threads.map(|thread| thread.unwrap().path());
        let dir = threads.find(|dir| fs::read_to_string(dir.join("comm")).unwrap().trim() == name);
        let thread = dir.unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap();
        ptrace(libc::PTRACE_SEIZE, thread);
        ptrace(libc::PTRACE_INTERRUPT, thread);
        let mut status = 0;
        // SAFETY: `status` outlives the call, which waits for the thread to stop.
        let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
        assert_eq!(waited, thread, "{}", std::io::Error::last_os_error());
        Stopped(thread)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        ptrace(libc::PTRACE_DETACH, self.0);
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn status_fails_while_the_loop_hangs_and_only_then() {
    let mut daemon = Daemon::start("hang", "daemon.sample_period = \"60s\"\n");
    // However long the cycle is: none ends meanwhile, and status is no turn of the loop's.
    let sampled = daemon.status()["node"]["sampled_at"].clone();
    let (begun, mut oldest) = (Instant::now(), 0.0_f64);
    daemon.eventually("five seconds", |daemon| {
        let status = daemon.status();
        assert_eq!(status["node"]["sampled_at"], sampled, "a cycle ended");
        oldest = oldest.max(status["last_turn_seconds"].as_f64().unwrap());
        (begun.elapsed() > Duration::from_secs(5)).then_some(())
    });
    // A second, and what a busy machine takes.
    assert!((0.3..2.5).contains(&oldest), "the last turn was up to {oldest} s ago");

    daemon.configure("daemon.sample_period = \"1s\"\n");
    daemon.ok(&["reload"]);
    let hangs = "the control loop has not turned for";
    let stopped = Stopped::new(daemon.pid(), "lrs-loop");
    let output = daemon.eventually("a status that fails", |daemon| {
        let output = daemon.ctl(&["status"]);
        (output.status.code() != Some(0)).then_some(output)
    });
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(hangs), "{text}");
    daemon.eventually("a line in the log", |daemon| {
        daemon.log().contains("the control loop hangs").then_some(())
    });
    drop(stopped);
    daemon.eventually("a status that is well", |daemon| {
        daemon.ctl(&["status"]).status.success().then_some(())
    });
    assert_eq!(daemon.stop().0, Some(0));
}
