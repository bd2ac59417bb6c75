//! An lrsd of our own: its own runtime directory, socket and cgroup root, so that a daemon of
//! the node is not touched and none is needed.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lrs_api::client::{Connection, Endpoint, connect};
use lrs_api::proto;
use lrs_term::{Failure, printable};
use nix::sys::signal::Signal;
use tokio::time::Instant;

use crate::{process, sweep};

/// How long the daemon may take to serve.
const START: Duration = Duration::from_secs(10);

/// How long it may take to stop before it is killed; its contract is 2 s.
const STOP: Duration = Duration::from_secs(4);

/// What the daemon sees of its client.
const USER_AGENT: &str = concat!("lrs-testbed/", env!("CARGO_PKG_VERSION"));

/// What tells one private daemon from another.
#[derive(Clone, Debug)]
pub struct Private<'a> {
    /// `lrsctl`, of which the private daemon is a hidden command.
    pub lrsctl: &'a Path,
    /// Working directory of the supervisor; socket, state and configuration are in it.
    pub workdir: &'a Path,
    /// Names its files there, so that two may follow each other: `[a-z-]`.
    pub name: &'a str,
    /// cgroup root, the same for all of a working directory: the sweep knows one.
    pub cgroup_root: &'a str,
    /// Settings beyond those that keep it private: path of the key, value as TOML.
    pub keys: &'a [(String, String)],
    /// Where its log goes, appended.
    pub log: &'a Path,
}

/// Keys that keep a private daemon private: no other source may set them.
pub const RESERVED: [&str; 5] =
    ["cgroup.root", "daemon.runtime_dir", "dbus.bus", "grpc.admins", "grpc.listen"];

/// A running private daemon; dropping it stops it.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    log: PathBuf,
    /// Its socket.
    pub endpoint: Endpoint,
    /// An open connection to it.
    pub connection: Connection,
}

impl Daemon {
    /// Starts it with nothing to remember and waits until it serves; answers its first status too.
    pub async fn start(private: &Private<'_>) -> Result<(Daemon, proto::Status), Failure> {
        let Private { workdir, name, log, .. } = *private;
        let runtime_dir = workdir.join(name);
        // What an earlier one has left would make this a restart: counters and job rates go on,
        // and waiting requests are gathered first.
        if let Err(error) = std::fs::remove_dir_all(&runtime_dir)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            let what = format!("cannot remove {}: {error}", runtime_dir.display());
            return Err(Failure::failed(what));
        }
        let socket = runtime_dir.join("lrsd.sock");
        let endpoint = Endpoint::unix(&socket)
            .map_err(|error| Failure::failed(error).hint("--dir names a shorter place"))?;
        let config = workdir.join(format!("{name}.toml"));
        std::fs::write(&config, settings(private, &runtime_dir, &socket)).map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", config.display()))
        })?;
        let log_file =
            std::fs::File::options().create(true).append(true).open(log).map_err(|error| {
                Failure::failed(format!("cannot write {}: {error}", log.display()))
            })?;
        let mut command = Command::new(private.lrsctl);
        command.args(["__daemon", "--config"]).arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file);
        // Ctrl-C is for its parent, which ends the tasks before their daemon.
        command.process_group(0);
        process::dies_with_us(&mut command, Signal::SIGTERM);
        let child = command
            .spawn()
            .map_err(|error| Failure::failed(format!("cannot start lrsd: {error}")))?;
        let (child, connection, status) = serving(child, &endpoint, log).await?;
        let daemon = Daemon { child, log: log.to_owned(), endpoint, connection };
        if let Some(cgroup) = &status.cgroup {
            let note = workdir.join(sweep::ROOT_NOTE);
            std::fs::write(&note, &cgroup.root).map_err(|error| {
                Failure::failed(format!("cannot write {}: {error}", note.display()))
            })?;
        }
        Ok((daemon, status))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its status now.
    pub async fn status(&self) -> Result<proto::Status, Failure> {
        let mut connection = self.connection.clone();
        match connection.get_status(proto::GetStatusRequest {}).await {
            Ok(status) => Ok(status.into_inner()),
            Err(status) => Err(Failure::failed(format!(
                "the private lrsd failed ({}): {}",
                printable(status.message()),
                last_words(&self.log)
            ))),
        }
    }

    /// Stops it while the runtime goes on: the daemon gives open connections a grace to close,
    /// and ours is closed by a task of the runtime.
    pub async fn stop(mut self) {
        let begun = Instant::now();
        process::signal(self.child.id(), Signal::SIGTERM);
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < STOP {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until it has noticed the end of every task, so that it can remove its cgroups.
    pub async fn drained(&self) {
        for _ in 0..100 {
            let Ok(status) = self.status().await else { return };
            let slots = status.slots.unwrap_or_default();
            let used = slots.active.map_or(0, |tier| tier.used)
                + slots.passive.map_or(0, |tier| tier.used);
            if used == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

fn stop(child: &mut Child) {
    // Reaped already: its number may be another's by now.
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    let begun = Instant::now();
    process::signal(child.id(), Signal::SIGTERM);
    while begun.elapsed() < STOP {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The child of a start that may still be given up; dropping it stops it.
struct Starting(Option<Child>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            stop(child);
        }
    }
}

async fn serving(
    child: Child,
    endpoint: &Endpoint,
    log: &Path,
) -> Result<(Child, Connection, proto::Status), Failure> {
    let begun = Instant::now();
    let mut starting = Starting(Some(child));
    loop {
        if let Ok(mut connection) = connect(endpoint, USER_AGENT).await
            && let Ok(status) = connection.get_status(proto::GetStatusRequest {}).await
            && let Some(child) = starting.0.take()
        {
            return Ok((child, connection, status.into_inner()));
        }
        let ended = match &mut starting.0 {
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => true,
        };
        if ended || begun.elapsed() > START {
            let what = if ended { "ended at once" } else { "does not serve" };
            return Err(Failure::failed(format!("the private lrsd {what}: {}", last_words(log))));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The end of a log, on one line.
pub fn last_words(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    if lines.is_empty() {
        return "it left no word in its log".to_owned();
    }
    let lines: Vec<String> =
        lines.into_iter().rev().map(|line| printable(line.trim()).into_owned()).collect();
    lines.join(" / ")
}

fn settings(private: &Private<'_>, runtime_dir: &Path, socket: &Path) -> String {
    let quoted = |path: &Path| toml::Value::String(path.to_string_lossy().into_owned()).to_string();
    let listen = quoted(Path::new(&format!("unix:{}", socket.display())));
    let mut keys = vec![
        ("daemon.runtime_dir", quoted(runtime_dir)),
        ("cgroup.root", format!("\"{}\"", private.cgroup_root)),
        ("dbus.bus", "\"off\"".to_owned()),
        ("grpc.listen", format!("[{listen}]")),
    ];
    let uid = nix::unistd::geteuid();
    // root may do all anyway; another user's daemon must take orders from them
    if !uid.is_root() {
        keys.push(("grpc.admins", format!("[{uid}]")));
    }
    keys.extend(private.keys.iter().map(|(path, value)| (&**path, value.clone())));
    // dotted keys are the same as sections, in any order (TOML 1.0, "Keys")
    keys.iter().map(|(path, value)| format!("{path} = {value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_are_toml_whatever_the_path() {
        let dir = Path::new("/odd \"dir\"\\x");
        let keys = [("daemon.mode", "\"observe\""), ("slots.expand", "false")]
            .map(|(path, value)| (path.to_owned(), value.to_owned()));
        let log = Path::new("/dev/null");
        let private = Private {
            lrsctl: dir,
            workdir: dir,
            name: "lrsd",
            cgroup_root: "lrs-demo-1",
            keys: &keys,
            log,
        };
        let text = settings(&private, dir, &dir.join("lrsd.sock"));
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["daemon"]["runtime_dir"].as_str(), Some("/odd \"dir\"\\x"));
        assert_eq!(table["dbus"]["bus"].as_str(), Some("off"), "the name is the node's daemon's");
        assert_eq!(table["daemon"]["mode"].as_str(), Some("observe"));
        assert_eq!(table["slots"]["expand"].as_bool(), Some(false));
        assert_eq!(table["grpc"]["listen"][0].as_str(), Some("unix:/odd \"dir\"\\x/lrsd.sock"));
        assert_eq!(table["cgroup"]["root"].as_str(), Some("lrs-demo-1"));
    }
}
