//! Units of systemd that are tasks: their names, and weights in systemd's words.
//!
//! systemd owns the cgroups of its units: whenever it applies a unit's settings (daemon-reload,
//! set-property) it writes the weights it knows. So what LRS writes to the files of such a
//! group, systemd is told as well, until the next boot (`SetUnitProperties`, runtime), and it
//! writes the same. What it knew before is in the task's record and given back.
//!
//! On v1 systemd's `CPUWeight` is too coarse (1 is 10 shares); `CPUShares` says it exactly.
//!
//! Limits. Disk weights on v1, and where BFQ and iocost weights act side by side, cannot be
//! said in one `IOWeight`; there only the files have them. A property given back stays pinned
//! to its value below `/run/systemd/system.control` until the next boot: systemd has no call
//! that takes back one setting.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// systemd's number for "not set" (CGROUP_WEIGHT_INVALID).
pub const NOT_SET: u64 = u64::MAX;

/// `CPUWeight=idle` on the bus (CGROUP_WEIGHT_IDLE, systemd 252).
const IDLE: u64 = 0;

/// The properties LRS may set, in the order in which they are told.
pub const PROPERTIES: [&str; 3] = ["CPUWeight", "CPUShares", "IOWeight"];

/// Types of systemd.unit(5), without the two that can be tasks.
const OTHER_TYPES: [&str; 9] =
    ["automount", "device", "mount", "path", "slice", "socket", "swap", "target", "timer"];

/// Values remembered of one task: two tiers under each of a few plans.
const MOST_GIVEN: usize = 32;

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

/// A property and the value systemd is told.
pub type Setting = (&'static str, u64);

/// What a task's record says about its unit: what to give back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitRecord {
    /// Its name.
    pub name: UnitName,
    /// Its cgroup, from the root of systemd's hierarchy.
    pub control_group: String,
    /// [`PROPERTIES`] as they were; one that is not here was not set.
    pub found: BTreeMap<String, u64>,
    /// All that LRS may have told systemd: what else is there now, its owner has said.
    pub given: Vec<(String, u64)>,
    /// Its owner has spoken since, so that the files found do not have what it said last.
    #[serde(default)]
    pub adopted: bool,
}

impl UnitRecord {
    /// Remembers what systemd is about to be told; answers whether that is new.
    pub fn give(&mut self, settings: &[Setting]) -> bool {
        let before = self.given.len();
        for (name, value) in settings {
            if !self.gave(name, *value) {
                self.given.push(((*name).to_owned(), *value));
            }
        }
        let grown = self.given.len() != before;
        let excess = self.given.len().saturating_sub(MOST_GIVEN);
        self.given.drain(..excess);
        grown
    }

    fn gave(&self, name: &str, value: u64) -> bool {
        self.given.iter().any(|(given, number)| given == name && *number == value)
    }

    /// Takes what the owner has said since for what is to be given back: what is `now` there and
    /// is neither what was found nor what LRS told. Answers whether there was any.
    pub fn adopt(&mut self, now: &BTreeMap<String, u64>) -> bool {
        let mut adopted = false;
        for name in PROPERTIES {
            let said = now.get(name).copied();
            let ours = self.gave(name, said.unwrap_or(NOT_SET));
            if ours || said == self.found.get(name).copied() {
                continue;
            }
            adopted = true;
            match said {
                Some(value) => self.found.insert(name.to_owned(), value),
                None => self.found.remove(name),
            };
        }
        self.adopted |= adopted;
        adopted
    }

    /// Takes over from `earlier`, a task's whose unit this was and whose weights systemd does
    /// not have back: what is found there now may be what LRS told it.
    pub fn succeed(&mut self, earlier: &UnitRecord) {
        let now = std::mem::replace(&mut self.found, earlier.found.clone());
        self.given.clone_from(&earlier.given);
        self.adopted = earlier.adopted;
        self.adopt(&now);
    }

    /// The settings that make systemd give the unit weight files of its own, without changing
    /// what it gets. Empty: it has them already.
    pub fn own_files(&self, shares: bool) -> Vec<Setting> {
        let set = |name: &str| self.found.contains_key(name);
        match shares {
            _ if set("CPUWeight") => Vec::new(),
            true if set("CPUShares") => Vec::new(),
            true => vec![("CPUShares", 1024)],
            false => vec![("CPUWeight", 100)],
        }
    }

    /// What makes systemd give the unit what it is to have before it is a task's: weight files
    /// of its own, and what was found, should it say `now` what an earlier task told it.
    pub fn to_begin(&self, now: &BTreeMap<String, u64>, shares: bool) -> Vec<Setting> {
        let own = self.own_files(shares);
        let neutral = |name: &str| own.iter().any(|(given, _)| *given == name);
        let mut settings: Vec<Setting> =
            self.to_give_back(now).into_iter().filter(|(name, _)| !neutral(name)).collect();
        settings.extend(own);
        settings
    }

    /// What to tell systemd when the task is over and it says `now`. What LRS told it becomes
    /// what was found. What its owner has said since is said again: the files may differ.
    pub fn to_give_back(&self, now: &BTreeMap<String, u64>) -> Vec<Setting> {
        let settings = PROPERTIES.into_iter().filter_map(|name| {
            let (found, now) = (self.found.get(name).copied(), now.get(name).copied());
            let ours = self.gave(name, now.unwrap_or(NOT_SET));
            let told = self.given.iter().any(|(given, _)| given == name);
            if !told || (now == found && !self.adopted) {
                return None;
            }
            Some((name, if ours { found } else { now }.unwrap_or(NOT_SET)))
        });
        settings.collect()
    }
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
    fn files_are_told_in_systemds_words() {
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

    fn record(found: &[(&str, u64)], given: &[Setting]) -> UnitRecord {
        let found = found.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let mut record = UnitRecord {
            name: "job.service".parse().unwrap(),
            control_group: "/system.slice/job.service".into(),
            found,
            given: Vec::new(),
            adopted: false,
        };
        record.give(given);
        record
    }

    #[test]
    fn what_lrs_told_is_given_back_and_what_the_owner_said_stays() {
        let now = |settings: &[(&str, u64)]| {
            settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let told = [("CPUWeight", 400), ("CPUWeight", 1)];
        let unset = record(&[], &told);
        assert_eq!(unset.to_give_back(&now(&[("CPUWeight", 1)])), [("CPUWeight", NOT_SET)]);
        assert_eq!(unset.to_give_back(&now(&[("CPUWeight", 300)])), [("CPUWeight", 300)]);
        assert_eq!(unset.to_give_back(&now(&[])), [], "never told, or reset by its owner");
        let set = record(&[("CPUWeight", 250), ("IOWeight", 50)], &told);
        let back = set.to_give_back(&now(&[("CPUWeight", 400), ("IOWeight", 60)]));
        assert_eq!(back, [("CPUWeight", 250)], "the disk was never told");
        let shares = record(&[("CPUWeight", 250)], &[("CPUWeight", NOT_SET), ("CPUShares", 2)]);
        let back = shares.to_give_back(&now(&[("CPUShares", 2)]));
        assert_eq!(back, [("CPUWeight", 250), ("CPUShares", NOT_SET)]);
    }

    #[test]
    fn what_the_owner_says_meanwhile_is_what_is_given_back() {
        let now = |settings: &[(&str, u64)]| {
            settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let mut unit = record(&[("CPUWeight", 250)], &[("CPUWeight", 400), ("CPUWeight", 1)]);
        assert!(!unit.adopt(&now(&[("CPUWeight", 1)])), "ours");
        assert!(!unit.adopt(&now(&[("CPUWeight", 250)])), "not told yet");
        assert!(unit.adopt(&now(&[("CPUWeight", 1), ("IOWeight", 7)])), "never told");
        assert!(unit.adopt(&now(&[("CPUWeight", 275)])));
        assert_eq!(unit.to_give_back(&now(&[("CPUWeight", 1)])), [("CPUWeight", 275)]);
        let unheard = unit.to_give_back(&now(&[("CPUWeight", 275)]));
        assert_eq!(unheard, [("CPUWeight", 275)], "the files were given what was found");
        assert!(unit.adopt(&now(&[])));
        assert_eq!(unit.to_give_back(&now(&[("CPUWeight", 1)])), [("CPUWeight", NOT_SET)]);
        let mut shares = record(&[], &[("CPUWeight", NOT_SET), ("CPUShares", 2)]);
        assert!(shares.adopt(&now(&[("CPUWeight", 275), ("CPUShares", 2)])));
        let back = shares.to_give_back(&now(&[("CPUShares", 2)]));
        assert_eq!(back, [("CPUWeight", 275), ("CPUShares", NOT_SET)]);
    }

    #[test]
    fn a_successor_gives_back_what_was_there_before_both() {
        let now = |settings: &[(&str, u64)]| {
            settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let earlier = record(&[], &[("CPUWeight", 400), ("CPUWeight", 1)]);
        let mut later = record(&[("CPUWeight", 1)], &[]);
        later.succeed(&earlier);
        assert_eq!(later.found, BTreeMap::new());
        assert_eq!(later.to_begin(&now(&[("CPUWeight", 1)]), false), [("CPUWeight", 100)]);
        assert_eq!(later.to_give_back(&now(&[("CPUWeight", 400)])), [("CPUWeight", NOT_SET)]);
        let weighted = record(&[("CPUWeight", 250)], &[("CPUWeight", 1)]);
        let mut later = record(&[("CPUWeight", 1)], &[]);
        later.succeed(&weighted);
        assert_eq!(later.to_begin(&now(&[("CPUWeight", 1)]), false), [("CPUWeight", 250)]);
        assert_eq!(later.to_begin(&now(&[("CPUWeight", 250)]), false), []);
        let mut later = record(&[("CPUWeight", 275)], &[]);
        later.succeed(&weighted);
        assert_eq!(later.found, now(&[("CPUWeight", 275)]), "its owner spoke in between");
    }

    #[test]
    fn what_was_given_is_remembered_once_and_bounded() {
        let mut record = record(&[], &[("CPUWeight", 1)]);
        assert!(!record.give(&[("CPUWeight", 1)]));
        for value in 2..=100 {
            assert!(record.give(&[("CPUWeight", value)]));
        }
        assert_eq!(record.given.len(), MOST_GIVEN);
        assert!(record.gave("CPUWeight", 100) && !record.gave("CPUWeight", 1));
    }

    #[test]
    fn a_unit_without_weights_gets_files_with_the_neutral_one() {
        assert_eq!(record(&[], &[]).own_files(false), [("CPUWeight", 100)]);
        assert_eq!(record(&[], &[]).own_files(true), [("CPUShares", 1024)]);
        assert_eq!(record(&[("CPUWeight", 7)], &[]).own_files(true), []);
        assert_eq!(record(&[("CPUShares", 7)], &[]).own_files(true), []);
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let record = record(&[("CPUWeight", 250)], &[("CPUWeight", 1)]);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<UnitRecord>(&text).unwrap(), record);
        let bad = text.replace("job.service\"", "init.scope\"");
        assert!(serde_json::from_str::<UnitRecord>(&bad).is_err());
    }
}
