//! What is not taken, and why.

use lrs::command::{Caller, Command as Order, ErrorKind, JobPriority};
use lrs::core::event::{Change, EventKind};
use lrs::core::model::{Label, Priority};
use lrs::discover::{Attach, DiscoveredTask, Finder, Hint};
use lrs::rights::Role;

use lrs_testbed::groups::cpu_mount;

use crate::bench::{Container, Loop, groups_of};

const OBSERVE: &str = "daemon.mode = \"observe\"\nslots.active = 1";

#[test]
fn observe_mode_records_a_session_and_touches_nothing() {
    let daemon = Loop::start("observe", OBSERVE);
    let container = Container::start("echo ready; sleep 600 & wait");
    let pid = container.process().pid.to_string();
    let before = groups_of(&pid);
    let id = daemon.discover(&container.found()).unwrap();
    let task = daemon.task(id);
    assert_eq!(task.attachment(), lrs::proto::Attachment::None);
    assert_eq!(task.found_by.as_deref(), Some("yarn"));
    assert_eq!(groups_of(&pid), before);
    drop(container);
    daemon.until_ended(id);
}

#[test]
fn who_is_gone_another_ones_or_no_session_is_refused_with_the_reason() {
    let daemon = Loop::start("refuse", OBSERVE);
    let mut container = Container::start("echo ready; sleep 600 & echo $!; wait");
    let child: u32 = container.line().parse().unwrap();
    let mut found = container.found();
    found.process.start_ticks += 1;
    assert_eq!(daemon.discover(&found).unwrap_err().kind, ErrorKind::NotFound);

    found.process = crate::bench::process_of(child);
    let error = daemon.discover(&found).unwrap_err();
    assert_eq!(error.kind, ErrorKind::FailedPrecondition);
    assert!(error.message.contains("does not lead its session"), "{error}");

    let id = daemon.discover(&container.found()).unwrap();
    let mut other = container.found();
    other.finder = Finder::Rule(Label::new("mine").unwrap());
    let error = daemon.discover(&other).unwrap_err();
    assert_eq!(error.kind, ErrorKind::AlreadyExists(id));

    // Whoever runs a container has not asked for its place, and cannot leave it.
    let user = |caller: Caller| Caller { uid: 4242, granted: Some(Role::Member), ..caller };
    let error =
        daemon.ask(|caller, reply| Order::Release { caller: user(caller), id, reply }).unwrap_err();
    assert_eq!(error.kind, ErrorKind::PermissionDenied);
    assert!(error.message.contains("found by yarn"), "{error}");

    // Nor can it change the priority of its job, with the owner of the job named or not.
    let job = Label::new("application_1_0001").unwrap();
    let mut again = container.found();
    again.labels.job = Some(job.clone());
    daemon.discover(&again).unwrap();
    let set = |who: &dyn Fn(Caller) -> Caller, uid, priority| {
        let (job, priority) = (job.clone(), Priority(priority));
        let request = JobPriority { job, uid, priority };
        daemon.ask(|caller, reply| Order::SetJobPriority { caller: who(caller), request, reply })
    };
    for uid in [None, Some(0)] {
        let error = set(&user, uid, -5).unwrap_err();
        assert_eq!(error.kind, ErrorKind::PermissionDenied);
        assert!(error.message.contains("found by yarn"), "{error}");
    }
    assert_eq!(daemon.task(id).priority, Some(0), "nothing is changed");
    assert_eq!(set(&|caller| caller, Some(4242), 5).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(set(&|caller| caller, None, 5).unwrap().tasks, 1);
    assert_eq!(daemon.task(id).priority, Some(5));

    // Released by an administrator, it is not brought back by the next look.
    daemon.ask(|caller, reply| Order::Release { caller, id, reply }).unwrap();
    let error = daemon.discover(&container.found()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::FailedPrecondition);
    assert!(error.message.contains("was released"), "{error}");

    // News of what was a task makes none, whichever of its processes they name.
    let other = Container::start("echo ready; sleep 600 & wait");
    let error = daemon.discover(&DiscoveredTask { again: true, ..other.found() }).unwrap_err();
    assert!(error.message.contains("was released"), "{error}");
    daemon.discover(&other.found()).unwrap();
}

#[test]
fn what_became_of_the_finders_is_a_warning_until_they_are_well() {
    let daemon = Loop::start("news", OBSERVE);
    daemon.until_warned("no finder", false);
    daemon.tell(Order::FinderTrouble(Some("no finder".into())));
    daemon.until_warned("no finder", true);
    let container = Container::start("echo ready; sleep 600 & wait");
    let id = daemon.discover(&container.found()).unwrap();
    daemon.tell(Order::FinderTrouble(None));
    daemon.until_warned("no finder", false);
    drop(container);
    daemon.until_ended(id);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_limit_is_never_shed_by_being_found() {
    let daemon = Loop::start("limit", "slots.active = 1");
    let container = Container::start("echo ready; sleep 600 & wait");
    let (mount, v1) = cpu_mount().unwrap();
    let dir = mount.join(format!("lrs-test-{}-limited", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let (file, value) =
        if v1 { ("cpu.cfs_quota_us", "50000") } else { ("cpu.max", "50000 100000") };
    std::fs::write(dir.join(file), value).unwrap();
    let pid = container.process().pid.to_string();
    std::fs::write(dir.join("cgroup.procs"), &pid).unwrap();
    let before = groups_of(&pid);
    let error = daemon.discover(&container.found()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::FailedPrecondition);
    assert!(error.message.contains(file) && error.message.contains("in place"), "{error}");
    assert_eq!(groups_of(&pid), before);

    // Judged where it was before it was put here.
    let mut moved = container.found();
    moved.attach = Attach::Session { from: Some("/lrs-test-nowhere".into()) };
    let error = daemon.discover(&moved).unwrap_err();
    assert_eq!(error.kind, ErrorKind::FailedPrecondition);
    assert!(error.message.contains("not in /lrs-test-nowhere any more"), "{error}");

    let mut elsewhere = container.found();
    elsewhere.attach = Attach::InPlace { cgroup: "/lrs-test-nowhere".into() };
    let error = daemon.discover(&elsewhere).unwrap_err();
    assert_eq!(error.kind, ErrorKind::FailedPrecondition);
    assert!(error.message.contains("where it was found"), "{error}");
    std::fs::write(mount.join("cgroup.procs"), &pid).unwrap();
    drop(container);
    crate::places::remove(&dir);
}

/// What a scheduler says goes to the finders, from an account that is listed for that.
#[test]
fn only_an_integration_speaks_for_a_scheduler() {
    let daemon = Loop::start("speak", &format!("{OBSERVE}\ngrpc.integrations = [4243]"));
    let hints = vec![Hint { container: String::from("c1"), ..Hint::default() }];
    let by = |uid: u32, granted| move |caller: Caller| Caller { uid, granted, ..caller };
    let hint = |who: &dyn Fn(Caller) -> Caller| {
        let hints = hints.clone();
        daemon.ask(|caller, reply| Order::Hint { caller: who(caller), hints, reply })
    };
    let error = hint(&by(4242, Some(Role::Member))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::PermissionDenied);
    assert!(error.message.contains("[grpc] integrations"), "{error}");
    hint(&by(4243, None)).unwrap();
    assert_eq!(daemon.hinted.lock().unwrap().hints.try_recv().unwrap(), hints);

    let report = |uid: u32| {
        let yarn = Some(Box::new(lrs::proto::YarnStatus { enabled: true, ..Default::default() }));
        let change = Change {
            kind: EventKind::Offered,
            from: None,
            to: Some(String::from("9216 MiB, 9 vcores")),
            reason: String::from("1 slot is open beyond the base"),
            inputs: serde_json::Map::new(),
        };
        daemon.ask(|caller, reply| Order::ReportIntegration {
            caller: by(uid, None)(caller),
            yarn,
            changes: vec![change],
            reply,
        })
    };
    assert_eq!(report(4242).unwrap_err().kind, ErrorKind::PermissionDenied);
    report(4243).unwrap();
    let snapshot = daemon.snapshot.borrow().clone();
    assert!(lrs::server::query::yarn(&snapshot).reported_at.is_some(), "its age is known");
    let offered = daemon.events.read(0, 100).events;
    assert_eq!(offered.iter().filter(|event| event.kind == EventKind::Offered).count(), 1);
}
