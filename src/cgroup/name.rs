//! What a task's cgroup is called: its id, and after a dot what the task is called, so that
//! `systemd-cgls`, `systemd-cgtop` and `systemctl status` can be read without LRS.
//!
//! Only the id means anything to LRS. What follows is for people, and a name LRS cannot spell
//! in a path is spelled with dashes.

use crate::core::model::{Label, TaskId};

/// Longest readable part, in bytes; paths of groups stay well below any limit.
const READABLE: usize = 40;

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

/// The task whose group is called `name`.
pub(super) fn task(name: &str) -> Option<TaskId> {
    let id = name.split_once('.').map_or(name, |(id, _)| id);
    id.parse().ok()
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

/// Letters, digits and `_` of ASCII as they are, everything else as single dashes.
fn readable(label: &str) -> String {
    let mut text = String::new();
    for character in label.chars() {
        match character {
            c if c.is_ascii_alphanumeric() || c == '_' => text.push(c),
            _ if text.is_empty() || text.ends_with('-') => {}
            _ => text.push('-'),
        }
        if text.len() == READABLE {
            break;
        }
    }
    text.truncate(text.trim_end_matches('-').len());
    text
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
