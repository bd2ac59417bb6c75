//! `lrsctl top` on a real terminal: a pseudo terminal, in front of a node that is pretended.

#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::disallowed_methods)] // test helpers

#[allow(dead_code, clippy::disallowed_methods)] // the harness also serves tests/daemon
#[path = "daemon/harness.rs"]
mod harness;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use harness::{Daemon, PATIENCE};
use nix::pty::{Winsize, openpty};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr, tcsetwinsize};

/// To the other screen, and back.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

fn pretending() -> Daemon {
    let mut daemon = Daemon::observing("");
    daemon.configure("slots.active = 1\nslots.passive = 1\n");
    daemon.wrapper = ["sh", "-c", "exec \"$@\" --pretend", "sh"].map(str::to_owned).into();
    daemon.launch();
    daemon
}

/// A program on a terminal of its own.
struct Session {
    child: Child,
    terminal: OwnedFd,
    keys: File,
    output: Receiver<Vec<u8>>,
    /// What came and was not waited for yet.
    seen: String,
}

impl Session {
    /// Runs `words` with `$0` as lrsctl, `top` as `$1`.
    fn start(daemon: &Daemon, script: &str, term: &str) -> Session {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = Command::new("setsid")
            .args(["--ctty", "sh", "-m", "-c", script, env!("CARGO_BIN_EXE_lrsctl")])
            .env("LRS_ENDPOINT", format!("unix:{}", daemon.socket().display()))
            .env("TERM", term)
            .env("LC_ALL", "C.UTF-8")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let (sender, output) = channel();
        let mut screen = File::from(pty.master.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // EIO: the last that had the terminal open has ended.
            while let Ok(count) = screen.read(&mut bytes) {
                if count == 0 || sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let keys = File::from(pty.master);
        Session { child, terminal: pty.slave, keys, output, seen: String::new() }
    }

    /// Waits until the words of `text` are written, one behind the other, and forgets what was before. Blanks
    /// between them that were there already are not written again.
    fn shows(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        let end = |seen: &str| {
            text.split(' ')
                .try_fold(0, |from, word| seen[from..].find(word).map(|at| from + at + word.len()))
        };
        let end = loop {
            if let Some(end) = end(&self.seen) {
                break end;
            }
            // It draws all the time, so that waiting for a silence has no end.
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.output.recv_timeout(left) else {
                panic!("waited in vain for {text:?} in {:?}", self.seen);
            };
            self.seen.push_str(&String::from_utf8_lossy(&bytes));
        };
        self.seen.drain(..end);
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&self, columns: u16, rows: u16) {
        let size =
            rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.terminal, size).unwrap();
    }

    /// Whether lines are edited and echoed, as a shell has it.
    fn is_as_before(&self) -> bool {
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    fn end(&mut self) -> ExitStatus {
        let ended = self.child.wait().unwrap();
        assert!(self.is_as_before(), "the terminal is given back");
        ended
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_shows_tasks_takes_keys_and_sizes_and_leaves_the_terminal_as_it_was() {
    let mut daemon = pretending();
    let task = daemon.run(&["--name", "first-task"], &["cat"]);
    daemon.task_of(task);
    let mut top = Session::start(&daemon, r#"exec "$0" top --delay 500ms"#, "xterm");
    top.shows(ENTER);
    top.shows("first-task");
    assert!(!top.is_as_before(), "keys come at once");
    top.press("?");
    // A word: blanks that were there already are not written again.
    top.shows("Ctrl-L");
    top.press("\x1b");
    // Taken in before the size changes: crossterm leaves a key that comes with it until the next one.
    top.shows("TIER");
    top.resize(20, 5);
    top.shows("F1 help");
    top.resize(80, 24);
    top.shows("Find");
    top.press("3");
    top.shows("Slots");
    top.press("1");
    // It goes on over a restart, with a node that has no tasks.
    daemon.kill();
    top.shows("no answer");
    daemon.launch();
    top.shows("no tasks");
    top.press("q");
    top.shows(LEAVE);
    assert_eq!(top.end().code(), Some(0));
}

#[test]
fn it_stops_and_goes_on_like_a_job_and_ends_on_sigterm() {
    let daemon = pretending();
    let script = r#""$0" top; echo "stopped $?"; fg >/dev/null; echo "ended $?""#;
    let mut top = Session::start(&daemon, script, "xterm");
    top.shows("Quit");
    top.press("\x1a");
    top.shows(LEAVE);
    top.shows(&format!("stopped {}", 128 + Signal::TSTP.as_raw()));
    top.shows(ENTER);
    top.shows("Quit");
    top.press("q");
    top.shows("ended 0");
    assert!(top.end().success());

    let mut top = Session::start(&daemon, r#"exec "$0" top"#, "xterm");
    top.shows("Quit");
    let pid = Pid::from_raw(top.child.id() as i32).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    top.shows(LEAVE);
    assert_eq!(top.end().code(), Some(128 + Signal::TERM.as_raw()));
}

#[test]
fn without_a_terminal_that_can_be_drawn_on_it_says_what_serves_instead() {
    let daemon = pretending();
    daemon.refused(&["top"], 1, "is none\n  hint: `lrsctl status` and `lrsctl tasks`");
    for (script, term) in [(r#"exec "$0" top"#, "dumb"), (r#"unset TERM; exec "$0" top"#, "xterm")]
    {
        let mut top = Session::start(&daemon, script, term);
        top.shows("cannot draw on this terminal: TERM is");
        top.shows("lrsctl tasks");
        assert_eq!(top.end().code(), Some(1));
        assert!(!top.seen.contains(ENTER));
    }
    let mut away =
        Session::start(&daemon, r#"exec "$0" --endpoint unix:/nonexistent/x top"#, "xterm");
    away.shows("cannot reach lrsd at /nonexistent/x");
    assert_eq!(away.end().code(), Some(3));
}
