//! The demo's own lrsd: its own runtime directory, socket and cgroup root, so that a daemon of
//! the node is not touched and none is needed.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::{process, sweep};
use crate::cli::{Connection, Endpoint, Failure, connect, printable};
use crate::{clock, proto};

/// How long the daemon may take to serve.
const START: Duration = Duration::from_secs(10);

/// How long it may take to stop before it is killed; its contract is 2 s.
const STOP: Duration = Duration::from_secs(4);

/// One cycle. Shorter than the default of 3 s, because the whole demo is only a few of those
/// long; the report says so.
pub(super) const CYCLE: &str = "500ms";

/// Whether it shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Enforce,
    Observe,
}

impl Mode {
    fn word(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::Observe => "observe",
        }
    }
}

/// A running private daemon; dropping it stops it.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    log: PathBuf,
    pub(super) endpoint: Endpoint,
    pub(super) connection: Connection,
}

impl Daemon {
    /// Starts it below `workdir` and waits until it serves; answers its first status too.
    pub(super) async fn start(
        workdir: &Path,
        cgroup_root: &str,
        mode: Mode,
    ) -> Result<(Daemon, proto::Status), Failure> {
        let runtime_dir = workdir.join(format!("lrsd-{}", mode.word()));
        let socket = runtime_dir.join("lrsd.sock");
        let endpoint = Endpoint::unix(&socket)
            .map_err(|error| Failure::failed(error).hint("--dir names a shorter place"))?;
        let config = workdir.join(format!("lrsd-{}.toml", mode.word()));
        std::fs::write(&config, settings(&runtime_dir, &socket, cgroup_root, mode)).map_err(
            |error| Failure::failed(format!("cannot write {}: {error}", config.display())),
        )?;
        let log = workdir.join(format!("lrsd-{}.log", mode.word()));
        let log_file = std::fs::File::create(&log)
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", log.display())))?;
        let mut command = Command::new(process::this_executable()?);
        command.args(["__daemon", "--config"]).arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file);
        // Ctrl-C is for the tour, which ends the tasks before their daemon.
        command.process_group(0);
        process::dies_with_us(&mut command, Signal::SIGTERM);
        let child = command
            .spawn()
            .map_err(|error| Failure::failed(format!("cannot start lrsd: {error}")))?;
        let (child, connection, status) = serving(child, &endpoint, &log).await?;
        let daemon = Daemon { child, log, endpoint, connection };
        if let Some(cgroup) = &status.cgroup {
            let note = workdir.join(sweep::ROOT_NOTE);
            std::fs::write(&note, &cgroup.root).map_err(|error| {
                Failure::failed(format!("cannot write {}: {error}", note.display()))
            })?;
        }
        Ok((daemon, status))
    }

    /// Its status now.
    pub(super) async fn status(&self) -> Result<proto::Status, Failure> {
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

    /// Waits until it has noticed the end of every task, so that it can remove its cgroups.
    pub(super) async fn drained(&self) {
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
    let begun = clock::boot_time();
    process::signal(child.id(), Signal::SIGTERM);
    while clock::boot_time().since(begun) < STOP {
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
    let begun = clock::boot_time();
    let mut starting = Starting(Some(child));
    loop {
        if let Ok(mut connection) = connect(endpoint).await
            && let Ok(status) = connection.get_status(proto::GetStatusRequest {}).await
            && let Some(child) = starting.0.take()
        {
            return Ok((child, connection, status.into_inner()));
        }
        let ended = match &mut starting.0 {
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => true,
        };
        if ended || clock::boot_time().since(begun) > START {
            let what = if ended { "ended at once" } else { "does not serve" };
            return Err(Failure::failed(format!("the private lrsd {what}: {}", last_words(log))));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The end of a log, on one line.
pub(super) fn last_words(log: &Path) -> String {
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

fn settings(runtime_dir: &Path, socket: &Path, cgroup_root: &str, mode: Mode) -> String {
    let quoted = |path: PathBuf| toml::Value::String(path.to_string_lossy().into_owned());
    let listen = quoted(PathBuf::from(format!("unix:{}", socket.display())));
    let uid = nix::unistd::geteuid();
    // root may do all anyway; somebody else's daemon must take orders from them
    let admins = if uid.is_root() { String::new() } else { format!("admins = [{uid}]\n") };
    format!(
        "[daemon]\nruntime_dir = {}\nsample_period = \"{CYCLE}\"\nmode = \"{}\"\n\
         [cgroup]\nroot = \"{cgroup_root}\"\n\
         [dbus]\nbus = \"off\"\n\
         [grpc]\nlisten = [{listen}]\n{admins}",
        quoted(runtime_dir.to_owned()),
        mode.word(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_are_toml_whatever_the_path() {
        let dir = Path::new("/odd \"dir\"\\x");
        let text = settings(dir, &dir.join("lrsd.sock"), "lrs-demo-1", Mode::Observe);
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["daemon"]["runtime_dir"].as_str(), Some("/odd \"dir\"\\x"));
        assert_eq!(table["dbus"]["bus"].as_str(), Some("off"), "the name is the node's daemon's");
        assert_eq!(table["daemon"]["mode"].as_str(), Some("observe"));
        assert_eq!(table["grpc"]["listen"][0].as_str(), Some("unix:/odd \"dir\"\\x/lrsd.sock"));
        assert_eq!(table["cgroup"]["root"].as_str(), Some("lrs-demo-1"));
    }
}
