//! What a task's cgroup is called: its id, and after a dot what the task is called, so that
//! `systemd-cgls`, `systemd-cgtop` and `systemctl status` can be read without LRS.
//!
//! Only the id means anything to LRS. What follows is for people, and a name LRS cannot spell
//! in a path is spelled with dashes.

use std::path::Path;

use crate::core::model::{Label, TaskId};

/// Name of the group in the root in which an admission is tried ([`super::trial`]).
pub(super) const TRIAL: &str = "trial";

/// Names of those by which the tiers are tested.
pub(super) const TRIAL_ACTIVE: &str = "trial-active";
pub(super) const TRIAL_PASSIVE: &str = "trial-passive";

/// Longest readable part, in bytes: the id of a YARN container has room. Paths of groups stay well
/// below any limit.
const READABLE: usize = 48;

/// Name of the group of `id`.
pub(super) fn of(id: TaskId, label: Option<&Label>) -> String {
    let mut name = id.to_string();
    let readable = label.map(|label| readable(label.as_str())).unwrap_or_default();
    if !readable.is_empty() {
        name.push('.');
        name.push_str(&readable);
    }
    name
}

/// The task that has the group `name`.
pub(super) fn task(name: &str) -> Option<TaskId> {
    let id = name.split_once('.').map_or(name, |(id, _)| id);
    id.parse().ok()
}

/// The task a group directory belongs to, by its name.
pub(super) fn task_at(group: &Path) -> Option<TaskId> {
    task(group.file_name()?.to_str()?)
}

/// The group of a task in which the group at `path` is, or that it is.
pub fn task_group(path: &str) -> Option<&str> {
    let mut end = 0;
    for part in path.split_inclusive('/') {
        end += part.len();
        if task(part.trim_end_matches('/')).is_some() {
            return path.get(..end).map(|path| path.trim_end_matches('/'));
        }
    }
    None
}

/// Letters, digits and `_` of ASCII as they are, everything else as single dashes. Of a long one the
/// end, which tells it from others of its kind: containers of one attempt begin alike.
fn readable(label: &str) -> String {
    let mut text = String::new();
    for character in label.chars() {
        match character {
            c if c.is_ascii_alphanumeric() || c == '_' => text.push(c),
            _ if text.is_empty() || text.ends_with('-') => {}
            _ => text.push('-'),
        }
    }
    let text = text.trim_end_matches('-');
    let end = text.get(text.len().saturating_sub(READABLE)..).unwrap_or_default();
    end.trim_start_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TaskId = TaskId { epoch: 7, number: 19 };

    fn named(label: &str) -> String {
        of(ID, Some(&Label::new(label).unwrap()))
    }

    #[test]
    fn names_can_be_read_and_never_leave_the_root() {
        assert_eq!(of(ID, None), ID.to_string());
        assert_eq!(named("sort-big"), format!("{ID}.sort-big"));
        assert_eq!(named("mr/word count (ü)"), format!("{ID}.mr-word-count"));
        assert_eq!(named("../../etc"), format!("{ID}.etc"));
        assert_eq!(named("x.service"), format!("{ID}.x-service"));
        assert_eq!(named("…"), ID.to_string());
        assert_eq!(named(&"y".repeat(256)).len(), ID.to_string().len() + 1 + READABLE);
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        let container = "container_e01_1795598725502_0009_01_000002";
        assert_eq!(named(container), format!("{ID}.{container}"));
        let long = format!("{}/step 12", "y".repeat(200));
        assert!(named(&long).ends_with("y-step-12"), "{}", named(&long));
        let cut = format!("{}---{}", "y".repeat(60), "z".repeat(READABLE - 1));
        assert_eq!(named(&cut), format!("{ID}.{}", "z".repeat(READABLE - 1)), "no dash in front");
    }

    #[test]
    fn the_group_of_a_task_is_found_in_a_path() {
        let group = format!("/lrs.slice/lrs-tasks.scope/{}", named("sort"));
        assert_eq!(task_group(&group), Some(&*group));
        assert_eq!(task_group(&format!("{group}/below/x")), Some(&*group));
        for other in ["/", "", "/system.slice/ssh.service"] {
            assert_eq!(task_group(other), None, "{other}");
        }
    }

    #[test]
    fn the_id_comes_back() {
        for label in ["sort", "a.b.c", "ü", "-", "x y"] {
            assert_eq!(task(&named(label)), Some(ID), "{label}");
        }
        assert_eq!(task(&ID.to_string()), Some(ID));
        for other in ["anchor", "lrsd", "t0.service", ".t0000007-19", "system.slice"] {
            assert_eq!(task(other), None, "{other}");
        }
    }
}
