//! The nouns of the contract (spec 2): ids, tiers, priorities, labels, classes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::hint::Hint;

/// Which share of the node a task gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Takes all the CPU and disk it wants.
    Active,
    /// Lives on what the active tier leaves.
    Passive,
}

/// Which weights a task has: its tier's, or those of the I/O lane ([`super::lane`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Level {
    /// The active tier's.
    Active,
    /// A passive task that computes promptly; on disks it is passive.
    Lane,
    /// The same of one that uses more than its part of the lane.
    SlowLane,
    /// The passive tier's.
    Passive,
}

impl Level {
    /// The tier of a task with these weights.
    pub fn tier(self) -> Tier {
        match self {
            Level::Active => Tier::Active,
            Level::Lane | Level::SlowLane | Level::Passive => Tier::Passive,
        }
    }
}

impl From<Tier> for Level {
    fn from(tier: Tier) -> Level {
        match tier {
            Tier::Active => Level::Active,
            Tier::Passive => Level::Passive,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Lane => f.write_str("I/O lane"),
            Level::SlowLane => f.write_str("slow I/O lane"),
            Level::Active | Level::Passive => self.tier().fmt(f),
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Active => "active",
            Tier::Passive => "passive",
        })
    }
}

/// What kind of place a task needs (spec 2, 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// A slot, or overflow.
    Slot,
    /// A slot, or overflow, behind every task that is not opportunistic, whatever the priorities.
    Opportunistic,
    /// Active weights without a slot: an application master.
    Slotless,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standing::Slot => "slot",
            Standing::Opportunistic => "opportunistic",
            Standing::Slotless => "slotless",
        })
    }
}

/// Higher runs sooner; default 0 (thesis 3.3.2).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Priority(pub i32);

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Place in the order of admission. A reservation's admission inherits the reservation's;
/// neither demotion nor a restart of the daemon changes it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Order(pub u64);

/// What a task is bound by (thesis 2.3): CPU-bound, I/O-bound or between them; or nothing of the node.
/// It is shown to clients; what is decided is decided by computing rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Computing rate at or above `classify.cpu_above`.
    Cpu,
    /// Between the two thresholds.
    Moderate,
    /// Computing rate below `classify.io_below`.
    Io,
    /// The same of a task that waits for no disk either, and hardly computes: a sleeper.
    Idle,
}

/// A user's job and the kind of task within it: all tasks of one kind are alike (thesis 2.3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobKey {
    /// Its user: what one user's tasks did says nothing about another's job of that name. `None`:
    /// not known, of a task with a damaged record.
    pub uid: Option<u32>,
    /// Name of the job.
    pub job: Label,
    /// map, reduce, any word.
    pub kind: Option<Label>,
}

impl JobKey {
    /// Whether it is the program of tasks that named no job ([`Labels::program`]).
    pub fn is_program(&self) -> bool {
        let job = self.job.as_str();
        job.starts_with('(') && job.ends_with(')')
    }
}

/// Programs that say nothing of what a task does: they run a script or another program.
const RUN_OTHERS: [&str; 34] = [
    "R", "Rscript", "ash", "bash", "bun", "chrt", "dash", "deno", "doas", "env", "fish", "ionice",
    "java", "ksh", "lua", "make", "nice", "node", "nohup", "numactl", "perl", "php", "pypy",
    "python", "ruby", "setsid", "sh", "stdbuf", "sudo", "taskset", "time", "timeout", "xargs",
    "zsh",
];

/// A name given by a client: 1..=256 bytes, no control characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Label(std::sync::Arc<str>);

impl Label {
    /// Longest label in bytes.
    pub const MAX_BYTES: usize = 256;

    /// Checks `text` against the range; the error says what is wrong with it.
    pub fn new(text: &str) -> Result<Label, LabelError> {
        if text.is_empty() {
            return Err(LabelError::Empty);
        }
        if text.len() > Label::MAX_BYTES {
            return Err(LabelError::TooLong { bytes: text.len() });
        }
        match text.chars().position(char::is_control) {
            Some(index) => Err(LabelError::ControlCharacter { index }),
            None => Ok(Label(text.into())),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Label::new(&text).map_err(serde::de::Error::custom)
    }
}

/// Why a text is no [`Label`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// No characters.
    #[error("is empty; leave the field out instead")]
    Empty,
    /// More than [`Label::MAX_BYTES`].
    #[error("has {bytes} bytes; at most 256 are allowed")]
    TooLong {
        /// Length found.
        bytes: usize,
    },
    /// A newline, an escape, a NUL ...
    #[error("has a control character at position {index}; use printable characters only")]
    ControlCharacter {
        /// Index in characters.
        index: usize,
    },
}

/// Why a text is no id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not an id of this daemon")]
pub struct IdError;

/// Seven base-36 digits hold any u32.
const EPOCH_DIGITS: usize = 7;

fn write_epoch(f: &mut fmt::Formatter<'_>, mut epoch: u32) -> fmt::Result {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut text = [b'0'; EPOCH_DIGITS];
    for place in text.iter_mut().rev() {
        *place = DIGITS[(epoch % 36) as usize];
        epoch /= 36;
    }
    text.iter().try_for_each(|&digit| fmt::Write::write_char(f, char::from(digit)))
}

fn parse_id(text: &str, prefix: char) -> Result<(u32, u64), IdError> {
    let (epoch, number) =
        text.strip_prefix(prefix).and_then(|rest| rest.split_once('-')).ok_or(IdError)?;
    let canonical = epoch.len() == EPOCH_DIGITS
        && epoch.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
        && number.bytes().all(|b| b.is_ascii_digit())
        && (number == "0" || !number.starts_with('0'));
    if !canonical {
        return Err(IdError);
    }
    let epoch = u32::from_str_radix(epoch, 36).map_err(|_| IdError)?;
    Ok((epoch, number.parse().map_err(|_| IdError)?))
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            /// Counts up within one epoch.
            pub number: u64,
            /// Random per state directory (of a waiter: per daemon), so that no id is used again.
            pub epoch: u32,
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Write::write_char(f, $prefix)?;
                write_epoch(f, self.epoch)?;
                write!(f, "-{}", self.number)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                parse_id(text, $prefix).map(|(epoch, number)| $name { number, epoch })
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = String::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id_type!(
    /// A task for all time: `t` + epoch + `-` + number, within `[a-z0-9-]{1,64}`.
    TaskId,
    't'
);
id_type!(
    /// A reservation for all time: `r` + epoch + `-` + number.
    ReservationId,
    'r'
);
id_type!(
    /// A request that waits for a slot, while this daemon runs: `w` + epoch + `-` + number.
    WaiterId,
    'w'
);

/// Names a request that waits for its answer. The caller chooses it; each is used once while
/// the daemon runs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Ticket(pub u64);

/// What a client says a task is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Labels {
    /// Free text for people.
    pub name: Option<Label>,
    /// Name of the job it belongs to.
    pub job: Option<Label>,
    /// map, reduce, any word.
    pub kind: Option<Label>,
    /// The scheduler's pool or queue that the task is charged to; kept for schedulers, decides nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Label>,
    /// The beginning of its command line, for its user and admins: only the event of its end has it, and no
    /// client reads it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Label>,
    /// The rate that a client expects of it, for as long as none is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Hint>,
}

impl Labels {
    /// These, and of `other` what is missing in them.
    pub fn or(self, other: Labels) -> Labels {
        Labels {
            name: self.name.or(other.name),
            job: self.job.or(other.job),
            kind: self.kind.or(other.kind),
            group: self.group.or(other.group),
            command: self.command.or(other.command),
            hint: self.hint.or(other.hint),
        }
    }

    /// The job of `uid` that a task with these labels belongs to: the one it named, else its program's.
    pub fn job_key(&self, uid: Option<u32>) -> Option<JobKey> {
        let job = self.job.clone().or_else(|| self.program())?;
        Some(JobKey { uid, job, kind: self.kind.clone() })
    }

    /// The job of a task that named none: what one user's tasks of a program did says something of the next
    /// one. In parentheses, as no one names a job; `None`: it named a job, its command is not known, or the
    /// program runs others ([`RUN_OTHERS`]).
    pub fn program(&self) -> Option<Label> {
        let command = self.command.as_ref().filter(|_| self.job.is_none())?.as_str();
        let file = command.split(' ').next()?;
        let name = file.rsplit('/').next().filter(|name| !name.is_empty())?;
        // python3.11
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        if RUN_OTHERS.contains(&plain) || name.contains('=') {
            return None;
        }
        Label::new(&format!("({name})")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_job_a_task_is_one_of_its_program() {
        let with = |job: Option<&str>, command: &str| {
            let label = |text| Label::new(text).ok();
            let labels =
                Labels { job: job.and_then(label), command: label(command), ..Labels::default() };
            labels.job_key(Some(7)).map(|key| key.job.to_string())
        };
        assert_eq!(with(None, "/usr/bin/xz -6 part-1").as_deref(), Some("(xz)"));
        assert_eq!(with(None, "xz").as_deref(), Some("(xz)"));
        assert_eq!(with(Some("day"), "xz").as_deref(), Some("day"));
        assert_eq!((with(None, ""), with(None, "bin/")), (None, None));
        for runs_others in ["sh -c true", "/usr/bin/python3.11 a.py", "timeout 5 xz", "A=1 xz"] {
            assert_eq!(with(None, runs_others), None, "{runs_others}");
        }
    }

    #[test]
    fn ids_round_trip_and_refuse_lookalikes() {
        for id in [
            TaskId { epoch: 0, number: 0 },
            TaskId { epoch: u32::MAX, number: u64::MAX },
            TaskId { epoch: 77, number: 19 },
        ] {
            assert_eq!(id.to_string().parse::<TaskId>(), Ok(id));
            assert!(id.to_string().len() <= 64);
        }
        for text in [
            "",
            "t",
            "t-",
            "t0000000-",
            "t0000000-01",
            "r0000000-1",
            "t0000000-1x",
            "t000000-1",
            "tzzzzzzz-1",
            "T0000000-1",
            "t0000000-+1",
            "../t0000000-1",
        ] {
            assert_eq!(text.parse::<TaskId>(), Err(IdError), "{text:?}");
        }
    }

    #[test]
    fn labels_have_a_range() {
        assert!(Label::new(&"x".repeat(256)).is_ok());
        assert_eq!(Label::new(&"x".repeat(257)), Err(LabelError::TooLong { bytes: 257 }));
        assert_eq!(Label::new(""), Err(LabelError::Empty));
        assert_eq!(Label::new("a\nb"), Err(LabelError::ControlCharacter { index: 1 }));
        assert_eq!(Label::new("a\u{1b}[31m"), Err(LabelError::ControlCharacter { index: 1 }));
        assert!(Label::new("mr/word count (ü)").is_ok());
    }
}
