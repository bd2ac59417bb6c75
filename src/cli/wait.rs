//! `lrsctl wait`: until tasks have ended, with their exit status as its own.
//!
//! The stream of events begins with those that are kept: lrsd sends an end before it removes the
//! task from its list, so a stream of new events could miss the end of a task that is still listed.
//! A stream that breaks is opened again, also across a restart of the daemon; a task that is not
//! listed then has ended. A process that waits for its slot is no task yet: the event of its
//! admission names the task that it becomes. There is no event when it gives up, so the queue is
//! read while one waits.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use lrs_api::client::{Connection, all_tasks};
use lrs_api::proto::event_stream_item::Item;
use lrs_api::proto::{
    EndedTask, Event, EventStreamItem, ListQueueRequest, Queued, Task, WatchEventsRequest,
};
use tokio::time::{sleep, timeout, timeout_at};
use tonic::Streaming;

use super::args::WaitArgs;
use super::client::{Lrsd, connect, ended_tasks, in_time};
use super::failure::{Exit, Failure, Purpose, from_status};
use super::handle::{one, refers_to};
use super::output::{Output, Talk, printable, say};
use super::queue::{title, whole};
use super::show::history;
use crate::proto::ListHistoryRequest;
use crate::units::WallTime;
use crate::wire::wall_time;

/// Between two attempts to reach a daemon that is away.
const PAUSE: Duration = Duration::from_millis(500);
/// Between two readings of the queue.
const LOOK: Duration = Duration::from_secs(1);
/// A request that waited counts as gone after so many readings without it: its admission may show
/// late.
const LOOKS: u32 = 2;
/// How long after the end of a task its exit status may come.
const LATE: Duration = Duration::from_secs(1);

/// `lrsctl wait WORD...`
pub(super) fn wait(
    lrsd: &Lrsd,
    args: &WaitArgs,
    talk: Talk,
    out: &mut Output,
) -> Result<(), Failure> {
    let ends = super::runtime()?.block_on(async {
        let ends = until_ended(lrsd, &args.tasks, talk);
        let Some(within) = args.within else { return ends.await };
        timeout(within, ends).await.unwrap_or_else(|_| {
            let words: Vec<_> = args.tasks.iter().map(|word| printable(word)).collect();
            let text = format!("{} did not end within the time given", words.join(", "));
            Err(Failure::new(Exit::RunWithoutSlot, text))
        })
    });
    let ends = ends.map_err(Failure::of_run)?;
    if out.is_json() {
        out.json(&ends.known)?;
    }
    let mut code = 0;
    for end in &ends.known {
        let of_end = match (end.exit_status, end.exit_signal) {
            (Some(status), _) => u8::try_from(status).unwrap_or(u8::MAX),
            (None, signal) => {
                let of = |signal: i32| u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX);
                signal.map_or(0, of)
            }
        };
        let title = history::title(end);
        let text = format_args!("{} ({}) ended: {}", end.id, printable(&title), history::exit(end));
        let is_known = end.exit_status.or(end.exit_signal).is_some();
        if !is_known {
            say(format_args!("lrsctl: how {} ({}) ended is not known", end.id, printable(&title)));
        } else if of_end > 0 {
            say(format_args!("lrsctl: {text}"))
        } else {
            talk.detail(text)
        }
        code = code.max(of_end);
    }
    for id in &ends.unknown {
        say(format_args!(
            "lrsctl: how {id} ended is not known; it was released, or is kept no more"
        ));
    }
    for title in &ends.gave_up {
        say(format_args!(
            "lrsctl: {} gave up waiting for a slot, or was cancelled",
            printable(title)
        ));
        code = code.max(Exit::RunFailed as u8);
    }
    if code == 0 { Ok(()) } else { Err(Failure::ended(ExitCode::from(code))) }
}

/// How the tasks ended.
#[derive(Default)]
struct Ends {
    known: Vec<EndedTask>,
    /// Ids of those that the history does not have.
    unknown: Vec<String>,
    /// What those are called that never ran.
    gave_up: Vec<String>,
}

/// What the words stand for.
#[derive(Default)]
struct Waiting {
    /// Ids of tasks that run.
    running: BTreeSet<String>,
    /// Ids of all tasks.
    all: BTreeSet<String>,
    /// Processes that wait for a slot.
    queued: BTreeMap<i32, Queueing>,
    gave_up: Vec<String>,
}

/// A process that waits for a slot.
struct Queueing {
    title: String,
    /// When it asked: an earlier admission of its pid was another's, or that of an earlier task.
    since: Option<WallTime>,
    /// In how many looks it was not found.
    missed: u32,
}

/// Why events are not awaited any more.
enum Pause {
    /// Nothing runs or waits any more.
    Over,
    /// The queue is to be looked at.
    Look,
    /// Events were lost: what is not listed has ended.
    Lost,
}

impl Waiting {
    fn is_over(&self) -> bool {
        self.running.is_empty() && self.queued.is_empty()
    }

    /// A process became a task then; `None`: it is one now.
    fn admitted(&mut self, pid: i32, id: &str, at: Option<WallTime>) {
        let is_it = |one: &Queueing| one.since.zip(at).is_none_or(|(since, at)| since <= at);
        if self.queued.get(&pid).is_some_and(is_it) {
            self.queued.remove(&pid);
            self.running.insert(id.to_owned());
            self.all.insert(id.to_owned());
        }
    }

    /// What is not listed has ended. Not for each look: the list may be older than the last event.
    fn list(&mut self, tasks: &[Task]) {
        self.running.retain(|id| tasks.iter().any(|task| task.id == *id));
        for task in tasks {
            task.pid.into_iter().for_each(|pid| self.admitted(pid, &task.id, None));
        }
    }

    /// What is not in the queue any more and was not admitted has given up.
    fn look(&mut self, queue: &[Queued]) {
        let gave_up = &mut self.gave_up;
        self.queued.retain(|pid, one| {
            let waits = queue.iter().any(|queued| queued.pid == Some(*pid));
            one.missed = if waits { 0 } else { one.missed + 1 };
            let is_gone = one.missed >= LOOKS;
            gave_up.extend(is_gone.then(|| one.title.clone()));
            !is_gone
        });
    }
}

async fn until_ended(lrsd: &Lrsd, words: &[String], talk: Talk) -> Result<Ends, Failure> {
    let mut waiting = None;
    let mut reported = false;
    loop {
        match attempt(lrsd, words, &mut waiting, talk).await {
            // Whoever waited already waits on.
            Err(failure) if waiting.is_some() && failure.is(Exit::Unreachable) => {}
            ended => return ended,
        }
        if !std::mem::replace(&mut reported, true) {
            say(format_args!("lrsctl: lrsd at {lrsd} is away; asking until it is back"));
        }
        sleep(PAUSE).await;
    }
}

fn failed(status: tonic::Status) -> Failure {
    from_status(&status, Purpose::Other)
}

async fn attempt(
    lrsd: &Lrsd,
    words: &[String],
    waiting: &mut Option<Waiting>,
    talk: Talk,
) -> Result<Ends, Failure> {
    let opened = in_time(lrsd, async {
        let mut connection = connect(lrsd).await?;
        let request = WatchEventsRequest { since: Some(1), no_follow: false };
        let stream = connection.watch_events(request).await.map_err(failed)?.into_inner();
        // In this order: what has its slot between the two is a task.
        let queue = queue(&connection).await?;
        let tasks = all_tasks(connection.clone()).await.map_err(failed)?;
        if waiting.is_none() {
            *waiting = Some(resolve(words, &tasks, &queue, &kept(&connection).await?)?);
        }
        Ok::<_, Failure>((connection, stream, tasks, queue))
    });
    let (connection, mut stream, tasks, mut waits) = opened.await??;
    let Some(waiting) = waiting else { return Ok(Ends::default()) };
    waiting.list(&tasks);
    loop {
        waiting.look(&waits);
        let (running, queued) = (waiting.running.len(), waiting.queued.len());
        talk.detail(format_args!("waiting for {running} tasks, and {queued} in the queue"));
        let pause = until_over(&mut stream, waiting).await?;
        if let Pause::Over = pause {
            break;
        }
        waits = in_time(lrsd, queue(&connection)).await??;
        if let Pause::Lost = pause {
            waiting.list(&in_time(lrsd, all_tasks(connection.clone())).await?.map_err(failed)?);
        }
    }
    let patience = tokio::time::Instant::now() + LATE;
    loop {
        let ends = ends(waiting, in_time(lrsd, kept(&connection)).await??);
        let all_known = ends.known.iter().all(|end| end.exit_status.or(end.exit_signal).is_some());
        if all_known || timeout_at(patience, until_exit(&mut stream)).await.is_err() {
            return Ok(ends);
        }
    }
}

async fn next(stream: &mut Streaming<EventStreamItem>) -> Result<Item, Failure> {
    let away = |text: String| Failure::unreachable(text);
    let item = stream.message().await.map_err(|status| away(status.message().to_owned()))?;
    item.and_then(|item| item.item).ok_or_else(|| away("lrsd stopped".to_owned()))
}

async fn until_over(
    stream: &mut Streaming<EventStreamItem>,
    waiting: &mut Waiting,
) -> Result<Pause, Failure> {
    // However much happens meanwhile.
    let look = tokio::time::Instant::now() + LOOK;
    while !waiting.is_over() {
        let item = match waiting.queued.is_empty() {
            true => next(stream).await?,
            false => match timeout_at(look, next(stream)).await {
                Ok(item) => item?,
                Err(_) => return Ok(Pause::Look),
            },
        };
        match item {
            Item::Event(event) if event.r#type == "admitted" => {
                if let Some((pid, id)) = of_process(&event) {
                    waiting.admitted(pid, id, event.at.as_ref().map(wall_time));
                }
            }
            Item::Event(event) if ["completed", "released"].contains(&&*event.r#type) => {
                waiting.running.remove(event.task.as_deref().unwrap_or_default());
            }
            Item::Event(_) => {}
            Item::Lost(_) => return Ok(Pause::Lost),
        }
    }
    Ok(Pause::Over)
}

/// The process of an admission, and the id of its task.
fn of_process(event: &Event) -> Option<(i32, &str)> {
    let pid = event.inputs.as_ref()?.fields.get("pid")?.kind.as_ref()?;
    let prost_types::value::Kind::NumberValue(pid) = pid else { return None };
    Some((*pid as i32, event.task.as_deref()?))
}

/// A stream that ends has no exit status any more, and the caller's patience runs out.
async fn until_exit(stream: &mut Streaming<EventStreamItem>) {
    loop {
        match next(stream).await {
            Ok(Item::Event(event)) if event.r#type == "exit" => return,
            Ok(_) => {}
            Err(_) => std::future::pending().await,
        }
    }
}

async fn kept(connection: &Connection) -> Result<Vec<EndedTask>, Failure> {
    ended_tasks(connection.clone(), ListHistoryRequest::default()).await.map_err(failed)
}

async fn queue(connection: &Connection) -> Result<Vec<Queued>, Failure> {
    whole(connection.clone(), ListQueueRequest::default()).await.map_err(failed)
}

fn ends(waiting: &Waiting, mut kept: Vec<EndedTask>) -> Ends {
    kept.retain(|end| waiting.all.contains(&end.id));
    let is_kept = |id: &&String| kept.iter().any(|end| end.id == **id);
    let unknown = waiting.all.iter().filter(|id| !is_kept(id)).cloned().collect();
    Ends { known: kept, unknown, gave_up: waiting.gave_up.clone() }
}

/// A word is a task that runs or waits for a slot, a job with such tasks, a task that ended, or a job
/// that ran.
fn resolve(
    words: &[String],
    tasks: &[Task],
    queue: &[Queued],
    kept: &[EndedTask],
) -> Result<Waiting, Failure> {
    let Waiting { mut running, mut all, mut queued, gave_up } = Waiting::default();
    for word in words {
        let of_job = |job: Option<&String>| job == Some(word);
        let mut queue = |is_meant: &dyn Fn(&Queued) -> bool| {
            let meant = queue.iter().filter(|one| is_meant(one));
            let meant = meant.filter_map(|one| {
                let since = one.since.as_ref().map(wall_time);
                Some((one.pid?, Queueing { title: title(one), since, missed: 0 }))
            });
            let meant: Vec<_> = meant.collect();
            let any = !meant.is_empty();
            queued.extend(meant);
            any
        };
        if let Some(task) = one(word, tasks).map_err(failed)? {
            running.insert(task.id.clone());
        } else if tasks.iter().any(|task| of_job(task.job.as_ref())) {
            let of_a_job = tasks.iter().filter(|task| of_job(task.job.as_ref()));
            running.extend(of_a_job.map(|task| task.id.clone()));
            queue(&|one| of_job(one.job.as_ref()));
        } else if queue(&|one| refers_to(word, &one.id, one.name.as_deref()))
            || queue(&|one| of_job(one.job.as_ref()))
        {
        } else if let Some(end) =
            kept.iter().rfind(|end| refers_to(word, &end.id, end.name.as_deref()))
        {
            all.insert(end.id.clone());
        } else if kept.iter().any(|end| of_job(end.job.as_ref())) {
            say(format_args!("lrsctl: no task of job {} runs", printable(word)));
        } else {
            let text = format!("no task and no job {:?}", printable(word));
            return Err(Failure::failed(text).hint(
                "`lrsctl tasks` lists what runs, `lrsctl queue` what waits, `lrsctl history` what ended",
            ));
        }
    }
    all.extend(running.iter().cloned());
    Ok(Waiting { running, all, queued, gave_up })
}
