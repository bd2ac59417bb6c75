//! `/etc/lrs/lrs.toml` as checked values.
//!
//! One table, [`keys`], has an entry for each key: its documentation, default, range, whether a
//! change needs a restart, and how it is read. The structs of the sections, the parser, the
//! errors' remedies, `config show`, the shipped `config/lrs.toml`, lrs.toml(5) and the comparison
//! made on SIGHUP come from that table, so none of them can lag behind the others. serde reads
//! the single values and writes the whole.
//!
//! A file and its drop-ins ([`files`]) are read whole or refused whole: a daemon that ran with half of its
//! settings would surprise more than one that stays down. Every fault of every file is reported, not only the
//! first.
//!
//! Here is plain data. What `[yarn]` and the rules of `[[discover]]` mean is where tasks are looked
//! for, in lrsd.
//!
//! Limits: a file holds at most 1 MiB; names in `grpc.admins` and `grpc.integrations` become uids
//! when the file is read, so that a later change of the account data base is seen at the next
//! reload.

pub mod discover;
mod error;
mod example;
pub mod files;
pub mod keys;
mod quantity;
mod read;
pub mod rule;
mod source;
mod tree;
mod value;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use lrs_core::units::{Bytes, MemoryAmount, Share};

pub use error::{ConfigErrors, Fault};
pub use example::{ABOUT_THE_FILE, example, example_rules};
pub use files::{Absent, Loaded, check_file};
pub use keys::{
    Cgroup, Classify, Daemon, Dbus, Grpc, Guard, History, Metrics, NodeSettings, Slots, Tiers, Yarn,
};
pub use quantity::duration_text;
pub use rule::Rule;
pub use tree::{DiskTiers, PassiveCpu, SliceSetting, TreeSettings, Version};

/// Where lrsd looks when no `--config` is given.
pub const DEFAULT_FILE: &str = "/etc/lrs/lrs.toml";

/// Exit status of a bad configuration: EX_CONFIG of sysexits.h.
pub const BAD_CONFIG: u8 = 78;

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
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Config {
    pub daemon: Daemon,
    pub node: NodeSettings,
    pub slots: Slots,
    pub tiers: Tiers,
    pub classify: Classify,
    pub guard: Guard,
    pub cgroup: Cgroup,
    pub grpc: Grpc,
    pub dbus: Dbus,
    pub history: History,
    pub metrics: Metrics,
    pub yarn: Yarn,
    /// `[[discover]]`, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub discover: Vec<Rule>,
}

/// `daemon.mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Shape.
    Enforce,
    /// Bookkeeping without any cgroup write.
    Observe,
}

/// A path below a cgroup mount: no leading slash, no `.` or `..`, no empty component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RootPath(pub String);

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

impl Serialize for Bus {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// `yarn.offer_by`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OfferBy {
    /// The node-resource call of the ResourceManager's web services (3.3.0 and later).
    Rest,
    /// `yarn rmadmin -updateNodeResource` (2.8 and later).
    Rmadmin,
}

/// `guard.memory_resume` when the file names only the reserve: half as much again, as far as the
/// key's range goes, so that the effective settings are a file that can be read.
fn default_resume(reserve: MemoryAmount) -> MemoryAmount {
    match reserve {
        MemoryAmount::Bytes(Bytes(bytes)) => {
            MemoryAmount::Bytes(Bytes(bytes.saturating_add(bytes / 2).min(quantity::MAX_SIZE)))
        }
        MemoryAmount::OfTotal(share) => {
            // Six decimals, so that 5% makes 7.5% and not 7.500000000000001%.
            let half_more = (share.value() * 1.5e6).round() / 1e6;
            MemoryAmount::OfTotal(Share::clamped(half_more.max(share.value())))
        }
    }
}

/// `<runtime_dir>/lrsd.sock`.
fn default_socket(runtime_dir: &Path) -> PathBuf {
    runtime_dir.join("lrsd.sock")
}

/// A key that has another value in another configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// Path of the key: `slots.active`.
    pub key: &'static str,
    /// Whether the running daemon cannot take it over.
    pub needs_restart: bool,
}

impl Daemon {
    /// The longest that a cycle lasts.
    pub fn longest_period(&self) -> Duration {
        match self.sample_period {
            Auto::Auto => lrs_core::pace::LONGEST,
            Auto::Fixed(period) => period,
        }
    }
}

impl Config {
    /// The settings in `text`; `file` names it in errors.
    pub fn from_toml(text: &str, file: &Path) -> Result<Config, ConfigErrors> {
        read::merged(&[(file, text)], true).map(|loaded| loaded.config).map_err(ConfigErrors::new)
    }

    /// The settings in the file at `path` and its drop-ins. Whether it may be absent is the caller's to say.
    pub fn load(path: &Path, absent: Absent) -> Result<Loaded, ConfigErrors> {
        files::load(path, absent, false)
    }

    /// The settings of a daemon, in a file that may be absent, and in its drop-ins: all of them and the way
    /// to them have to be root's or the daemon's own ([`lrs_host::trust`]).
    pub fn load_trusted(path: &Path) -> Result<Loaded, ConfigErrors> {
        files::load(path, Absent::IsDefault, true)
    }

    /// Every key with its value in force, as TOML that [`Config::from_toml`] reads back to an
    /// equal configuration.
    pub fn to_toml(&self) -> String {
        // Tables of texts, numbers and lists have a form in TOML, and paths are UTF-8: they were
        // read from a file that is.
        toml::to_string(self).unwrap_or_default()
    }

    /// The value of the key at `path`, as TOML; empty if there is no such key.
    pub fn show(&self, path: &str) -> String {
        // As above.
        let table = toml::Table::try_from(self).unwrap_or_default();
        let (section, name) = path.split_once('.').unwrap_or((path, ""));
        let value = table.get(section).and_then(|section| section.get(name));
        value.map_or_else(String::new, ToString::to_string)
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
            slice: self.tiers.slice,
            memory: self.cgroup.memory_controller,
            root_weight: match self.tiers.root_weight {
                Auto::Auto => None,
                Auto::Fixed(weight) => Some(weight),
            },
        }
    }

    /// The keys with values that differ, in the order of the table.
    pub fn changed_keys(&self, other: &Config) -> Vec<ChangedKey> {
        // Rules taken over live would leave tasks of rules that are no more.
        let rules = ChangedKey { key: discover::TABLE, needs_restart: true };
        keys::keys()
            .filter(|key| self.show(key.path) != other.show(key.path))
            .map(|key| ChangedKey {
                key: key.path,
                needs_restart: key.applies == keys::Applies::Restart,
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
