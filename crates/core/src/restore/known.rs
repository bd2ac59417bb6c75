//! What is known of a task without its record: from the processes in its group, and from the history.

use crate::event::{Event, EventKind};
use crate::model::{Label, Labels, Priority, TaskId};

/// What cgroup and history tell of a task without a usable record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The one user of all processes in its group, by each of their uids; `None`: there is none.
    pub uid: Option<u32>,
    /// As its admission has them.
    pub labels: Labels,
    /// As its admission or a later change has it; `None`: the history does not know it.
    pub priority: Option<Priority>,
    /// It was released, and not admitted again.
    pub released: bool,
}

impl Known {
    /// What `events`, oldest first, tell of `task`.
    pub fn from_history<'a>(task: TaskId, events: impl Iterator<Item = &'a Event>) -> Known {
        let id = task.to_string();
        let mut known = Known::default();
        for event in events.filter(|event| event.task.as_ref() == Some(&id)) {
            let number = |text: &str| text.parse().ok().map(Priority);
            match event.kind {
                EventKind::Admitted => {
                    let label = |key: &str| Label::new(event.inputs.get(key)?.as_str()?).ok();
                    let [name, job, kind, group] = ["name", "job", "kind", "group"].map(label);
                    known.labels = Labels { name, job, kind, group, ..Labels::default() };
                    let priority = event.inputs.get("priority").map(ToString::to_string);
                    known.priority = priority.as_deref().and_then(number);
                    known.released = false;
                }
                EventKind::Released => known.released = true,
                EventKind::Priority => {
                    known.priority = event.to.as_deref().and_then(number).or(known.priority);
                }
                _ => {}
            }
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::units::WallTime;

    #[test]
    fn the_last_word_of_the_history_counts() {
        let task = TaskId { epoch: 7, number: 1 };
        let event = |task: TaskId, kind, to: Option<&str>, inputs: serde_json::Value| Event {
            seq: 1,
            at: WallTime::from_unix_micros(0),
            kind,
            task: Some(task.to_string()),
            from: None,
            to: to.map(str::to_owned),
            reason: None,
            inputs: inputs.as_object().cloned().unwrap_or_else(Map::new),
        };
        let other = TaskId { epoch: 7, number: 2 };
        let admitted = json!({"name": "n", "group": "etl", "priority": -3});
        let mut events = vec![
            event(task, EventKind::Admitted, Some("active"), admitted),
            event(other, EventKind::Admitted, Some("active"), json!({"name": "o", "priority": 9})),
        ];
        let known = |events: &[Event]| Known::from_history(task, events.iter());
        let before = known(&events);
        assert_eq!(before.labels.name.as_ref().map(Label::as_str), Some("n"));
        assert_eq!(before.labels.group.as_ref().map(Label::as_str), Some("etl"));
        assert_eq!((before.priority, before.uid), (Some(Priority(-3)), None));
        events.push(event(task, EventKind::Priority, Some("5"), json!({})));
        assert_eq!(known(&events), Known { priority: Some(Priority(5)), ..before.clone() });
        events.push(event(task, EventKind::Released, None, json!({})));
        assert!(known(&events).released && !before.released);
        assert_eq!(known(&events[1..2]), Known::default());
    }
}
