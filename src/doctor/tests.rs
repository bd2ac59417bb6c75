use std::path::PathBuf;

use proptest::prelude::*;

use super::probe::finder::Finder;
use super::probe::neighbours::Neighbour;
use super::probe::{
    Cgroups, Cpus, Descriptors, DirFacts, Disk, Facts, Hierarchy, Kernel, Memory, MemoryLimits,
    Services, Socket, Unified,
};
use super::*;
use crate::cgroup::obstacle::Obstacle;
use crate::units::Bytes;

mod hadoop;
mod memory;

fn strings(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

fn writable_root(point: &str) -> DirFacts {
    DirFacts { path: PathBuf::from(point).join("lrs"), exists: false, writable: Ok(()) }
}

fn mounted(point: &str, controllers: &str) -> Hierarchy {
    Hierarchy {
        point: point.into(),
        controllers: strings(controllers),
        root: writable_root(point),
        usable: Ok(()),
        in_sight: Ok(()),
        own_files: vec![],
        child_files: vec![],
    }
}

/// A configuration by which tasks are looked for.
const YARN: &str = "yarn.enabled = true";

/// A node with everything LRS can use, on v2.
fn v2() -> Facts {
    let mut hierarchy = mounted("/sys/fs/cgroup", "");
    hierarchy.child_files =
        vec!["cpu.idle", "cpu.weight", "cpu.pressure", "io.stat", "io.bfq.weight"];
    Facts {
        uid: 0,
        kernel: Ok(Kernel { text: "6.1.0-42-amd64".into(), version: (6, 1) }),
        pidfd: Ok(()),
        cpus: Ok(Cpus { list: "0-3".into(), usable: 4.into(), problems: Vec::new() }),
        cgroups: Ok(Cgroups {
            v1: vec![],
            v2: Some(Unified {
                hierarchy,
                available: strings("cpuset cpu io memory pids"),
                enabled: strings("cpu memory pids"),
                delegable: Ok(()),
                internal_processes: false,
                iocost: vec![],
            }),
        }),
        disks: Ok(vec![disk("sda", "bfq")]),
        sched_ext: None,
        pressure: Ok(vec!["cpu", "io", "memory"]),
        memory: Ok(Memory {
            total: Bytes(8 << 30),
            available: Some(Bytes(6 << 30)),
            swap_total: Bytes(0),
            swap_free: Bytes(0),
        }),
        memory_limits: MemoryLimits::default(),
        autogroup: Ok(Some(true)),
        runtime_dir: DirFacts { path: "/run/lrs".into(), exists: false, writable: Ok(()) },
        group: Ok(true),
        descriptors: Descriptors { of_daemon: false, soft: Some(1024), hard: Some(524_288) },
        socket: Socket::Absent,
        locked: Ok(false),
        root_lock: Some(("/sys/fs/cgroup/lrs".into(), Ok(false))),
        neighbours: Some(Ok(Vec::new())),
        services: Services {
            systemd: true,
            unit: Some("/usr/lib/systemd/system/lrsd.service".into()),
            yarn_unit: Some("/usr/lib/systemd/system/lrs-yarn.service".into()),
            bus: Ok(()),
            policy: Some("/usr/share/dbus-1/system.d/org.lrs.Shaper1.conf".into()),
        },
        finder: None,
        yarn: None,
    }
}

fn disk(name: &str, scheduler: &str) -> Disk {
    Disk {
        name: name.into(),
        number: "8:0".into(),
        scheduler: Some(scheduler.into()),
        schedulers: strings("none mq-deadline kyber bfq"),
    }
}

/// The same on v1 with a cgroup2 mount beside it.
fn hybrid() -> Facts {
    let mut facts = v2();
    let mut cpu = mounted("/sys/fs/cgroup/cpu,cpuacct", "cpu cpuacct rw");
    cpu.own_files = vec!["cpu.idle", "cpu.shares"];
    let mut twin = mounted("/sys/fs/cgroup/unified", "");
    twin.own_files = vec!["cpu.pressure"];
    facts.cgroups = Ok(Cgroups {
        v1: vec![
            cpu,
            mounted("/sys/fs/cgroup/blkio", "blkio rw"),
            mounted("/sys/fs/cgroup/freezer", "freezer rw"),
        ],
        v2: Some(Unified {
            hierarchy: twin,
            available: vec![],
            enabled: vec![],
            delegable: Ok(()),
            internal_processes: false,
            iocost: vec![],
        }),
    });
    facts
}

fn obstacle(found: &str) -> Obstacle {
    Obstacle { found: found.to_owned(), remedy: "change that".to_owned() }
}

fn with(mut facts: Facts, change: impl FnOnce(&mut Facts)) -> Facts {
    change(&mut facts);
    facts
}

fn unified(facts: &mut Facts) -> &mut Unified {
    facts.cgroups.as_mut().unwrap().v2.as_mut().unwrap()
}

fn config(toml: &str) -> Config {
    Config::from_toml(toml, Path::new("lrs.toml")).unwrap()
}

fn report(facts: &Facts, toml: &str) -> Report {
    Report::new(judge(facts, &config(toml), &DoctorOptions::default()))
}

fn check(facts: &Facts, toml: &str, id: &str) -> Check {
    let report = report(facts, toml);
    let found: Vec<&Check> = report.checks.iter().filter(|check| check.id == id).collect();
    assert_eq!(found.len(), 1, "{id} in {report:?}");
    found[0].clone()
}

#[test]
fn good_nodes_pass_every_check() {
    for facts in [v2(), hybrid()] {
        let report = report(&facts, "");
        let bad: Vec<&Check> = report.checks.iter().filter(|c| c.verdict != Verdict::Ok).collect();
        assert!(bad.is_empty(), "{bad:?}");
        assert!(report.checks.iter().all(|check| check.remedy.is_none()));
        assert_eq!(report.verdict, Verdict::Ok);
        assert!(!report.has_failures());
    }
}

#[test]
fn a_hierarchy_that_tasks_can_do_without_is_no_failure() {
    let twin = with(hybrid(), |f| unified(f).hierarchy.in_sight = Err(obstacle("a part of it")));
    let other = with(hybrid(), |f| {
        f.cgroups.as_mut().unwrap().v1[1].usable = Err(obstacle("read-only"));
    });
    for (facts, words) in [
        (twin, "no group in /sys/fs/cgroup/unified: a part of it"),
        (other, "no group in /sys/fs/cgroup/blkio: read-only"),
    ] {
        let found = check(&facts, "", "rights");
        assert_eq!(found.verdict, Verdict::Warn, "{found:?}");
        assert!(found.found.contains(words), "{found:?}");
    }
    let cpu = with(hybrid(), |f| {
        f.cgroups.as_mut().unwrap().v1[0].usable = Err(obstacle("read-only"));
    });
    assert_eq!(check(&cpu, "", "rights").verdict, Verdict::Fail);
}

/// A change to the good v2 node, the configuration, the check, its verdict, words of it.
type Case = (fn(&mut Facts), &'static str, &'static str, Verdict, &'static str);

#[test]
fn each_fault_is_found_with_a_remedy() {
    use Verdict::{Fail, Ok as Fine, Unknown, Warn};
    let none: fn(&mut Facts) = |_| {};
    let cases: &[Case] = &[
        (
            |f| f.kernel = Ok(Kernel { text: "4.19".into(), version: (4, 19) }),
            "",
            "kernel",
            Fail,
            "5.4",
        ),
        (
            |f| f.kernel = Ok(Kernel { text: "5.10".into(), version: (5, 10) }),
            "",
            "kernel",
            Warn,
            "5.15",
        ),
        (|f| f.kernel = Err("no /proc".into()), "", "kernel", Unknown, "no /proc"),
        (|f| f.pidfd = Err(obstacle("pidfd_open: EPERM")), "", "kernel", Fail, "EPERM"),
        (|f| unified(f).hierarchy.in_sight = Err(obstacle("a part")), "", "cgroup", Fail, "a part"),
        (|f| f.sched_ext = Some("scx_lavd".into()), "", "cpu_tiers", Warn, "scx_lavd"),
        (none, "slots.active = 8", "cpus", Warn, "slots.active = 8"),
        (|f| f.cgroups = Err("no mounts".into()), "", "cgroup", Unknown, "no mounts"),
        (|f| f.cgroups = Ok(Cgroups::default()), "", "cgroup", Fail, "no cgroup file system"),
        (
            |f| f.cgroups = Ok(Cgroups::default()),
            "daemon.mode = \"observe\"",
            "cgroup",
            Fine,
            "observe",
        ),
        (none, "cgroup.version = 1", "cgroup", Fail, "cgroup.version = 1, but"),
        (|f| unified(f).available.clear(), "", "cgroup", Fail, "/sys/fs/cgroup has no cpu"),
        (|f| unified(f).available = strings("cpu"), "", "cgroup", Warn, "without io and memory"),
        (
            |f| {
                unified(f).enabled.clear();
                unified(f).internal_processes = true;
            },
            "",
            "cgroup",
            Warn,
            "processes live in that group",
        ),
        (
            |f| unified(f).hierarchy.usable = Err(obstacle("EROFS")),
            "",
            "rights",
            Fail,
            "root: EROFS",
        ),
        (
            |f| {
                f.uid = 1000;
                unified(f).hierarchy.usable = Err(obstacle("EACCES"));
            },
            "",
            "rights",
            Unknown,
            "uid 1000: EACCES",
        ),
        (
            |f| {
                unified(f).enabled.clear();
                unified(f).delegable = Err("EACCES".into());
            },
            "",
            "rights",
            Fail,
            "EACCES",
        ),
        (
            |f| unified(f).hierarchy.usable = Err(obstacle("EROFS")),
            "daemon.mode = \"observe\"",
            "rights",
            Fine,
            "not needed",
        ),
        (
            |f| unified(f).hierarchy.child_files = vec!["cpu.weight"],
            "",
            "cpu_tiers",
            Warn,
            "no cpu.idle",
        ),
        (
            |f| unified(f).hierarchy.child_files = vec!["cpu.weight"],
            "tiers.passive_cpu = \"idle\"",
            "cpu_tiers",
            Fail,
            "tiers.passive_cpu",
        ),
        (
            |f| unified(f).hierarchy.child_files = vec!["cpu.weight"],
            "tiers.passive_cpu = \"weight\"",
            "cpu_tiers",
            Fine,
            "weights",
        ),
        (
            |f| unified(f).hierarchy.child_files.clear(),
            "",
            "cpu_tiers",
            Fine,
            "this kernel has cpu.idle",
        ),
        (
            |f| {
                unified(f).hierarchy.child_files.clear();
                f.kernel = Ok(Kernel { text: "5.10".into(), version: (5, 10) });
            },
            "",
            "cpu_tiers",
            Warn,
            "no cpu.idle",
        ),
        (
            none,
            "tiers.passive_cpu = \"weight\"\ntiers.ratio = 10000",
            "cpu_ratio",
            Warn,
            "needs 40000:1 a task; the kernel's weights allow 10000:1",
        ),
        (none, "tiers.ratio = 10000", "cpu_ratio", Warn, "allow 34133:1"),
        (|f| f.cpus = Err("?".into()), "", "cpu_ratio", Unknown, "not known"),
        (|f| f.disks = Ok(vec![]), "", "io_tiers", Unknown, "no whole disk"),
        (|f| f.disks = Err("no /sys".into()), "", "io_tiers", Unknown, "no /sys"),
        (
            |f| f.disks = Ok(vec![disk("sda", "none")]),
            "",
            "io_tiers",
            Fine,
            "none: shared equally: 1 disk; with the BFQ scheduler",
        ),
        (
            |f| f.disks = Ok(vec![disk("sda", "none")]),
            "tiers.io = \"idle\"",
            "io_tiers",
            Warn,
            "none: shared equally: 1 disk",
        ),
        (
            |f| f.disks = Ok(vec![disk("sda", "none")]),
            "tiers.io = false",
            "io_tiers",
            Fine,
            "as tiers.io = false says",
        ),
        (|f| f.disks = Ok(vec![disk("sda", "none")]), "", "disk.sda", Fine, "shared equally"),
        (
            |f| f.disks = Ok(vec![disk("sda", "none")]),
            "tiers.io = \"idle\"",
            "disk.sda",
            Warn,
            "shared equally",
        ),
        (
            |f| f.disks = Ok(vec![disk("sda", "none")]),
            "tiers.io = false",
            "disk.sda",
            Fine,
            "shared equally",
        ),
        (
            |f| f.disks = Ok(vec![disk("sda", "mq-deadline")]),
            "",
            "io_tiers",
            Fine,
            "none: shared equally: 1 disk",
        ),
        (
            |f| f.disks = Ok(vec![disk("sda", "mq-deadline")]),
            "tiers.io = \"idle\"",
            "io_tiers",
            Warn,
            "ioprio: ",
        ),
        (
            |f| f.disks = Ok(vec![disk("sda", "mq-deadline")]),
            "tiers.io = \"idle\"",
            "disk.sda",
            Warn,
            "without a ratio",
        ),
        (
            |f| {
                f.disks = Ok(vec![disk("sda", "mq-deadline")]);
                f.kernel = Ok(Kernel { text: "5.10".into(), version: (5, 10) });
            },
            "tiers.io = \"idle\"",
            "disk.sda",
            Warn,
            "mq-deadline: shared equally",
        ),
        (
            |f| {
                f.disks = Ok(vec![disk("sda", "none")]);
                unified(f).iocost = strings("8:0");
            },
            "",
            "io_tiers",
            Fine,
            "iocost: weights act",
        ),
        (
            |f| {
                f.disks = Ok(vec![disk("sda", "none")]);
                unified(f).iocost = strings("8:16");
            },
            "",
            "disk.sda",
            Fine,
            "shared equally",
        ),
        (
            |f| unified(f).hierarchy.child_files.retain(|file| *file != "io.bfq.weight"),
            "tiers.io = \"idle\"",
            "disk.sda",
            Warn,
            "without a ratio",
        ),
        (|f| f.pressure = Err("EOPNOTSUPP".into()), "", "pressure", Warn, "EOPNOTSUPP"),
        (|f| f.pressure = Ok(vec!["cpu"]), "", "pressure", Warn, "only cpu"),
        (
            |f| {
                unified(f).hierarchy.child_files.clear();
                f.pressure = Err("EOPNOTSUPP".into());
            },
            "",
            "task_pressure",
            Warn,
            "no pressure files",
        ),
        (
            none,
            "guard.memory_reserve = \"7GiB\"\nguard.memory_resume = \"7.5GiB\"",
            "memory",
            Warn,
            "no passive slot is opened now",
        ),
        (none, "guard.memory_reserve = \"8GiB\"", "memory", Fail, "ever offered"),
        (none, "guard.memory_reserve = \"6GiB\"", "memory", Warn, "keeps it so"),
        (
            none,
            "guard.memory_reserve = \"1GiB\"\nguard.memory_resume = \"5%\"",
            "memory",
            Warn,
            "guard.memory_resume is less",
        ),
        (|f| f.memory.as_mut().unwrap().available = None, "", "memory", Fail, "MemAvailable"),
        (
            |f| {
                let memory = f.memory.as_mut().unwrap();
                (memory.swap_total, memory.swap_free) = (Bytes(4 << 30), Bytes(1 << 30));
            },
            "",
            "swap",
            Warn,
            "3.0 GiB of 4.0 GiB",
        ),
        (
            |f| {
                let name = String::from("system.slice");
                f.neighbours = Some(Ok(vec![Neighbour { name, cpus: 0.5 }]));
            },
            "tiers.root_weight = 100",
            "neighbours",
            Warn,
            "system.slice 0.50",
        ),
        (|f| f.neighbours = Some(Err("EACCES".into())), "", "neighbours", Unknown, "EACCES"),
        (|f| f.autogroup = Err("odd".into()), "", "autogroup", Unknown, "odd"),
        (|f| f.runtime_dir.writable = Err("EROFS".into()), "", "runtime_dir", Fail, "EROFS"),
        (
            |f| {
                f.uid = 1000;
                f.runtime_dir.writable = Err("EACCES".into());
            },
            "",
            "runtime_dir",
            Unknown,
            "EACCES",
        ),
        (
            |f| {
                f.runtime_dir =
                    DirFacts { path: "/dev/null".into(), exists: true, writable: Ok(()) }
            },
            "",
            "runtime_dir",
            Fail,
            "not a directory",
        ),
        (|f| f.group = Ok(false), "", "group", Warn, "no group lrs"),
        (|f| f.descriptors.hard = Some(256), "", "descriptors", Warn, "files of 0 tasks"),
        (
            |f| f.descriptors.hard = Some(4096),
            "slots.active = 4096",
            "descriptors",
            Warn,
            "20480 slots",
        ),
        (|f| f.descriptors.hard = None, "", "descriptors", Fine, "unlimited"),
        (
            |f| f.socket = Socket::Served { pid: Some(7), answers: true },
            "",
            "daemon",
            Fine,
            "(pid 7)",
        ),
        (
            |f| f.socket = Socket::Served { pid: Some(7), answers: false },
            "",
            "daemon",
            Fail,
            "pid 7 listens",
        ),
        (|f| f.socket = Socket::Stale, "", "daemon", Fine, "left over"),
        (|f| f.socket = Socket::Unknown("EACCES".into()), "", "daemon", Unknown, "EACCES"),
        (|f| f.locked = Ok(true), "", "daemon", Warn, "is locked"),
        (|f| f.finder = Some(Ok(Finder::There)), YARN, "finding", Fine, "looks for tasks"),
        (|f| f.finder = Some(Ok(Finder::Absent)), YARN, "finding", Warn, "without its thread"),
        (|f| f.finder = Some(Ok(Finder::Stuck)), YARN, "finding", Warn, "waits for a disk"),
        (|f| f.finder = Some(Err("EACCES".into())), YARN, "finding", Unknown, "EACCES"),
        (|_| {}, "", "systemd", Fine, "tasks live in lrs-tasks.scope"),
        (|_| {}, "cgroup.root = \"x\"", "systemd", Fine, "tasks live in x"),
        (|f| f.services.unit = None, "", "systemd", Warn, "no lrsd.service"),
        (|f| f.services.systemd = false, "", "systemd", Fine, "not the init"),
        (|_| {}, "", "dbus", Fine, "the system bus answers"),
        (|f| f.services.policy = None, "", "dbus", Warn, "refuse lrsd its name"),
        (|f| f.services.bus = Err("no bus".into()), "", "dbus", Warn, "gRPC alone"),
        (|f| f.services.bus = Err("no bus".into()), "dbus.bus = \"off\"", "dbus", Fine, "off"),
        (
            |f| f.root_lock = Some(("/sys/fs/cgroup/lrs".into(), Ok(true))),
            "",
            "daemon",
            Warn,
            "another lrsd uses the cgroup root /sys/fs/cgroup/lrs",
        ),
    ];
    for (change, toml, id, verdict, words) in cases {
        let facts = with(v2(), change);
        let check = check(&facts, toml, id);
        assert_eq!(check.verdict, *verdict, "{toml:?} {check:?}");
        assert!(check.found.contains(words), "{words:?} in {check:?}");
        assert_eq!(check.remedy.is_some(), check.verdict != Verdict::Ok, "{check:?}");
        assert_eq!(
            report(&facts, toml).has_failures(),
            *verdict == Verdict::Fail,
            "{toml:?} {check:?}"
        );
    }
}

#[test]
fn v1_needs_its_controllers_and_likes_a_twin() {
    let facts = with(hybrid(), |f| {
        f.cgroups.as_mut().unwrap().v1.retain(|h| h.point.ends_with("cpu,cpuacct"));
    });
    let found = check(&facts, "", "cgroup");
    assert_eq!(found.verdict, Verdict::Warn);
    assert!(found.found.contains("not mounted: blkio, freezer"), "{found:?}");
    assert_eq!(check(&facts, "tiers.io = \"idle\"", "disk.sda").verdict, Verdict::Warn);

    let facts = with(hybrid(), |f| f.cgroups.as_mut().unwrap().v2 = None);
    assert_eq!(check(&facts, "", "cgroup").verdict, Verdict::Warn);
    assert_eq!(check(&facts, "", "task_pressure").verdict, Verdict::Warn);

    // The same hierarchy of v2 is not used by a v1 daemon for its controllers.
    assert_eq!(check(&hybrid(), "cgroup.version = 2", "cgroup").verdict, Verdict::Fail);
}

#[test]
fn a_broken_file_fails_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lrs.toml");
    std::fs::write(&path, "[slots]\nactive = \"two\"\nzebra = 1\n").unwrap();
    let report = examine_file(Some(&path));
    assert!(report.has_failures());
    assert!(report.checks.len() > 10);
    assert_eq!(report.checks[0].id, "config");
    assert_eq!(report.checks[0].found.lines().count(), 2);
    let absent = examine_file(Some(&dir.path().join("none.toml")));
    assert!(absent.checks[0].found.contains("cannot read the file"));
}

#[test]
fn json_has_the_fields_of_the_contract() {
    let facts = with(v2(), |f| f.group = Ok(false));
    let json = serde_json::to_value(report(&facts, "")).unwrap();
    assert_eq!(json["verdict"], "warn");
    let group = json["checks"].as_array().unwrap().iter().find(|c| c["id"] == "group").unwrap();
    assert_eq!(group["verdict"], "warn");
    assert!(group["found"].is_string() && group["remedy"].is_string());
    assert!(json["checks"][0]["remedy"].is_null());
}

#[test]
fn text_fits_and_names_verdict_reason_and_remedy() {
    let facts = with(v2(), |f| f.group = Ok(false));
    let text = report(&facts, "").render(80, false);
    assert!(text.contains("\nwarn     group "), "{text}");
    assert!(text.contains("-> groupadd --system lrs"), "{text}");
    assert!(text.ends_with("\nwarn: 21 ok, 0 unknown, 1 warn, 0 fail\n"), "{text}");
    assert!(!text.contains('\u{1b}'));
    let colour = report(&facts, "").render(80, true);
    assert!(colour.contains("\u{1b}[") && colour.contains("warn\u{1b}[0m"), "{colour:?}");
}

proptest! {
    #[test]
    fn any_report_fits_any_width(
        id in "\\PC{0,60}",
        found in "(\\PC{0,200}|[a-z/]{200})",
        remedy in proptest::option::of("\\PC{0,200}"),
        width in 0usize..200,
    ) {
        let check = Check { id, verdict: Verdict::Unknown, found, remedy };
        let text = Report::new(vec![check]).render(width, false);
        for line in text.lines() {
            prop_assert!(line.chars().count() <= width.max(40), "{:?}", line);
        }
    }
}
