//! The time an attach and a release may take, on real groups.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;
use crate::cgroup::mounts::{Hierarchy, Mounts};
use crate::cgroup::mover::BUDGET;
use crate::cgroup::walk::processes_below;
use crate::clock;

/// A group in the hierarchy with the cpu controller, and a family of `children` + 1 outside.
struct Stage {
    hierarchies: Vec<Hierarchy>,
    path: String,
    shell: Child,
    /// The group of the family before any attach.
    home: String,
}

impl Stage {
    fn new(name: &str, children: usize) -> Stage {
        let mounts = Mounts::read().unwrap();
        let hierarchy = mounts.v1().into_iter().next().or(mounts.unified());
        let hierarchies = vec![hierarchy.expect("needs root and cgroups")];
        let path = format!("/lrs-test-{}-{name}", std::process::id());
        std::fs::create_dir(hierarchies[0].dir(&path)).expect("needs root and cgroups");
        let script = format!("for n in $(seq {children}); do sleep 600 & done; echo ready; wait");
        let mut shell = Command::new("sh")
            .args(["-c", &script])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let mut stage = Stage { hierarchies, path, shell, home: String::new() };
        stage.home = stage.mover(BUDGET).present_group(stage.process().pid).unwrap();
        stage
    }

    fn home(&self) -> Option<String> {
        Some(self.home.clone())
    }

    fn mover(&self, budget: Duration) -> Mover<'_> {
        Mover { hierarchies: &self.hierarchies, root: "/lrs-test-no-root", budget }
    }

    fn process(&self) -> ProcessRef {
        let pid = Pid::new(self.shell.id() as i32).unwrap();
        ProcessRef { pid, start_ticks: Stat::read(pid).unwrap().unwrap().start_ticks }
    }

    fn record(&self) -> GroupRecord {
        GroupRecord {
            attachment: crate::cgroup::Attachment::Own,
            path: self.path.clone(),
            inode: 1,
            origin: Default::default(),
            found: Vec::new(),
            elsewhere: Vec::new(),
            for_member: false,
        }
    }

    fn inside(&self) -> usize {
        processes_below(&self.hierarchies[0].dir(&self.path)).unwrap().len()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.shell.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.shell.wait();
        let dir = self.hierarchies[0].dir(&self.path);
        while processes_below(&dir).is_ok_and(|left| !left.is_empty()) {
            std::thread::yield_now();
        }
        for _ in 0..1000 {
            if std::fs::remove_dir(&dir).is_ok() {
                return;
            }
            std::thread::yield_now();
        }
        #[allow(clippy::print_stderr)] // a failing test's own complaint
        {
            eprintln!("left behind: {}", dir.display());
        }
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn an_attach_that_runs_out_of_time_is_undone_and_says_how_many_are_outside() {
    let stage = Stage::new("attach-late", 20);
    let error = stage
        .mover(Duration::ZERO)
        .attach(&stage.record(), stage.process(), Kin::Descendants, Conditions::default(), false)
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("within 0ns") && text.contains("still outside"), "{text}");
    assert!(!text.contains("undoing failed"), "{text}");
    assert_eq!(stage.inside(), 0);
    assert_eq!(stage.mover(BUDGET).present_group(stage.process().pid).unwrap(), stage.home);

    // In the middle of the family: some were moved, and all went back.
    let mut budget = Duration::from_micros(50);
    let text = loop {
        match stage.mover(budget).attach(
            &stage.record(),
            stage.process(),
            Kin::Descendants,
            Conditions::default(),
            false,
        ) {
            Err(error) if error.to_string().contains("up to") => break error.to_string(),
            Err(_) => budget = budget * 5 / 4,
            Ok(_) => {
                stage.mover(BUDGET).evacuate(&stage.path, BUDGET, &|_| stage.home()).unwrap();
                budget /= 2;
            }
        }
    };
    assert!(!text.contains("undoing failed"), "{text}");
    assert_eq!(stage.inside(), 0, "{text}");

    assert_eq!(
        stage
            .mover(BUDGET)
            .attach(
                &stage.record(),
                stage.process(),
                Kin::Descendants,
                Conditions::default(),
                false
            )
            .unwrap(),
        21
    );
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_release_that_runs_out_of_time_says_how_many_are_inside_and_goes_on_when_asked_again() {
    let stage = Stage::new("release-late", 5);
    let mover = stage.mover(BUDGET);
    assert_eq!(
        mover
            .attach(
                &stage.record(),
                stage.process(),
                Kin::Descendants,
                Conditions::default(),
                false
            )
            .unwrap(),
        6
    );
    let error = mover.evacuate(&stage.path, Duration::ZERO, &|_| stage.home()).unwrap_err();
    assert!(error.to_string().contains("6 processes are still in"), "{error}");
    mover.evacuate(&stage.path, BUDGET, &|_| stage.home()).unwrap();
    assert_eq!(stage.inside(), 0);
}

/// What a burst of containers costs the thread that places them: with `--nocapture`.
#[test]
#[ignore = "needs root and cgroups"]
fn what_each_session_of_a_crowd_costs() {
    const CROWD: usize = 300;
    if std::env::var_os("LRS_TEST_MEASURE").is_none() {
        println!("SKIPPED: a measurement; set LRS_TEST_MEASURE to take it");
        return;
    }
    let stage = Stage::new("crowd", 0);
    let start = |_| {
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", "sleep 600 & echo ready; wait"]).stdout(Stdio::piped());
        let mut leader = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(leader.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        leader
    };
    let mut crowd: Vec<Child> = (0..CROWD).map(start).collect();
    let mover = stage.mover(BUDGET);
    let mut took = Vec::new();
    for leader in &crowd {
        let pid = Pid::new(leader.id() as i32).unwrap();
        let process =
            ProcessRef { pid, start_ticks: Stat::read(pid).unwrap().unwrap().start_ticks };
        let begun = clock::boot_time();
        assert_eq!(
            mover
                .attach(&stage.record(), process, Kin::Session, Conditions::default(), false)
                .unwrap(),
            2
        );
        took.push(clock::boot_time().since(begun));
    }
    let mean = |part: &[Duration]| part.iter().sum::<Duration>() / part.len() as u32;
    println!(
        "{CROWD} sessions of two: {:?} in all, {:?} each of the first 30, {:?} of the last",
        took.iter().sum::<Duration>(),
        mean(&took[..30]),
        mean(&took[CROWD - 30..])
    );
    for leader in &mut crowd {
        let group = rustix::process::Pid::from_raw(leader.id() as i32).unwrap();
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        leader.wait().unwrap();
    }
}
