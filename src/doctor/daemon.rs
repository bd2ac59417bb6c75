//! The daemon's surroundings: configuration, runtime directory, group, limits, socket.

use super::cgroups::capacity;
use super::probe::{Facts, Socket};
use super::{Check, DoctorOptions};
use crate::config::Config;

pub(super) fn config(options: &DoctorOptions) -> Check {
    const ID: &str = "config";
    let file = options.config_file.display();
    if let Some(found) = &options.config_of {
        return Check::ok(ID, found);
    }
    match &options.config_errors {
        Some(errors) => Check::fail(
            ID,
            errors.to_string(),
            "correct the file; the checks below go by the defaults",
        ),
        None => Check::ok(ID, format!("{file} is absent: defaults")),
    }
}

/// How to have a daemon.
const START: &str = "`systemctl start lrsd` starts one, or `lrsd` as root";

pub(super) fn runtime_dir(facts: &Facts, config: &Config) -> Check {
    const ID: &str = "runtime_dir";
    let place = &facts.runtime_dir;
    let path = place.path.display();
    if place.exists && !place.path.is_dir() {
        return Check::fail(
            ID,
            format!("{path} is not a directory"),
            "remove it, or set daemon.runtime_dir to another path",
        );
    }
    match &place.writable {
        Ok(()) if place.exists => Check::ok(ID, format!("{path} may be written")),
        Ok(()) => Check::ok(ID, format!("{path} is absent and may be made")),
        Err(reason) if facts.uid == 0 => Check::fail(
            ID,
            reason,
            "mount it read-write, or set daemon.runtime_dir to another path",
        ),
        Err(reason) => Check::unknown(
            ID,
            format!("uid {}: {reason}", facts.uid),
            format!(
                "run doctor as the user that runs lrsd, or set daemon.runtime_dir to a directory \
                 of yours instead of {}",
                config.daemon.runtime_dir.display()
            ),
        ),
    }
}

pub(super) fn group(facts: &Facts, options: &DoctorOptions) -> Check {
    const ID: &str = "group";
    let name = &options.group;
    match &facts.group {
        Ok(true) => Check::ok(ID, format!("{name} exists: its members may run tasks")),
        Ok(false) => Check::warn(
            ID,
            format!("there is no group {name}: only root and grpc.admins may run tasks"),
            format!("groupadd --system {name}; gpasswd -a USER {name}"),
        ),
        Err(reason) => Check::unknown(ID, reason, "repair the account data base"),
    }
}

/// Descriptors that lrsd keeps free for clients and its own files, and those that it likes to keep
/// open for each task (CPU, disk, two of pressure, two weights, threads, `cgroup.events`, a pidfd); a few
/// in the I/O lane have one more.
const HEADROOM: u64 = 1024;
const FILES_PER_TASK: u64 = 9;

pub(super) fn descriptors(facts: &Facts, config: &Config) -> Check {
    const ID: &str = "descriptors";
    let limit = &facts.descriptors;
    let show = |limit: Option<u64>| limit.map_or(String::from("unlimited"), |n| n.to_string());
    let owner = if limit.of_daemon { "of the running daemon" } else { "of this shell" };
    let found = format!("soft {}, hard {} ({owner})", show(limit.soft), show(limit.hard));
    // lrsd raises the soft limit to the hard one.
    let Some(hard) = limit.hard else { return Check::ok(ID, found) };
    let tasks = hard.saturating_sub(HEADROOM).min(hard / 2) / FILES_PER_TASK;
    let found = format!("{found}: files of {tasks} tasks can be kept open between samples");
    let most =
        capacity(facts, config).map(|(active, passive)| u64::from(active) + u64::from(passive));
    match most {
        Some(most) if tasks < most => Check::warn(
            ID,
            format!("{found}, {most} slots may come to be"),
            "raise LimitNOFILE in the unit of lrsd, or ulimit -Hn; the files of further tasks \
             are opened anew each cycle",
        ),
        _ => Check::ok(ID, found),
    }
}

pub(super) fn daemon(facts: &Facts, config: &Config) -> Check {
    const ID: &str = "daemon";
    let path = config.grpc.listen.first().map(|path| path.display().to_string());
    let path = path.unwrap_or_default();
    match (&facts.socket, &facts.locked) {
        (Socket::Served { pid, answers: true }, _) => {
            let who = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
            Check::ok(ID, format!("answers at {path}{who}"))
        }
        (Socket::Served { pid, answers: false }, _) => {
            let who = pid.map_or(String::from("another process"), |pid| format!("pid {pid}"));
            Check::fail(
                ID,
                format!("{who} listens at {path} and does not answer within a second"),
                "look at its log, then restart it: running tasks are not touched",
            )
        }
        (Socket::Unknown(reason), _) => {
            Check::unknown(ID, reason, "run doctor as a user that may reach the socket")
        }
        (Socket::Absent | Socket::Stale, Ok(true)) => Check::warn(
            ID,
            format!(
                "{} is locked, but no process listens at {path}: a daemon starts, stops, or has \
                 another grpc.listen",
                config.daemon.runtime_dir.join("lock").display()
            ),
            "ask again in a moment, or give its configuration with --config",
        ),
        (Socket::Absent | Socket::Stale, _) if root_in_use(facts).is_some() => Check::warn(
            ID,
            format!(
                "no process listens at {path}, but another lrsd uses the cgroup root {}",
                root_in_use(facts).unwrap_or_default()
            ),
            "stop it, or give this one its own cgroup.root and daemon.runtime_dir",
        ),
        (Socket::Absent, _) => Check::ok(ID, format!("none runs: there is no {path}; {START}")),
        (Socket::Stale, _) => {
            Check::ok(ID, format!("none runs; {path} is left over and will be replaced; {START}"))
        }
    }
}

/// The cgroup root, if some daemon holds its lock.
fn root_in_use(facts: &Facts) -> Option<String> {
    match &facts.root_lock {
        Some((root, Ok(true))) => Some(root.display().to_string()),
        _ => None,
    }
}
