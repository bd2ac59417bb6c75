//! What came of the decisions of a recording, in numbers: for two settings side by side.

use lrs_core::event::EventKind;
use lrs_core::shaper::Shaper;
use lrs_core::state::Totals;
use lrs_core::step::Step;
use lrs_core::units::BootTime;

/// Of one core over all of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Tasks that got a slot, ended, moved up, moved down; requests that were refused.
    pub totals: Totals,
    /// How often passive slots were opened, and closed.
    pub opened: u64,
    /// See there.
    pub closed: u64,
    /// The most passive slots there were.
    pub most_passive: u32,
    /// How often the guard began to hold or changed its stage.
    pub guard: u64,
    /// Of seconds: all, times the passive slots, times those in use, times the requests that waited.
    seconds: f64,
    passive: f64,
    passive_used: f64,
    waited: f64,
    until: Option<BootTime>,
}

impl Figures {
    /// The core was as it is until `now`.
    pub(crate) fn time(&mut self, core: &Shaper, now: BootTime) {
        let slots = core.slots();
        let passed = self.until.map_or(0.0, |until| now.since(until).as_secs_f64());
        self.until = self.until.max(Some(now));
        self.seconds += passed;
        self.passive += passed * f64::from(slots.passive_capacity);
        self.passive_used += passed * f64::from(slots.passive_used());
        self.waited += passed * core.waiting() as f64;
        self.most_passive = self.most_passive.max(slots.passive_capacity);
    }

    /// It decided something.
    pub(crate) fn step(&mut self, before: &Totals, core: &Shaper, step: &Step) {
        let after = core.totals();
        let sum = &mut self.totals;
        for (sum, after, before) in [
            (&mut sum.admitted, after.admitted, before.admitted),
            (&mut sum.completed, after.completed, before.completed),
            (&mut sum.promoted, after.promoted, before.promoted),
            (&mut sum.demoted, after.demoted, before.demoted),
            (&mut sum.refused, after.refused, before.refused),
        ] {
            *sum = sum.saturating_add(after.saturating_sub(before));
        }
        self.most_passive = self.most_passive.max(core.slots().passive_capacity);
        let count = |kind| step.events.iter().filter(|event| event.kind == kind).count() as u64;
        self.opened += count(EventKind::Expanded);
        self.closed += count(EventKind::Shrunk);
        self.guard += count(EventKind::Guard);
    }

    /// Names and values, in the order in which they are shown.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mean = |sum: f64| {
            let mean = sum / self.seconds;
            if mean.is_finite() { format!("{mean:.1}") } else { "unknown".to_owned() }
        };
        let Totals { admitted, completed, promoted, demoted, refused, .. } = self.totals;
        vec![
            ("tasks that got a slot", admitted.to_string()),
            ("tasks that ended", completed.to_string()),
            ("promotions", promoted.to_string()),
            ("demotions", demoted.to_string()),
            ("refusals", refused.to_string()),
            ("passive slots, mean", mean(self.passive)),
            ("passive slots, most", self.most_passive.to_string()),
            ("passive slots in use, mean", mean(self.passive_used)),
            ("requests that wait, mean", mean(self.waited)),
            ("times that slots were opened", self.opened.to_string()),
            ("times that slots were closed", self.closed.to_string()),
            ("turns of the guard", self.guard.to_string()),
        ]
    }
}
