//! What a private lrsd decided during a run, from its own history. It is read after the run,
//! for following it would cost time that belongs to the tasks; with more tasks than lrsd keeps
//! events of, piece by piece at the points of the timeline.

use std::collections::HashMap;

use crate::record::{Decisions, Task};
use lrs_api::client::Connection;
use lrs_api::proto::{self, event_stream_item::Item};
use lrs_api::wire;
use lrs_core::units::WallTime;
use lrs_term::{Failure, printable};

/// From so many tasks on the history is read during the run. lrsd keeps 4,096 events, and a
/// task has three or four.
pub(super) const MANY: usize = 1_000;

/// What was read so far, from the daemon's start on.
#[derive(Debug, Default)]
pub(super) struct History(Vec<proto::Event>);

impl History {
    /// Sequence number of the first event not read.
    pub(super) fn next(&self) -> u64 {
        self.0.last().map_or(1, |event| event.seq.saturating_add(1))
    }

    /// Takes what [`since`] `next` brought.
    pub(super) fn extend(&mut self, events: Vec<proto::Event>) {
        self.0.extend(events);
    }
}

/// The events of a daemon from this number on. An error too when some are not kept any more.
pub(super) async fn since(
    mut connection: Connection,
    next: u64,
) -> Result<Vec<proto::Event>, Failure> {
    let failed = |status: tonic::Status| {
        Failure::failed(format!("cannot read lrsd's events: {}", printable(status.message())))
    };
    let request = proto::WatchEventsRequest { since: Some(next), no_follow: true };
    let mut stream = connection.watch_events(request).await.map_err(failed)?.into_inner();
    let mut events = Vec::new();
    while let Some(item) = stream.message().await.map_err(failed)? {
        match item.item {
            Some(Item::Event(event)) => events.push(event),
            Some(Item::Lost(lost)) => {
                return Err(Failure::failed(format!(
                    "lrsd kept not all of its events, {lost} are lost: fewer tasks in a run help"
                )));
            }
            None => {}
        }
    }
    Ok(events)
}

/// Puts into `tasks` when they were admitted and how they fared, and counts the decisions.
/// `began`: the zero of the run's times; `None` leaves the times unknown.
pub(super) fn apply(history: &History, began: Option<WallTime>, tasks: &mut [Task]) -> Decisions {
    let mut ids: HashMap<&str, usize> = HashMap::new();
    let names: HashMap<String, usize> =
        tasks.iter().enumerate().map(|(index, task)| (task.name.clone(), index)).collect();
    let mut decisions = Decisions::default();
    for event in &history.0 {
        let task = event.task.as_deref().unwrap_or_default();
        let known = ids.get(task).and_then(|&index| tasks.get_mut(index));
        let at = event.at.as_ref().zip(began).and_then(|(at, began)| seconds(at, began));
        match event.r#type.as_str() {
            "admitted" => {
                let index = label(event, "name").and_then(|name| names.get(name));
                if let Some(&index) = index
                    && let Some(record) = tasks.get_mut(index)
                {
                    ids.insert(task, index);
                    record.started = at;
                    record.began_active = event.to.as_deref().map(|tier| tier == "active");
                    record.demoted = Some(false);
                }
            }
            "promoted" => {
                decisions.promoted += 1;
                if let Some(record) = known {
                    record.promoted = record.promoted.or(at);
                }
            }
            "demoted" => {
                decisions.demoted += 1;
                if let Some(record) = known {
                    record.demoted = Some(true);
                }
            }
            "expanded" => decisions.expanded += 1,
            "shrunk" => decisions.shrunk += 1,
            _ => {}
        }
    }
    decisions
}

fn label<'e>(event: &'e proto::Event, key: &str) -> Option<&'e str> {
    match &event.inputs.as_ref()?.fields.get(key)?.kind {
        Some(prost_types::value::Kind::StringValue(text)) => Some(text),
        _ => None,
    }
}

/// lrsd and we read the same clock; should it be set meanwhile, times may be before the
/// begin, which no time of ours is.
fn seconds(at: &prost_types::Timestamp, began: WallTime) -> Option<f64> {
    let micros = wire::wall_time(at).unix_micros().checked_sub(began.unix_micros())?;
    Some((micros as f64 / 1e6).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Outcome;

    fn event(seq: u64, kind: &str, name: Option<&str>) -> proto::Event {
        let text = |name: &str| prost_types::Value {
            kind: Some(prost_types::value::Kind::StringValue(name.to_owned())),
        };
        proto::Event {
            seq,
            at: Some(wire::proto_time(WallTime::from_unix_micros(10_500_000))),
            r#type: kind.to_owned(),
            task: Some("t1".to_owned()),
            to: Some("passive".to_owned()),
            inputs: name.map(|name| prost_types::Struct {
                fields: [("name".to_owned(), text(name))].into(),
            }),
            ..proto::Event::default()
        }
    }

    #[test]
    fn times_are_those_of_the_run_or_unknown() {
        let mut history = History::default();
        assert_eq!(history.next(), 1);
        history.extend(vec![event(1, "admitted", Some("map-2")), event(2, "promoted", None)]);
        history.extend(vec![event(3, "expanded", None)]);
        assert_eq!(history.next(), 4);
        let task = |name: &str| Task {
            name: name.to_owned(),
            group: "map".to_owned(),
            priority: 0,
            arrived: 0.0,
            started: None,
            ended: None,
            outcome: Outcome::Ok,
            began_active: None,
            promoted: None,
            demoted: None,
        };
        for (began, at) in [(Some(WallTime::from_unix_micros(10_000_000)), Some(0.5)), (None, None)]
        {
            let mut tasks = [task("map-1"), task("map-2")];
            let decisions = apply(&history, began, &mut tasks);
            assert_eq!((decisions.promoted, decisions.expanded, decisions.demoted), (1, 1, 0));
            let [other, own] = tasks;
            assert_eq!((own.started, own.promoted, own.began_active), (at, at, Some(false)));
            assert_eq!((other.started, other.began_active), (None, None));
        }
    }
}
