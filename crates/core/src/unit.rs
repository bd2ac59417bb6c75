//! Units of systemd as tasks: their names, and weights in systemd's words.
//!
//! A unit that is a task is a group managed in place. systemd owns that group: whenever it applies
//! a unit's settings (daemon-reload, set-property) it writes the weights it knows. So systemd is
//! sent each weight that LRS has written (`SetUnitProperties`, until the next boot), and at the
//! end what it had before; the task's record has that.
//!
//! On v1 systemd's `CPUWeight` is too coarse (1 is 10 shares); `CPUShares` says it exactly.
//!
//! Limits. A weight that the owner sets while the unit is a task is a foreign change: it is
//! repaired, and the end brings back what was found at the start; set it again after the release.
//! Disk weights on v1, and where BFQ and iocost weights act side by side, have no single
//! `IOWeight`; there only the files have them. A property given back stays pinned to its value
//! below `/run/systemd/system.control` until the next boot: systemd has no call that takes back
//! one setting.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// systemd's number for "not set" (CGROUP_WEIGHT_INVALID).
pub const NOT_SET: u64 = u64::MAX;

/// `CPUWeight=idle` on the bus (CGROUP_WEIGHT_IDLE, systemd 252).
const IDLE: u64 = 0;

/// The properties LRS may set, in the order in which they are sent.
pub const PROPERTIES: [&str; 3] = ["CPUWeight", "CPUShares", "IOWeight"];

/// Types of systemd.unit(5), without the two that can be tasks.
const OTHER_TYPES: [&str; 9] =
    ["automount", "device", "mount", "path", "slice", "socket", "swap", "target", "timer"];

/// The name of a service or scope that may be a task: `sshd.service`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UnitName(String);

/// Why a name is not that of a unit that can be a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitNameError {
    /// systemd.unit(5) does not know such names.
    #[error("{0:?} is no name of a unit: {1}")]
    Malformed(String, &'static str),
    /// It can never be a task.
    #[error("unit {0} cannot be a task: {1}")]
    Unfit(String, &'static str),
}

impl FromStr for UnitName {
    type Err = UnitNameError;

    /// As systemctl reads it: `sshd` is `sshd.service`.
    fn from_str(text: &str) -> Result<UnitName, UnitNameError> {
        let known = |kind: &str| matches!(kind, "service" | "scope") || OTHER_TYPES.contains(&kind);
        let name = match text.rsplit_once('.') {
            Some((_, kind)) if known(kind) => text.to_owned(),
            _ => format!("{text}.service"),
        };
        let malformed = |why| UnitNameError::Malformed(text.to_owned(), why);
        let prefix_and_kind = name.rsplit_once('.').filter(|(prefix, _)| !prefix.is_empty());
        let Some((prefix, kind)) = prefix_and_kind else {
            return Err(malformed("it is empty; give for example sshd.service"));
        };
        if name.len() > 255 {
            return Err(malformed("it is longer than 255 bytes"));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
        if !name.chars().all(allowed) || prefix.starts_with('@') {
            return Err(malformed(
                "letters, digits and any of :-_.\\@ make one (systemd-escape writes the rest)",
            ));
        }
        match unfit(prefix, kind) {
            Some(why) => Err(UnitNameError::Unfit(name, why)),
            None => Ok(UnitName(name)),
        }
    }
}

fn unfit(prefix: &str, kind: &str) -> Option<&'static str> {
    Some(match (prefix, kind) {
        (_, "slice") => "a slice is a group of units; admit the services and scopes in it",
        (_, kind) if OTHER_TYPES.contains(&kind) => {
            "only services and scopes have processes that do work; admit one of those"
        }
        ("init", "scope") => "it is systemd itself",
        ("lrsd", "service") => "it is the daemon that shapes the others",
        ("lrs-tasks", "scope") => "it holds LRS's own tasks",
        (prefix, "service") if prefix.starts_with("user@") => {
            "it is delegated to a user's own service manager; admit processes in it by pid"
        }
        (prefix, _) if prefix.ends_with('@') => "it is a template; name an instance of it",
        _ => return None,
    })
}

impl TryFrom<String> for UnitName {
    type Error = UnitNameError;

    fn try_from(text: String) -> Result<UnitName, UnitNameError> {
        text.parse()
    }
}

impl From<UnitName> for String {
    fn from(name: UnitName) -> String {
        name.0
    }
}

impl UnitName {
    /// With its type.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A property and the value that systemd is sent.
pub type Setting = (&'static str, u64);

/// What systemd says of a unit, by property of [`PROPERTIES`]; one that is not set is left out.
pub type Weights = BTreeMap<String, u64>;

/// What a task's record says about its unit: what to give back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitRecord {
    /// Its name.
    pub name: UnitName,
    /// Its cgroup, from the root of systemd's hierarchy.
    pub control_group: String,
    /// As it was before it became a task.
    pub found: Weights,
}

impl UnitRecord {
    /// The settings that make systemd give the unit weight files of its own, without changing
    /// what it gets; on v1 (`shares`) its weight is `CPUShares`. Empty: it has them already.
    pub fn own_files(&self, shares: bool) -> Vec<Setting> {
        let set = |name: &str| self.found.contains_key(name);
        match shares {
            _ if set("CPUWeight") => Vec::new(),
            true if set("CPUShares") => Vec::new(),
            true => vec![("CPUShares", 1024)],
            false => vec![("CPUWeight", 100)],
        }
    }

    /// The settings that make all as it was.
    pub fn to_give_back(&self) -> Vec<Setting> {
        let found = |name| self.found.get(name).copied().unwrap_or(NOT_SET);
        PROPERTIES.map(|name| (name, found(name))).to_vec()
    }
}

/// Those of `settings` that differ from what systemd has `now`. A property it does not know
/// (`CPUShares` since systemd 258) is not set.
pub fn due(settings: &[Setting], now: &Weights) -> Vec<Setting> {
    let differs = |(name, value): &&Setting| now.get(*name).copied().unwrap_or(NOT_SET) != *value;
    settings.iter().filter(differs).copied().collect()
}

/// Weight files and what they say, in systemd's words.
pub fn settings(files: &[(&str, u64)]) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (file, value) in files {
        match *file {
            "cpu.weight" => settings.push(("CPUWeight", *value)),
            "cpu.idle" => settings.push(("CPUWeight", IDLE)),
            "cpu.shares" => settings.extend([("CPUWeight", NOT_SET), ("CPUShares", *value)]),
            _ => {}
        }
    }
    let disk: Vec<_> = files.iter().filter(|(file, _)| file.starts_with("io.")).collect();
    if let [(file, value)] = disk[..] {
        match *file {
            "io.weight" => settings.push(("IOWeight", *value)),
            "io.bfq.weight" => settings.push(("IOWeight", before_bfq(*value))),
            _ => {}
        }
    }
    settings
}

/// The `IOWeight` that systemd writes to io.bfq.weight as `weight`: above 100 it stretches
/// 100..1000 to 100..10000 (BFQ_WEIGHT, systemd's cgroup-util.h), rounding down.
fn before_bfq(weight: u64) -> u64 {
    match weight {
        0..=100 => weight.max(1),
        _ => (100 + ((weight - 100) * 9900).div_ceil(900)).min(10_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_systemctl_reads_them() {
        let name = |text: &str| text.parse::<UnitName>().map(|name| name.0);
        for (text, unit) in [
            ("sshd", "sshd.service"),
            ("sshd.service", "sshd.service"),
            ("run-r1f.scope", "run-r1f.scope"),
            ("dev.build", "dev.build.service"),
            ("getty@tty1", "getty@tty1.service"),
            ("a\\x2db", "a\\x2db.service"),
        ] {
            assert_eq!(name(text), Ok(unit.to_owned()));
        }
        let long = "x".repeat(250);
        for text in ["", ".service", "a b", "a/b", "a\nb", "@x.service", "*", "é", &long] {
            let error = name(text).unwrap_err();
            assert!(matches!(error, UnitNameError::Malformed(..)), "{text:?}: {error}");
        }
        for text in [
            "-.slice",
            "system.slice",
            "multi-user.target",
            "tmp.mount",
            "dbus.socket",
            "init.scope",
            "lrsd",
            "lrs-tasks.scope",
            "user@1000.service",
            "getty@.service",
        ] {
            let error = name(text).unwrap_err();
            assert!(matches!(error, UnitNameError::Unfit(..)), "{text:?}: {error}");
        }
    }

    #[test]
    fn weights_of_files_become_properties_of_systemd() {
        assert_eq!(settings(&[("cpu.weight", 400)]), [("CPUWeight", 400)]);
        assert_eq!(settings(&[("cpu.idle", 1)]), [("CPUWeight", 0)]);
        let shares = [("CPUWeight", NOT_SET), ("CPUShares", 2)];
        assert_eq!(settings(&[("cpu.shares", 2), ("blkio.bfq.weight", 1000)]), shares);
        let both = [("cpu.weight", 1), ("io.bfq.weight", 1000)];
        assert_eq!(settings(&both), [("CPUWeight", 1), ("IOWeight", 10_000)]);
        let unsayable = [("cpu.weight", 1), ("io.bfq.weight", 1000), ("io.weight", 100)];
        assert_eq!(settings(&unsayable), [("CPUWeight", 1)]);
    }

    #[test]
    fn systemd_writes_to_bfq_what_was_meant() {
        let written = |io_weight: u64| match io_weight {
            0..=100 => io_weight,
            _ => 100 + (io_weight - 100) * 900 / 9900,
        };
        for weight in 1..=1000 {
            assert_eq!(written(before_bfq(weight)), weight);
        }
    }

    fn record(found: &[Setting]) -> UnitRecord {
        UnitRecord {
            name: "job.service".parse().unwrap(),
            control_group: "/system.slice/job.service".into(),
            found: weights(found),
        }
    }

    fn weights(settings: &[Setting]) -> Weights {
        settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn what_was_found_is_given_back_where_it_differs() {
        let unset = record(&[]).to_give_back();
        assert_eq!(due(&unset, &weights(&[("CPUWeight", 1)])), [("CPUWeight", NOT_SET)]);
        assert_eq!(due(&unset, &weights(&[])), []);
        let set = record(&[("CPUWeight", 250), ("IOWeight", 50)]).to_give_back();
        let now = weights(&[("CPUShares", 2), ("IOWeight", 50)]);
        assert_eq!(due(&set, &now), [("CPUWeight", 250), ("CPUShares", NOT_SET)]);
    }

    #[test]
    fn a_unit_without_weights_gets_files_with_the_neutral_one() {
        assert_eq!(record(&[]).own_files(false), [("CPUWeight", 100)]);
        assert_eq!(record(&[]).own_files(true), [("CPUShares", 1024)]);
        assert_eq!(record(&[("CPUWeight", 7)]).own_files(true), []);
        assert_eq!(record(&[("CPUShares", 7)]).own_files(true), []);
    }

    #[test]
    fn a_record_reads_back_as_it_was_written_also_by_an_earlier_version() {
        let record = record(&[("CPUWeight", 250)]);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<UnitRecord>(&text).unwrap(), record);
        let earlier = text.replace("}}", "},\"given\":[[\"CPUWeight\",1]],\"adopted\":false}");
        assert_eq!(serde_json::from_str::<UnitRecord>(&earlier).unwrap(), record);
        let bad = text.replace("job.service\"", "init.scope\"");
        assert!(serde_json::from_str::<UnitRecord>(&bad).is_err());
    }
}
