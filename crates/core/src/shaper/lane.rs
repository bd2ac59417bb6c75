//! The lane as a part of the shaper: which tasks may enter, what is known of each, and what comes of
//! its moves, a level for the applier and an event with the reason.
//!
//! The lane itself ([`crate::lane`]) knows neither tasks nor events, so that its bounds are tested with
//! numbers alone. Whether a [`Candidate`] has the right ones of a task, an example in `proptests/examples.rs`
//! shows, and as root `tests/daemon/lane.rs`.

use std::time::Duration;

use serde_json::json;

use super::Shaper;
use crate::event::EventKind;
use crate::lane::{Budget, Candidate, Lane, Move};
use crate::model::{Level, TaskId, Tier};
use crate::task::{Attachment, Task};
use crate::units::Moment;

impl Shaper {
    /// The weights a task should have; `None`: there is no such task.
    pub fn level(&self, id: TaskId) -> Option<Level> {
        let task = self.task(id)?;
        Some(match task.tier() {
            Tier::Passive if self.loans.has(id) => Level::Active,
            Tier::Passive => self.lane.level(id).unwrap_or(Level::Passive),
            Tier::Active => Level::Active,
        })
    }

    /// Who is in the I/O lane.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Once a cycle, after all that changes who is passive.
    pub(crate) fn fill_lane(&mut self, contended: bool, now: Moment) {
        let share = self.policy.lane_share;
        if share.value() == 0.0 && self.lane.is_empty() {
            return;
        }
        if self.makes_headroom() {
            return self.empty_lane(now);
        }
        let budget = Budget { share, active: self.slots.active_capacity, contended };
        let may = |task: &Task| {
            let shaped = task.attachment() != Attachment::None && !task.is_contested();
            // One that is given back, or that others shape, keeps what it has.
            let passive = task.tier() == Tier::Passive && !self.loans.has(task.id);
            self.lane.has(task.id) || passive && task.is_placed() && shaped
        };
        let passive: Vec<Candidate> = self
            .tasks()
            .filter(|(_, task)| may(task))
            .map(|(id, task)| {
                let job = task.job_key().filter(|job| job.uid.is_some());
                Candidate {
                    task: id,
                    burst: task.counts.burst,
                    rate: task.counts.meter.computing_rate(),
                    job_rate: self.rate_of_job(&task.labels, task.uid),
                    job,
                    cpu: task.counts.last.and_then(|(_, last)| last.cpu),
                }
            })
            .collect();
        let moves = self.lane.cycle(budget, &passive, now.boot);
        self.carry_out(moves, now);
    }

    /// The CPU counters of the members, between two cycles.
    pub(crate) fn look_at_lane(&mut self, counters: &[(TaskId, Option<Duration>)], now: Moment) {
        let moves = self.lane.look(now.boot, counters);
        self.carry_out(moves, now);
    }

    /// The daemon stops: members are as other passive tasks until the next one lets them in.
    pub(crate) fn empty_lane(&mut self, now: Moment) {
        let moves = self.lane.stop(now.boot);
        self.carry_out(moves, now);
    }

    fn carry_out(&mut self, moves: Vec<Move>, now: Moment) {
        for Move { task: id, weight, why, part } in moves {
            let Some(level) = self.level(id) else { continue };
            self.step.set_level(id, level);
            let counts = self.task(id).map(|task| &task.counts);
            let rate = counts.and_then(|counts| counts.meter.computing_rate());
            let burst = counts.and_then(|counts| counts.burst).map(|burst| burst.as_secs_f64());
            let kind = if weight.is_some() { EventKind::LaneIn } else { EventKind::LaneOut };
            self.record(now, kind, Some(id.to_string()), |event| {
                event.reason = Some(why.as_str().to_owned());
                event.inputs.insert("part".into(), json!(part));
                event.inputs.insert("weight".into(), json!(weight));
                event.inputs.insert("computing_rate".into(), json!(rate));
                event.inputs.insert("burst_seconds".into(), json!(burst));
            });
        }
    }
}
