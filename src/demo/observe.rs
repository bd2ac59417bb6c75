//! Observe mode: what LRS would do on this machine, where it may not or shall not shape.

use std::path::Path;

use super::data::Data;
use super::load::{self, Work};
use super::stage::{Setting, run};
use super::tour::{share_of_rest, start};
use crate::cli::{Failure, Output, event_line, printable, wrap};
use crate::proto;
use crate::units::BootTime;

/// Says what is missing and what is shown instead.
pub(super) fn introduce(reason: &str, out: &mut Output) -> Result<(), Failure> {
    let width = out.width();
    out.line(wrap("", 0, &format!("Nothing can be shaped here: {reason}"), width))?;
    out.line("")?;
    out.line(wrap(
        "",
        0,
        "So this is observe mode: a private lrsd does its bookkeeping, places every task and \
         writes no cgroup. The tasks run side by side as the kernel likes.",
        width,
    ))?;
    out.line("")?;
    Ok(out.flush()?)
}

/// Runs a few tasks under a daemon that only watches, and tells what it decided.
pub(super) async fn show(
    workdir: &Path,
    cgroup_root: &str,
    data: &Data,
    round: &[Work],
    ends: BootTime,
    out: &mut Output,
) -> Result<(), Failure> {
    let (daemon, status) = start(workdir, cgroup_root, "observe").await?;
    let cores = status.node.as_ref().map_or(1, |node| node.cores.max(1)) as usize;
    let tasks = load::tasks(round, data, 3 * cores);
    let limit = share_of_rest(ends, 1);
    let outcome = run("observed", &tasks, Setting::Shaped(&daemon), workdir, limit, out).await?;
    out.line(format_args!(
        "{} of {} tasks ended in {:.1} s. What LRS decided:",
        outcome.finished(),
        tasks.len(),
        outcome.lasted.as_secs_f64()
    ))?;
    let failed = |status: tonic::Status| {
        Failure::failed(format!("cannot read the events: {}", printable(status.message())))
    };
    let mut events = daemon
        .connection
        .clone()
        .watch_events(proto::WatchEventsRequest { since: Some(1), no_follow: true })
        .await
        .map_err(failed)?
        .into_inner();
    while let Some(item) = events.message().await.map_err(failed)? {
        if let Some(proto::event_stream_item::Item::Event(event)) = item.item {
            event_line(&event, out)?;
        }
    }
    out.line("")?;
    out.line("With root and a writable cgroup tree the same command shapes them.")
}
