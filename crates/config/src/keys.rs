//! The table of all keys.
//!
//! To add a key: one entry here, with its documentation, default, range and reader. The entry
//! makes the field of the configuration, its place in `config show`, in the shipped file, in
//! lrs.toml(5), and in the comparison of a reload. The tests then ask for a new `config/lrs.toml`
//! by failing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lrs_hadoop_conf::NodeId;
use serde::Serialize;

use super::discover::{environment, pattern, template};
use super::quantity::{self, duration, memory_amount, whole_mebibytes};
use super::rule::{Means, Pattern, Template};
use super::value::{
    self, Node, Wrong, account, address, auto, bus, cgroup_root, directory, disk_tiers, labels,
    list, listen_address, log_filter, node_id, number, plain, slice, socket_address, text,
    user_name, version, word, words,
};
use super::{
    Auto, Bus, Config, DiskTiers, Mode, OfferBy, PassiveCpu, RootPath, SliceSetting, Version,
};
use lrs_core::model::{Label, Priority, Standing};
use lrs_core::order::QueueOrder;
use lrs_core::probe::Formula;
use lrs_core::units::{Bytes, MemoryAmount, Share};

/// When a changed value is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// On reload.
    Live,
    /// When lrsd starts.
    Restart,
}

/// One key of a table that is read into an `R`.
pub struct Key<R> {
    /// Section and name: `slots.active`.
    pub path: &'static str,
    /// What it is for; sentences, wrapped at will.
    pub doc: &'static str,
    /// What may be written, to follow "expected".
    pub range: &'static str,
    /// Whether a reload is enough.
    pub applies: Applies,
    /// Puts a value of the file into `R`, or says all that is wrong with it.
    pub(super) read: fn(&Node<'_>, &mut R) -> Result<(), Vec<Wrong>>,
}

impl<R> Key<R> {
    /// The part of the path before the dot.
    pub fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }

    /// The part of the path after the dot.
    pub fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }
}

/// One section.
pub struct Section {
    /// The name between the brackets.
    pub name: &'static str,
    /// What its keys have in common.
    pub doc: &'static str,
    /// In the order of the shipped file.
    pub keys: &'static [Key<Config>],
}

/// Every key of a section, section by section.
pub fn keys() -> impl Iterator<Item = &'static Key<Config>> + Clone {
    SECTIONS.iter().flat_map(|section| section.keys)
}

/// The key at `path`.
pub fn key(path: &str) -> Option<&'static Key<Config>> {
    keys().find(|key| key.path == path)
}

/// Makes the struct of a table, its default, and its keys, which are read into a `$root`. An
/// entry is: documentation, `Live` or `Restart`, field, default, range, reader.
macro_rules! table {
    (
        $(#[doc = $about:literal])+
        $keys:ident = $section:literal: $Table:ident in $root:ident, $place:expr;
        $(
            $(#[doc = $doc:literal])+
            $(#[serde($($attribute:tt)+)])?
            $applies:ident $key:ident: $T:ty = $default:expr, $range:expr, $read:expr;
        )+
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, Serialize)]
        pub struct $Table {
            $($(#[doc = $doc])+ $(#[serde($($attribute)+)])? pub $key: $T,)+
        }

        impl Default for $Table {
            fn default() -> $Table {
                $Table { $($key: $default,)+ }
            }
        }

        /// The keys of the table.
        pub const $keys: &[Key<$root>] = &[$(
            Key {
                path: concat!($section, ".", stringify!($key)),
                doc: concat!($($doc),+).trim_ascii_start(),
                range: $range,
                applies: Applies::$applies,
                read: |node, root| {
                    let place: fn(&mut $root) -> &mut $Table = $place;
                    place(root).$key = ($read)(node)?;
                    Ok(())
                },
            },
        )+];
    };
}

const fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const DAY: Duration = seconds(24 * 3600);

fn share(value: f64) -> Share {
    Share::clamped(value)
}

/// The sections, in the order of the shipped file.
pub static SECTIONS: &[Section] = &[
    Section { name: "daemon", doc: "The daemon itself.", keys: DAEMON },
    Section { name: "node", doc: "What the node is to schedulers.", keys: NODE },
    Section {
        name: "slots",
        doc: "How many tasks may run, and in which tier. An active task takes all the CPU and \
              disk it wants; passive tasks live on what is left.",
        keys: SLOTS,
    },
    Section { name: "tiers", doc: "How far passive tasks stand behind active ones.", keys: TIERS },
    Section {
        name: "classify",
        doc: "What counts as bound by CPU or by I/O. The computing rate of a task is \
              CPU / (CPU + time blocked), 0 to 1.",
        keys: CLASSIFY,
    },
    Section {
        name: "guard",
        doc: "When memory runs short LRS stops opening and offering passive slots. It never \
              kills a task, and freezes passive ones only where a dry_run below is false.",
        keys: GUARD,
    },
    Section { name: "cgroup", doc: "Where the cgroups of tasks are made.", keys: CGROUP },
    Section { name: "grpc", doc: "The socket that lrsctl and schedulers talk to.", keys: GRPC },
    Section { name: "dbus", doc: "The D-Bus interface, org.lrs.Shaper1.", keys: DBUS },
    Section {
        name: "history",
        doc: "What is kept of the past: lrsctl history, lrsctl plot.",
        keys: HISTORY,
    },
    Section {
        name: "metrics",
        doc: "Metrics for Prometheus: docs/monitoring.md has the names.",
        keys: METRICS,
    },
    Section {
        name: "yarn",
        doc: "An unmodified Hadoop node: containers become tasks, and slots are offered to the \
              ResourceManager.",
        keys: YARN,
    },
];

/// That of the service.
const DEFAULT_HISTORY: &str = "/var/lib/lrs";

const BOOLEAN: &str = "true or false";

const MEMORY: &str = "a size such as \"512MiB\" or \"1.5GiB\", a number of bytes, or \"0%\" to \"100%\" \
     of the node's memory or of the limit that binds";

table! {
    /// `[daemon]`
    DAEMON = "daemon": Daemon in Config, |config| &mut config.daemon;

    /// Holds the state of tasks, the lock and, unless grpc.listen says otherwise, the socket.
    /// Best on a tmpfs. Daemons that run side by side need one each.
    Restart runtime_dir: PathBuf = "/run/lrs".into(), "an absolute path", directory;
    /// One cycle: how often the node and its tasks are measured and the number of passive slots
    /// is decided. Promotion does not wait for it. "auto": a fifteenth of the mean time of the tasks
    /// that run, "100ms" to "3s", and not so short that cycles cost more than 0.1 % of a CPU.
    #[serde(serialize_with = "quantity::show_auto_duration")]
    Live sample_period: Auto<Duration> = Auto::Fixed(seconds(3)),
        r#""auto" or a duration from "100ms" to "60s""#,
        |v| auto(v, |v| duration(v, millis(100)..=seconds(60)));
    /// "enforce" shapes tasks; "observe" only records tasks and writes to no cgroup, so that it
    /// needs no rights. Tasks that run go on through a change: "enforce" attaches those that
    /// were only booked, "observe" first gives back what was shaped.
    Restart mode: Mode = Mode::Enforce, r#""enforce" or "observe""#, word;
    /// What is logged: a level, or directives for parts of the program such as
    /// "info,lrs::cgroup=debug".
    Live log: String = "info".into(),
        "a tracing filter: error, warn, info, debug, trace, off or directives", log_filter;
}

table! {
    /// `[node]`
    NODE = "node": NodeSettings in Config, |config| &mut config.node;

    /// Shown to schedulers with the status of the node; LRS itself decides nothing by them.
    Live labels: BTreeMap<String, Label> = BTreeMap::new(),
        r#"a table of at most 32 texts, { rack = "r1", zone = "z" }"#, labels;
}

table! {
    /// `[slots]`
    SLOTS = "slots": Slots in Config, |config| &mut config.slots;

    /// Active slots. "auto": as many as there are CPUs that tasks may use, read anew each cycle:
    /// those online and in the cpuset of the tasks, less isolated ones, within a CPU quota above
    /// the tasks.
    Live active: Auto<u32> = Auto::Auto, r#""auto" or 1..=4096"#,
        |v| auto(v, |v| number(v, 1..=4096));
    /// Passive slots that are there whatever the load: the base. "auto": as many as active ones.
    Live passive: Auto<u32> = Auto::Auto, r#""auto" or 0..=65536"#,
        |v| auto(v, |v| number(v, 0..=65536));
    /// Most passive slots, the base included. "auto": four times the active slots, or
    /// slots.passive if that is more.
    Live passive_max: Auto<u32> = Auto::Auto, r#""auto" or 0..=65536, not below slots.passive"#,
        |v| auto(v, |v| number(v, 0..=65536));
    /// Whether passive slots are added while all slots are taken and the node has spare CPU: each
    /// cycle, and mostly within half a second where a request waits.
    Live expand: bool = true, BOOLEAN, plain;
    /// How many. "lrs": by the formula of the source, which stops early on large nodes and slow
    /// disks. "probe": at least as many, and as many as spare CPU could carry, at once where a
    /// request waits for them, else on trial: they stay if more CPU or disk was used than before.
    Live formula: Formula = Formula::Probe, r#""lrs" or "probe""#, word;
    /// Share of CPU time spent waiting for I/O above which slots are added one at a time.
    Live io_wait_threshold: Share = share(0.3), "0.0..=1.0",
        |v| number(v, Share::ZERO..=Share::ONE);
    /// Share of CPU time in use or stolen from which the node counts as saturated: no slot is
    /// added, and free added ones are withdrawn at once.
    Live cpu_saturation: Share = share(0.9), "0.01..=1.0",
        |v| number(v, share(0.01)..=Share::ONE);
    /// Cycles that an added slot has to be free before it is withdrawn on a node that is not
    /// saturated.
    Live shrink_after: u32 = 3, "1..=1000", |v| number(v, 1..=1000);
    /// Users with requests at the highest priority take turns. Which request of the user who is next
    /// gets the slot? "fit": the first for which there is a slot, so that one of a job that waits more than it computes
    /// gets a passive slot which one that computes would not get. "complement": the same, and otherwise the
    /// one of the job with the computing rate that suits what runs; a job without a rate is sampled first.
    /// "fifo": the first.
    Live order: QueueOrder = QueueOrder::Fit, r#""fit", "complement" or "fifo""#, word;
    /// With "fit" and "complement": how often a request is overtaken at most by others of its user.
    Live overtake_max: u32 = 8, "0..=1000", |v| number(v, 0..=1000);
    /// Whether an active task that was idle for two cycles lends its slot to the next passive task that
    /// computes, until it wakes.
    Live lend: bool = true, BOOLEAN, plain;
    /// Life of a reservation where its request does not say.
    #[serde(serialize_with = "quantity::show_duration")]
    Live reservation_ttl: Duration = seconds(30), r#"a duration from "100ms" to "24h""#,
        |v| duration(v, millis(100)..=DAY);
    /// Longest life that members of group lrs may give a reservation, and of one that does not say;
    /// root, grpc.admins and grpc.integrations may give up to 24h.
    #[serde(serialize_with = "quantity::show_duration")]
    Live reservation_ttl_max: Duration = seconds(600), r#"a duration from "100ms" to "24h""#,
        |v| duration(v, millis(100)..=DAY);
    /// Highest priority that members of group lrs may give their tasks; root and grpc.admins may
    /// give any.
    Live max_user_priority: i32 = 0, "-2147483648..=2147483647", |v| number(v, i32::MIN..=i32::MAX);
}

table! {
    /// `[tiers]`
    TIERS = "tiers": Tiers in Config, |config| &mut config.tiers;

    /// CPU and disk of the full active tier against the full passive tier.
    Live ratio: u32 = 100, "1..=10000", |v| number(v, 1..=10_000);
    /// How passive tasks are held back on the CPU: "idle" by cpu.idle (Linux 5.15 or later; lrsd
    /// does not start without it), "weight" by weights, "auto" by cpu.idle where the kernel has
    /// it, else by weights.
    Restart passive_cpu: PassiveCpu = PassiveCpu::Auto, r#""auto", "idle" or "weight""#, word;
    /// How passive tasks are held back on disks. "weights", or true: by the weights of their
    /// cgroups on disks where those act (the BFQ scheduler, iocost); other disks are shared
    /// equally. "idle": the same, and on a node without such a disk by the idle I/O class
    /// (mq-deadline), which made synchronous writers behind CPU tasks slower and no measured
    /// queue faster. false: all disks are shared equally.
    Restart io: DiskTiers = DiskTiers::Weights, r#"true, "weights", "idle" or false"#, disk_tiers;
    /// How long a thread of a task that computes keeps the CPU before the next one of its tier has it
    /// (Linux 6.12 or newer), while its task is passive, or one of more active tasks than CPUs: each
    /// switch empties the caches. "off": always the kernel's own: long ones made threads of the kernel
    /// wait for up to half a second as tasks came and went (docs/experiments/slices.md). "auto": 100 ms,
    /// the longest that the kernel takes, where it has such slices. A slice that a program has chosen
    /// itself is left alone.
    Restart slice: SliceSetting = SliceSetting::Off, r#""auto", "off" or a duration from "1ms" to "100ms""#, slice;
    /// CPU weight of all tasks of LRS together against the other groups of the node, in units of
    /// cpu.weight (100 is neutral; on cgroup v1 it is converted to cpu.shares). "auto": 100 for
    /// each CPU that active tasks use or wait for, at most one for each active slot; idle, behind
    /// all other groups, while they want none. A number is in force whatever active tasks want.
    Restart root_weight: Auto<u32> = Auto::Auto, r#""auto" or 1..=10000"#,
        |v| auto(v, |v| number(v, 1..=10_000));
    /// Part of a CPU, for each active slot, that passive tasks may use promptly while the CPUs are
    /// saturated: those that compute in bursts of less than 2 ms between waits for a disk or a
    /// timer. They get a tenth of an active task's CPU weight, and a fiftieth while they use more
    /// than their part. 0: none.
    Live lane_share: Share = share(0.025), "0.0..=0.2", |v| number(v, Share::ZERO..=share(0.2));
}

table! {
    /// `[classify]`
    CLASSIFY = "classify": Classify in Config, |config| &mut config.classify;

    /// Tasks with a computing rate below it are I/O-bound.
    Live io_below: Share = share(0.2), "0.0..=1.0, not above classify.cpu_above",
        |v| number(v, Share::ZERO..=Share::ONE);
    /// Tasks with a computing rate of it or above are CPU-bound.
    Live cpu_above: Share = share(0.8), "0.0..=1.0, not below classify.io_below",
        |v| number(v, Share::ZERO..=Share::ONE);
    /// How far the computing rates on the node may rise above the mean of all jobs before the
    /// co-location test advises against a job.
    Live colocation_threshold: f64 = 0.1, "0.0..=1.0", |v| number(v, 0.0..=1.0);
}

table! {
    /// `[guard]`; (1) no more passive slots, (2) headroom, (3) freeze.
    GUARD = "guard": Guard in Config, |config| &mut config.guard;

    /// Whether the guard holds slots back at all.
    Live enabled: bool = true, BOOLEAN, plain;
    /// The guard holds once less than it is available for guard.enter_after: of the node
    /// (MemAvailable), or below a limit of memory above the tasks, where a percentage is of that limit.
    /// Expansion leaves it free too, whether or not the guard is enabled.
    #[serde(serialize_with = "quantity::show_memory_amount")]
    Live memory_reserve: MemoryAmount = MemoryAmount::OfTotal(share(0.05)), MEMORY, memory_amount;
    /// The guard lets go once so much is available for guard.exit_after. If absent: one and a half
    /// times guard.memory_reserve.
    #[serde(serialize_with = "quantity::show_memory_amount")]
    Live memory_resume: MemoryAmount = MemoryAmount::OfTotal(share(0.075)),
        "a size such as \"512MiB\" or \"1.5GiB\", a number of bytes, or \"0%\" to \"100%\" \
         of the node's memory or of the limit that binds, not below guard.memory_reserve", memory_amount;
    /// The guard holds once all tasks of the node stalled for memory for this share of a cycle (PSI,
    /// "full"), and lets go below half of it.
    Live memory_pressure: Share = share(0.2), "0.01..=1.0",
        |v| number(v, share(0.01)..=Share::ONE);
    /// The guard holds once the swap in use grows by as much a second, and lets go below half of it.
    #[serde(serialize_with = "quantity::show_size")]
    Live swap_growth: Bytes = Bytes(16 << 20), r#"a size up to "1TiB", whole mebibytes"#,
        |v| whole_mebibytes(v, Bytes(1 << 40));
    /// How long memory has to be short before the guard holds; "0s" is at once.
    #[serde(serialize_with = "quantity::show_duration")]
    Live enter_after: Duration = Duration::ZERO, r#"a duration from "0s" to "24h""#,
        |v| duration(v, Duration::ZERO..=DAY);
    /// How long memory has to be plentiful before the guard lets go; longer each time, up to 64 times,
    /// where it holds again soon after.
    #[serde(serialize_with = "quantity::show_duration")]
    Live exit_after: Duration = seconds(10), r#"a duration from "0s" to "24h""#,
        |v| duration(v, Duration::ZERO..=DAY);
    /// Added passive slots are taken back, and none is added for up to an hour, once active tasks wait
    /// for CPUs and disks for so much more of the time than before they were added. 1.0: never.
    Live interference: Share = share(0.25), "0.05..=1.0",
        |v| number(v, share(0.05)..=Share::ONE);
    /// Headroom: how long less than half of guard.memory_reserve has to be available, or twice
    /// guard.memory_pressure be passed, before the I/O lane is emptied and passive tasks are frozen, half
    /// of them at most.
    #[serde(serialize_with = "quantity::show_duration")]
    Live headroom_after: Duration = seconds(10), r#"a duration from "0s" to "24h""#,
        |v| duration(v, Duration::ZERO..=DAY);
    /// Report headroom and freeze nothing for it.
    Live headroom_dry_run: bool = true, BOOLEAN, plain;
    /// The same for freezing all of them, the lowest and newest first.
    #[serde(serialize_with = "quantity::show_duration")]
    Live freeze_after: Duration = seconds(30),
        r#"a duration from "0s" to "24h", not below guard.headroom_after"#,
        |v| duration(v, Duration::ZERO..=DAY);
    /// Report that and freeze nothing for it.
    Live freeze_dry_run: bool = true, BOOLEAN, plain;
    /// Between two tasks that are frozen or thawed.
    #[serde(serialize_with = "quantity::show_duration")]
    Live freeze_hold: Duration = seconds(10), r#"a duration from "1s" to "1h""#,
        |v| duration(v, seconds(1)..=seconds(3600));
    /// How long a task is frozen at most; after that it runs for as long at least.
    #[serde(serialize_with = "quantity::show_duration")]
    Live freeze_max: Duration = seconds(600), r#"a duration from "10s" to "24h""#,
        |v| duration(v, seconds(10)..=DAY);
    /// Report what the guard would do and hold nothing.
    Live dry_run: bool = false, BOOLEAN, plain;
}

table! {
    /// `[cgroup]`
    CGROUP = "cgroup": Cgroup in Config, |config| &mut config.cgroup;

    /// Group below the cgroup mount that holds the groups of all tasks. "auto": "lrs". Daemons
    /// that run side by side need one each.
    Restart root: Auto<RootPath> = Auto::Auto,
        r#""auto" or a relative path of plain names such as "lrs""#, |v| auto(v, cgroup_root);
    /// Which cgroup interface is used. "auto": v2 where it has the cpu controller, else v1.
    #[serde(serialize_with = "value::show_version")]
    Restart version: Auto<Version> = Auto::Auto, r#""auto", 1 or 2"#, |v| auto(v, version);
    /// Whether the groups of tasks have the memory controller (cgroup v2; on v1 LRS leaves memory
    /// alone). Without it nothing tells the most memory of a task or whether the kernel killed in it,
    /// and systemd-oomd sees no single task. With it the group of each ended task stays in the kernel,
    /// about 23 kB, as long as file pages of the task are cached (docs/operations.md); so it does with
    /// tiers.io, since the io controller brings the kernel's memory groups along: only both off end it.
    /// Takes effect where lrsd starts and no task runs.
    Restart memory_controller: bool = true, BOOLEAN, plain;
}

table! {
    /// `[grpc]`
    GRPC = "grpc": Grpc in Config, |config| &mut config.grpc;

    /// Sockets to serve on; a path has at most 107 bytes. If absent: lrsd.sock in
    /// daemon.runtime_dir.
    #[serde(serialize_with = "value::show_sockets")]
    Restart listen: Vec<PathBuf> = vec!["/run/lrs/lrsd.sock".into()],
        r#"a list of 1 to 16 addresses "unix:/absolute/path""#,
        |v| list(v, 1..=16, listen_address);
    /// Accounts that may do all that root may, by uid or by name. Names are looked up when the
    /// file is read.
    Live admins: Vec<u32> = Vec::new(), "a list of at most 1024 uids or account names",
        |v| list(v, 0..=1024, account);
    /// Accounts that may speak for a scheduler (Hint and ReportIntegration), by uid or by name;
    /// what members of group lrs may, they may too. "auto": the account lrs-yarn, where there is
    /// one.
    Live integrations: Auto<Vec<u32>> = Auto::Auto,
        r#""auto" or a list of at most 1024 uids or account names"#,
        |v| auto(v, |v| list(v, 0..=1024, account));
}

table! {
    /// `[dbus]`
    DBUS = "dbus": Dbus in Config, |config| &mut config.dbus;

    /// The bus to serve on. Where there is none lrsd serves gRPC alone and tries again. One lrsd
    /// on a bus: those that run beside it take "off".
    Restart bus: Bus = Bus::System,
        r#""system", "session", "off" or an address "unix:path=/run/my-bus""#, bus;
}

table! {
    /// `[history]`
    HISTORY = "history": History in Config, |config| &mut config.history;

    /// Where is kept, over a boot, what the node did (each cycle for an hour or more, each minute for a
    /// week or more) and which tasks ended: at most 16 MiB. Empty is off. If absent: off where
    /// daemon.runtime_dir is not /run/lrs, so that daemons beside the service keep none.
    Restart directory: String = DEFAULT_HISTORY.into(), r#""" or an absolute path"#,
        |v| match text(v)? {
            "" => Ok(String::new()),
            _ => directory(v).map(|path| path.to_string_lossy().into_owned()),
        };
}

table! {
    /// `[metrics]`
    METRICS = "metrics": Metrics in Config, |config| &mut config.metrics;

    /// The address on which lrs-exporter serves /metrics and /healthz: "127.0.0.1:9753" for an agent
    /// on this node, "0.0.0.0:9753" or an IPv6 one in brackets for a Prometheus elsewhere. Everybody who reaches it may
    /// read it. Empty is off. lrsd itself opens no port; `systemctl enable --now lrs-exporter` starts
    /// what does (docs/monitoring.md).
    Live listen: String = String::new(), r#""" or an address and a port such as "127.0.0.1:9753""#,
        |v| match text(v)? {
            "" => Ok(String::new()),
            _ => socket_address(v),
        };
    /// How many jobs have series of their own, those with most tasks; the rest is the job "other".
    /// 0: none, so that no name of a job leaves the node.
    Live jobs: u32 = 0, "0..=1000", |v| number(v, 0..=1000);
}

table! {
    /// `[yarn]`
    YARN = "yarn": Yarn in Config, |config| &mut config.yarn;

    /// Whether containers of the YARN NodeManagers on this node become tasks. Hadoop is not
    /// changed; docs/yarn.md is the runbook.
    Restart enabled: bool = false, BOOLEAN, plain;
    /// Hadoop's configuration: yarn-site.xml and core-site.xml. What stands below as "auto" is
    /// read there.
    Restart conf_dir: PathBuf = "/etc/hadoop/conf".into(), "an absolute path", directory;
    /// Local directories of the NodeManagers; containers are noticed in nmPrivate below them.
    /// With several NodeManagers, those of all. "auto": yarn.nodemanager.local-dirs.
    Restart local_dirs: Auto<Vec<PathBuf>> = Auto::Auto,
        r#""auto" or a list of 1 to 256 absolute paths"#,
        |v| auto(v, |v| list(v, 1..=256, directory));
    /// Web addresses of the ResourceManagers, all of them where there are several; the active
    /// one is found. "auto": from yarn-site.xml.
    Restart resource_managers: Auto<Vec<String>> = Auto::Auto,
        r#""auto" or a list of 1 to 16 addresses "http://host:8088""#,
        |v| auto(v, |v| list(v, 1..=16, address));
    /// Web address of the NodeManager of the node that is offered. "auto": from yarn-site.xml.
    Restart node_manager: Auto<String> = Auto::Auto,
        r#""auto" or an address "http://localhost:8042""#, |v| auto(v, address);
    /// The node as the ResourceManager knows it. "auto": the NodeManager says, so that a port it
    /// takes at random is followed; its host has to be this node. Required with several
    /// NodeManagers.
    Restart node_id: Auto<NodeId> = Auto::Auto, r#""auto" or "host:port""#, |v| auto(v, node_id);
    /// Whether expanded slots are offered to the ResourceManager: the configured memory and vcores
    /// plus, for each slot open beyond the base, slot_memory and slot_vcores. Off, LRS shapes
    /// the containers there are. Nothing is offered in observe mode.
    Live offer: bool = false, BOOLEAN, plain;
    /// "rest": the ResourceManager's node-resource call (Hadoop 3.3 and later). "rmadmin": the
    /// command below, for older ones and for Kerberos.
    Restart offer_by: OfferBy = OfferBy::Rest, r#""rest" or "rmadmin""#, word;
    /// The command of offer_by = "rmadmin", run without a shell; LRS adds -updateNodeResource
    /// and its arguments. lrs-yarn.service runs it as its own user. Put what gets a ticket before
    /// it, for example k5start (docs/yarn.md).
    Restart rmadmin: Vec<String> = vec!["yarn".into(), "rmadmin".into()],
        "a list of 1 to 64 words", |v| words(v, 1..=64);
    /// Memory offered for each slot beyond the base: what a container of the usual size asks
    /// for. What is configured and offered together is at most MemTotal less
    /// guard.memory_reserve.
    #[serde(serialize_with = "quantity::show_size")]
    Live slot_memory: Bytes = Bytes(1 << 30), r#"a size up to "1TiB", whole mebibytes"#,
        |v| whole_mebibytes(v, Bytes(1 << 40));
    /// Vcores offered for each slot beyond the base, also where no memory is left to offer. They
    /// count only where the scheduler looks at vcores (DominantResourceCalculator, or the policy
    /// DRF of the FairScheduler).
    Live slot_vcores: u32 = 1, "0..=1024", |v| number(v, 0..=1024);
    /// Who the node-resource call is made by (user.name) where the ResourceManager asks for no
    /// proof. It has to be in the ResourceManager's yarn.admin.acl, or the user that one runs as.
    /// Hadoop's configuration files may belong to this user or to root, and no other user may be
    /// able to write them.
    Restart user: String = "yarn".into(),
        r#"a name of letters, digits, "_", "-" and ".", at most 64"#, user_name;
    /// Certificates to trust with https, as PEM. "auto": those of the system.
    Restart ca_file: Auto<PathBuf> = Auto::Auto, r#""auto" or an absolute path"#,
        |v| auto(v, directory);
    /// How often the ResourceManager and the NodeManager are read: for priorities, queues,
    /// execution types and whether the offer still stands.
    #[serde(serialize_with = "quantity::show_duration")]
    Live poll: Duration = seconds(5), r#"a duration from "1s" to "1h""#,
        |v| duration(v, seconds(1)..=seconds(3600));
    /// How long one call of theirs, or one run of rmadmin, may take.
    #[serde(serialize_with = "quantity::show_duration")]
    Live timeout: Duration = seconds(10), r#"a duration from "100ms" to "5m""#,
        |v| duration(v, millis(100)..=seconds(300));
}

const EXPRESSION: &str = "a regular expression";

const TEMPLATE: &str = "1 to 256 bytes, with \"${name}\" for what the group of that name caught";

table! {
    /// A `[[discover]]` table while it is read.
    RULE = "discover": Draft in Draft, |draft| draft;

    /// What the history calls the rule. Required; no two rules have the same.
    Restart name: Option<Label> = None, "1 to 256 bytes without control characters",
        |v| word(v).map(Some);
    /// Matched anywhere in the arguments of the process, joined by single spaces. Spaces and
    /// newlines within an argument stand there as they are, so that one argument with a space looks
    /// like two; "." matches no newline.
    Restart command: Option<Pattern> = None, EXPRESSION,
        |v| pattern(v, Pattern::anywhere).map(Some);
    /// Variables the process must have been started with, each matched anywhere in its value.
    Restart environment: Vec<(String, Pattern)> = Vec::new(),
        "a table of 1 to 16 variables, { NAME = 'regular expression' }",
        |v| environment(v, 1..=16);
    /// Has to match the whole path, below the mount of the hierarchy with the cpu controller, of
    /// the process's group or of one above it; of several the topmost counts.
    Restart cgroup: Option<Pattern> = None, EXPRESSION, |v| pattern(v, Pattern::whole).map(Some);
    /// Processes in a group with a path that this matches as a whole are not the task's: those by
    /// which a scheduler looks after it, in groups below the one that cgroup matched. The task is
    /// over when no other is left. For in_place only.
    Restart except: Option<Pattern> = None, EXPRESSION, |v| pattern(v, Pattern::whole).map(Some);
    /// The users of the processes that count, by effective uid. A rule that moves processes needs
    /// it or cgroup: command lines and environments are what any user makes them.
    Restart user: Vec<u32> = Vec::new(), "a uid or account name, or a list of 1 to 1024",
        |v: &Node<'_>| match v.get_ref().is_array() {
            true => list(v, 1..=1024, account),
            false => Ok(vec![account(v)?]),
        };
    /// The task's name. Processes of one rule and one name, one below the other, are one task.
    Restart id: Option<Template> = None, TEMPLATE, |v| template(v).map(Some);
    /// The job it belongs to. Tasks of a job are alike.
    Restart job: Option<Template> = None, TEMPLATE, |v| template(v).map(Some);
    /// What kind of task of that job it is.
    Restart kind: Option<Template> = None, TEMPLATE, |v| template(v).map(Some);
    /// "own": the process and its descendants are moved into a group of LRS's. "in_place":
    /// nothing moves, the weights of the group that cgroup matched are edited. If absent:
    /// "in_place" where cgroup is the only pattern, else "own".
    Restart attach: Option<Means> = None, r#""own" or "in_place""#, |v| word(v).map(Some);
    /// "slot": an active or passive slot, or overflow. "slotless": active weights without a
    /// slot, for what must never wait. "opportunistic": behind every task that is not, whatever
    /// the priorities. If absent: "slot".
    Restart standing: Standing = Standing::Slot, r#""slot", "slotless" or "opportunistic""#, word;
    /// Higher runs sooner. If absent: 0.
    Restart priority: Priority = Priority(0), "-2147483648..=2147483647",
        |v| number(v, Priority(i32::MIN)..=Priority(i32::MAX));
}
