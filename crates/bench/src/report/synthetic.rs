//! Runs made up for tests: shaped like real ones, the same every time.

use crate::record::{
    Cgroup, Decisions, Load, LoadClass, Machine, Node, Outcome, Point, Run, Setting, SettingKind,
    Task,
};

/// Settings and how long they take relative to LRS.
const SETTINGS: [(&str, SettingKind, f64, u32); 9] = [
    ("static 1", SettingKind::Static, 1.25, 2),
    ("static 1.5", SettingKind::Static, 1.12, 3),
    ("static 2", SettingKind::Static, 1.17, 4),
    ("static 1, cgroups", SettingKind::StaticCgroup, 1.26, 2),
    ("static 1.5, cgroups", SettingKind::StaticCgroup, 1.13, 3),
    ("lrs", SettingKind::Lrs, 1.0, 4),
    ("lrs again", SettingKind::LrsAgain, 1.004, 4),
    ("lrs without expansion", SettingKind::LrsVariant, 1.08, 2),
    ("alone", SettingKind::Alone, 0.0, 1),
];

/// A node with three loads: LRS wins one, loses one and ties one.
pub(super) fn machine() -> Machine {
    let load = |name: &str, class, about: &str| Load {
        name: name.to_owned(),
        class,
        about: about.to_owned(),
        tasks: 24,
    };
    Machine {
        suite: "six-loads".to_owned(),
        about: "Made up <for> tests & nothing else".to_owned(),
        lrs: "0.1.0".to_owned(),
        kernel: "Linux 6.12.0".to_owned(),
        cpu: Some("Some CPU (R) @ 2 GHz".to_owned()),
        cpus: 2,
        memory_bytes: Some(8 << 30),
        cgroup: Some(Cgroup {
            version: "2".to_owned(),
            cpu_tiers: "idle".to_owned(),
            io_tiers: "bfq".to_owned(),
        }),
        disk: "ext4 on loop0 (bfq), modelled: 80 MiB/s, 4 ms a seek".to_owned(),
        load_average: Some(0.12),
        began: "2026-01-02T03:04:05Z".to_owned(),
        command: vec!["lrsctl".to_owned(), "bench".to_owned(), "six-loads.toml".to_owned()],
        rounds: 10,
        settings: SETTINGS
            .iter()
            .map(|(name, kind, ..)| Setting {
                name: (*name).to_owned(),
                kind: *kind,
                about: format!("{name}, in words"),
            })
            .collect(),
        loads: vec![
            load("word-count", LoadClass::Moderate, "Counts words, sorts the counts."),
            load("sort", LoadClass::Io, "Sorts 100-byte records."),
            load("pi", LoadClass::Cpu, "Estimates pi; computes only."),
        ],
    }
}

/// `rounds` rounds of all loads of [`machine`], with two faults.
pub(super) fn runs(rounds: u32) -> Vec<Run> {
    let mut noise = Noise(7);
    let mut runs = Vec::new();
    for round in 0..rounds {
        for (load, gain) in [("word-count", 1.0), ("sort", -0.5), ("pi", 0.02)] {
            for (place, (setting, kind, factor, slots)) in (0..).zip(SETTINGS) {
                let factor = 1.0 + (factor - 1.0) * gain;
                let mut run = run(load, setting, round, 60.0 * factor * noise.around(0.02));
                run.place = place;
                match kind {
                    SettingKind::Alone => alone(&mut run),
                    _ => fill(&mut run, kind, slots, &mut noise),
                }
                runs.push(run);
            }
        }
    }
    if let Some(run) = runs.iter_mut().find(|run| run.round == 1 && run.setting == "static 2") {
        run.makespan_seconds = None;
        run.faults = vec!["map-3 ended with status 1: <script>alert(1)</script>".to_owned()];
    }
    runs
}

/// A complete run without tasks.
pub(super) fn run(load: &str, setting: &str, round: u32, seconds: f64) -> Run {
    Run {
        load: load.to_owned(),
        setting: setting.to_owned(),
        round,
        place: 0,
        began: "2026-01-02T03:04:05Z".to_owned(),
        makespan_seconds: Some(seconds),
        lasted_seconds: seconds,
        faults: Vec::new(),
        notes: Vec::new(),
        tasks: Vec::new(),
        node: Node::default(),
        timeline: Vec::new(),
        static_slots: None,
        decisions: None,
    }
}

/// A task that ran from `started` to `ended`.
pub(super) fn task(group: &str, started: f64, ended: f64, began_active: Option<bool>) -> Task {
    Task {
        name: format!("{group}-1"),
        group: group.to_owned(),
        priority: 0,
        arrived: 0.0,
        started: Some(started),
        ended: Some(ended),
        outcome: Outcome::Ok,
        began_active,
        promoted: None,
        demoted: began_active.map(|_| false),
    }
}

fn alone(run: &mut Run) {
    run.tasks = vec![task("map", 0.0, 4.1, None), task("reduce", 4.5, 8.0, None)];
    run.makespan_seconds = Some(8.0);
    run.lasted_seconds = 8.0;
}

/// Tasks one after the other in `slots` slots, and a timeline to match.
fn fill(run: &mut Run, kind: SettingKind, slots: u32, noise: &mut Noise) {
    let lasted = run.lasted_seconds;
    let tiers = !matches!(kind, SettingKind::Static);
    let shaped = !matches!(kind, SettingKind::Static | SettingKind::StaticCgroup);
    let each = lasted * f64::from(slots) / 24.0;
    run.static_slots = (!shaped).then_some(slots);
    for number in 0..24u32 {
        let group = if number < 18 { "map" } else { "reduce" };
        let started = f64::from(number / slots) * each;
        let ended = if number >= 24 - slots { lasted } else { started + each * noise.around(0.03) };
        let active = tiers.then_some(!shaped || number % slots < 2);
        let mut task = task(group, started, ended.min(lasted), active);
        task.name = format!("{group}-{}", number + 1);
        task.promoted = (active == Some(false) && number % 3 == 0)
            .then_some((started + ended.min(lasted)) / 2.0);
        task.demoted = tiers.then_some(shaped && number == 5);
        run.tasks.push(task);
    }
    let mut at = 0.0;
    while at < lasted {
        at = (at + 0.5f64).min(lasted);
        let busy = (0.9 * noise.around(0.1)).min(1.0);
        let running = run.tasks.iter().filter(|task| {
            task.started.is_some_and(|from| from <= at) && task.ended.is_some_and(|to| to > at)
        });
        let running = u32::try_from(running.count()).unwrap();
        run.timeline.push(Point {
            at,
            effective: Some(busy),
            iowait: Some(((1.0 - busy) * 0.7).max(0.0)),
            running,
            waiting: 24 - u32::try_from((at / lasted * 24.0) as u64).unwrap(),
            active_used: tiers.then_some(running.min(2)),
            active_capacity: tiers.then_some(2),
            passive_used: tiers.then_some(running.saturating_sub(2)),
            passive_capacity: tiers.then_some(if shaped {
                slots - 2 + (at as u32 / 10) % 3
            } else {
                0
            }),
        });
    }
    run.node = Node {
        effective: Some(0.9 * noise.around(0.02)),
        iowait: Some(0.06),
        steal: Some(0.001),
        others: Some(0.02),
        context_switches: Some((lasted * 4_000.0) as u64),
        memory_peak_bytes: Some(64 << 20),
        read_bytes: Some(512 << 20),
        written_bytes: Some(300 << 20),
    };
    run.decisions =
        shaped.then_some(Decisions { promoted: 12, demoted: 1, expanded: 3, shrunk: 2 });
}

/// Numbers that look random and never change.
struct Noise(u64);

impl Noise {
    /// 1 give or take `part`.
    fn around(&mut self, part: f64) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let unit = (self.0 >> 33) as f64 / f64::from(1u32 << 31);
        1.0 + part * (2.0 * unit - 1.0)
    }
}
