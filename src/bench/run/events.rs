//! What a private lrsd decided during a run, from its own history. It is read once, after the
//! run: following it would cost time that belongs to the tasks.

use crate::bench::record::{Decisions, Task};
use crate::cli::{Failure, printable};
use crate::proto::{self, event_stream_item::Item};
use crate::rig::private::Daemon;
use crate::units::WallTime;
use crate::wire;

/// The events of a daemon from its start on. An error too when some are not kept any more.
pub(super) async fn all(daemon: &Daemon) -> Result<Vec<proto::Event>, Failure> {
    let failed = |status: tonic::Status| {
        Failure::failed(format!("cannot read lrsd's events: {}", printable(status.message())))
    };
    let request = proto::WatchEventsRequest { since: Some(1), no_follow: true };
    let mut stream =
        daemon.connection.clone().watch_events(request).await.map_err(failed)?.into_inner();
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
/// `began`: the zero of the run's times.
pub(super) fn apply(events: &[proto::Event], began: WallTime, tasks: &mut [Task]) -> Decisions {
    let mut ids: Vec<(&str, usize)> = Vec::new();
    let mut decisions = Decisions::default();
    for event in events {
        let task = event.task.as_deref().unwrap_or_default();
        let index = ids.iter().rev().find(|(id, _)| *id == task).map(|&(_, index)| index);
        let known = index.and_then(|index| tasks.get_mut(index));
        let at = event.at.as_ref().and_then(|at| seconds(at, began));
        match event.r#type.as_str() {
            "admitted" => {
                let name = label(event, "name");
                let index = tasks.iter().position(|task| Some(task.name.as_str()) == name);
                if let Some(index) = index
                    && let Some(record) = tasks.get_mut(index)
                {
                    ids.push((task, index));
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

/// lrsd and we read the same clock; should somebody set it meanwhile, times may be before the
/// begin, which no time of ours is.
fn seconds(at: &prost_types::Timestamp, began: WallTime) -> Option<f64> {
    let micros = wire::wall_time(at).unix_micros().checked_sub(began.unix_micros())?;
    Some((micros as f64 / 1e6).max(0.0))
}
