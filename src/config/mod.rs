//! `/etc/lrs/lrs.toml` as checked values.
//!
//! One table, [`schema::keys`], has an entry for each key: its path, documentation, range,
//! whether a change needs a restart, how it is read and how it is written. The parser, the
//! errors' remedies, `config show`, the shipped `config/lrs.toml` and the comparison made on
//! SIGHUP all walk that table, so none of them can lag behind the others. Defaults are the
//! values of [`Config::default`] and stand nowhere else.
//!
//! The rules of `[[discover]]` have a table of their own, [`discover::KEYS`], used likewise.
//!
//! A file is read whole or refused whole: a daemon that ran with half of its settings would
//! surprise more than one that stays down. Every fault is reported, not only the first.
//!
//! Limits: a file holds at most 1 MiB; names in `grpc.admins` and `grpc.integrations` become uids when the file is
//! read, so that a later change of the account data base is seen at the next reload.

pub mod discover;
pub(crate) mod error;
mod example;
mod read;
pub mod schema;
pub(crate) mod source;
pub(crate) mod value;
mod yarn;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cgroup::{DiskTiers, PassiveCpu, TreeSettings, Version};
use crate::discover::rules::Rule;
use crate::units::{Bytes, MemoryAmount, Share};

pub use error::{ConfigErrors, Fault};
pub use example::{ABOUT_THE_FILE, example};
pub use read::{Absent, check_file};
pub use value::root_path;
pub use yarn::{OfferBy, Yarn};

/// Where lrsd looks when no `--config` is given.
pub const DEFAULT_FILE: &str = "/etc/lrs/lrs.toml";

/// Longest path of a unix socket in bytes: `sun_path` less the final NUL (unix(7)).
pub const MAX_SOCKET_PATH: usize = 107;

/// "auto", or a value of the operator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auto<T> {
    /// LRS chooses; each key's documentation says how.
    Auto,
    /// As given.
    Fixed(T),
}

/// All settings, checked. `Config::default()` is what an absent file means.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Config {
    pub daemon: Daemon,
    pub slots: Slots,
    pub tiers: Tiers,
    pub classify: Classify,
    pub guard: Guard,
    pub cgroup: Cgroup,
    pub grpc: Grpc,
    pub dbus: Dbus,
    pub yarn: Yarn,
    /// `[[discover]]`, in the order of the file.
    pub discover: Vec<Rule>,
    /// Keys of removed features that the file still has. They are warned about and ignored.
    pub ignored: Vec<Fault>,
}

/// `[daemon]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// State, lock and (by default) socket; default `/run/lrs`.
    pub runtime_dir: PathBuf,
    /// One cycle, 100ms..=60s; default 3s.
    pub sample_period: Duration,
    /// Default enforce.
    pub mode: Mode,
    /// tracing filter directives; default "info".
    pub log: String,
}

/// `daemon.mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Shape.
    Enforce,
    /// Bookkeeping without any cgroup write.
    Observe,
}

/// `[slots]`
#[derive(Clone, Debug, PartialEq)]
pub struct Slots {
    /// A; auto: the CPUs LRS's tasks may use.
    pub active: Auto<u32>,
    /// P0; auto: A.
    pub passive: Auto<u32>,
    /// Most passive slots, the base included; auto: max(4 A, passive).
    pub passive_max: Auto<u32>,
    /// Whether spare CPU opens more passive slots.
    pub expand: bool,
    /// T of the expansion formula.
    pub io_wait_threshold: Share,
    /// E + S from which the CPU counts as saturated.
    pub cpu_saturation: Share,
    /// Cycles an expanded slot must have been free to be withdrawn, 1..=1000.
    pub shrink_after: u32,
    /// Life of a reservation that names none.
    pub reservation_ttl: Duration,
    /// Highest priority a non-admin may set.
    pub max_user_priority: i32,
}

/// `[tiers]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// Share ratio of the full tiers, 1..=10000.
    pub ratio: u32,
    /// How passive tasks are held back.
    pub passive_cpu: PassiveCpu,
    /// How passive tasks are held back on disks.
    pub io: DiskTiers,
    /// Weight of the LRS root among its siblings.
    pub root_weight: Auto<u32>,
}

/// `[classify]`
#[derive(Clone, Debug, PartialEq)]
pub struct Classify {
    /// Rates below are I/O-bound.
    pub io_below: Share,
    /// Rates at or above are CPU-bound.
    pub cpu_above: Share,
    /// Slack of the co-location test.
    pub colocation_threshold: f64,
}

/// `[guard]`; stage 1 (stop expanding, stop offering passive slots) on memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// Default true.
    pub enabled: bool,
    /// Stage 1 is entered when MemAvailable is below it for `enter_after`.
    pub memory_reserve: MemoryAmount,
    /// Stage 1 is left when MemAvailable is above it for `exit_after`; at least the reserve.
    pub memory_resume: MemoryAmount,
    /// Default 0s: at once.
    pub enter_after: Duration,
    /// Default 10s.
    pub exit_after: Duration,
    /// Report, do not hold.
    pub dry_run: bool,
}

/// `[cgroup]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Path below the mount; auto: `lrs`.
    pub root: Auto<RootPath>,
    /// Hierarchy; auto: v2 where its cpu controller is to be had, else v1.
    pub version: Auto<Version>,
}

/// A path below a cgroup mount: no leading slash, no `.` or `..`, no empty component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootPath(pub String);

/// `[grpc]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grpc {
    /// Sockets to serve on. Default: `<runtime_dir>/lrsd.sock`.
    pub listen: Vec<PathBuf>,
    /// Uids that may do all, besides 0.
    pub admins: Vec<u32>,
    /// Uids that may speak for a scheduler; auto: that of the account lrs-yarn.
    pub integrations: Auto<Vec<u32>>,
}

/// `[dbus]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dbus {
    /// Default system.
    pub bus: Bus,
}

/// `dbus.bus`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bus {
    /// The one of the node.
    System,
    /// The one of the user lrsd runs as.
    Session,
    /// None.
    Off,
    /// At an address of the D-Bus specification, such as `unix:path=/run/bus`.
    Address(String),
}

impl std::fmt::Display for Bus {
    /// As it is written in the file.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Bus::System => "system",
            Bus::Session => "session",
            Bus::Off => "off",
            Bus::Address(address) => address,
        })
    }
}

/// `guard.memory_resume` when the file names only the reserve: half as much again, as far as the
/// key's range goes, so that the effective settings are a file that can be read.
fn default_resume(reserve: MemoryAmount) -> MemoryAmount {
    match reserve {
        MemoryAmount::Bytes(Bytes(bytes)) => {
            MemoryAmount::Bytes(Bytes(bytes.saturating_add(bytes / 2).min(value::MAX_SIZE)))
        }
        MemoryAmount::OfTotal(share) => {
            // Six decimals, so that 5% makes 7.5% and not 7.500000000000001%.
            let half_more = (share.value() * 1.5e6).round() / 1e6;
            MemoryAmount::OfTotal(Share::clamped(half_more.max(share.value())))
        }
    }
}

impl Default for Config {
    /// What an absent or empty file means.
    fn default() -> Config {
        let runtime_dir = PathBuf::from("/run/lrs");
        let memory_reserve = MemoryAmount::OfTotal(Share::clamped(0.05));
        Config {
            grpc: Grpc {
                listen: vec![default_socket(&runtime_dir)],
                admins: Vec::new(),
                integrations: Auto::Auto,
            },
            daemon: Daemon {
                runtime_dir,
                sample_period: Duration::from_secs(3),
                mode: Mode::Enforce,
                log: String::from("info"),
            },
            slots: Slots {
                active: Auto::Auto,
                passive: Auto::Auto,
                passive_max: Auto::Auto,
                expand: true,
                io_wait_threshold: Share::clamped(0.30),
                cpu_saturation: Share::clamped(0.90),
                shrink_after: 3,
                reservation_ttl: Duration::from_secs(30),
                max_user_priority: 0,
            },
            tiers: Tiers {
                ratio: 100,
                passive_cpu: PassiveCpu::Auto,
                io: DiskTiers::Weights,
                root_weight: Auto::Auto,
            },
            classify: Classify {
                io_below: Share::clamped(0.2),
                cpu_above: Share::clamped(0.8),
                colocation_threshold: 0.1,
            },
            guard: Guard {
                enabled: true,
                memory_reserve,
                memory_resume: default_resume(memory_reserve),
                enter_after: Duration::ZERO,
                exit_after: Duration::from_secs(10),
                dry_run: false,
            },
            cgroup: Cgroup { root: Auto::Auto, version: Auto::Auto },
            dbus: Dbus { bus: Bus::System },
            yarn: Yarn::default(),
            discover: Vec::new(),
            ignored: Vec::new(),
        }
    }
}

/// `<runtime_dir>/lrsd.sock`.
fn default_socket(runtime_dir: &Path) -> PathBuf {
    runtime_dir.join("lrsd.sock")
}

/// A key whose value differs between two configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// Path of the key: `slots.active`.
    pub key: &'static str,
    /// Whether the running daemon cannot take it over.
    pub needs_restart: bool,
}

impl Config {
    /// The settings in `text`; `file` names it in errors.
    pub fn from_toml(text: &str, file: &Path) -> Result<Config, ConfigErrors> {
        read::from_toml(text, file)
    }

    /// The settings in the file at `path`. Whether it may be absent is the caller's to say.
    pub fn load(path: &Path, absent: Absent) -> Result<Config, ConfigErrors> {
        read::load(path, absent)
    }

    /// Every key with its value in force, as TOML that [`Config::from_toml`] reads back to an
    /// equal configuration.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for section in schema::SECTIONS {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&format!("[{}]\n", section.name));
            for key in section.keys() {
                text.push_str(&format!("{} = {}\n", key.name(), (key.write)(self)));
            }
        }
        text.push_str(&discover::to_toml(&self.discover));
        text
    }

    /// [`Config::to_toml`] as one JSON object, for `config show --json`.
    pub fn to_json(&self) -> serde_json::Value {
        toml_to_json(&self.to_toml()).unwrap_or(serde_json::Value::Null)
    }

    /// The part the cgroup tree needs.
    pub fn tree_settings(&self) -> TreeSettings {
        TreeSettings {
            root: match &self.cgroup.root {
                Auto::Auto => None,
                Auto::Fixed(RootPath(path)) => Some(path.clone()),
            },
            version: match self.cgroup.version {
                Auto::Auto => None,
                Auto::Fixed(version) => Some(version),
            },
            passive_cpu: self.tiers.passive_cpu,
            io: self.tiers.io,
            root_weight: match self.tiers.root_weight {
                Auto::Auto => None,
                Auto::Fixed(weight) => Some(weight),
            },
        }
    }

    /// The keys whose values differ, in the order of the table.
    pub fn changed_keys(&self, other: &Config) -> Vec<ChangedKey> {
        // Rules taken over live would leave tasks of rules that are no more.
        let rules = ChangedKey { key: discover::TABLE, needs_restart: true };
        schema::keys()
            .filter(|key| (key.write)(self) != (key.write)(other))
            .map(|key| ChangedKey {
                key: key.path,
                needs_restart: key.applies == schema::Applies::Restart,
            })
            .chain((self.discover != other.discover).then_some(rules))
            .collect()
    }
}

/// TOML settings, such as GetConfig answers, as JSON. `None` when `text` is not TOML.
pub fn toml_to_json(text: &str) -> Option<serde_json::Value> {
    let table: toml::Table = text.parse().ok()?;
    serde_json::to_value(table).ok()
}

#[cfg(test)]
mod tests;
