use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::model::{Labels, Priority};
use crate::state::{Need, Patience, Policy, Restored};
use crate::step::{Answer, Input, Last, Ready, Step};
use crate::task::{Attachment, Origin, Who};
use crate::units::{BootTime, Pid, WallTime};

/// What a loop would have: who is in a group, what is stored, and the jobs of the placing thread.
struct Node {
    shaper: Shaper,
    now: Moment,
    asked: u64,
    inside: BTreeSet<TaskId>,
    stored: BTreeSet<TaskId>,
    jobs: VecDeque<Job>,
    /// Requests without an answer.
    open: BTreeSet<Ticket>,
    moves_at_grant: u32,
    /// The next request that is looked at is not fit.
    unfit: bool,
}

fn home() -> Origin {
    [("cpu".to_owned(), "/home".to_owned())].into()
}

impl Node {
    /// `active` slots and one passive.
    fn new(active: u32) -> Node {
        let policy = Policy {
            active: Some(active),
            passive: Some(1),
            passive_max: Some(1),
            ..Policy::simulated()
        };
        Node {
            shaper: Shaper::new(policy, active, Restored::default()),
            now: Moment::default(),
            asked: 0,
            inside: BTreeSet::new(),
            stored: BTreeSet::new(),
            jobs: VecDeque::new(),
            open: BTreeSet::new(),
            moves_at_grant: 0,
            unfit: false,
        }
    }

    fn feed(&mut self, input: Input) {
        let step = self.shaper.handle(input, self.now);
        self.carry_out(step);
    }

    fn carry_out(&mut self, step: Step) {
        let task = |record: &Record| match record {
            Record::Task(id) => Some(*id),
            Record::Reservation(_) => None,
        };
        for id in step.records.iter().filter_map(task) {
            assert!(self.shaper.stored_task(id).is_some(), "{id} is stored and not there");
            self.stored.insert(id);
        }
        for id in step.forget.iter().filter_map(task) {
            assert!(!self.inside.contains(&id), "{id} is in its group without a record");
            self.stored.remove(&id);
        }
        for job in step.jobs {
            match job {
                Job::Park { task, .. } | Job::Prepare { task, .. } if self.unfit => {
                    self.unfit = false;
                    self.close(&job);
                    self.feed(Input::AttachFailed { task, reason: "unfit".into() });
                }
                Job::Park { task, .. } => {
                    let ready = Ready { origin: Some(home()), ..Ready::default() };
                    self.feed(Input::Prepared { task, ready });
                }
                Job::Prepare { task, .. } => {
                    self.close(&job);
                    let parked = self.shaper.task(task).unwrap().is_from_parking();
                    assert_eq!(parked, self.inside.contains(&task));
                    let origin = (!parked).then(home);
                    self.feed(Input::Prepared {
                        task,
                        ready: Ready { origin, ..Ready::default() },
                    });
                }
                Job::Attach(id) => {
                    assert!(self.stored.contains(&id), "{id} is moved and not stored");
                    if self.shaper.task(id).is_some_and(Task::is_from_parking) {
                        self.attached(id);
                    } else {
                        self.jobs.push_back(job);
                    }
                }
                Job::Release(_) => self.jobs.push_back(job),
                Job::Remove { task, .. } => {
                    self.inside.remove(&task.id);
                    self.feed(Input::Removed(task.id));
                }
                Job::Watch(_) | Job::Refuse { .. } | Job::Figures(_) => {}
                Job::PrepareBooked(_) | Job::Reattach(_) | Job::Repair { .. } | Job::Freeze(_) => {
                    unreachable!()
                }
            }
        }
        for (ticket, answer) in step.answers {
            if answer != Answer::Waiting {
                assert!(self.open.remove(&ticket), "answered twice");
            }
        }
    }

    fn close(&mut self, job: &Job) {
        if let Job::Prepare { ticket, .. } = job {
            assert!(self.open.remove(ticket), "granted twice, or after it was answered");
        }
    }

    fn attached(&mut self, task: TaskId) {
        let (attachment, path) = (Attachment::Own, format!("/lrs/{task}"));
        let group = GroupRecord {
            attachment,
            path,
            inode: 2,
            origin: home(),
            found: Vec::new(),
            elsewhere: Vec::new(),
            for_member: false,
        };
        self.feed(Input::Attached { task, group, born: Default::default() });
    }

    fn ask(&mut self, priority: i32, wait: Option<u64>, parks: bool) {
        self.asked += 1;
        let ticket = Ticket(self.asked);
        let pid = Pid::new(i32::try_from(self.asked).unwrap() + 1).unwrap();
        let process = Some(ProcessRef { pid, start_ticks: 1 });
        let request = Request {
            uid: 1,
            who: Who { process, ..Who::default() },
            labels: Labels::default(),
            priority: Some(Priority(priority)),
            reservation: None,
            need: Need::Slot,
            opportunistic: false,
            by_member: true,
        };
        let deadline = wait.map(|wait| self.now.boot.after(Duration::from_secs(wait)));
        let patience = Some(Patience { first_requested: self.now.wall, deadline, parks });
        self.open.insert(ticket);
        self.feed(Input::Request { ticket, request, patience });
    }

    /// The placing thread does its next job.
    fn work(&mut self, fails: bool) -> bool {
        match self.jobs.pop_front() {
            Some(Job::Attach(task)) if fails => {
                self.feed(Input::AttachFailed { task, reason: "process 7 has ended".into() });
            }
            Some(Job::Attach(task)) => {
                assert!(self.inside.insert(task), "{task} is moved twice");
                self.moves_at_grant += u32::from(self.shaper.parked(task).is_none());
                self.attached(task);
            }
            Some(Job::Release(id)) => {
                assert!(self.inside.remove(&id), "{id} is not in its group");
                self.feed(Input::Removed(id));
            }
            None => return false,
            Some(job) => unreachable!("{job:?}"),
        }
        true
    }

    fn work_all(&mut self) {
        while self.work(false) {}
    }

    fn end(&mut self, pick: usize) {
        let placed = self.shaper.tasks().filter(|(_, task)| task.is_placed()).map(|(id, _)| id);
        let placed: Vec<TaskId> = placed.collect();
        if !placed.is_empty() {
            let id = placed[pick % placed.len()];
            self.feed(Input::Ended(vec![id]));
            self.feed(Input::Figures(vec![(id, Last::Unread)]));
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.now.boot = BootTime(self.now.boot.0 + Duration::from_secs(seconds));
        let micros = self.now.wall.unix_micros() + 1_000_000 * i64::try_from(seconds).unwrap();
        self.now.wall = WallTime::from_unix_micros(micros);
        self.feed(Input::Tick);
    }

    fn check(&self) {
        let places = self.shaper.slots().active_capacity as usize + AHEAD;
        let next: Vec<Ticket> =
            self.shaper.queue.order().take(places).map(|(_, ticket)| ticket).collect();
        let mut seen = BTreeSet::new();
        for (id, parked) in &self.shaper.parking.parked {
            assert_eq!(parked.granted, self.shaper.task(*id).is_some(), "{id} is task and waiter");
            if parked.way == Way::Inside {
                let place = next.iter().position(|ticket| Some(*ticket) == parked.ticket);
                assert!(place.is_some(), "{id} has lost its place");
                assert!(!self.shaper.draining() && self.inside.contains(id));
            }
            assert!(seen.insert(parked.task.who.process), "parked twice");
        }
        for id in &self.inside {
            let task = self.shaper.task(*id).is_some();
            assert!(task || self.shaper.parked(*id).is_some(), "{id} is left in its group");
            assert!(self.stored.contains(id), "{id} is in its group without a record");
        }
    }

    /// Nothing of a waiter is left anywhere.
    fn check_none_parked(&mut self) {
        self.work_all();
        assert_eq!(self.shaper.all_parked().count(), 0);
        let tasks: BTreeSet<TaskId> = self.shaper.tasks().map(|(id, _)| id).collect();
        assert!(self.shaper.tasks().all(|(_, task)| task.is_placed()), "one was never prepared");
        assert_eq!(self.inside, tasks);
        assert_eq!(self.stored, tasks);
    }

    /// The tickets of those in their groups.
    fn parked(&self) -> Vec<u64> {
        let all = self.shaper.parking.parked.values();
        let inside = all.filter(|parked| parked.way == Way::Inside);
        inside.filter_map(|parked| Some(parked.ticket?.0)).collect()
    }
}

#[test]
fn the_next_ones_are_parked_and_granted_without_a_move() {
    let mut node = Node::new(1);
    (0..12).for_each(|_| node.ask(0, None, true));
    node.work_all();
    assert_eq!(node.parked(), (3..=11).collect::<Vec<_>>(), "A + 8 of those that wait");
    assert_eq!(node.moves_at_grant, 2, "of those that did not wait");
    node.end(0);
    let (_, newest) = node.shaper.tasks().last().unwrap();
    assert!(newest.is_placed(), "at once");
    assert_eq!(newest.who.origin, home());
    node.work_all();
    assert_eq!(node.parked(), (4..=12).collect::<Vec<_>>());
    assert_eq!(node.moves_at_grant, 2);
    node.check();
}

#[test]
fn who_comes_before_takes_the_place() {
    let mut node = Node::new(1);
    (0..12).for_each(|_| node.ask(0, None, true));
    node.work_all();
    node.ask(1, None, true);
    node.work_all();
    assert_eq!(node.parked(), [3, 4, 5, 6, 7, 8, 9, 10, 13]);
    assert_eq!(node.inside.len(), 2 + 9, "the one that lost it is where it was");
}

#[test]
fn a_grant_waits_for_the_move_under_way() {
    let mut node = Node::new(1);
    (0..3).for_each(|_| node.ask(0, None, true));
    node.work(false);
    node.work(false);
    node.end(0);
    assert!(node.shaper.tasks().last().unwrap().1.is_attaching());
    node.work(false);
    assert!(node.shaper.tasks().last().unwrap().1.is_placed());
    node.check_none_parked();
}

#[test]
fn one_that_cannot_be_parked_is_moved_when_its_turn_comes() {
    let mut node = Node::new(1);
    (0..2).for_each(|_| node.ask(0, None, true));
    node.work_all();
    node.unfit = true;
    node.ask(0, None, true);
    assert!(node.jobs.is_empty());
    node.ask(0, None, false);
    node.work_all();
    assert!(node.parked().is_empty());
    node.end(0);
    node.end(0);
    node.check_none_parked();
    assert_eq!((node.shaper.tasks().len(), node.moves_at_grant), (2, 4));
}

#[test]
fn one_that_is_not_fit_when_its_turn_comes_goes_back() {
    let mut node = Node::new(1);
    (0..3).for_each(|_| node.ask(0, None, true));
    node.work_all();
    node.unfit = true;
    node.end(0);
    assert_eq!(node.shaper.tasks().len(), 1);
    assert_eq!(node.shaper.leaving().count(), 1);
    node.check_none_parked();
}

#[derive(Clone, Debug)]
enum Op {
    Ask { priority: i32, wait: Option<u64>, parks: bool },
    Abandon { pick: usize },
    Work { fails: bool },
    End { pick: usize },
    Pass { seconds: u64 },
    Unfit,
    Drain,
    Resume,
    Active(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let wait = prop::option::of(0..20u64);
    prop_oneof![
        8 => (0..3, wait, prop::bool::weighted(0.9))
            .prop_map(|(priority, wait, parks)| Op::Ask { priority, wait, parks }),
        2 => any::<usize>().prop_map(|pick| Op::Abandon { pick }),
        8 => prop::bool::weighted(0.1).prop_map(|fails| Op::Work { fails }),
        4 => any::<usize>().prop_map(|pick| Op::End { pick }),
        2 => (0..5u64).prop_map(|seconds| Op::Pass { seconds }),
        1 => Just(Op::Unfit),
        1 => Just(Op::Drain),
        2 => Just(Op::Resume),
        1 => (1..4u32).prop_map(Op::Active),
    ]
}

proptest! {
    #[test]
    fn no_process_is_left_behind(ops in prop::collection::vec(op(), 1..120)) {
        let mut node = Node::new(2);
        for op in ops {
            match op {
                Op::Ask { priority, wait, parks } => node.ask(priority, wait, parks),
                Op::Abandon { pick } => {
                    let open: Vec<Ticket> = node.open.iter().copied().collect();
                    // One that has a slot is answered by its task.
                    if let Some(ticket) = open.get(pick % open.len().max(1))
                        && node.shaper.waiters.contains_key(ticket)
                    {
                        node.open.remove(ticket);
                        node.feed(Input::Abandon(*ticket));
                    }
                }
                Op::Work { fails } => drop(node.work(fails)),
                Op::End { pick } => node.end(pick),
                Op::Pass { seconds } => node.pass(seconds),
                Op::Unfit => node.unfit = true,
                Op::Drain => node.feed(Input::Drain),
                Op::Resume => node.feed(Input::Resume),
                Op::Active(active) => {
                    let policy = node.shaper.policy().clone();
                    node.feed(Input::Configure(Policy { active: Some(active), ..policy }));
                }
            }
            node.check();
        }
        node.feed(Input::Stop);
        node.unfit = false;
        node.check_none_parked();
    }
}
