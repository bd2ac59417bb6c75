//! A private message bus: a real dbus-daemon on a socket of its own.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub struct Bus {
    dir: tempfile::TempDir,
    daemon: Option<Child>,
}

impl Bus {
    /// A bus that allows everything.
    pub fn start() -> Bus {
        Bus::with("<allow own=\"*\"/>")
    }

    /// As [`Bus::start`], with these lines of policy after the rule that allows to talk.
    pub fn with(policy: &str) -> Bus {
        let dir = tempfile::Builder::new().prefix("lrs-bus-").tempdir().unwrap();
        let mut bus = Bus { dir, daemon: None };
        bus.policy(policy);
        bus.run();
        bus
    }

    /// Replaces the policy; holds from the next [`Bus::run`] on.
    pub fn policy(&self, policy: &str) {
        // Limits wide enough for the floods of the tests: what is to hold is the daemon's own.
        let text = format!(
            "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\" \
             \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n\
             <busconfig><listen>unix:path={}</listen><auth>EXTERNAL</auth>\
             <policy context=\"default\">\
             <allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/>\
             <allow user=\"*\"/>{policy}</policy>\
             <limit name=\"max_replies_per_connection\">100000</limit>\
             <limit name=\"max_connections_per_user\">10000</limit></busconfig>\n",
            self.socket().display()
        );
        std::fs::write(self.dir.path().join("bus.conf"), text).unwrap();
    }

    /// Starts the bus (again) and waits until it listens.
    pub fn run(&mut self) {
        assert!(self.daemon.is_none(), "the bus runs");
        // One that was killed leaves its socket.
        let _ = std::fs::remove_file(self.socket());
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let mut daemon = Command::new("dbus-daemon")
            .arg("--nofork")
            .arg("--print-address=1")
            .arg(format!("--config-file={}", self.dir.path().join("bus.conf").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("dbus-daemon cannot be started ({error}): install it (package dbus-daemon)")
            });
        let mut address = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        assert!(address.starts_with("unix:"), "dbus-daemon did not start: {}", log());
        self.daemon = Some(daemon);
    }

    /// SIGKILL, and gone when this returns.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    pub fn address(&self) -> String {
        format!("unix:path={}", self.socket().display())
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("bus")
    }

    /// A client.
    pub async fn connect(&self) -> zbus::Connection {
        zbus::connection::Builder::address(self.address().as_str())
            .unwrap()
            .max_queued(4096)
            .build()
            .await
            .unwrap()
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
