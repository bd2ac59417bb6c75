//! Whether tiers have an effect: what a test of them showed.
//!
//! That weights are written does not say that the kernel heeds them: a scheduler in BPF, a hypervisor that
//! hides CPUs or a kernel with a fault may not. So two processes, one with the weights of an active task and
//! one with those of a passive one, compute on one CPU for a second, and what each got is compared with
//! `tiers.ratio`. What others compute on that CPU takes from both and changes nothing in their ratio.
//!
//! Limits. A passive process computes for some milliseconds at a time, so that a second shows no more than
//! about 1 : 100. [`ENOUGH`] is what has to be seen where more is asked for.

use std::time::Duration;

/// What is known of the tiers of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A test has measured it.
    Verified,
    /// Weights are written; no test has shown what they do.
    Claimed,
    /// A test has measured that there is none.
    None,
}

impl Effect {
    /// As clients read it.
    pub fn word(self) -> &'static str {
        match self {
            Effect::Verified => "verified",
            Effect::Claimed => "claimed",
            Effect::None => "without effect",
        }
    }
}

/// What two processes that compute used of one CPU meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSplit {
    /// The CPU.
    pub cpu: u32,
    /// What the active one used.
    pub active: Duration,
    /// What the passive one used.
    pub passive: Duration,
    /// How long they were measured.
    pub over: Duration,
}

/// How many times what the passive one got is enough, whatever `tiers.ratio` is.
const ENOUGH: f64 = 25.0;

/// Below so much there is no effect: equals differ by less in a second.
const EQUAL: f64 = 1.5;

/// Below this `tiers.ratio` a second cannot tell tiers from equals.
const LEAST_RATIO: u32 = 4;

/// Part of the time that both together have to have computed.
const EVIDENCE: f64 = 0.2;

impl CpuSplit {
    /// Whether the tiers with `tiers.ratio` = `ratio` have an effect, and why so.
    pub fn judge(&self, ratio: u32) -> (Effect, String) {
        let CpuSplit { cpu, active, passive, over } = *self;
        let found = format!(
            "on CPU {cpu} an active process got {} ms and a passive one {} ms in {} ms",
            active.as_millis(),
            passive.as_millis(),
            over.as_millis()
        );
        let times = active.as_secs_f64() / passive.as_secs_f64().max(1e-6);
        if (active + passive).as_secs_f64() < over.as_secs_f64() * EVIDENCE {
            let why = "others computed there, so that it shows nothing";
            return (Effect::Claimed, format!("{found}: {why}; test again when a CPU is spare"));
        }
        if ratio < LEAST_RATIO {
            let why = format!("tiers.ratio = {ratio} is too little to be seen in a second");
            return (Effect::Claimed, format!("{found}: {why}"));
        }
        if times >= ENOUGH.min(f64::from(ratio) / 2.0) {
            return (Effect::Verified, found);
        }
        if times < EQUAL {
            return (Effect::None, format!("{found}: the kernel does not heed their weights"));
        }
        (
            Effect::Claimed,
            format!("{found}: {times:.1} times as much, where tiers.ratio is {ratio}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(active: u64, passive: u64, ratio: u32) -> (Effect, String) {
        let [active, passive, over] = [active, passive, 1000].map(Duration::from_millis);
        CpuSplit { cpu: 3, active, passive, over }.judge(ratio)
    }

    #[test]
    fn a_split_is_seen_and_its_absence_too() {
        for (active, passive, ratio, effect) in [
            (990, 10, 100, Effect::Verified),
            (1000, 0, 10_000, Effect::Verified),
            // On a busy CPU each gets less.
            (240, 4, 100, Effect::Verified),
            (500, 500, 100, Effect::None),
            (400, 600, 100, Effect::None),
            (840, 160, 10, Effect::Verified),
            // Less than it should be, and more than nothing.
            (840, 160, 100, Effect::Claimed),
            (600, 300, 2, Effect::Claimed),
            (500, 500, 1, Effect::Claimed),
            // Nothing was to be had.
            (100, 90, 100, Effect::Claimed),
            (0, 0, 100, Effect::Claimed),
        ] {
            assert_eq!(judged(active, passive, ratio).0, effect, "{active}:{passive} of {ratio}");
        }
        let (_, why) = judged(500, 500, 100);
        assert_eq!(
            why,
            "on CPU 3 an active process got 500 ms and a passive one 500 ms in 1000 ms: the kernel \
             does not heed their weights"
        );
    }
}
