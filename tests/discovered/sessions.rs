//! Containers taken as a whole session.

use lrs::command::Command as Order;
use lrs::core::event::EventKind;
use lrs::core::model::{Label, Priority, Standing};
use lrs::discover::{Finder, Presumed};

use crate::bench::{Container, Loop, groups_of};

/// Ends what is in no container.
fn end(pid: &str) {
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_session_is_moved_whole_and_is_the_same_task_for_ever() {
    let daemon = Loop::start("session", "slots.active = 1\nslots.passive = 1");
    // Of the two orphans init has adopted, one is of the session and one began its own: it says
    // so itself, since before that it is of the session too.
    let mut container = Container::start(
        "echo ready; (sleep 600 & echo $!)
        echo $( (setsid sh -c 'echo $$; exec sleep 60 >/dev/null' &) )
        sleep 600 & echo $!; wait",
    );
    let [orphan, stranger, child] = [(); 3].map(|()| container.line());
    let outside = groups_of(&stranger);
    let mut found = container.found();
    let id = daemon.discover(&found).unwrap();

    let task = daemon.task(id);
    let group = task.cgroup.clone().unwrap();
    assert_eq!(task.found_by.as_deref(), Some("yarn"));
    assert_eq!(task.name.as_deref(), Some("container_1_0001_01_000002"));
    assert!(!task.opportunistic && !task.overflow);
    for pid in [&container.process().pid.to_string(), &orphan, &child] {
        let inside = groups_of(pid).iter().filter(|(_, path)| *path == group).count();
        assert!(inside > 0, "process {pid}: {:?}", groups_of(pid));
    }
    assert_eq!(groups_of(&stranger), outside, "its task is unknown");
    let admitted = daemon.story(id).first().cloned().unwrap();
    assert_eq!(admitted.kind, EventKind::Admitted);
    assert_eq!(admitted.inputs["found_by"], "yarn");
    assert_eq!(admitted.inputs["standing"], "slot");

    // What the finder learns later is taken over; it is still the same task.
    found.standing = Some(Standing::Opportunistic);
    found.priority = Some(Priority(3));
    found.labels.kind = Some(Label::new("map").unwrap());
    assert_eq!(daemon.discover(&found).unwrap(), id);
    let task = daemon.task(id);
    assert!(task.opportunistic);
    assert_eq!((task.priority, task.kind.as_deref()), (Some(3), Some("map")));

    // An operator's word stands until the finder has news.
    daemon
        .ask(|caller, reply| Order::SetPriority { caller, id, priority: Priority(9), reply })
        .unwrap();
    assert_eq!(daemon.discover(&found).unwrap(), id);
    assert_eq!(daemon.task(id).priority, Some(9));

    let daemon = daemon.restart();
    // A finder that begins anew has yet to ask its scheduler: what it does not say, stays.
    (found.priority, found.standing) = (None, None);
    assert_eq!(daemon.discover(&found).unwrap(), id, "after a restart too");
    (found.priority, found.standing) = (Some(Priority(3)), Some(Standing::Opportunistic));
    assert_eq!(daemon.discover(&found).unwrap(), id, "nor is its last word news");
    let task = daemon.task(id);
    assert_eq!(task.priority, Some(9));
    assert!(task.opportunistic && task.found_by.as_deref() == Some("yarn"));

    container.kill();
    let ended = daemon.until_ended(id).last().cloned().unwrap();
    assert_eq!(ended.kind, EventKind::Completed);
    end(&stranger);
}

/// What a program says of itself counts until its scheduler speaks, and not again after that.
#[test]
#[ignore = "needs root and cgroups"]
fn a_refused_master_is_none_to_the_next_lrsd_either() {
    let daemon = Loop::start("claims", "slots.active = 1\nslots.passive = 1");
    let mut container = Container::start("echo ready; sleep 600 & wait");
    let mut found = container.found();
    found.presumed = Presumed::Slotless;
    let id = daemon.discover(&found).unwrap();
    assert!(daemon.task(id).slotless);
    found.standing = Some(Standing::Slot);
    assert_eq!(daemon.discover(&found).unwrap(), id);
    assert!(!daemon.task(id).slotless);

    let daemon = daemon.restart();
    found.standing = None;
    assert_eq!(daemon.discover(&found).unwrap(), id);
    assert!(!daemon.task(id).slotless, "its scheduler has yet to be asked");
    container.kill();
    daemon.until_ended(id);
}

/// What a process does may be learnt after it was found.
#[test]
#[ignore = "needs root and cgroups"]
fn a_master_that_is_known_late_gives_its_slot_back() {
    let daemon = Loop::start("late", "slots.active = 1\nslots.passive = 1");
    let mut container = Container::start("echo ready; sleep 600 & wait");
    let mut found = container.found();
    let id = daemon.discover(&found).unwrap();
    assert!(!daemon.task(id).slotless);
    found.presumed = Presumed::Slotless;
    assert_eq!(daemon.discover(&found).unwrap(), id);
    assert!(daemon.task(id).slotless);
    container.kill();
    daemon.until_ended(id);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_full_and_draining_node_seats_what_it_finds_and_the_opportunistic_last() {
    let daemon = Loop::start("full", "slots.active = 1\nslots.passive = 0\nslots.passive_max = 0");
    daemon.ask(|caller, reply| Order::Drain { caller, reply }).unwrap();
    let containers = [(); 3].map(|()| Container::start("echo ready; sleep 600 & wait"));
    let tell = |container: &Container, standing| {
        let mut found = container.found();
        found.standing = Some(standing);
        found.finder = Finder::Rule(Label::new("batch").unwrap());
        daemon.discover(&found).unwrap()
    };
    let spare = tell(&containers[0], Standing::Opportunistic);
    assert_eq!(daemon.task(spare).tier(), lrs::proto::Tier::Active);
    let first = tell(&containers[1], Standing::Slot);
    let master = tell(&containers[2], Standing::Slotless);
    let [spare, first, master] = [spare, first, master].map(|id| daemon.task(id));
    assert_eq!(spare.tier(), lrs::proto::Tier::Passive);
    assert!(spare.overflow);
    assert_eq!(first.tier(), lrs::proto::Tier::Active);
    assert!(master.slotless && master.tier() == lrs::proto::Tier::Active);
    assert_eq!(master.found_by.as_deref(), Some("rule batch"));
}
