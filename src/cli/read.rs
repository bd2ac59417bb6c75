//! Commands that show something.

use std::os::fd::{AsFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::client::{self, Lrsd, ask};
use super::failure::{Asked, Failure, from_status};
use super::handle::with_id;
use super::output::{Output, printable, say};
use super::show;
use crate::{clock, proto};

/// `lrsctl status`
pub(super) fn status(lrsd: &Lrsd, out: &mut Output) -> Result<(), Failure> {
    let status = ask(lrsd, Asked::Other, |mut lrsd| async move {
        lrsd.get_status(proto::GetStatusRequest {}).await.map(tonic::Response::into_inner)
    })?;
    if out.is_json() {
        out.json(&status)
    } else {
        show::status::status(&status, clock::now().wall, out)
    }
}

/// `lrsctl tasks`
pub(super) fn tasks(lrsd: &Lrsd, out: &mut Output) -> Result<(), Failure> {
    let tasks = ask(lrsd, Asked::Other, lrs_api::client::all_tasks)?;
    if out.is_json() { out.json(&tasks) } else { show::tasks::tasks(&tasks, out) }
}

/// `lrsctl task ID`
pub(super) fn task(lrsd: &Lrsd, id: String, out: &mut Output) -> Result<(), Failure> {
    let task = ask(lrsd, Asked::Other, |lrsd| {
        with_id(lrsd, id, |mut lrsd, id| async move {
            lrsd.get_task(proto::GetTaskRequest { id }).await.map(tonic::Response::into_inner)
        })
    })?;
    if out.is_json() { out.json(&task) } else { show::tasks::task(&task, out) }
}

/// `lrsctl jobs`
pub(super) fn jobs(lrsd: &Lrsd, out: &mut Output) -> Result<(), Failure> {
    let jobs = ask(lrsd, Asked::Other, |mut lrsd| async move {
        lrsd.list_jobs(proto::ListJobsRequest {}).await.map(|jobs| jobs.into_inner().jobs)
    })?;
    if out.is_json() { out.json(&jobs) } else { show::tasks::jobs(&jobs, out) }
}

/// `lrsctl why ID`
pub(super) fn why(lrsd: &Lrsd, id: String, out: &mut Output) -> Result<(), Failure> {
    let story = ask(lrsd, Asked::Other, |lrsd| {
        with_id(lrsd, id.clone(), |mut lrsd, id| async move {
            lrsd.explain(proto::ExplainRequest { id }).await.map(tonic::Response::into_inner)
        })
    })?;
    if out.is_json() { out.json(&story) } else { show::events::why(&id, &story, out) }
}

/// `lrsctl config show`: the settings in force.
pub(super) fn config(lrsd: &Lrsd, out: &mut Output) -> Result<(), Failure> {
    let text = ask(lrsd, Asked::Other, |mut lrsd| async move {
        lrsd.get_config(proto::GetConfigRequest {}).await.map(|config| config.into_inner().toml)
    })?;
    if !out.is_json() {
        return text.lines().try_for_each(|line| out.line(printable(line)));
    }
    let settings = crate::config::toml_to_json(&text)
        .ok_or_else(|| Failure::failed("lrsd sent settings that are not TOML"))?;
    out.json(&settings)
}

/// `lrsctl events`: until the stream ends, the reader goes away or the daemon stops.
///
/// A stream that breaks is not taken up again by itself: which events to see next is the
/// reader's to say, with `--since`; the hint has the number.
pub(super) fn events(
    lrsd: &Lrsd,
    since: Option<u64>,
    no_follow: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    // "Tell the past and end" is about all of the past when no beginning is named.
    let since = since.or(no_follow.then_some(1));
    super::runtime()?.block_on(async {
        let mut lrsd = client::connect(lrsd).await?;
        let mut next = since;
        let broken = |status: &tonic::Status, next: Option<u64>| {
            let failure = from_status(status, Asked::Other);
            match next {
                Some(seq) => failure.hint(format!("go on with `lrsctl events --since {seq}`")),
                None => failure,
            }
        };
        let mut stream = lrsd
            .watch_events(proto::WatchEventsRequest { since, no_follow })
            .await
            .map_err(|status| broken(&status, None))?
            .into_inner();
        let mut reader_gone = ReaderGone::watch();
        loop {
            let item = tokio::select! {
                item = stream.message() => item.map_err(|status| broken(&status, next))?,
                () = reader_gone.wait() => return Ok(()),
            };
            match item.and_then(|item| item.item) {
                None => return Ok(()),
                Some(proto::event_stream_item::Item::Event(event)) => {
                    next = Some(event.seq.saturating_add(1));
                    if out.is_json() {
                        out.json_line(&event)?;
                    } else {
                        show::events::line(&event, out)?;
                    }
                }
                Some(proto::event_stream_item::Item::Lost(lost)) => {
                    if out.is_json() {
                        out.json_line(&serde_json::json!({ "lost": lost }))?;
                    }
                    say(format_args!("lrsctl: {lost} events before this are not kept any more"));
                }
            }
            out.flush()?;
        }
    })
}

/// Notices that stdout has no reader any more, so that `lrsctl events | head -1` ends when
/// head does and not at the next event.
struct ReaderGone(Option<AsyncFd<OwnedFd>>);

impl ReaderGone {
    /// Watches stdout. Regular files and the like cannot be watched (EPERM from epoll_ctl(2))
    /// and have no reader to lose; for them nothing is ever noticed.
    fn watch() -> ReaderGone {
        let Ok(stdout) = std::io::stdout().as_fd().try_clone_to_owned() else {
            return ReaderGone(None);
        };
        // SAFETY: the descriptor is ours alone, and the `AsyncFd` owns it until it is dropped.
        let watched = unsafe { AsyncFd::register_with_interest(stdout, Interest::ERROR) };
        ReaderGone(watched.ok())
    }

    async fn wait(&mut self) {
        match &self.0 {
            Some(stdout) => {
                // EPOLLERR on the write end: the last read end is closed (pipe(7)).
                let _ = stdout.ready(Interest::ERROR).await;
            }
            None => std::future::pending().await,
        }
    }
}
