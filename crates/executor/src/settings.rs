//! What the core, the weights and the rights take from the settings.

use crate::group::WeightPlan;
use lrs_config::{Auto, Config};
use lrs_core::guard::GuardPolicy;
use lrs_core::guard::freeze::FreezePolicy;
use lrs_core::shaper::Shaper;
use lrs_core::state::Policy;

/// What the core decides by, from the settings.
pub fn policy(config: &Config) -> Policy {
    let fixed = |value: Auto<u32>| match value {
        Auto::Auto => None,
        Auto::Fixed(value) => Some(value),
    };
    let guard = &config.guard;
    Policy {
        active: fixed(config.slots.active),
        passive: fixed(config.slots.passive),
        passive_max: fixed(config.slots.passive_max),
        expand: config.slots.expand,
        formula: config.slots.formula,
        io_wait_threshold: config.slots.io_wait_threshold,
        cpu_saturation: config.slots.cpu_saturation,
        shrink_after: config.slots.shrink_after,
        order: config.slots.order,
        overtake_max: config.slots.overtake_max,
        lend: config.slots.lend,
        lane_share: config.tiers.lane_share,
        reservation_ttl: config.slots.reservation_ttl,
        guard: guard.enabled.then_some(GuardPolicy {
            dry_run: guard.dry_run,
            reserve: guard.memory_reserve,
            resume: guard.memory_resume,
            memory_pressure: guard.memory_pressure,
            swap_growth: guard.swap_growth,
            enter_after: guard.enter_after,
            exit_after: guard.exit_after,
            interference: guard.interference,
            freeze: FreezePolicy {
                headroom_after: guard.headroom_after,
                headroom_dry_run: guard.headroom_dry_run,
                freeze_after: guard.freeze_after,
                freeze_dry_run: guard.freeze_dry_run,
                hold: guard.freeze_hold,
                longest: guard.freeze_max,
            },
        }),
        memory_reserve: guard.memory_reserve,
    }
}

/// What the weights have to promise, from the settings and the capacities.
pub(super) fn plan(config: &Config, core: &Shaper) -> WeightPlan {
    WeightPlan {
        ratio: config.tiers.ratio,
        active_capacity: core.slots().active_capacity,
        passive_max: core.slots().passive_max,
    }
}
