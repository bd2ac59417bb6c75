use super::*;
use crate::cgroup::{Attachment, CpuTiers, Origin};

const PLAN: WeightPlan = WeightPlan { ratio: 100, active_capacity: 2, passive_max: 8 };

fn record(attachment: Attachment, found: &[(&str, &str)]) -> GroupRecord {
    GroupRecord {
        attachment,
        path: "/group".to_owned(),
        inode: 1,
        origin: Origin::default(),
        found: found.iter().map(|(f, v)| ((*f).to_owned(), (*v).to_owned())).collect(),
        elsewhere: Vec::new(),
        for_member: false,
    }
}

fn v2(tiers: CpuTiers, disk: &[IoKnob]) -> Vec<Box<dyn Knob>> {
    let idle_used = tiers == CpuTiers::Idle;
    table(CpuKnobs { scale: weights::CPU_WEIGHT, idle_exists: true, idle_used }, disk)
}

/// Plain files stand for the group's: what is compared and written is all that matters.
struct Files(tempfile::TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Files {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        Files(dir)
    }

    fn dirs(&self) -> GroupDirs {
        let dir = Some(self.0.path().to_owned());
        GroupDirs { cpu: dir.clone(), io: dir, ..GroupDirs::default() }
    }

    fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.path().join(file)).unwrap()
    }

    /// What differed from the tier.
    fn compare(
        &self,
        table: &[Box<dyn Knob>],
        record: &GroupRecord,
        level: Level,
        write: bool,
    ) -> Vec<String> {
        let mut read = by_path;
        let mut comparison = Comparison::new(&mut read, write);
        let ask = |is_idle| Ask { record, level, plan: &PLAN, is_idle };
        comparison.run(table, &self.dirs(), &|knob, idle| knob.wish(&ask(idle))).unwrap();
        let drifts = comparison.drifts.into_iter();
        drifts.map(|d| format!("{} {} {}", d.file, d.found, d.expected)).collect()
    }
}

#[test]
fn a_promoted_task_leaves_idle_first_and_its_weight_is_written_unread() {
    let files = Files::new(&[
        ("cpu.idle", "1"),
        ("cpu.weight", "0"),
        ("io.bfq.weight", "1"),
        ("io.prio.class", "idle"),
    ]);
    let disk = [IoKnob::Weight(weights::IO_BFQ_WEIGHT), IoKnob::PriorityClass];
    let (table, record) = (v2(CpuTiers::Idle, &disk), record(Attachment::Own, &[]));
    let idle = ["cpu.idle 1 0", "io.bfq.weight 1 1000", "io.prio.class idle no-change"];
    assert_eq!(files.compare(&table, &record, Level::Active, false), idle, "seen, not touched");
    assert_eq!(files.text("cpu.idle"), "1");
    assert_eq!(files.compare(&table, &record, Level::Active, true), idle);
    let active = weights::CPU_WEIGHT.pair_beside_idle(&PLAN).active.to_string();
    assert_eq!((files.text("cpu.idle"), files.text("cpu.weight")), ("0".into(), active));
    assert_eq!(files.compare(&table, &record, Level::Active, true), [""; 0], "nothing is left");
    // And back: an idle group has no weight to compare.
    let passive = files.compare(&table, &record, Level::Passive, true);
    assert_eq!(passive[0], "cpu.idle 0 1");
    assert!(!passive.iter().any(|drift| drift.starts_with("cpu.weight")), "{passive:?}");
}

#[test]
fn a_group_of_others_that_was_found_idle_may_stay_so_while_it_is_passive() {
    let found = [("cpu.idle", "1"), ("cpu.weight", "0")];
    let (table, record) = (v2(CpuTiers::Idle, &[]), record(Attachment::InPlace, &found));
    let files = Files::new(&found);
    assert_eq!(files.compare(&table, &record, Level::Passive, true), [""; 0]);
    assert_eq!(files.compare(&table, &record, Level::Active, true), ["cpu.idle 1 0"]);
    assert_eq!(files.text("cpu.weight"), weights::CPU_WEIGHT.pair(&PLAN).active.to_string());
    // Its owner took it out of that: it gets the weight of a passive task.
    let files = Files::new(&[("cpu.idle", "0"), ("cpu.weight", "100")]);
    let passive = weights::CPU_WEIGHT.pair(&PLAN).passive;
    let expected = [format!("cpu.weight 100 {passive}")];
    assert_eq!(files.compare(&table, &record, Level::Passive, true), expected);
}

#[test]
fn what_is_not_the_tasks_is_neither_read_nor_written() {
    let files = Files::new(&[("cpu.idle", "0"), ("cpu.weight", "100")]);
    let disk = [IoKnob::Weight(weights::IO_WEIGHT), IoKnob::PriorityClass];
    let table = v2(CpuTiers::Weight, &disk);
    // There is no io.weight and no io.prio.class to read.
    let owners = record(Attachment::InPlace, &[("cpu.weight", "100")]);
    assert_eq!(files.compare(&table, &owners, Level::Passive, true).len(), 1);
    let booked = record(Attachment::None, &[]);
    assert_eq!(files.compare(&table, &booked, Level::Active, true), [""; 0]);
}

#[test]
fn what_was_written_is_taken_back_from_the_last_to_the_first() {
    let files = Files::new(&[("cpu.idle", "2"), ("io.weight", "default 7\n")]);
    let drift = |file: &str, found: &str| Drift {
        file: file.to_owned(),
        found: found.to_owned(),
        expected: String::new(),
    };
    let written = [drift("cpu.idle", "1"), drift("cpu.idle", "0"), drift("io.weight", "100")];
    undo(&files.dirs(), &written).unwrap();
    assert_eq!(files.text("cpu.idle"), "1", "what was there before all of it");
    assert!(files.text("io.weight").starts_with("100"), "a plain file keeps what is behind");
}

#[test]
fn the_root_follows_with_the_cpu_alone() {
    let files = Files::new(&[("cpu.idle", "1"), ("cpu.weight", "0")]);
    let disk = [IoKnob::Weight(weights::IO_WEIGHT)];
    for (tiers, weight, idle, number) in [
        (CpuTiers::Idle, RootWeight::Weight(200), "0", "200"),
        (CpuTiers::Idle, RootWeight::Idle, "1", "200"),
        (CpuTiers::Weight, RootWeight::Idle, "0", "1"),
    ] {
        let mut read = by_path;
        let mut comparison = Comparison::new(&mut read, true);
        let wish = |knob: &dyn Knob, is_idle| knob.wish_of_root(weight, is_idle);
        comparison.run(&v2(tiers, &disk), &files.dirs(), &wish).unwrap();
        assert_eq!(files.text("cpu.idle"), idle, "{weight:?}");
        assert!(files.text("cpu.weight").starts_with(number), "{weight:?}");
    }
}
