use proptest::prelude::*;

use super::*;
use crate::event::Event;
use crate::model::{Labels, TaskId};
use crate::state::{Lease, Need, Patience, Policy, Refusal, Request, Restored};
use crate::step::{Answer, Input, Job, Last, Step, Ticket};
use crate::task::Who;
use crate::units::{BootTime, WallTime};

const ROOT: u32 = 0;
const ADMIN: u32 = 7;

fn at(seconds: u64) -> Moment {
    let wall = WallTime::from_unix_micros(i64::try_from(seconds).unwrap() * 1_000_000);
    Moment { boot: BootTime(Duration::from_secs(seconds)), wall }
}

fn is_member(uid: u32) -> bool {
    uid != ROOT && uid != ADMIN
}

/// Two active and two passive slots.
struct Node {
    shaper: Shaper,
    tickets: u64,
}

impl Node {
    fn new() -> Node {
        let two = Some(2);
        let policy = Policy {
            active: two,
            passive: two,
            passive_max: two,
            expand: false,
            ..Policy::simulated()
        };
        Node { shaper: Shaper::new(policy, 2, Restored::default()), tickets: 0 }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn reserve(&mut self, uid: u32, priority: i32, count: u32, now: Moment) -> Vec<ReservationId> {
        let ticket = self.ticket();
        let lease = Lease { ttl: Some(Duration::from_secs(600)), count, active: false };
        let input = Input::Reserve {
            ticket,
            uid,
            by_member: is_member(uid),
            labels: Labels::default(),
            priority: Priority(priority),
            lease,
            patience: None,
        };
        match self.shaper.handle(input, now).answers.pop() {
            Some((_, Answer::Reserved(ids))) => ids,
            _ => Vec::new(),
        }
    }

    fn wait(&mut self, uid: u32, priority: i32, now: Moment) -> Step {
        let request = Request {
            uid,
            who: Who::default(),
            labels: Labels::default(),
            priority: Some(Priority(priority)),
            reservation: None,
            need: Need::Slot,
            opportunistic: false,
            by_member: is_member(uid),
        };
        let patience = Some(Patience { first_requested: now.wall, deadline: None, parks: false });
        let ticket = self.ticket();
        self.shaper.handle(Input::Request { ticket, request, patience }, now)
    }

    fn tick(&mut self, now: Moment) -> Step {
        self.shaper.handle(Input::Tick, now)
    }

    fn held(&self, uid: u32) -> usize {
        self.shaper.reservations().filter(|(_, reservation)| reservation.uid == uid).count()
    }
}

fn withdrawn(step: &Step) -> Vec<&Event> {
    step.events.iter().filter(|event| event.kind == EventKind::Withdrawn).collect()
}

fn granted(step: &Step) -> usize {
    step.jobs.iter().filter(|job| matches!(job, Job::Prepare { .. })).count()
}

#[test]
fn a_higher_priority_takes_the_latest_reservation_of_a_member_once_it_is_old_enough() {
    let mut node = Node::new();
    let ids = node.reserve(1, 0, 4, at(0));
    assert_eq!(ids.len(), 4);
    assert_eq!(granted(&node.wait(ROOT, 100, at(3))), 0, "in its first seconds");
    assert_eq!(node.shaper.next_deadline(), Some(at(5).boot));
    let step = node.tick(at(5));
    let [event] = withdrawn(&step)[..] else { panic!("{:?}", step.events) };
    assert_eq!(event.task.as_deref(), Some(ids[3].to_string().as_str()));
    assert_eq!((&event.inputs["uid"], &event.inputs["waiting_uid"]), (&json!(1), &json!(0)));
    assert_eq!((granted(&step), node.held(1)), (1, 3));
    let refusal = node.shaper.check_reservation(ids[3]).unwrap_err();
    assert!(matches!(refusal, Refusal::ReservationWithdrawn { .. }), "{refusal}");
    assert!(refusal.to_string().contains("uid 0 waits for a slot"), "{refusal}");
    assert_eq!(node.shaper.check_reservation(ids[2]), Ok(()));
}

#[test]
fn a_member_keeps_its_share_however_many_wait() {
    let mut node = Node::new();
    node.reserve(1, 0, 4, at(0));
    let granted: usize = (0..5).map(|_| granted(&node.wait(2, 0, at(10)))).sum();
    assert_eq!((granted, node.held(1)), (2, 2));
    node.tick(at(300));
    assert_eq!(node.held(1), 2);
    // A third user: the share of four slots is two yet.
    node.wait(3, 0, at(301));
    assert_eq!(node.held(1), 2);
    node.wait(4, 0, at(302));
    assert_eq!(node.held(1), 1, "of four users each has one");
}

#[test]
fn without_others_who_wait_there_is_no_limit() {
    let mut node = Node::new();
    node.reserve(1, 0, 4, at(0));
    node.wait(1, 5, at(10));
    node.tick(at(500));
    assert_eq!(node.held(1), 4, "its own request waits");
}

#[test]
fn reservations_of_admins_and_integrations_yield_to_no_member() {
    let mut node = Node::new();
    node.reserve(ROOT, 0, 4, at(0));
    node.wait(1, 50, at(10));
    assert_eq!(node.held(ROOT), 4);
    node.wait(ADMIN, 0, at(11));
    assert_eq!(node.held(ROOT), 4, "they are under no share");
    let step = node.wait(ADMIN, 60, at(12));
    assert_eq!((granted(&step), node.held(ROOT)), (1, 3), "a lower priority keeps none out");
}

#[test]
fn an_admin_above_all_members_is_behind_none() {
    let mut node = Node::new();
    node.reserve(ADMIN, -1, 4, at(0));
    node.wait(1, 0, at(10));
    node.wait(ROOT, 0, at(11));
    assert_eq!(node.held(ADMIN), 4, "a member is next, and the slot would be its");
    let step = node.wait(ROOT, 1, at(12));
    assert_eq!((granted(&step), node.held(ADMIN)), (1, 3));
}

#[test]
fn a_lower_priority_that_waits_takes_nothing() {
    let mut node = Node::new();
    node.reserve(1, 0, 4, at(0));
    node.wait(2, -1, at(10));
    assert_eq!(node.held(1), 4);
}

#[test]
fn nothing_is_withdrawn_while_no_waiter_would_get_the_slot() {
    let mut node = Node::new();
    node.reserve(1, 0, 4, at(0));
    node.shaper.handle(Input::Drain, at(1));
    node.wait(2, 0, at(10));
    assert_eq!(node.held(1), 4);
    let step = node.shaper.handle(Input::Resume, at(11));
    assert_eq!((granted(&step), node.held(1)), (1, 3));
}

#[test]
fn one_used_by_a_failed_admission_is_back_with_its_age() {
    let mut node = Node::new();
    let ids = node.reserve(1, 0, 4, at(0));
    let restored = Restored {
        reservations: ids
            .iter()
            .map(|id| (*id, node.shaper.reservation(*id).unwrap().clone()))
            .collect(),
        ..Restored::default()
    };
    let policy = node.shaper.policy().clone();
    node.shaper = Shaper::new(policy, 2, restored);
    assert_eq!(granted(&node.wait(2, 0, at(4))), 0);
    assert_eq!(granted(&node.tick(at(5))), 1, "a restart changes nothing");
}

#[derive(Clone, Copy, Debug)]
enum Happens {
    Reserves { who: usize, priority: i32, count: u32 },
    Waits { who: usize, priority: i32 },
    Uses(usize),
    Ends(usize),
    Holds(bool),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (0..5usize, -1..2i32, 1..4u32)
            .prop_map(|(who, priority, count)| Happens::Reserves { who, priority, count }),
        4 => (0..5usize, -1..2i32).prop_map(|(who, priority)| Happens::Waits { who, priority }),
        1 => any::<usize>().prop_map(Happens::Uses),
        2 => any::<usize>().prop_map(Happens::Ends),
        1 => prop::bool::weighted(0.3).prop_map(Happens::Holds),
    ]
}

/// No user above its share is left that could give up something for another that waits.
fn check(shaper: &Shaper, now: Moment) {
    let slots = shaper.slots();
    if shaper.holding() || shaper.draining() || slots.overflow() > 0 || shaper.waiting() == 0 {
        return;
    }
    let waiting: Vec<_> = shaper.queue().map(|waiting| waiting.request).collect();
    let users: BTreeSet<u32> = waiting
        .iter()
        .map(|request| request.uid)
        .chain(shaper.reservations().map(|(_, reservation)| reservation.uid))
        .collect();
    // With what was given up it may be more, and never more than of all slots.
    let share = slots.allocated().div_ceil(users.len() as u32) as usize;
    for (id, reservation) in shaper.reservations() {
        if reservation.yields_from > now.boot {
            continue;
        }
        // A member's that is next takes none of an admin's, nor does who comes behind it.
        let most = if reservation.by_member { waiting.len() } else { 1 };
        let of_others = waiting.iter().take(most).filter(|request| {
            request.uid != reservation.uid && (reservation.by_member || !request.by_member)
        });
        let Some(highest) = of_others.map(|request| request.priority.unwrap()).max() else {
            continue;
        };
        assert!(highest <= reservation.priority, "{id} keeps a higher priority out");
        let owner = reservation.uid;
        let held = shaper.reservations().filter(|(_, other)| other.uid == owner).count();
        let yields = reservation.by_member && highest >= reservation.priority;
        assert!(!yields || held <= share, "{owner} holds {held}, and another waits");
    }
}

proptest! {
    #[test]
    fn what_yields_is_old_enough_and_no_user_keeps_others_out(
        all in prop::collection::vec((happens(), 0..4u64), 1..80),
    ) {
        const USERS: [u32; 5] = [ROOT, ADMIN, 1, 2, 3];
        let mut node = Node::new();
        let mut made: BTreeMap<String, (u32, i32, Moment)> = BTreeMap::new();
        let mut clock = 0;
        for (happens, seconds) in all {
            clock += seconds;
            let now = at(clock);
            let mut steps = vec![node.tick(now)];
            let running: Vec<TaskId> = node.shaper.tasks().map(|(id, _)| id).collect();
            match happens {
                Happens::Reserves { who, priority, count } => {
                    for id in node.reserve(USERS[who], priority, count, now) {
                        made.insert(id.to_string(), (USERS[who], priority, now));
                    }
                }
                Happens::Waits { who, priority } => {
                    steps.push(node.wait(USERS[who], priority, now));
                }
                Happens::Uses(pick) => {
                    let all: Vec<_> = node.shaper.reservations().map(|(id, _)| id).collect();
                    if !all.is_empty() {
                        let id = all[pick % all.len()];
                        let ticket = node.ticket();
                        let uid = node.shaper.reservation(id).unwrap().uid;
                        let request = Request {
                            reservation: Some(id),
                            priority: None,
                            by_member: is_member(uid),
                            ..Request::of_promise(uid, true, Labels::default(), Priority(0))
                        };
                        let asks = Input::Request { ticket, request, patience: None };
                        steps.push(node.shaper.handle(asks, now));
                    }
                }
                Happens::Ends(pick) => {
                    if !running.is_empty() {
                        let id = running[pick % running.len()];
                        steps.push(node.shaper.handle(Input::Ended(vec![id]), now));
                        let last = Input::Figures(vec![(id, Last::Unread)]);
                        steps.push(node.shaper.handle(last, now));
                    }
                }
                Happens::Holds(drains) => {
                    let input = if drains { Input::Drain } else { Input::Resume };
                    steps.push(node.shaper.handle(input, now));
                }
            }
            for event in steps.iter().flat_map(withdrawn) {
                let (uid, priority, when) = &made[event.task.as_deref().unwrap()];
                prop_assert!(now.boot.since(when.boot) >= UNTOUCHED, "{event:?} was too young");
                let figure = |name: &str| event.inputs[name].as_i64().unwrap();
                let waiting = u32::try_from(figure("waiting_uid")).unwrap();
                prop_assert_ne!(waiting, *uid);
                prop_assert!(figure("waiting_priority") >= i64::from(*priority));
                if !is_member(*uid) {
                    prop_assert!(!is_member(waiting), "{event:?} yields to a member");
                }
                if figure("waiting_priority") == i64::from(*priority) {
                    prop_assert!(is_member(*uid) && figure("held") > figure("share"));
                }
            }
            check(&node.shaper, now);
        }
    }
}
