//! The real daemon and a service manager's socket: ready, alive, stopping (sd_notify(3)).
//! In observe mode, so without root.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // test helpers

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

#[allow(dead_code, clippy::disallowed_methods)] // the harness also serves tests/daemon
#[path = "daemon/harness.rs"]
mod harness;

use harness::Daemon;

/// Messages of the daemon, one state a line.
struct Manager(UnixDatagram);

impl Manager {
    fn listen(dir: &Path) -> Manager {
        let socket = UnixDatagram::bind(dir.join("notify")).unwrap();
        // Longer than any daemon takes; what does not come by then never does.
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Manager(socket)
    }

    /// States heard up to and with the first that `wanted` accepts.
    fn until(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut heard = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let length = self.0.recv(&mut buffer).unwrap_or_else(|error| {
                panic!("the daemon fell silent ({error}); heard until then: {heard:?}")
            });
            let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
            for state in text.lines() {
                heard.push(state.to_owned());
                if wanted(state) {
                    return heard;
                }
            }
        }
    }
}

#[test]
fn a_daemon_says_that_it_is_ready_alive_and_stopping() {
    let mut daemon = Daemon::observing("daemon.sample_period = \"60s\"\n");
    let dir = daemon.dir.path();
    let manager = Manager::listen(dir);
    daemon.environment = vec![
        ("NOTIFY_SOCKET", dir.join("notify").display().to_string()),
        ("WATCHDOG_USEC", "1000000".to_owned()),
    ];
    daemon.spawn();

    manager.until(|state| state == "READY=1");
    daemon.connect(); // ready means that it serves
    manager.until(|state| state.starts_with("STATUS=accepting: 0 of "));
    // The period of the samples is far longer than the watchdog's: the loop turns for it.
    for _ in 0..4 {
        manager.until(|state| state == "WATCHDOG=1");
    }

    harness::signal(daemon.pid(), rustix::process::Signal::TERM);
    manager.until(|state| state == "STOPPING=1");
    assert_eq!(daemon.wait_exit(), Some(0));
}

#[test]
fn an_anchor_lives_as_long_as_its_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let mut anchor = Command::new(env!("CARGO_BIN_EXE_lrsd"))
        .arg(lrs::systemd::anchor::OPTION)
        .env_clear()
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(anchor.try_wait().unwrap(), None, "an anchor stays");
    drop(anchor.stdin.take());
    assert!(anchor.wait().unwrap().success(), "and goes with whoever holds its pipe");
}
