//! What is recorded of the core, so that it can be played again: the whole of it, and then each input
//! with the step that followed.
//!
//! The cut is here and not at the executor's, which takes more than inputs: it asks the node and
//! goes on by the answers, so that a replay of it would need each answer of a kernel. All that the
//! core knows came through [`Shaper::handle`], and time with it; so inputs, moments and one state say all that
//! was decided, and the loop has one place that calls it.
//!
//! A task is stored without what begins anew with each daemon ([`crate::task`]); a recording has that
//! too, beside the record of the task. The encoding of recordings is not for people, by which
//! [`BootTime`] tells it from a record: nothing is rounded.
//!
//! A file may say anything: what is read is no core before [`Shaper::disagreement`] found nothing. The rules
//! take for granted that the sets and the table say the same, and some would go on for ever where they do not.
//!
//! Whoever adds a field to what is recorded gives it `#[serde(default)]`: the recordings of
//! `tests/recordings` are those of earlier versions, and are read by every later one.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{TaskId, Ticket};
use crate::rate::TaskRates;
use crate::sample::TaskSample;
use crate::shaper::Shaper;
use crate::slots::{Seat, Slots};
use crate::step::{Input, Step};
use crate::task::{Attaching, Halt, Hold, Life, Task};
use crate::units::{BootTime, Moment};

/// What a recording is made of, in the order in which it happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// The first of all, and of each daemon that goes on with the same recording.
    Header(Header),
    /// What is set in `[slots]`, `[tiers]` and `[guard]`, as TOML, for a replay with another value. From
    /// the client, since the core has only what it takes from them.
    Settings(String),
    /// The core before the next input, and when that was.
    Core(Box<Shaper>, Moment),
    /// One input, and what was decided.
    Decided(Box<Decided>),
    /// Why it ends here, a sentence.
    End(String),
}

/// What has to be known before anything else is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The format, [`FORMAT`] of the version that wrote it.
    pub format: u32,
    /// That version.
    pub version: String,
}

/// What this version writes. It changes only where an earlier one cannot be read any more.
pub const FORMAT: u32 = 1;

/// One input and its step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decided {
    /// When.
    pub at: Moment,
    /// What happened.
    pub input: Input,
    /// What followed.
    pub step: Step,
}

impl Decided {
    /// About how many KiB this has: at least 1, and 1 for each four tasks that it speaks of.
    pub fn weight(&self) -> usize {
        let tasks = match &self.input {
            Input::Cycle { tasks, .. } => tasks.len(),
            Input::Figures(tasks) => tasks.len(),
            _ => 0,
        };
        let step = &self.step;
        1 + (tasks + step.weights.len() + step.events.len() + step.records.len() + step.jobs.len())
            / 4
    }
}

/// What is not stored of a task: all that `#[serde(skip)]` keeps out of its record. Random lives compare all of
/// a core with what is read of it.
#[derive(Serialize, Deserialize)]
struct Unstored {
    halted: Option<Halt>,
    repairs: VecDeque<BootTime>,
    main_exited: bool,
    left_for: Option<String>,
    hold: Hold,
    recorded: u32,
    parked: bool,
    last: Option<(BootTime, TaskSample)>,
    #[serde(default)]
    growth: Option<f64>,
    #[serde(default)]
    resident_at: Option<BootTime>,
    rates: TaskRates,
    burst: Option<Duration>,
    demand: Option<f64>,
    lost: Option<f64>,
    idle: Option<bool>,
}

impl Unstored {
    fn of(task: &Task) -> Unstored {
        let (recorded, parked) = match task.life {
            Life::Attaching(Attaching { recorded, parked, .. }) => (recorded, parked),
            Life::Placed(_) | Life::Releasing(_) => (0, false),
        };
        Unstored {
            halted: task.halted,
            repairs: task.repairs.clone(),
            main_exited: task.main_exited,
            left_for: task.left_for.clone(),
            hold: task.hold(),
            recorded,
            parked,
            last: task.counts.last,
            growth: task.counts.growth,
            resident_at: task.counts.resident_at,
            rates: task.counts.rates,
            burst: task.counts.burst,
            demand: task.counts.demand,
            lost: task.counts.lost,
            idle: task.counts.idle,
        }
    }

    fn give_to(self, task: &mut Task) {
        match &mut task.life {
            Life::Attaching(attaching) => {
                (attaching.recorded, attaching.parked) = (self.recorded, self.parked);
            }
            Life::Placed(hold) | Life::Releasing(hold) => *hold = self.hold,
        }
        task.halted = self.halted;
        task.repairs = self.repairs;
        task.main_exited = self.main_exited;
        task.left_for = self.left_for;
        task.counts.last = self.last;
        task.counts.growth = self.growth;
        task.counts.resident_at = self.resident_at;
        task.counts.rates = self.rates;
        task.counts.burst = self.burst;
        task.counts.demand = self.demand;
        task.counts.lost = self.lost;
        task.counts.idle = self.idle;
    }
}

/// The most active slots: no Linux has more CPUs, and the configuration allows fewer.
const MOST_ACTIVE: u32 = 8192;

/// The most passive slots, as in the configuration.
const MOST_PASSIVE: u32 = 65_536;

impl Shaper {
    /// What in it contradicts itself, so that no core ever was so; in words. Of lists alone: a figure
    /// that is wrong decides something else, and no more.
    pub fn disagreement(&self) -> Option<&'static str> {
        let mut slots = self.slots.emptied();
        let mut orders = BTreeSet::new();
        for (id, task) in &self.tasks {
            slots.insert(task.seat, task.rank(), *id);
            slots.halt(*id, task.halted.is_some());
            orders.insert(task.order);
        }
        let used = self.tasks.values().filter_map(|task| match &task.life {
            Life::Attaching(Attaching { used, .. }) => used.as_deref().map(|(id, _)| *id),
            Life::Placed(_) | Life::Releasing(_) => None,
        });
        let mut promises: Vec<_> = used.chain(self.reservations.keys().copied()).collect();
        let number = promises.len();
        promises.sort_unstable();
        promises.dedup();
        for (id, reservation) in &self.reservations {
            slots.reserve(reservation.tier, reservation.rank(), *id);
            orders.insert(reservation.order);
        }
        let parked = &self.parking.parked;
        let named = |id: &TaskId, task: &Task| *id == task.id;
        let counters = &self.counters;
        let is_new = |epoch: u32, number: u64, next: u64| epoch == counters.epoch && number >= next;
        let mut ids = self.tasks.keys().chain(parked.keys());
        let in_passive =
            |id: &TaskId| self.tasks.get(id).is_some_and(|task| task.seat == Seat::Passive);
        let found = [
            (
                self.tasks.iter().chain(&self.vacated).all(|(id, task)| named(id, task))
                    && parked.iter().all(|(id, it)| named(id, &it.task)),
                "a task is listed by the id of another",
            ),
            (
                orders.len() == self.tasks.len() + self.reservations.len(),
                "two tasks or reservations have the same place in the order",
            ),
            (slots == self.slots, "the slots have other tasks or reservations than there are"),
            (promises.len() == number, "a reservation is used and is there all the same"),
            (
                parked.iter().all(|(id, it)| it.granted || !self.tasks.contains_key(id)),
                "a request that waits in its group has a slot",
            ),
            (
                self.queue.lists(self.waiters.iter().map(|(id, waiter)| waiter.place(*id))),
                "the queue has other requests than those that wait",
            ),
            (self.loans.borrowers().iter().all(in_passive), "a task borrows that is not passive"),
            (
                !ids.any(|id| is_new(id.epoch, id.number, counters.next_task))
                    && !promises
                        .iter()
                        .any(|id| is_new(id.epoch, id.number, counters.next_reservation))
                    && orders.last().is_none_or(|last| last.0 < counters.next_order)
                    && counters.next_task.max(counters.next_reservation).max(counters.next_order)
                        < u64::MAX / 2,
                "an id that is the next one is taken",
            ),
        ];
        let wrong = found.into_iter().find(|(is_so, _)| !is_so).map(|(_, what)| what);
        wrong.or_else(|| self.excess())
    }

    /// Which capacity is beyond what any node has: counts of what is wanted are bounded by them.
    pub fn excess(&self) -> Option<&'static str> {
        let Slots { active_capacity, passive_capacity, base, passive_max, .. } = self.slots;
        if active_capacity > MOST_ACTIVE {
            return Some("there are more than 8192 active slots");
        }
        // Tasks that are there keep their slots.
        let passive = base.max(passive_max).max(passive_capacity);
        (passive > MOST_PASSIVE.max(self.slots.passive_in_use()))
            .then_some("there are more than 65536 passive slots")
    }

    /// Whether this request has been made and is under way: another one never has its ticket.
    pub fn has_request(&self, ticket: Ticket) -> bool {
        self.waiters.contains_key(&ticket)
            || self.parking.parked.values().any(|parked| parked.ticket == Some(ticket))
    }
}

/// A task with all of it.
pub(crate) mod whole {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Task, Unstored};

    pub(crate) fn serialize<S: Serializer>(task: &Task, serializer: S) -> Result<S::Ok, S::Error> {
        (task, Unstored::of(task)).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Box<Task>, D::Error> {
        let (mut task, rest) = <(Box<Task>, Unstored)>::deserialize(from)?;
        rest.give_to(&mut task);
        Ok(task)
    }
}

/// Such tasks by their ids.
pub(crate) mod whole_map {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Task;
    use crate::model::TaskId;

    type Tasks = BTreeMap<TaskId, Box<Task>>;

    #[derive(Serialize)]
    struct Out<'a>(#[serde(with = "super::whole")] &'a Task);

    #[derive(Deserialize)]
    struct In(#[serde(with = "super::whole")] Box<Task>);

    pub(crate) fn serialize<S: Serializer>(tasks: &Tasks, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(tasks.iter().map(|(id, task)| (id, Out(task))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Tasks, D::Error> {
        let tasks = BTreeMap::<TaskId, In>::deserialize(from)?;
        Ok(tasks.into_iter().map(|(id, In(task))| (id, task)).collect())
    }
}
