//! Every recording of `tests/recordings` is played: by the rules of today it decides what it decided.
//!
//! A fault in the field becomes a test by its recording, put there. Where a rule is changed on purpose the first
//! step that differs is in the failure, and `LRS_REGENERATE=1` accepts what is decided now, in the same
//! commit. The two that are there from the beginning are made by `make`, of daemons on a pretended node.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::Duration;

use lrs_config::{Auto, Config, keys};
use lrs_core::model::{Label, Labels, Priority, Standing};
use lrs_core::recording::Entry;
use lrs_core::task::Finder;
use lrs_core::units::ProcessRef;
use lrs_executor::command::Command;
use lrs_executor::found::{Attach, DiscoveredTask, Presumed};
use lrs_executor::settings::policy;
use lrs_recording::replay::{accept, replay};
use lrs_recording::{Writer, encode, header};
use lrs_sim::load::Load;
use lrs_sim::node::Hardware;
use lrs_sim::pretend::{HOME, Machine, Pretend, Tape};
use tokio::sync::oneshot;

fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/recordings"))
}

#[test]
#[allow(clippy::disallowed_methods)] // whether to accept is the developer's to say
fn every_recording_decides_what_it_decided() {
    let accepts = std::env::var_os("LRS_REGENERATE").is_some();
    let mut played = 0;
    for file in std::fs::read_dir(directory()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "lrsrec") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        if accepts {
            std::fs::write(&path, accept(&*bytes).unwrap()).unwrap();
            continue;
        }
        let report = replay(&*bytes, None).unwrap();
        let name = path.display();
        assert!(report.rules.is_none(), "{name}: {:#?}; LRS_REGENERATE=1 accepts it", report.rules);
        let end = report.end.unwrap_or_default();
        assert!(!end.starts_with("it is"), "{name}: {end}");
        assert!(report.inputs > 0, "{name}");
        played += 1;
    }
    assert!(accepts || played >= 2, "{played} recordings");
}

/// A node with a daemon that is recorded.
struct Recorded {
    machine: Option<Machine>,
    tape: Tape,
    entries: Vec<Entry>,
    waiting: Vec<ProcessRef>,
    number: u32,
}

impl Recorded {
    fn new(config: &Config) -> Recorded {
        let tape = Tape::default();
        let mut world = Pretend::boot(Hardware { cpus: 4, ..Hardware::default() }, config.clone());
        world.tape = Some(tape.clone());
        let deciding =
            keys::keys().filter(|key| ["slots", "tiers", "guard"].contains(&key.section()));
        let settings =
            deciding.map(|key| format!("{} = {}\n", key.path, config.show(key.path))).collect();
        let entries = vec![header(), Entry::Settings(settings)];
        let machine = Some(Machine::on(world, 1));
        Recorded { machine, tape, entries, waiting: Vec::new(), number: 0 }
    }

    fn machine(&mut self) -> &mut Machine {
        self.machine.as_mut().unwrap()
    }

    fn pass(&mut self, time: Duration) {
        self.machine().advance(time);
        self.entries.extend(self.tape.take());
    }

    /// A process of one of three users and one of two jobs, which computes, writes or both.
    fn start(&mut self) -> (ProcessRef, Labels) {
        self.number += 1;
        let number = self.number;
        let time = Duration::from_millis(2_000 + u64::from(number * 7919 % 9_000));
        let load = match number % 3 {
            0 => Load::hog(time),
            1 => Load { requests: 40, rounds: Some(3), ..Load::hog(time / 20) },
            _ => Load { sleep: time / 4, rounds: Some(4), ..Load::hog(time / 40) },
        };
        let process = self.machine().world().start(1000 + number % 3);
        self.machine().world().node().tree.begin(process.pid, load);
        let label = |text: String| Some(Label::new(&text).unwrap());
        let job = label(format!("job-{}", number % 2));
        (process, Labels { name: label(format!("task-{number}")), job, ..Labels::default() })
    }

    fn submit(&mut self) {
        let (process, labels) = self.start();
        let priority = Priority(i32::from(self.number.is_multiple_of(5)));
        drop(self.machine().admit(process, labels, Some(priority)));
        self.waiting.push(process);
    }

    /// As the YARN finder does: each tenth is an application's master, each fourth opportunistic.
    fn discover(&mut self) {
        let (process, labels) = self.start();
        let number = self.number;
        let standing = match number {
            _ if number.is_multiple_of(10) => Standing::Slotless,
            _ if number.is_multiple_of(4) => Standing::Opportunistic,
            _ => Standing::Slot,
        };
        let mut found = DiscoveredTask {
            process,
            labels,
            priority: None,
            standing: None,
            presumed: Presumed::Slot,
            attach: Attach::Descendants { from: Some(HOME.to_owned()) },
            again: false,
            finder: Finder::Yarn,
        };
        for is_hint in [false, true] {
            if is_hint {
                found.standing = Some(standing);
                found.priority = Some(Priority(number as i32 % 3));
                found.again = true;
            }
            let (reply, _) = oneshot::channel();
            let found = Box::new(found.clone());
            self.machine().turn(vec![Command::Discover { found, reply }]);
            self.pass(Duration::from_millis(300));
        }
    }

    /// The daemon is killed, and those that have no answer ask again.
    fn kill(&mut self) {
        self.machine = self.machine.take().map(Machine::restart);
        for process in std::mem::take(&mut self.waiting) {
            if self.machine().world().node().tree.processes().contains_key(&process.pid) {
                drop(self.machine().admit(process, Labels::default(), None));
            }
        }
    }

    fn file(mut self) -> Vec<u8> {
        self.entries.extend(self.tape.take());
        self.entries.push(Entry::End("it was made so".to_owned()));
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file);
        self.entries.iter().for_each(|entry| writer.add(&encode(entry).unwrap()).unwrap());
        writer.flush().unwrap();
        file
    }
}

fn settings() -> Config {
    let mut config = Config::default();
    config.slots.active = Auto::Fixed(3);
    config.slots.passive = Auto::Fixed(2);
    config
}

fn queue(tasks: u32, kill_every: u32) -> Vec<u8> {
    let mut node = Recorded::new(&settings());
    for number in 1..=tasks {
        node.submit();
        node.pass(Duration::from_millis(700));
        if number.is_multiple_of(kill_every) {
            node.kill();
        }
    }
    node.pass(Duration::from_secs(60));
    node.file()
}

fn yarn(containers: u32) -> Vec<u8> {
    let mut node = Recorded::new(&settings());
    (0..containers).for_each(|_| node.discover());
    node.pass(Duration::from_secs(60));
    node.file()
}

#[test]
fn a_queue_with_crashes_and_containers_play_bit_for_bit() {
    for (file, daemons) in [(queue(300, 90), 4), (yarn(200), 1)] {
        let report = replay(&*file, None).unwrap();
        assert_eq!(report.rules, None);
        assert_eq!((report.daemons, report.end.as_deref()), (daemons, Some("it was made so")));
        let (first, last) = report.time.unwrap();
        assert!(last.boot.since(first.boot) > Duration::from_secs(150));
    }
}

#[test]
#[ignore = "minutes of computing: an hour of a queue with crashes, and an hour of containers"]
fn an_hour_of_each_plays_bit_for_bit() {
    for file in [queue(5_200, 900), yarn(6_000)] {
        let report = replay(&*file, None).unwrap();
        assert_eq!((report.rules, report.end.as_deref()), (None, Some("it was made so")));
        let (first, last) = report.time.unwrap();
        assert!(last.boot.since(first.boot) > Duration::from_secs(3_600));
    }
}

#[test]
fn with_another_setting_the_same_inputs_are_decided_otherwise() {
    let file = queue(40, 100);
    let mut other = settings();
    other.slots.passive_max = Auto::Fixed(2);
    let report = replay(&*file, Some(policy(&other))).unwrap();
    assert_eq!(report.rules, None);
    assert!(report.settings.is_some());
    let (was, other) = report.figures;
    assert!(was.most_passive > 2 && other.most_passive == 2, "{was:?} {other:?}");
}

#[test]
#[ignore = "makes the first two recordings anew"]
fn make() {
    std::fs::write(directory().join("queue-with-a-crash.lrsrec"), queue(40, 22)).unwrap();
    std::fs::write(directory().join("yarn-containers.lrsrec"), yarn(30)).unwrap();
}
