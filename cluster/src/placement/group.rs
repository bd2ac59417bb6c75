//! A group of jobs (a user, a queue, a pool) as the input says it.

use serde::{Deserialize, Serialize};

use crate::placement::ids::GroupId;

/// A group of jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The group it is part of.
    pub parent: Option<GroupId>,
    /// Its weight against its siblings, above 0.
    pub weight: f64,
    /// Slots that it has before weights count; at least as many as the groups below it have together.
    pub min_slots: u32,
    /// What the input says instead, where that is less than those below it have together.
    pub raised_from: Option<u32>,
    /// Which of its jobs is next.
    pub order: Order,
}

impl Group {
    /// That of the jobs in no group.
    pub(crate) fn without_name() -> Group {
        let order = Order::Fair;
        Group {
            name: String::new(),
            parent: None,
            weight: 1.0,
            min_slots: 0,
            raised_from: None,
            order,
        }
    }
}

/// Which of the jobs of a group is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The job with the fewest running tasks.
    #[default]
    Fair,
    /// The job of the highest priority, then the earliest.
    Fifo,
}
