//! `lrsctl events`: the decisions as they happen, and those that are kept.
//!
//! lrsd sends every event; what is asked for is picked here. An event has the id of its task and
//! only that of an admission its names, so the names are kept from one to the other.
//!
//! A stream that breaks is not taken up again by itself: which events to see next is the
//! reader's to say, with `--since`; the hint has the number.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

use lrs_api::client::{Connection, all_tasks};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::args::EventsArgs;
use super::client::{self, Lrsd};
use super::failure::{Asked, Failure, from_status};
use super::output::{Output, say};
use super::show::events::{Names, line};
use super::show::when::Times;
use super::values::Since;
use crate::units::WallTime;
use crate::{clock, proto, wire};
use proto::event_stream_item::Item;

/// Until the stream ends, the reader goes away or the daemon stops.
pub(super) fn events(
    lrsd: &Lrsd,
    args: &EventsArgs,
    times: &Times,
    out: &mut Output,
) -> Result<(), Failure> {
    super::runtime()?.block_on(async {
        let mut connection = client::connect(lrsd).await?;
        let mut names = HashMap::new();
        for task in all_tasks(connection.clone()).await.map_err(|status| broken(&status, None))? {
            names.insert(task.id.clone(), Names::of_task(&task));
        }
        let (since, from) = match args.since {
            Some(Since::Seq(seq)) => (Some(seq), None),
            Some(Since::Ago(ago)) => {
                let ago = i64::try_from(ago.as_micros()).unwrap_or(i64::MAX);
                let from = clock::now().wall.unix_micros().saturating_sub(ago);
                (Some(1), Some(WallTime::from_unix_micros(from)))
            }
            // "Print the past and end" is about all of the past when no beginning is named.
            None => ((args.no_follow || args.last.is_some()).then_some(1), None),
        };
        let mut reader = Reader { args, times, from, names, last: VecDeque::new() };
        let mut next = since;
        if args.last.is_some() {
            next = reader.read(&mut connection, next, true, out).await?;
            reader.print_last(out)?;
            if args.no_follow {
                return Ok(());
            }
        }
        reader.read(&mut connection, next, args.no_follow, out).await.map(drop)
    })
}

fn broken(status: &tonic::Status, next: Option<u64>) -> Failure {
    let failure = from_status(status, Asked::Other);
    match next {
        Some(seq) => failure.hint(format!("go on with `lrsctl events --since {seq}`")),
        None => failure,
    }
}

/// Picks and prints.
struct Reader<'a> {
    args: &'a EventsArgs,
    times: &'a Times,
    /// Events before it are passed over.
    from: Option<WallTime>,
    /// Of the tasks that run.
    names: HashMap<String, Names>,
    /// With `-n`: what of the past may be printed.
    last: VecDeque<proto::Event>,
}

impl Reader<'_> {
    /// Reads a stream to its end; answers the number after the last event.
    async fn read(
        &mut self,
        connection: &mut Connection,
        since: Option<u64>,
        past: bool,
        out: &mut Output,
    ) -> Result<Option<u64>, Failure> {
        let mut next = since;
        let request = proto::WatchEventsRequest { since, no_follow: past };
        let mut stream = connection
            .watch_events(request)
            .await
            .map_err(|status| broken(&status, None))?
            .into_inner();
        let mut reader_gone = ReaderGone::watch();
        loop {
            let item = tokio::select! {
                item = stream.message() => item.map_err(|status| broken(&status, next))?,
                () = reader_gone.wait() => return Ok(next),
            };
            match item.and_then(|item| item.item) {
                None => return Ok(next),
                Some(Item::Event(event)) => {
                    next = Some(event.seq.saturating_add(1));
                    self.event(event, past, out)?;
                }
                Some(Item::Lost(lost)) => {
                    if out.is_json() {
                        out.json_line(&serde_json::json!({ "lost": lost }))?;
                    }
                    say(format_args!("lrsctl: {lost} events before this are not kept any more"));
                }
            }
            out.flush()?;
        }
    }

    fn event(&mut self, event: proto::Event, past: bool, out: &mut Output) -> Result<(), Failure> {
        let task = event.task.as_deref().unwrap_or_default();
        if let Some(names) = Names::of_event(&event) {
            self.names.insert(task.to_owned(), names);
        }
        let wanted = self.wants(&event);
        if wanted && let (Some(most), true) = (self.args.last, past) {
            self.last.push_back(event);
            if self.last.len() > most {
                self.last.pop_front();
            }
            return Ok(());
        }
        if wanted {
            self.print(&event, out)?;
        }
        if matches!(&*event.r#type, "completed" | "released") && self.args.last.is_none() {
            self.names.remove(task);
        }
        Ok(())
    }

    fn print(&self, event: &proto::Event, out: &mut Output) -> Result<(), Failure> {
        if out.is_json() {
            return out.json_line(event);
        }
        let names = event.task.as_ref().and_then(|task| self.names.get(task));
        line(event, names, self.times, out)
    }

    fn print_last(&mut self, out: &mut Output) -> Result<(), Failure> {
        for event in std::mem::take(&mut self.last) {
            self.print(&event, out)?;
        }
        Ok(out.flush()?)
    }

    /// Whether the event is among those asked for.
    fn wants(&self, event: &proto::Event) -> bool {
        let names = event.task.as_ref().and_then(|task| self.names.get(task));
        let is_task = |word: &str| {
            let id = event.task.as_deref().unwrap_or_default();
            let number = word.strip_prefix('-').unwrap_or(word);
            id == word
                || names.is_some_and(|names| names.name.as_deref() == Some(word))
                || id.rsplit_once('-').is_some_and(|(_, end)| end == number)
        };
        let recent = |from| event.at.as_ref().is_some_and(|at| wire::wall_time(at) >= from);
        self.from.is_none_or(recent)
            && self.args.task.as_deref().is_none_or(is_task)
            && self
                .args
                .job
                .as_deref()
                .is_none_or(|job| names.is_some_and(|names| names.job.as_deref() == Some(job)))
            && (self.args.types.is_empty() || self.args.types.contains(&event.r#type))
    }
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
