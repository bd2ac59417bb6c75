//! A node of the cluster: its slots, and what runs on them.

use lrs_core::model::Tier;
use serde::{Deserialize, Serialize};

use crate::placement::ids::{RackId, TaskId};
use crate::placement::input::SlotsInput;
use crate::placement::resources::Resources;

/// A node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its rack.
    pub rack: RackId,
    pub(crate) capacity: Option<Resources>,
    active: Slots,
    passive: Slots,
    /// What runs, in the order of its start, with its tier now.
    running: Vec<(TaskId, Tier)>,
    duty: Duty,
}

/// What a node is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Duty {
    /// Tasks start and run.
    Serves,
    /// What runs goes on, nothing starts.
    Drains,
    /// It is not there any more.
    Gone,
}

/// The slots of a tier.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Slots {
    capacity: u32,
    #[serde(skip)]
    used: u32,
}

impl Node {
    /// A node on which nothing runs.
    pub(crate) fn new(
        name: String,
        rack: RackId,
        slots: SlotsInput,
        capacity: Option<Resources>,
    ) -> Node {
        let [active, passive] =
            [slots.active, slots.passive].map(|capacity| Slots { capacity, used: 0 });
        Node { name, rack, capacity, active, passive, running: Vec::new(), duty: Duty::Serves }
    }

    /// Slots of both tiers, free or not; none where nothing is to start.
    pub fn slots(&self) -> u32 {
        match self.duty {
            Duty::Serves => self.active.capacity.saturating_add(self.passive.capacity),
            Duty::Drains | Duty::Gone => 0,
        }
    }

    /// Free slots of a tier; none where nothing is to start.
    pub fn free(&self, tier: Tier) -> u32 {
        if self.duty == Duty::Serves { self.unused(tier) } else { 0 }
    }

    /// Whether what runs can move to a slot of a tier.
    pub(crate) fn is_free(&self, tier: Tier) -> bool {
        self.unused(tier) > 0
    }

    /// Whether it has left the cluster.
    pub fn is_gone(&self) -> bool {
        self.duty == Duty::Gone
    }

    /// Whether what runs there goes on and nothing starts.
    pub fn is_draining(&self) -> bool {
        self.duty == Duty::Drains
    }

    pub(crate) fn set_duty(&mut self, duty: Duty) {
        self.duty = duty;
    }

    /// Slots of each tier, whatever it is there for.
    pub(crate) fn slots_of(&self) -> [u32; 2] {
        [self.active.capacity, self.passive.capacity]
    }

    /// Counts the slots that are used, which are not saved.
    pub(crate) fn count(&mut self) {
        (self.active.used, self.passive.used) = (0, 0);
        for (_, tier) in self.running.clone() {
            self.of(tier).used += 1;
        }
    }

    fn unused(&self, tier: Tier) -> u32 {
        let Slots { capacity, used } = match tier {
            Tier::Active => self.active,
            Tier::Passive => self.passive,
        };
        capacity.saturating_sub(used)
    }

    /// Free slots of both.
    pub(crate) fn all_free(&self) -> u32 {
        self.free(Tier::Active).saturating_add(self.free(Tier::Passive))
    }

    /// Gives it other slots; what runs goes on.
    pub(crate) fn resize(&mut self, slots: SlotsInput) {
        self.active.capacity = slots.active;
        self.passive.capacity = slots.passive;
    }

    /// The tier of the next task to start here: active slots fill first (thesis 4.3.1).
    pub fn next_free(&self) -> Option<Tier> {
        [Tier::Active, Tier::Passive].into_iter().find(|tier| self.free(*tier) > 0)
    }

    /// The tasks that run here, in the order of their start. Collect them, or put one into a variable,
    /// before the cluster is changed.
    pub fn running(&self) -> impl Iterator<Item = TaskId> {
        self.running.iter().map(|(task, _)| *task)
    }

    /// The tasks of a tier, each with its place in the order of starts.
    pub(crate) fn seated(&self, tier: Tier) -> impl Iterator<Item = (usize, TaskId)> {
        let running = self.running.iter().enumerate();
        running.filter(move |(_, (_, of))| *of == tier).map(|(index, (task, _))| (index, *task))
    }

    fn of(&mut self, tier: Tier) -> &mut Slots {
        match tier {
            Tier::Active => &mut self.active,
            Tier::Passive => &mut self.passive,
        }
    }

    /// Puts a task on a slot.
    pub(crate) fn add(&mut self, task: TaskId, tier: Tier) {
        self.running.push((task, tier));
        self.of(tier).used += 1;
    }

    /// Takes a task away, if it is here.
    pub(crate) fn remove(&mut self, task: TaskId) {
        let Some(index) = self.running.iter().position(|(other, _)| *other == task) else { return };
        let (_, tier) = self.running.remove(index);
        self.of(tier).used -= 1;
    }

    /// Gives the task at a place in the order of starts another tier.
    pub(crate) fn move_to(&mut self, tier: Tier, index: usize) {
        let from = std::mem::replace(&mut self.running[index].1, tier);
        self.of(from).used -= 1;
        self.of(tier).used += 1;
    }
}
