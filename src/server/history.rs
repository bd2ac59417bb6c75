//! The tasks that ended, as the history has them: what [`EventRing`](crate::publish::EventRing) keeps
//! of them, in the words of the contract.
//!
//! All figures are those of the event `completed`, so that a restart loses none that the history on
//! disk has. Limit: the class is by the limits in force when it is asked for.

use lrs_api::words;
use serde_json::Value;

use super::query::Reader;
use super::request;
use crate::access::Access;
use crate::command::CommandError;
use crate::config::Classify;
use crate::core::event::COMMAND;
use crate::core::exit::Exit;
use crate::core::jobs::End;
use crate::core::model::Tier;
use crate::core::rate::class_of;
use crate::publish::{self, Ended};
use crate::units::{Share, WallTime};
use crate::{proto, wire};

/// Tasks on one page, unless the client asks for another number.
const PAGE: usize = 1_000;

/// A task has about 150 bytes, and 1,000 with the longest labels: all that are kept stay below the
/// 4 MiB that a gRPC client takes by default.
const MAX_PAGE: usize = 4_096;

/// The ended tasks asked for, the latest end last.
///
/// # Errors
/// InvalidArgument for a label that breaks its range, and for a page token of somewhere else.
pub fn list(
    access: &Access,
    reader: Reader,
    asked: proto::ListHistoryRequest,
) -> Result<proto::ListHistoryResponse, CommandError> {
    let job = request::label("job", asked.job)?;
    let from = match asked.page_token.as_str() {
        "" => 0,
        token => token.parse().map_err(|_| {
            request::invalid(
                "page_token is not valid; send next_page_token of the page before, unchanged",
            )
        })?,
    };
    let size = match asked.page_size as usize {
        0 => PAGE,
        size => size.min(MAX_PAGE),
    };
    let since = asked.since.as_ref().map(wire::wall_time);
    let is_asked_for = |task: &Ended| {
        let text = |key: &str| task.event.inputs.get(key).and_then(Value::as_str);
        since.is_none_or(|since| task.event.at >= since)
            && job.as_ref().is_none_or(|job| text("job") == Some(job.as_str()))
            && asked.uid.is_none_or(|uid| number(task, "uid") == Some(uid))
            && (!asked.failed || task.exit.is_some_and(Exit::failed))
    };
    let snapshot = access.snapshot.borrow().clone();
    let classify = snapshot.config.as_ref().map(|config| &config.classify);
    let mut tasks = Vec::new();
    for task in access.events.ended(from).iter().filter(|task| is_asked_for(task)) {
        if tasks.len() == size {
            let next_page_token = task.event.seq.to_string();
            return Ok(proto::ListHistoryResponse { tasks, next_page_token });
        }
        tasks.push(ended(task, reader, classify));
    }
    Ok(proto::ListHistoryResponse { tasks, next_page_token: String::new() })
}

/// One of them.
pub(super) fn message(access: &Access, reader: Reader, task: &Ended) -> proto::EndedTask {
    let snapshot = access.snapshot.borrow().clone();
    ended(task, reader, snapshot.config.as_ref().map(|config| &config.classify))
}

fn number<T: TryFrom<u64>>(task: &Ended, key: &str) -> Option<T> {
    T::try_from(task.event.inputs.get(key)?.as_u64()?).ok()
}

fn ended(task: &Ended, reader: Reader, classify: Option<&Classify>) -> proto::EndedTask {
    let event = &task.event;
    let text = |key: &str| event.inputs.get(key).and_then(Value::as_str).map(str::to_owned);
    let figure = |key: &str| event.inputs.get(key).and_then(Value::as_f64);
    let (exit_status, exit_signal) = publish::exit(task.exit);
    let core_dumped = match task.exit {
        Some(Exit::Signal { core, .. }) => Some(core),
        Some(Exit::Status(_)) | None => None,
    };
    let tier = match event.from.as_deref() {
        Some(tier) if tier == Tier::Active.to_string() => proto::Tier::Active,
        Some(tier) if tier == Tier::Passive.to_string() => proto::Tier::Passive,
        _ => proto::Tier::Unspecified,
    };
    let computing_rate = figure("computing_rate");
    let disk = End::noted(&event.inputs, event.at).spent.and_then(|spent| spent.disk_share());
    let class = computing_rate.zip(classify).map(|(rate, limits)| {
        class_of(Share::clamped(rate), disk, limits.io_below, limits.cpu_above)
    });
    let ended_at = text("ended_at").and_then(|at| at.parse::<WallTime>().ok());
    let sampled = event.inputs.get("peak_memory_sampled").and_then(Value::as_bool);
    let (name, uid) = (text("name"), number(task, "uid"));
    proto::EndedTask {
        id: event.task.clone().unwrap_or_default(),
        index: name.as_deref().and_then(words::index),
        name,
        job: text("job"),
        kind: text("kind"),
        group: text("group"),
        uid,
        command: reader.command(text(COMMAND), uid),
        tier: tier.into(),
        exit_status,
        exit_signal,
        core_dumped,
        oom_kills: number(task, "oom_kills"),
        ended_at: ended_at.map(wire::proto_time),
        elapsed_seconds: figure("elapsed_seconds"),
        cpu_seconds: figure("cpu_seconds"),
        peak_memory_bytes: number(task, "peak_memory_bytes"),
        peak_memory_sampled: sampled.unwrap_or(true),
        read_bytes: number(task, "read_bytes"),
        write_bytes: number(task, "write_bytes"),
        computing_rate,
        class: publish::class(class).into(),
    }
}
