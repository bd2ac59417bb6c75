//! What this kernel and its disks can do, each finding with its reason. Nothing is written.
//!
//! Weights on a disk act only where its I/O scheduler (or iocost) looks at them, so what is
//! claimed depends on the disks and not on which files exist: `blkio.bfq.weight` is there on
//! every kernel with BFQ built in, whichever scheduler the disks use.

use std::fs;
use std::io;
use std::path::Path;

use super::obstacle::Obstacle;
use super::{IoFinding, IoKnob};
use super::{IoTiers, Version};
use crate::core::weights;

/// A whole disk: one with hardware behind it (loop, ram, zram, dm and md sit on others or on
/// memory), or one that was given BFQ, by an operator or by `lrsctl bench` for its modelled disk.
/// A loop device keeps its scheduler when it is taken apart, but has no size then and is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// `sda`, `nvme0n1`, ...
    pub name: String,
    /// `MAJOR:MINOR`.
    pub number: String,
    /// The scheduler in use; `None` where the queue has no such choice.
    pub scheduler: Option<String>,
    /// Those to choose from.
    pub schedulers: Vec<String>,
}

/// Disks below `sys_block` (`/sys/block`), by name.
pub fn disks(sys_block: &Path) -> io::Result<Vec<Disk>> {
    let mut disks = Vec::new();
    for entry in fs::read_dir(sys_block)? {
        let entry = entry?;
        let dir = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = |file: &str| fs::read_to_string(dir.join(file)).ok();
        let empty = text("size").is_none_or(|size| size.trim() == "0");
        let list = text("queue/scheduler").unwrap_or_default();
        let scheduler = chosen(&list).map(str::to_owned);
        let word = |word: &str| word.trim_matches(['[', ']']).to_owned();
        let schedulers = list.split_whitespace().map(word).collect();
        let wanted = dir.join("device").exists() || scheduler.as_deref() == Some("bfq");
        if empty || !wanted || name.starts_with("sr") {
            continue;
        }
        let number = text("dev").unwrap_or_default().trim().to_owned();
        disks.push(Disk { name, number, scheduler, schedulers });
    }
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(disks)
}

/// The bracketed word of `none [mq-deadline] bfq`.
pub(crate) fn chosen(list: &str) -> Option<&str> {
    list.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

/// Device numbers for which `io.cost.qos` of the root group says `enable=1`.
pub fn iocost_devices(io_cost_qos: &str) -> Vec<String> {
    io_cost_qos
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, settings)| settings.split(' ').any(|setting| setting == "enable=1"))
        .map(|(device, _)| device.to_owned())
        .collect()
}

/// What [`io()`] looks at.
#[derive(Clone, Copy, Debug)]
pub struct IoFacts<'a> {
    /// Version of the hierarchy in use.
    pub version: Version,
    /// Directory with the files that show what a task group will have: the root of LRS. `None`: the
    /// io controller cannot be had.
    pub group: Option<&'a Path>,
    /// The node's disks.
    pub disks: &'a [Disk],
    /// Answer of [`iocost_devices`].
    pub iocost: &'a [String],
    /// Whether the idle I/O class may be used: [`super::DiskTiers::Idle`].
    pub idle_class: bool,
}

/// How a reason begins where disk tiers are not made.
pub(super) const EQUAL: &str = "disks are shared equally by active and passive tasks";

/// Chooses what makes disk tiers (spec 4): BFQ, iocost, with `idle_class` priority class or thread
/// priorities, or nothing. Beside weights there are no priorities: BFQ does not wait for the next
/// request of a thread of the idle class, so that on its disks passive tasks would lose their turns
/// and the arm its way. A disk without weights beside one with them has no tiers, which the reason
/// says.
pub fn io(facts: &IoFacts<'_>) -> IoFinding {
    let has = |file: &str| facts.group.is_some_and(|group| group.join(file).exists());
    let bfq_scale = match facts.version {
        Version::V1 => weights::BLKIO_BFQ_WEIGHT,
        Version::V2 => weights::IO_BFQ_WEIGHT,
    };
    let (has_bfq, has_iocost) = (has(bfq_scale.file), has(weights::IO_WEIGHT.file));
    let bfq = on(facts.disks, |disk| has_bfq && disk.scheduler.as_deref() == Some("bfq"));
    let iocost = on(facts.disks, |disk| has_iocost && facts.iocost.contains(&disk.number));
    let has_weights = |disk: &Disk| bfq.contains(&disk.name) || iocost.contains(&disk.name);
    let by_priority = on(facts.disks, |disk| {
        // The schedulers that look at I/O priorities (ioprio.rst); none and kyber do not.
        facts.idle_class
            && !has_weights(disk)
            && matches!(disk.scheduler.as_deref(), Some("bfq" | "mq-deadline"))
    });

    let mut knobs = Vec::new();
    let mut reasons = Vec::new();
    let mut tiers = IoTiers::None;
    if !bfq.is_empty() {
        tiers = IoTiers::Bfq;
        knobs.push(IoKnob::Weight(bfq_scale));
        let limit = match facts.version {
            Version::V1 => "; on cgroup v1 buffered writes are not covered",
            Version::V2 => "; buffered writes only on file systems with cgroup writeback",
        };
        reasons.push(format!("disk tiers by {} on {}{limit}", bfq_scale.file, bfq.join(", ")));
    }
    if !iocost.is_empty() {
        if tiers == IoTiers::None {
            tiers = IoTiers::IoCost;
        }
        knobs.push(IoKnob::Weight(weights::IO_WEIGHT));
        reasons.push(format!("disk tiers by io.weight (iocost) on {}", iocost.join(", ")));
    }
    if tiers == IoTiers::None && !by_priority.is_empty() {
        tiers = IoTiers::IoPrio;
        if facts.version == Version::V2 && has("io.prio.class") {
            knobs.push(IoKnob::PriorityClass);
            reasons.push(format!("disk tiers by io.prio.class on {}", by_priority.join(", ")));
        } else {
            knobs.push(IoKnob::ThreadPriority);
            reasons.push(format!(
                "disk tiers by I/O priority of each thread, re-applied as threads come, on {}; it \
                 acts on reads and direct or synchronous writes only",
                by_priority.join(", ")
            ));
        }
    }
    if tiers == IoTiers::None {
        reasons.push(without_effect(facts));
    } else {
        let by_priority = if tiers == IoTiers::IoPrio { by_priority } else { Vec::new() };
        let rest = on(facts.disks, |disk| !has_weights(disk) && !by_priority.contains(&disk.name));
        if !rest.is_empty() {
            reasons.push(format!("shared equally: {}", rest.join(", ")));
        }
    }
    IoFinding { tiers, reason: reasons.join("; "), knobs }
}

fn without_effect(facts: &IoFacts<'_>) -> String {
    if facts.disks.is_empty() {
        return format!("{EQUAL}: no disk with a scheduler of its own is visible in /sys/block");
    }
    let disks: Vec<_> = facts
        .disks
        .iter()
        .map(|disk| format!("{} uses {}", disk.name, disk.scheduler.as_deref().unwrap_or("none")))
        .collect();
    let idle_class = if facts.idle_class { ", or mq-deadline for the idle I/O class" } else { "" };
    format!(
        "{EQUAL}: {}; disk tiers need the BFQ scheduler (/sys/block/DISK/queue/scheduler) or \
         iocost (io.cost.qos){idle_class}",
        disks.join(", ")
    )
}

fn on(disks: &[Disk], accepts: impl Fn(&Disk) -> bool) -> Vec<String> {
    disks.iter().filter(|disk| accepts(disk)).map(|disk| disk.name.clone()).collect()
}

/// The scheduler in BPF under which all ordinary tasks of the node run (sched-ext.rst); `None`: they
/// run under the kernel's own.
pub fn sched_ext(sys: &Path) -> Option<String> {
    let dir = sys.join("kernel/sched_ext");
    let text = |file: &str| Some(fs::read_to_string(dir.join(file)).ok()?.trim().to_owned());
    let is_on = text("state")? == "enabled";
    // Some are only for tasks that ask for them.
    let for_all = text("switch_all").is_none_or(|all| all != "0");
    (is_on && for_all).then(|| text("root/ops").unwrap_or_else(|| "without a name".to_owned()))
}

/// What that means for tiers.
pub(crate) fn under_sched_ext(scheduler: &str) -> Obstacle {
    Obstacle {
        found: format!(
            "CPUs are scheduled by {scheduler} (sched_ext) and not by the kernel's own scheduler: \
             what cpu.idle and weights do is up to it, and passive tasks may be as fast as active \
             ones"
        ),
        remedy: "end it, or make sure that it heeds the weights of cgroups".to_owned(),
    }
}

/// Whether the kernel keeps pressure stall information, and if not, what to do (psi.rst).
pub fn pressure(proc_pressure: &Path) -> Result<(), String> {
    let path = proc_pressure.join("cpu");
    match fs::read_to_string(&path) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "{} cannot be read ({error}); boot with psi=1, or use a kernel with CONFIG_PSI",
            path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, number: &str, scheduler: &str) -> Disk {
        Disk {
            name: name.to_owned(),
            number: number.to_owned(),
            scheduler: Some(scheduler.to_owned()),
            schedulers: Vec::new(),
        }
    }

    fn group(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            fs::write(dir.path().join(file), "100\n").unwrap();
        }
        dir
    }

    fn find(version: Version, files: &[&str], disks: &[Disk], iocost: &[String]) -> IoFinding {
        find_with(true, version, files, disks, iocost)
    }

    fn find_with(
        idle_class: bool,
        version: Version,
        files: &[&str],
        disks: &[Disk],
        iocost: &[String],
    ) -> IoFinding {
        let group = group(files);
        io(&IoFacts { version, group: Some(group.path()), disks, iocost, idle_class })
    }

    #[test]
    fn the_idle_class_is_used_only_where_it_is_asked_for() {
        let deadline = [disk("vda", "254:0", "mq-deadline")];
        for (version, files) in
            [(Version::V1, [""; 0].as_slice()), (Version::V2, &["io.prio.class"])]
        {
            let finding = find_with(false, version, files, &deadline, &[]);
            assert_eq!((finding.tiers, finding.knobs), (IoTiers::None, Vec::new()));
            for part in [EQUAL, "vda uses mq-deadline", "BFQ"] {
                assert!(finding.reason.contains(part), "{part}: {}", finding.reason);
            }
        }
        let bfq = [disk("sda", "8:0", "bfq")];
        let finding = find_with(false, Version::V2, &["io.bfq.weight"], &bfq, &[]);
        assert_eq!(finding.knobs, [IoKnob::Weight(weights::IO_BFQ_WEIGHT)]);
    }

    #[test]
    fn a_weight_file_without_a_scheduler_that_reads_it_is_not_claimed() {
        let none = [disk("sda", "8:0", "none")];
        let finding = find(Version::V1, &["blkio.bfq.weight"], &none, &[]);
        assert_eq!(finding.tiers, IoTiers::None);
        assert!(finding.reason.contains("sda uses none"), "{}", finding.reason);
        assert!(finding.knobs.is_empty());
    }

    #[test]
    fn order_of_preference() {
        let bfq = [disk("sda", "8:0", "bfq"), disk("sdb", "8:16", "none")];
        let finding = find(Version::V2, &["io.bfq.weight", "io.prio.class"], &bfq, &[]);
        assert_eq!(finding.tiers, IoTiers::Bfq);
        assert_eq!(finding.knobs, [IoKnob::Weight(weights::IO_BFQ_WEIGHT)]);
        assert!(finding.reason.contains("shared equally: sdb"), "{}", finding.reason);

        let both = ["8:16".to_owned()];
        let finding = find(Version::V2, &["io.bfq.weight", "io.weight"], &bfq, &both);
        assert_eq!(finding.knobs.len(), 2);
        let finding = find(Version::V2, &["io.weight"], &bfq[1..], &both);
        assert_eq!(finding.tiers, IoTiers::IoCost);

        let deadline = [disk("vda", "254:0", "mq-deadline")];
        let finding = find(Version::V2, &["io.prio.class"], &deadline, &[]);
        assert_eq!(finding.knobs, [IoKnob::PriorityClass]);
        let finding = find(Version::V1, &[], &deadline, &[]);
        assert_eq!((finding.tiers, finding.knobs), (IoTiers::IoPrio, vec![IoKnob::ThreadPriority]));
    }

    #[test]
    fn a_disk_without_weights_beside_one_with_them_is_reported_to_have_none() {
        let disks = [disk("loop0", "7:0", "bfq"), disk("vda", "254:0", "mq-deadline")];
        let finding = find(Version::V1, &["blkio.bfq.weight"], &disks, &[]);
        assert_eq!(finding.tiers, IoTiers::Bfq);
        assert_eq!(finding.knobs, [IoKnob::Weight(weights::BLKIO_BFQ_WEIGHT)]);
        for part in ["blkio.bfq.weight on loop0", "shared equally: vda"] {
            assert!(finding.reason.contains(part), "{part}: {}", finding.reason);
        }

        // BFQ without group support honours priorities.
        let finding = find(Version::V1, &[], &disks, &[]);
        assert_eq!((finding.tiers, finding.knobs), (IoTiers::IoPrio, vec![IoKnob::ThreadPriority]));
    }

    #[test]
    fn words_of_the_kernel() {
        assert_eq!(chosen("none [mq-deadline] kyber\n"), Some("mq-deadline"));
        assert_eq!(chosen("none\n"), None);
        let qos = "8:0 enable=1 ctrl=auto rpct=95.00\n8:16 enable=0 ctrl=auto\ntorn\n";
        assert_eq!(iocost_devices(qos), ["8:0"]);
    }

    #[test]
    fn a_scheduler_in_bpf_is_named_while_all_tasks_run_under_it() {
        let sys = tempfile::tempdir().unwrap();
        let dir = sys.path().join("kernel/sched_ext");
        assert_eq!(sched_ext(sys.path()), None);
        fs::create_dir_all(dir.join("root")).unwrap();
        let put = |file: &str, text: &str| fs::write(dir.join(file), text).unwrap();
        put("state", "disabled\n");
        assert_eq!(sched_ext(sys.path()), None);
        put("state", "enabled\n");
        assert!(sched_ext(sys.path()).is_some());
        put("root/ops", "scx_lavd\n");
        put("switch_all", "1\n");
        assert_eq!(sched_ext(sys.path()).as_deref(), Some("scx_lavd"));
        assert!(under_sched_ext("scx_lavd").found.contains("scx_lavd"));
        put("switch_all", "0\n");
        assert_eq!(sched_ext(sys.path()), None, "only for those that ask");
    }

    #[test]
    fn disks_of_a_captured_tree() {
        let sys = tempfile::tempdir().unwrap();
        for (name, size, device, scheduler) in [
            ("sda", "100", true, "none [bfq]"),
            ("loop0", "9", false, "[none] bfq"),
            ("loop1", "9", false, "none [bfq]"),
            ("loop2", "0", false, "none [bfq]"),
            ("sdz", "0", true, "none [bfq]"),
        ] {
            let dir = sys.path().join(name);
            fs::create_dir_all(dir.join("queue")).unwrap();
            fs::write(dir.join("size"), size).unwrap();
            fs::write(dir.join("dev"), "8:0\n").unwrap();
            fs::write(dir.join("queue/scheduler"), scheduler).unwrap();
            if device {
                fs::create_dir(dir.join("device")).unwrap();
            }
        }
        let schedulers = vec!["none".to_owned(), "bfq".to_owned()];
        let disk = |name| Disk { schedulers: schedulers.clone(), ..disk(name, "8:0", "bfq") };
        assert_eq!(disks(sys.path()).unwrap(), [disk("loop1"), disk("sda")]);
    }
}
