//! The real daemon and a service manager's socket: ready, alive, stopping (sd_notify(3)).
//! In observe mode, so without root.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // test helpers

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[path = "daemon/panics.rs"]
mod panics;

struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Ended already when the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
        panics::none_in(&std::fs::read_to_string(&self.log).unwrap());
    }
}

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

fn start(dir: &Path, watchdog: Duration) -> Daemon {
    let config = dir.join("lrs.toml");
    let text = format!(
        "[daemon]\nruntime_dir = \"{0}/run\"\nmode = \"observe\"\nsample_period = \"60s\"\n\
         [grpc]\nlisten = [\"unix:{0}/sock\"]\n[dbus]\nbus = \"off\"\n",
        dir.display()
    );
    std::fs::write(&config, text).unwrap();
    let log = dir.join("log");
    let child = Command::new(env!("CARGO_BIN_EXE_lrsd"))
        .arg("--config")
        .arg(&config)
        .env("NOTIFY_SOCKET", dir.join("notify"))
        .env("WATCHDOG_USEC", watchdog.as_micros().to_string())
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    Daemon { child, log }
}

#[test]
fn a_daemon_says_that_it_is_ready_alive_and_stopping() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::listen(dir.path());
    let mut daemon = start(dir.path(), Duration::from_secs(1));

    manager.until(|state| state == "READY=1");
    let socket = dir.path().join("sock");
    std::os::unix::net::UnixStream::connect(&socket).expect("ready means that it serves");
    manager.until(|state| state.starts_with("STATUS=accepting: 0 of "));
    // The period of the samples is far longer than the watchdog's: the loop turns for it.
    for _ in 0..4 {
        manager.until(|state| state == "WATCHDOG=1");
    }

    let pid = rustix::process::Pid::from_raw(daemon.child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    manager.until(|state| state == "STOPPING=1");
    assert!(daemon.child.wait().unwrap().success());
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
