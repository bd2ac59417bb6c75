//! `/etc/lrs/lrs.toml` as checked values.

use std::path::PathBuf;
use std::time::Duration;

use crate::cgroup::{PassiveCpu, TreeSettings, Version};
use crate::units::{Bytes, Share};

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
    /// Whether disk tiers are wanted.
    pub io: bool,
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

/// A size, or a share of the node's memory ("5%").
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum MemoryAmount {
    Bytes(Bytes),
    OfTotal(Share),
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
}

impl Config {
    /// The part the cgroup tree needs.
    pub fn tree_settings(&self) -> TreeSettings {
        unimplemented!()
    }
}
