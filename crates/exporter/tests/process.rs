//! The program itself, without any lrsd.

#![allow(clippy::unwrap_used)] // tests, helpers included

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

struct Running {
    child: Child,
    log: BufReader<ChildStderr>,
}

impl Running {
    fn start(listen: &str) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lrs-exporter"));
        command.arg("--socket").arg(dir.path().join("lrsd.sock")).args(["--listen", listen]);
        command.stdin(Stdio::null()).stderr(Stdio::piped()).env_remove("NOTIFY_SOCKET");
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Running { child, log }
    }

    /// The first line of the log with these words.
    fn line(&mut self, words: &str) -> String {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "it ended before {words:?}");
        }
        line
    }

    fn stop(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn without_lrsd_it_serves_that_and_ends_well() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut running = Running::start("127.0.0.1:0");
        let line = running.line("serves http://");
        let at = line.split("http://").nth(1).unwrap().split('/').next().unwrap();
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.contains("\nlrs_up 0\n"), "{text}");
        running.line("cannot reach lrsd");
        // A reload is not the end.
        kill_process(Pid::from_child(&running.child), Signal::HUP).unwrap();
        running.stop(signal);
    }
}

#[test]
fn an_address_that_is_taken_is_named_and_tried_again() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let mut running = Running::start(&at);
    let line = running.line("cannot be had");
    assert!(line.contains(&at) && line.contains("in use"), "{line}");
    running.stop(Signal::TERM);
    let output = Command::new(env!("CARGO_BIN_EXE_lrs-exporter"))
        .args(["--listen", "localhost"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
