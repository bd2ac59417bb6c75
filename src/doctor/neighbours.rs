//! Whether busy services run beside LRS while its root has a fixed weight.
//!
//! Passive tasks are idle only among LRS's own tasks. With `tiers.root_weight = "auto"` the root
//! follows what active tasks want, and passive work alone is behind all other groups. With a number
//! passive tasks have that weight against the rest of the node, whether or not an active task wants
//! the CPU (docs/experiments/services.md has what that takes from a service).

use super::Check;
use super::probe::Facts;
use crate::config::{Auto, Config};

/// `None`: there is nothing to compare.
pub(super) fn check(facts: &Facts, config: &Config) -> Option<Check> {
    const ID: &str = "neighbours";
    let busy = match facts.neighbours.as_ref()? {
        Ok(busy) if busy.is_empty() => {
            return Some(Check::ok(ID, "no group beside LRS's uses the CPU at the moment"));
        }
        Ok(busy) => busy,
        Err(reason) => {
            return Some(Check::unknown(ID, reason, "top or ps says whether services are busy"));
        }
    };
    let names = busy.iter().take(3).map(|group| format!("{} {:.2}", group.name, group.cpus));
    let names = names.collect::<Vec<_>>().join(", ");
    Some(match config.tiers.root_weight {
        Auto::Auto => Check::ok(
            ID,
            format!(
                "beside LRS's tasks other groups use CPUs ({names}); passive tasks are behind them \
                 while no active task wants a CPU"
            ),
        ),
        Auto::Fixed(weight) => Check::warn(
            ID,
            format!(
                "beside LRS's tasks other groups use CPUs ({names}), and with tiers.root_weight = \
                 {weight} passive tasks have that weight against each of them"
            ),
            "set tiers.root_weight = \"auto\" if these services come before passive tasks",
        ),
    })
}
