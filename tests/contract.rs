//! What the loop expects of its world, held against both: the node and the one that is pretended.
//!
//! So what is proven on the pretended node says something of the real one. A method of the seam gets its
//! line here first.

#![allow(clippy::unwrap_used)] // a failed helper is a failed test
#![allow(clippy::disallowed_methods)] // tests measure real time

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lrs::cgroup::{Group, Kin, Reach, WeightPlan};
use lrs::config::{Auto, Config, RootPath};
use lrs::core::model::{Level, Order, TaskId, Tier};
use lrs::core::neighbours::RootWeight;
use lrs::core::slice::Slice;
use lrs::core::slots::Seat;
use lrs::core::step::Record;
use lrs::core::task::{Halt, Task};
use lrs::executor::Loop;
use lrs::executor::job::GroupJob;
use lrs::executor::message::{AttachResult, Message};
use lrs::executor::turn::{End, Happened};
use lrs::executor::world::{
    Jobs as _, Kernel as _, Records as _, Storable, Watch as _, Whereabouts, World,
};
use lrs::node::Node;
use lrs::publish::{EventRing, Snapshot};
use lrs::sample::{Sampler, Settings};
use lrs::state::Store;
use lrs::units::{Pid, ProcessRef};
use lrs_sim::node::Hardware;
use lrs_sim::pretend::Pretend;
use tokio::sync::watch;

const PLAN: WeightPlan = WeightPlan { ratio: 100, active_capacity: 2, passive_max: 8 };

const FIRST: TaskId = TaskId { epoch: 7, number: 1 };
const SECOND: TaskId = TaskId { epoch: 7, number: 2 };

/// A world, and what others do to it.
trait Subject {
    type World: World;

    fn world(&mut self) -> &mut Self::World;

    /// A process that does nothing until it ends.
    fn start(&mut self) -> ProcessRef;

    fn end(&mut self, process: ProcessRef);

    /// Such a process in a group of a stranger's, which has weights.
    fn start_elsewhere(&mut self) -> ProcessRef;

    /// That stranger writes the weight 77.
    fn write_foreign(&mut self);

    /// What has happened since; it waits for something to.
    fn happened(&mut self) -> Happened;

    /// What was begun on `task` is answered.
    fn answered(&mut self, task: TaskId) -> Message {
        self.waits_for("an answer", |happened| {
            happened.messages.into_iter().find(|message| match message {
                Message::Attached { task: of, .. }
                | Message::Reattached { task: of, .. }
                | Message::Released { task: of, .. }
                | Message::NotRemoved { task: of, .. } => *of == task,
                _ => false,
            })
        })
    }

    fn waits_for<T>(&mut self, what: &str, found: impl Fn(Happened) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = found(self.happened()) {
                return found;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        }
    }

    fn attach(&mut self, task: TaskId, process: ProcessRef, tier: Tier) -> AttachResult {
        self.attach_in(task, process, tier, None)
    }

    fn attach_in(
        &mut self,
        task: TaskId,
        process: ProcessRef,
        tier: Tier,
        found: Option<Group>,
    ) -> AttachResult {
        let origin = self.world().position(process).map(|it| it.origin).unwrap_or_default();
        let job = GroupJob::Attach {
            task,
            name: None,
            process,
            kin: Kin::Descendants,
            origin,
            reach: Reach::All,
            owner: None,
            found: found.map(Arc::new),
            tier: Some(tier),
            slice: Slice::Default,
            plan: PLAN,
            discovered: false,
        };
        self.world().begin(job.into());
        match self.answered(task) {
            Message::Attached { result, .. } => result,
            other => panic!("an attach is answered by {other:?}"),
        }
    }
}

/// Of all that the loop relies on.
fn holds(mut subject: impl Subject) {
    who_a_pid_is(&mut subject);
    let process = subject.start();
    let home = subject.world().position(process).unwrap();
    assert_eq!(home.task, None);
    let (group, attached, tier) = subject.attach(FIRST, process, Tier::Passive).unwrap();
    assert_eq!((attached.moved, tier), (1, Some(Tier::Passive)));
    what_is_in_a_group(&mut subject, &group, process);
    weights(&mut subject, &group);
    counters(&mut subject, &group);
    ends(&mut subject, process);
    freezing(&mut subject, &group);
    a_release(&mut subject, &group, process, &home.paths);
    an_end(&mut subject);
    in_place(&mut subject);
    records(&mut subject);
}

fn who_a_pid_is(subject: &mut impl Subject) {
    let process = subject.start();
    let identity = subject.world().identify(process.pid).unwrap();
    assert_eq!(identity.process, process);
    assert!(subject.world().lives(process));
    subject.end(process);
    assert!(!subject.world().lives(process));
    assert!(subject.world().identify(process.pid).is_err());
    assert!(subject.world().position(process).is_err());
    let refused = subject.attach(SECOND, process, Tier::Active);
    assert!(refused.is_err(), "one that has ended is in no group: {refused:?}");
}

fn what_is_in_a_group(subject: &mut impl Subject, group: &Group, process: ProcessRef) {
    let world = subject.world();
    assert_eq!(world.position(process).unwrap().task, Some(FIRST));
    assert_eq!(world.members(group, None).unwrap(), [process.pid]);
    assert_eq!(world.whereabouts(group, process).unwrap(), Whereabouts::Inside);
    assert!(world.check_owner(group, 0).is_ok());
    assert!(world.check_owner(group, 12_345).is_err());
    assert_eq!(world.presumed(&group.record).record, group.record);
}

fn weights(subject: &mut impl Subject, group: &Group) {
    let world = subject.world();
    for level in [Level::Passive, Level::Lane, Level::Active, Level::Passive, Level::Active] {
        world.weigh(group, level, &PLAN).unwrap();
        assert_eq!(world.drift(group, level, &PLAN).unwrap(), []);
    }
    assert_ne!(world.drift(group, Level::Passive, &PLAN).unwrap(), []);
    assert!(world.show(group).unwrap().cpu_weight.is_some());
    assert!(world.owner_wrote(group).unwrap().is_none());
    world.weigh_root(RootWeight::Weight(300)).unwrap();
    assert_eq!(world.weigh_root(RootWeight::Weight(300)).unwrap(), [], "it has that");
}

fn counters(subject: &mut impl Subject, group: &Group) {
    let world = subject.world();
    let cpu = world.cpu_time(group, &mut Default::default());
    let cpu = cpu.expect("it is there").expect("CPU is counted");
    assert!(world.figures(group, &[]).expect("it is there").cpu.expect("as above") >= cpu);
}

fn ends(subject: &mut impl Subject, main: ProcessRef) {
    let other = subject.start();
    let world = subject.world();
    let key =
        world.watch(FIRST, main.pid, Some(main.start_ticks), None).unwrap().expect("it lives");
    assert!(world.watch(FIRST, other.pid, None, None).unwrap().is_some());
    let stranger = world.watch(FIRST, other.pid, Some(other.start_ticks + 1), None).unwrap();
    assert!(stranger.is_none(), "another process has this number");
    subject.end(other);
    let is_end =
        |happened: Happened| happened.ends.contains(&End::Process(FIRST, other.pid)).then_some(());
    subject.waits_for("an end that is watched", is_end);
    assert!(subject.world().watch(FIRST, other.pid, None, None).unwrap().is_none(), "it has ended");
    subject.world().unwatch(FIRST, [key]);
}

fn freezing(subject: &mut impl Subject, group: &Group) {
    let world = subject.world();
    assert_eq!(world.frozen_root().unwrap(), None);
    assert_eq!(world.halt(group, None).unwrap(), None);
    world.freeze(group, true).unwrap();
    assert!(world.freeze(group, true).is_err(), "what is frozen is not LRS's to freeze");
    world.freeze(group, false).unwrap();
    assert_eq!(world.halt(group, None).unwrap(), None);
}

fn a_release(subject: &mut impl Subject, group: &Arc<Group>, process: ProcessRef, home: &[String]) {
    let job = || GroupJob::Release { task: FIRST, group: Arc::clone(group), waited: false };
    subject.world().freeze(group, true).unwrap();
    // The kernel freezes behind the write.
    while subject.world().halt(group, None).unwrap().is_none() {
        std::thread::yield_now();
    }
    subject.world().begin(job().into());
    let stays = subject.answered(FIRST);
    assert!(matches!(stays, Message::Released { result: Ok(Some(Halt::Frozen)), .. }), "{stays:?}");
    assert_eq!(subject.world().whereabouts(group, process).unwrap(), Whereabouts::Inside);
    subject.world().freeze(group, false).unwrap();
    while subject.world().halt(group, None).unwrap().is_some() {
        std::thread::yield_now();
    }
    subject.world().begin(job().into());
    assert!(matches!(subject.answered(FIRST), Message::Released { result: Ok(None), .. }));
    let world = subject.world();
    let position = world.position(process).unwrap();
    assert_eq!((position.task, &*position.paths), (None, home), "back where it was");
    assert_eq!(world.whereabouts(group, process).unwrap(), Whereabouts::GroupRemoved);
    assert_eq!(world.members(group, None).unwrap(), []);
    // A group that is gone has no weights to show, and is no fault.
    assert_eq!(world.show(group).ok().and_then(|shown| shown.cpu_weight), None);
    subject.end(process);
}

fn an_end(subject: &mut impl Subject) {
    let process = subject.start();
    let (group, ..) = subject.attach(SECOND, process, Tier::Active).unwrap();
    let world = subject.world();
    assert_eq!(world.drift(&group, Level::Active, &PLAN).unwrap(), [], "weighed before it moved");
    assert!(world.remove(&group).is_err(), "a group with a process in it stays");
    let mut kept = Default::default();
    assert!(world.cpu_time(&group, &mut kept).is_some());
    subject.end(process);
    // Nothing in it would be thawed by a move.
    subject.world().freeze(&group, true).unwrap();
    let job = GroupJob::Release { task: SECOND, group: Arc::clone(&group), waited: true };
    subject.world().begin(job.into());
    assert!(matches!(subject.answered(SECOND), Message::Released { result: Ok(None), .. }));
    subject.world().remove(&group).unwrap();
    assert!(subject.world().cpu_time(&group, &mut kept).is_none());
    assert!(subject.world().cpu_time(&group, &mut Default::default()).is_none());
}

fn in_place(subject: &mut impl Subject) {
    let process = subject.start_elsewhere();
    let found = subject.world().find_in_place(process, None).unwrap();
    let before = subject.world().show(&found).unwrap().cpu_weight;
    let (group, attached, _) =
        subject.attach_in(SECOND, process, Tier::Passive, Some(found)).unwrap();
    assert_eq!(attached.moved, 0);
    assert_eq!(subject.world().whereabouts(&group, process).unwrap(), Whereabouts::Inside);
    assert_ne!(subject.world().show(&group).unwrap().cpu_weight, before);
    assert!(subject.world().owner_wrote(&group).unwrap().is_none());
    subject.write_foreign();
    let world = subject.world();
    assert_ne!(world.drift(&group, Level::Passive, &PLAN).unwrap(), []);
    let record = world.owner_wrote(&group).unwrap().expect("its owner wrote");
    assert!(record.found.iter().any(|(_, value)| value == "77"), "{record:?}");
    let group = Group { record, ..(*group).clone() };
    world.weigh(&group, Level::Passive, &PLAN).unwrap();
    assert_ne!(world.show(&group).unwrap().cpu_weight, Some(77));
    world.remove(&group).unwrap();
    assert!(world.lives(process));
    assert_eq!(world.show(&group).unwrap().cpu_weight, Some(77), "its owner has it back");
    subject.end(process);
}

fn records(subject: &mut impl Subject) {
    let task = Task::lost(FIRST, Order(1), Seat::Active);
    let world = subject.world();
    world.put(Storable::Task(&task)).unwrap();
    world.put(Storable::Task(&task)).unwrap();
    world.forget(Record::Task(FIRST)).unwrap();
    world.forget(Record::Task(FIRST)).unwrap();
    assert!(!world.resume().unwrap(), "nothing was removed");
}

struct Pretended(Pretend);

impl Subject for Pretended {
    type World = Pretend;

    fn world(&mut self) -> &mut Pretend {
        &mut self.0
    }

    fn start(&mut self) -> ProcessRef {
        self.0.start(0)
    }

    fn end(&mut self, process: ProcessRef) {
        self.0.exit(process.pid, 0);
    }

    fn start_elsewhere(&mut self) -> ProcessRef {
        self.0.start_in("/others/one", 0)
    }

    fn write_foreign(&mut self) {
        self.0.write_foreign("/others/one");
    }

    fn happened(&mut self) -> Happened {
        let ends = self.0.take_ends();
        Happened { ends, messages: self.0.finish().unwrap_or_default(), ..Happened::default() }
    }
}

#[test]
fn the_pretended_node_is_what_the_loop_expects() {
    holds(Pretended(Pretend::boot(Hardware::default(), Config::default())));
}

struct Real {
    daemon: Loop<Node>,
    children: Vec<Child>,
    root: String,
    _dir: tempfile::TempDir,
}

impl Real {
    fn boot() -> Real {
        let dir = tempfile::Builder::new().prefix("lrs-test-").tempdir().unwrap();
        let mut config = Config::default();
        let root = format!("lrs-test-{}-contract", std::process::id());
        config.cgroup.root = Auto::Fixed(RootPath(root.clone()));
        config.daemon.runtime_dir = dir.path().join("run");
        std::fs::create_dir(&config.daemon.runtime_dir).unwrap();
        let boot = lrs::state::boot_id().unwrap();
        let (store, recovered) = Store::open(&config.daemon.runtime_dir, &boot, 7).unwrap();
        let tree = lrs::cgroup::open(&config.tree_settings()).expect("needs root and cgroups");
        let tree = Arc::new(tree);
        let limit = lrs::kernfs::files::raise_descriptor_limit().unwrap();
        let sampler = Sampler::new(Settings::of_this_machine(limit.sampler_budget())).unwrap();
        let (_, commands) = lrs::access::queue().unwrap();
        let parts = lrs::node::Parts {
            config,
            config_file: dir.path().join("none.toml"),
            reload_log: Box::new(|_| Ok(())),
            tree,
            store,
            recovered,
            sampler,
            commands,
            hints: lrs::discover::hint_queue().0,
            snapshot: watch::channel(Arc::new(Snapshot::default())).0,
            events: Arc::new(EventRing::new(10, [])),
        };
        let (daemon, _) = lrs::node::start(parts).unwrap();
        Real { daemon, children: Vec::new(), root, _dir: dir }
    }
}

impl Real {
    /// A group of a stranger's.
    fn elsewhere(&self) -> std::path::PathBuf {
        let (mount, _) = lrs_testbed::groups::cpu_mount().unwrap();
        mount.join(format!("{}-owner", self.root))
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let now = lrs::clock::now();
        self.daemon.begin_end(now);
        self.daemon.end(Vec::new(), now);
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for dir in lrs_testbed::groups::root_dirs(&self.root) {
            lrs_testbed::groups::remove_groups(&dir).unwrap();
        }
        let _ = std::fs::remove_dir(self.elsewhere());
    }
}

impl Subject for Real {
    type World = Node;

    fn world(&mut self) -> &mut Node {
        self.daemon.world()
    }

    fn start(&mut self) -> ProcessRef {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::new(child.id() as i32).unwrap();
        self.children.push(child);
        self.world().identify(pid).unwrap().process
    }

    fn end(&mut self, process: ProcessRef) {
        let is_it = |child: &Child| child.id() == process.pid.raw().unsigned_abs();
        let index = self.children.iter().position(is_it).unwrap();
        let mut child = self.children.remove(index);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    fn start_elsewhere(&mut self) -> ProcessRef {
        let process = self.start();
        let dir = self.elsewhere();
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("cgroup.procs"), process.pid.raw().to_string()).unwrap();
        process
    }

    fn write_foreign(&mut self) {
        let files = ["cpu.weight", "cpu.shares"].map(|file| self.elsewhere().join(file));
        let file = files.into_iter().find(|file| file.exists()).unwrap();
        std::fs::write(file, "77").unwrap();
    }

    fn happened(&mut self) -> Happened {
        self.world().wait(Duration::from_secs(1)).unwrap()
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn the_node_is_what_the_loop_expects() {
    holds(Real::boot());
}
