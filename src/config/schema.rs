//! The table of all keys.
//!
//! To add a key: a field in the types of [`super`], its default in `Config::default`, one
//! entry here. The tests then ask for a new `config/lrs.toml` by failing.

use std::time::Duration;

use super::value::{self, Node, Rejection};
use super::{Auto, Config, Mode};
use crate::cgroup::{DiskTiers, PassiveCpu, Version};

/// When a changed value is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// On reload.
    Live,
    /// When lrsd starts.
    Restart,
}

/// One key.
pub struct Key {
    /// Section and name: `slots.active`.
    pub path: &'static str,
    /// What it is for; sentences, wrapped at will.
    pub doc: &'static str,
    /// What may be written, to follow "expected".
    pub range: &'static str,
    /// Whether a reload is enough.
    pub applies: Applies,
    /// Puts a value of the file into the configuration, or says all that is wrong with it.
    pub(super) read: fn(&Node<'_>, &mut Config) -> Result<(), Vec<Wrong>>,
    /// The value of a configuration as TOML that `read` takes.
    pub write: fn(&Config) -> String,
}

impl Key {
    /// The part of the path before the dot.
    pub fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }

    /// The part of the path after the dot.
    pub fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }
}

/// What is wrong with a value or with one element of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Where the element stands; `None`: the value as a whole.
    pub(super) span: Option<std::ops::Range<usize>>,
    /// Why it is not taken.
    pub(super) why: Rejection,
}

impl From<Rejection> for Vec<Wrong> {
    fn from(why: Rejection) -> Vec<Wrong> {
        vec![Wrong { span: None, why }]
    }
}

/// One section.
pub struct Section {
    /// The name between the brackets.
    pub name: &'static str,
    /// What its keys have in common.
    pub doc: &'static str,
}

impl Section {
    /// Its keys, in the order of the table.
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> + '_ {
        keys().filter(|key| key.section() == self.name)
    }
}

/// The sections, in the order of the shipped file.
pub const SECTIONS: &[Section] = &[
    Section { name: "daemon", doc: "The daemon itself." },
    Section {
        name: "slots",
        doc: "How many tasks may run, and in which tier. An active task takes all the CPU and \
              disk it wants; passive tasks live on what is left.",
    },
    Section { name: "tiers", doc: "How far passive tasks stand behind active ones." },
    Section {
        name: "classify",
        doc: "What counts as bound by CPU or by I/O. The computing rate of a task is \
              CPU / (CPU + time blocked), 0 to 1.",
    },
    Section {
        name: "guard",
        doc: "When memory runs short LRS stops opening and offering passive slots. It never \
              stops or kills a running task.",
    },
    Section { name: "cgroup", doc: "Where the cgroups of tasks are made." },
    Section { name: "grpc", doc: "The socket that lrsctl and schedulers talk to." },
    Section { name: "dbus", doc: "The D-Bus interface, org.lrs.Shaper1." },
    Section { name: "metrics", doc: "Metrics for Prometheus. Not built yet." },
    Section {
        name: "yarn",
        doc: "An unmodified Hadoop node: containers become tasks, and slots are offered to the \
              ResourceManager.",
    },
];

/// Keys of removed features, each with what to know. For one release a file that has them is
/// taken: the key is warned about and ignored.
pub(super) const REMOVED: &[(&str, &str)] =
    &[("yarn.tasktracker", "remove the key; TaskTrackers (Hadoop 1) are not supported any more")];

const MODES: &[(&str, Mode)] = &[("enforce", Mode::Enforce), ("observe", Mode::Observe)];

const PASSIVE_CPU: &[(&str, PassiveCpu)] =
    &[("auto", PassiveCpu::Auto), ("idle", PassiveCpu::Idle), ("weight", PassiveCpu::Weight)];

const DISK_TIERS: &[(&str, DiskTiers)] =
    &[("weights", DiskTiers::Weights), ("idle", DiskTiers::Idle)];

const MAX_HOLD: Duration = Duration::from_secs(24 * 3600);

/// Most entries of a list; more are a mistake.
const MAX_LISTEN: usize = 16;
const MAX_ADMINS: usize = 1024;

/// Every key, section by section.
pub fn keys() -> impl Iterator<Item = &'static Key> + Clone {
    KEYS.iter().chain(super::yarn::KEYS)
}

static KEYS: &[Key] = &[
    Key {
        path: "daemon.runtime_dir",
        doc: "Holds the state of tasks, the lock and, unless grpc.listen says otherwise, the \
              socket. Best on a tmpfs. Daemons that run side by side need one each.",
        range: "an absolute path",
        applies: Applies::Restart,
        read: |v, c| {
            c.daemon.runtime_dir = value::directory(v)?;
            Ok(())
        },
        write: |c| value::show_text(&c.daemon.runtime_dir.to_string_lossy()),
    },
    Key {
        path: "daemon.sample_period",
        doc: "One cycle: how often the node and its tasks are measured and the number of \
              passive slots is decided. Promotion does not wait for it.",
        range: "a duration from \"100ms\" to \"60s\"",
        applies: Applies::Live,
        read: |v, c| {
            let range = Duration::from_millis(100)..=Duration::from_secs(60);
            c.daemon.sample_period = value::duration(v, range)?;
            Ok(())
        },
        write: |c| value::show_duration(c.daemon.sample_period),
    },
    Key {
        path: "daemon.mode",
        doc: "\"enforce\" shapes tasks; \"observe\" keeps the books and writes to no cgroup, \
              so that it needs no rights. Tasks that run go on through a change: \"enforce\" \
              attaches those that were only booked, \"observe\" first gives back what was shaped.",
        range: "\"enforce\" or \"observe\"",
        applies: Applies::Restart,
        read: |v, c| {
            c.daemon.mode = value::choice(v, MODES)?;
            Ok(())
        },
        write: |c| value::show_choice(&c.daemon.mode, MODES),
    },
    Key {
        path: "daemon.log",
        doc: "What is logged: a level, or directives for parts of the program such as \
              \"info,lrs::cgroup=debug\".",
        range: "a tracing filter: error, warn, info, debug, trace, off or directives",
        applies: Applies::Live,
        read: |v, c| {
            c.daemon.log = value::log_filter(v)?;
            Ok(())
        },
        write: |c| value::show_text(&c.daemon.log),
    },
    Key {
        path: "slots.active",
        doc: "Active slots. \"auto\": as many as there are CPUs that tasks may use (affinity, \
              cpuset and CPU quota counted), read anew each cycle.",
        range: "\"auto\" or 1..=4096",
        applies: Applies::Live,
        read: |v, c| {
            c.slots.active = value::auto(v, |v| value::integer(v, 1..=4096))?;
            Ok(())
        },
        write: |c| value::show_auto(&c.slots.active, u32::to_string),
    },
    Key {
        path: "slots.passive",
        doc: "Passive slots that are there whatever the load: the base. \"auto\": as many as \
              active ones.",
        range: "\"auto\" or 0..=65536",
        applies: Applies::Live,
        read: |v, c| {
            c.slots.passive = value::auto(v, |v| value::integer(v, 0..=65536))?;
            Ok(())
        },
        write: |c| value::show_auto(&c.slots.passive, u32::to_string),
    },
    Key {
        path: "slots.passive_max",
        doc: "Most passive slots, the base included. \"auto\": four times the active slots, \
              or slots.passive if that is more.",
        range: "\"auto\" or 0..=65536, not below slots.passive",
        applies: Applies::Live,
        read: |v, c| {
            c.slots.passive_max = value::auto(v, |v| value::integer(v, 0..=65536))?;
            Ok(())
        },
        write: |c| value::show_auto(&c.slots.passive_max, u32::to_string),
    },
    Key {
        path: "slots.expand",
        doc: "Whether passive slots are added while all slots are taken and the node has \
              spare CPU.",
        range: "true or false",
        applies: Applies::Live,
        read: |v, c| {
            c.slots.expand = value::boolean(v)?;
            Ok(())
        },
        write: |c| c.slots.expand.to_string(),
    },
    Key {
        path: "slots.io_wait_threshold",
        doc: "Share of CPU time spent waiting for I/O above which slots are added one at a \
              time.",
        range: "0.0..=1.0",
        applies: Applies::Live,
        read: |v, c| {
            c.slots.io_wait_threshold = value::share(v, 0.0..=1.0)?;
            Ok(())
        },
        write: |c| value::show_number(c.slots.io_wait_threshold.value()),
    },
    Key {
        path: "slots.cpu_saturation",
        doc: "Share of CPU time in use or stolen from which the node counts as saturated: no \
              slot is added, and free added ones are withdrawn at once.",
        range: "0.01..=1.0",
        applies: Applies::Live,
        read: |v, c| {
            c.slots.cpu_saturation = value::share(v, 0.01..=1.0)?;
            Ok(())
        },
        write: |c| value::show_number(c.slots.cpu_saturation.value()),
    },
    Key {
        path: "slots.shrink_after",
        doc: "Cycles that an added slot has to be free before it is withdrawn on a node that \
              is not saturated.",
        range: "1..=1000",
        applies: Applies::Live,
        read: |v, c| {
            c.slots.shrink_after = value::integer(v, 1..=1000)?;
            Ok(())
        },
        write: |c| c.slots.shrink_after.to_string(),
    },
    Key {
        path: "slots.reservation_ttl",
        doc: "Life of a reservation whose request names none.",
        range: "a duration from \"100ms\" to \"24h\"",
        applies: Applies::Live,
        read: |v, c| {
            let range = Duration::from_millis(100)..=MAX_HOLD;
            c.slots.reservation_ttl = value::duration(v, range)?;
            Ok(())
        },
        write: |c| value::show_duration(c.slots.reservation_ttl),
    },
    Key {
        path: "slots.max_user_priority",
        doc: "Highest priority that members of group lrs may give their tasks; root and \
              grpc.admins may give any.",
        range: "-2147483648..=2147483647",
        applies: Applies::Live,
        read: |v, c| {
            c.slots.max_user_priority = value::integer(v, i32::MIN..=i32::MAX)?;
            Ok(())
        },
        write: |c| c.slots.max_user_priority.to_string(),
    },
    Key {
        path: "tiers.ratio",
        doc: "CPU and disk of the full active tier against the full passive tier.",
        range: "1..=10000",
        applies: Applies::Live,
        read: |v, c| {
            c.tiers.ratio = value::integer(v, 1..=10_000)?;
            Ok(())
        },
        write: |c| c.tiers.ratio.to_string(),
    },
    Key {
        path: "tiers.passive_cpu",
        doc: "How passive tasks are held back on the CPU: \"idle\" by cpu.idle (Linux 5.15 or \
              later; lrsd does not start without it), \"weight\" by weights, \"auto\" by \
              cpu.idle where the kernel has it, else by weights.",
        range: "\"auto\", \"idle\" or \"weight\"",
        applies: Applies::Restart,
        read: |v, c| {
            c.tiers.passive_cpu = value::choice(v, PASSIVE_CPU)?;
            Ok(())
        },
        write: |c| value::show_choice(&c.tiers.passive_cpu, PASSIVE_CPU),
    },
    Key {
        path: "tiers.io",
        doc: "How passive tasks are held back on disks. \"weights\", or true: by the weights of \
              their cgroups on disks where those act (the BFQ scheduler, iocost); other disks \
              are shared equally. \"idle\": the same, and on a node without such a disk by the \
              idle I/O class (mq-deadline), which made synchronous writers behind CPU tasks \
              slower and no measured queue faster. false: all disks are shared equally.",
        range: "true, \"weights\", \"idle\" or false",
        applies: Applies::Restart,
        read: |v, c| {
            c.tiers.io = match value::boolean(v) {
                Ok(true) => DiskTiers::Weights,
                Ok(false) => DiskTiers::Off,
                Err(_) => value::choice(v, DISK_TIERS)?,
            };
            Ok(())
        },
        write: |c| match c.tiers.io {
            DiskTiers::Weights => "true".to_owned(),
            DiskTiers::Idle => "\"idle\"".to_owned(),
            DiskTiers::Off => "false".to_owned(),
        },
    },
    Key {
        path: "tiers.root_weight",
        doc: "CPU weight of all tasks of LRS together against the other groups of the node, \
              in units of cpu.weight (100 is neutral; on cgroup v1 it is converted to \
              cpu.shares). \"auto\": active slots times 100.",
        range: "\"auto\" or 1..=10000",
        applies: Applies::Restart,
        read: |v, c| {
            c.tiers.root_weight = value::auto(v, |v| value::integer(v, 1..=10_000))?;
            Ok(())
        },
        write: |c| value::show_auto(&c.tiers.root_weight, u32::to_string),
    },
    Key {
        path: "classify.io_below",
        doc: "Tasks with a computing rate below it are I/O-bound.",
        range: "0.0..=1.0, not above classify.cpu_above",
        applies: Applies::Live,
        read: |v, c| {
            c.classify.io_below = value::share(v, 0.0..=1.0)?;
            Ok(())
        },
        write: |c| value::show_number(c.classify.io_below.value()),
    },
    Key {
        path: "classify.cpu_above",
        doc: "Tasks with a computing rate of it or above are CPU-bound.",
        range: "0.0..=1.0, not below classify.io_below",
        applies: Applies::Live,
        read: |v, c| {
            c.classify.cpu_above = value::share(v, 0.0..=1.0)?;
            Ok(())
        },
        write: |c| value::show_number(c.classify.cpu_above.value()),
    },
    Key {
        path: "classify.colocation_threshold",
        doc: "How far the computing rates on the node may rise above the mean of all jobs \
              before the co-location test advises against a job.",
        range: "0.0..=1.0",
        applies: Applies::Live,
        read: |v, c| {
            c.classify.colocation_threshold = value::number(v, 0.0..=1.0)?;
            Ok(())
        },
        write: |c| value::show_number(c.classify.colocation_threshold),
    },
    Key {
        path: "guard.enabled",
        doc: "Whether the guard holds slots back at all.",
        range: "true or false",
        applies: Applies::Live,
        read: |v, c| {
            c.guard.enabled = value::boolean(v)?;
            Ok(())
        },
        write: |c| c.guard.enabled.to_string(),
    },
    Key {
        path: "guard.memory_reserve",
        doc: "The guard holds once MemAvailable stays below it for guard.enter_after. \
              Expansion leaves it free too, whether or not the guard is enabled.",
        range: "a size such as \"512MiB\" or \"1.5GiB\", a number of bytes, or \"0%\" to \"100%\" \
                of the node's memory",
        applies: Applies::Live,
        read: |v, c| {
            c.guard.memory_reserve = value::memory_amount(v)?;
            Ok(())
        },
        write: |c| value::show_memory_amount(c.guard.memory_reserve),
    },
    Key {
        path: "guard.memory_resume",
        doc: "The guard lets go once MemAvailable stays above it for guard.exit_after. If \
              absent: one and a half times guard.memory_reserve.",
        range: "a size such as \"512MiB\" or \"1.5GiB\", a number of bytes, or \"0%\" to \"100%\" \
                of the node's memory, not below guard.memory_reserve",
        applies: Applies::Live,
        read: |v, c| {
            c.guard.memory_resume = value::memory_amount(v)?;
            Ok(())
        },
        write: |c| value::show_memory_amount(c.guard.memory_resume),
    },
    Key {
        path: "guard.enter_after",
        doc: "How long memory has to be short before the guard holds; \"0s\" is at once.",
        range: "a duration from \"0s\" to \"24h\"",
        applies: Applies::Live,
        read: |v, c| {
            c.guard.enter_after = value::duration(v, Duration::ZERO..=MAX_HOLD)?;
            Ok(())
        },
        write: |c| value::show_duration(c.guard.enter_after),
    },
    Key {
        path: "guard.exit_after",
        doc: "How long memory has to be plentiful before the guard lets go.",
        range: "a duration from \"0s\" to \"24h\"",
        applies: Applies::Live,
        read: |v, c| {
            c.guard.exit_after = value::duration(v, Duration::ZERO..=MAX_HOLD)?;
            Ok(())
        },
        write: |c| value::show_duration(c.guard.exit_after),
    },
    Key {
        path: "guard.dry_run",
        doc: "Report what the guard would do and hold nothing.",
        range: "true or false",
        applies: Applies::Live,
        read: |v, c| {
            c.guard.dry_run = value::boolean(v)?;
            Ok(())
        },
        write: |c| c.guard.dry_run.to_string(),
    },
    Key {
        path: "cgroup.root",
        doc: "Group below the cgroup mount that holds the groups of all tasks. \"auto\": \
              \"lrs\". Daemons that run side by side need one each.",
        range: "\"auto\" or a relative path of plain names such as \"lrs\"",
        applies: Applies::Restart,
        read: |v, c| {
            c.cgroup.root = value::auto(v, value::cgroup_root)?;
            Ok(())
        },
        write: |c| value::show_auto(&c.cgroup.root, |root| value::show_text(&root.0)),
    },
    Key {
        path: "cgroup.version",
        doc: "Which cgroup interface is used. \"auto\": v2 where it has the cpu controller, \
              else v1.",
        range: "\"auto\", 1 or 2",
        applies: Applies::Restart,
        read: |v, c| {
            c.cgroup.version = value::auto(v, |v| {
                value::integer(v, 1..=2)
                    .map(|number| if number == 1 { Version::V1 } else { Version::V2 })
            })?;
            Ok(())
        },
        write: |c| {
            value::show_auto(&c.cgroup.version, |version| {
                String::from(match version {
                    Version::V1 => "1",
                    Version::V2 => "2",
                })
            })
        },
    },
    Key {
        path: "grpc.listen",
        doc: "Sockets to serve on; a path has at most 107 bytes. If absent: lrsd.sock in \
              daemon.runtime_dir.",
        range: "a list of 1 to 16 addresses \"unix:/absolute/path\"",
        applies: Applies::Restart,
        read: |v, c| {
            c.grpc.listen = list(v, 1..=MAX_LISTEN, value::listen_address)?;
            Ok(())
        },
        write: |c| {
            show_list(&c.grpc.listen, |path| {
                value::show_text(&format!("unix:{}", path.to_string_lossy()))
            })
        },
    },
    Key {
        path: "grpc.admins",
        doc: "Accounts that may do all that root may, by uid or by name. Names are looked up \
              when the file is read.",
        range: "a list of at most 1024 uids or account names",
        applies: Applies::Live,
        read: |v, c| {
            c.grpc.admins = list(v, 0..=MAX_ADMINS, value::account)?;
            Ok(())
        },
        write: |c| show_list(&c.grpc.admins, u32::to_string),
    },
    Key {
        path: "grpc.integrations",
        doc: "Accounts that may speak for a scheduler (Hint and ReportIntegration), by uid or by \
              name; what members of group lrs may, they may too. \"auto\": the account lrs-yarn, \
              where there is one.",
        range: "\"auto\" or a list of at most 1024 uids or account names",
        applies: Applies::Live,
        read: |v, c| {
            c.grpc.integrations = match v.get_ref().as_str() {
                Some("auto") => Auto::Auto,
                _ => Auto::Fixed(list(v, 0..=MAX_ADMINS, value::account)?),
            };
            Ok(())
        },
        write: |c| value::show_auto(&c.grpc.integrations, |uids| show_list(uids, u32::to_string)),
    },
    Key {
        path: "dbus.bus",
        doc: "The bus to serve on. Where there is none lrsd serves gRPC alone and tries again. \
              One lrsd on a bus: those that run beside it take \"off\".",
        range: "\"system\", \"session\", \"off\" or an address \"unix:path=/run/my-bus\"",
        applies: Applies::Restart,
        read: |v, c| {
            c.dbus.bus = value::bus(v)?;
            Ok(())
        },
        write: |c| value::show_text(&c.dbus.bus.to_string()),
    },
    Key {
        path: "metrics.listen",
        doc: "The address to serve on; empty is off.",
        range: "\"\"",
        applies: Applies::Restart,
        read: |v, _| match value::text(v)? {
            "" => Ok(()),
            _ => value::not_built("set metrics.listen = \"\" and read \"lrsctl status --json\"")?,
        },
        write: |_| value::show_text(""),
    },
];

/// The key at `path`.
pub fn key(path: &str) -> Option<&'static Key> {
    keys().find(|key| key.path == path)
}

/// A list without repetitions; everything wrong with its elements, each with its place.
pub(super) fn list<T: PartialEq>(
    node: &Node<'_>,
    lengths: std::ops::RangeInclusive<usize>,
    element: fn(&Node<'_>) -> value::Taken<T>,
) -> Result<Vec<T>, Vec<Wrong>> {
    let items = node.get_ref().as_array().ok_or(Rejection::OutOfRange)?;
    if !lengths.contains(&items.len()) {
        return Err(Rejection::OutOfRange.into());
    }
    let mut taken = Vec::with_capacity(items.len());
    let mut wrong = Vec::new();
    for item in items.iter() {
        match element(item) {
            Ok(value) if taken.contains(&value) => wrong.push(Wrong {
                span: Some(item.span()),
                why: Rejection::Because("stands twice in the list".into(), "remove one".into()),
            }),
            Ok(value) => taken.push(value),
            Err(why) => wrong.push(Wrong { span: Some(item.span()), why }),
        }
    }
    if wrong.is_empty() { Ok(taken) } else { Err(wrong) }
}

pub(super) fn show_list<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", "))
}
