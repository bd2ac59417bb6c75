//! A task that ended, in the words of the contract: all figures are those of the event `completed`.
//!
//! The command is in it, which is not for every reader (`server/history.rs`).
//!
//! Limit: the class is by the limits in force when it is asked for, or when it is put on the disk.

use lrs_api::words;
use serde_json::Value;

use crate::config::Classify;
use crate::core::event::COMMAND;
use crate::core::exit::Exit;
use crate::core::jobs::End;
use crate::core::model::Tier;
use crate::core::rate::class_of;
use crate::publish::{self, Ended, Snapshot};
use crate::units::{Share, WallTime};
use crate::{proto, wire};

/// What clients read of it; `snapshot` has the limits of the classes.
pub fn message(task: &Ended, snapshot: &Snapshot) -> proto::EndedTask {
    ended(task, snapshot.config.as_ref().map(|config| &config.classify))
}

fn number<T: TryFrom<u64>>(task: &Ended, key: &str) -> Option<T> {
    T::try_from(task.event.inputs.get(key)?.as_u64()?).ok()
}

fn ended(task: &Ended, classify: Option<&Classify>) -> proto::EndedTask {
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
        command: text(COMMAND),
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
