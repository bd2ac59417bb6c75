//! `lrsctl events`: decisions as they happen, and those that are kept.
//!
//! lrsd sends every event, and this module picks the requested ones. An event has the id of its
//! task, but only the event of an admission has the name, so the names are remembered.
//!
//! A stream that breaks is not opened again by itself: the reader decides with `--since` which
//! event comes next, and the hint has the number.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

use lrs_api::client::{Connection, all_tasks};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::args::EventsArgs;
use super::client::{self, Lrsd, in_time};
use super::failure::{Failure, Purpose, from_status};
use super::handle::{one, refers_to};
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
        let (mut connection, mut reader, since) = open(lrsd, args, times).await?;
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

/// The events that are kept, of those that `args` asks for, and what their tasks are known by.
pub(super) fn past(
    lrsd: &Lrsd,
    args: EventsArgs,
    times: &Times,
    out: &mut Output,
) -> Result<Vec<(proto::Event, Option<Names>)>, Failure> {
    let args = EventsArgs { no_follow: true, last: Some(usize::MAX), ..args };
    super::runtime()?.block_on(async {
        let (mut connection, mut reader, since) = open(lrsd, &args, times).await?;
        reader.read(&mut connection, since, true, out).await?;
        Ok(reader.last.into())
    })
}

/// A connection, what reads from it, and the number of the first event.
async fn open<'a>(
    lrsd: &'a Lrsd,
    args: &'a EventsArgs,
    times: &'a Times,
) -> Result<(Connection, EventReader<'a>, Option<u64>), Failure> {
    let (connection, tasks) = in_time(lrsd, async {
        let connection = client::connect(lrsd).await?;
        let tasks = all_tasks(connection.clone()).await;
        Ok::<_, Failure>((connection, tasks.map_err(|status| broken(&status, None))?))
    })
    .await??;
    let task = match &args.task {
        // A word that stands for none may stand for one that is over.
        Some(word) => match one(word, &tasks).map_err(|status| broken(&status, None))? {
            Some(task) => Some(task.id.clone()),
            None => Some(word.clone()),
        },
        None => None,
    };
    let names = tasks.iter().map(|task| (task.id.clone(), Names::of_task(task))).collect();
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
    let reader =
        EventReader { lrsd, args, times, task, from, names, last: VecDeque::new(), lost: None };
    Ok((connection, reader, since))
}

fn broken(status: &tonic::Status, next: Option<u64>) -> Failure {
    let failure = from_status(status, Purpose::Other);
    match next {
        Some(seq) => failure.hint(format!("go on with `lrsctl events --since {seq}`")),
        None => failure,
    }
}

/// Picks and prints.
struct EventReader<'a> {
    lrsd: &'a Lrsd,
    args: &'a EventsArgs,
    times: &'a Times,
    /// `--task`: the id of a running task, or the word as it was given.
    task: Option<String>,
    /// Events before it are passed over.
    from: Option<WallTime>,
    /// Of the tasks that run.
    names: HashMap<String, Names>,
    /// With `-n`: what of the past may be printed.
    last: VecDeque<(proto::Event, Option<Names>)>,
    /// Events that are not kept any more; of no interest where later ones are asked for.
    lost: Option<u64>,
}

impl EventReader<'_> {
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
        let opened = in_time(self.lrsd, connection.watch_events(request)).await?;
        let mut stream = opened.map_err(|status| broken(&status, None))?.into_inner();
        let mut reader_gone = ReaderGone::watch();
        loop {
            let message = async {
                // What is past is there; what will happen may take any time.
                if past {
                    in_time(self.lrsd, stream.message()).await
                } else {
                    Ok(stream.message().await)
                }
            };
            let item = tokio::select! {
                item = message => item?.map_err(|status| broken(&status, next))?,
                () = reader_gone.wait() => return Ok(next),
            };
            match item.and_then(|item| item.item) {
                None => return Ok(next),
                Some(Item::Event(event)) => {
                    next = Some(event.seq.saturating_add(1));
                    self.event(event, past, out)?;
                }
                Some(Item::Lost(lost)) => {
                    self.lost = Some(lost);
                    let earlier = self.from.is_some() || past && self.args.last.is_some();
                    if !earlier {
                        self.say_lost(out)?;
                    }
                }
            }
            out.flush()?;
        }
    }

    fn event(&mut self, event: proto::Event, past: bool, out: &mut Output) -> Result<(), Failure> {
        // What is about no task (slots, the guard) has no names but its own.
        let task = event.task.as_deref();
        let names = Names::of_event(&event).or_else(|| self.names.get(task?).cloned());
        match (&*event.r#type, task) {
            ("completed" | "released", Some(task)) => drop(self.names.remove(task)),
            // It may come after the end.
            ("exit", _) | (_, None) => {}
            (_, Some(task)) => {
                names.clone().map(|names| self.names.insert(task.to_owned(), names));
            }
        }
        if self.from.is_some_and(|from| !is_since(&event, from)) {
            self.lost = None;
        } else if !past || self.args.last.is_none() {
            self.say_lost(out)?;
        }
        let wanted = self.wants(&event, names.as_ref());
        if wanted && let (Some(most), true) = (self.args.last, past) {
            self.last.push_back((event, names));
            if self.last.len() > most {
                self.last.pop_front();
            }
        } else if wanted {
            self.print(&event, names.as_ref(), out)?;
        }
        Ok(())
    }

    fn print(
        &self,
        event: &proto::Event,
        names: Option<&Names>,
        out: &mut Output,
    ) -> Result<(), Failure> {
        if out.is_json() { out.json_line(event) } else { line(event, names, self.times, out) }
    }

    fn print_last(&mut self, out: &mut Output) -> Result<(), Failure> {
        if self.args.last.is_some_and(|most| self.last.len() < most) {
            self.say_lost(out)?;
        }
        self.lost = None;
        for (event, names) in std::mem::take(&mut self.last) {
            self.print(&event, names.as_ref(), out)?;
        }
        Ok(out.flush()?)
    }

    fn say_lost(&mut self, out: &mut Output) -> Result<(), Failure> {
        let Some(lost) = self.lost.take() else { return Ok(()) };
        if out.is_json() {
            out.json_line(&serde_json::json!({ "lost": lost }))?;
        }
        say(format_args!("lrsctl: {lost} events before this are not kept any more"));
        Ok(())
    }

    /// Whether the event is among those asked for.
    fn wants(&self, event: &proto::Event, names: Option<&Names>) -> bool {
        let name = names.and_then(|names| names.name.as_deref());
        let is_task =
            |word: &str| event.task.as_deref().is_some_and(|id| refers_to(word, id, name));
        self.from.is_none_or(|from| is_since(event, from))
            && self.task.as_deref().is_none_or(is_task)
            && self
                .args
                .job
                .as_deref()
                .is_none_or(|job| names.is_some_and(|names| names.job.as_deref() == Some(job)))
            && (self.args.types.is_empty() || self.args.types.contains(&event.r#type))
    }
}

fn is_since(event: &proto::Event, from: WallTime) -> bool {
    event.at.as_ref().is_some_and(|at| wire::wall_time(at) >= from)
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
