//! Whether the running daemon looks for tasks that no client announces.

use super::Check;
use super::probe::Facts;
use super::probe::finder::{Finder, THREAD};
use crate::config::Config;

/// `None` where nothing is to be found, or no daemon is seen.
pub(super) fn check(facts: &Facts, config: &Config) -> Option<Check> {
    const ID: &str = "finding";
    let wanted = config.yarn.enabled || !config.discover.is_empty();
    Some(match facts.finder.as_ref().filter(|_| wanted)? {
        Ok(Finder::There) => Check::ok(ID, "the daemon looks for tasks that no client announces"),
        Ok(Finder::Stuck) => Check::warn(
            ID,
            format!("the daemon's thread {THREAD} waits for a disk: no new task is found"),
            "look for a dead disk or mount among those of the NodeManager; restart lrsd without it",
        ),
        Ok(Finder::Absent) => Check::warn(
            ID,
            format!("the daemon runs without its thread {THREAD}: no new task is found"),
            "lrsctl status tells why if it failed; if [yarn] or a rule was added since the daemon \
             started, restart lrsd: tasks keep running",
        ),
        Err(reason) => Check::unknown(ID, reason, "run doctor as root"),
    })
}
