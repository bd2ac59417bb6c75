//! The past, as clients ask for it: tasks that ended, and what the node did.
//!
//! Tasks that ended are those that [`EventRing`](crate::publish::EventRing) keeps in memory; with `stored`
//! those of [`History`] come before them. So a history that is off, or a disk
//! that does not answer, costs what is older.

use std::sync::Arc;

use prost::Message as _;

use super::query::Reader;
use super::request;
use crate::access::Access;
use crate::command::CommandError;
use crate::history::ended;
use crate::history::{EndRow, FRAMING_BYTES, History, Kind, MAX_PAGE_BYTES, MAX_READ};
use crate::publish::Ended;
use crate::units::WallTime;
use crate::{proto, wire};

/// Tasks on one page, unless the client asks for another number.
const PAGE: usize = 1_000;

/// All that are in memory. A task has about 150 bytes, with the longest labels 1.2 KiB:
/// [`MAX_PAGE_BYTES`] may end a page before.
const MAX_PAGE: usize = 4_096;

/// Begins the page token of a place on the disk.
const STORED: char = 'd';

/// Which tasks are asked for.
struct Filter {
    job: Option<String>,
    uid: Option<u32>,
    since: Option<WallTime>,
    until: Option<WallTime>,
    failed: bool,
}

impl Filter {
    fn of(request: &proto::ListHistoryRequest) -> Result<Filter, CommandError> {
        Ok(Filter {
            job: request::label("job", request.job.clone())?.map(|job| job.to_string()),
            uid: request.uid,
            since: request.since.as_ref().map(wire::wall_time),
            until: request.until.as_ref().map(wire::wall_time),
            failed: request.failed,
        })
    }

    /// `at`: when the end was noticed.
    fn has(&self, at: WallTime, task: &proto::EndedTask) -> bool {
        let has_failed =
            || task.exit_signal.is_some() || task.exit_status.is_some_and(|it| it != 0);
        within(at, self.since, self.until)
            && self.job.as_ref().is_none_or(|job| task.job.as_ref() == Some(job))
            && self.uid.is_none_or(|uid| task.uid == Some(uid))
            && (!self.failed || has_failed())
    }
}

fn within(at: WallTime, since: Option<WallTime>, until: Option<WallTime>) -> bool {
    since.is_none_or(|since| at >= since) && until.is_none_or(|until| at < until)
}

fn number(token: &str) -> Result<u64, CommandError> {
    token.parse().map_err(|_| {
        request::invalid(
            "page_token is not valid; send next_page_token of the page before, unchanged",
        )
    })
}

/// The ended tasks asked for, the latest end last.
///
/// # Errors
/// InvalidArgument for a label that breaks its range, and for a page token of somewhere else;
/// Unavailable where the disk of the history does not answer.
pub async fn list(
    access: &Access,
    reader: Reader,
    request: proto::ListHistoryRequest,
) -> Result<proto::ListHistoryResponse, CommandError> {
    let asked = Arc::new(Filter::of(&request)?);
    let size = match request.page_size as usize {
        0 => PAGE,
        size => size.min(MAX_PAGE),
    };
    let token = request.page_token.as_str();
    // A place on the disk has this letter, an end in memory is a number.
    let place = token.strip_prefix(STORED).or(token.is_empty().then_some("0"));
    let history = access.history.as_ref().filter(|_| request.stored);
    let Some((place, history)) = place.zip(history) else {
        let from = if token.is_empty() { 0 } else { number(token)? };
        return Ok(in_memory(access, reader, &asked, (size, MAX_PAGE_BYTES), Vec::new(), from));
    };
    let of_it = Arc::clone(&asked);
    let wanted = move |row: EndRow| {
        let task = row.task.filter(|task| of_it.has(WallTime::from_unix_micros(row.at), task));
        task.map(|task| shown(task, reader))
    };
    let page = history.page(Kind::Tasks, number(place)?, size, wanted).await?;
    Ok(match page.next {
        Some(next) => proto::ListHistoryResponse {
            tasks: page.rows,
            next_page_token: format!("{STORED}{next}"),
        },
        None => in_memory(access, reader, &asked, (size, MAX_PAGE_BYTES), page.rows, page.unstored),
    })
}

/// Those of them that are in memory, for who can take them at once.
///
/// # Errors
/// InvalidArgument for a label that breaks its range.
pub fn recent(
    access: &Access,
    reader: Reader,
    request: &proto::ListHistoryRequest,
) -> Result<proto::ListHistoryResponse, CommandError> {
    Ok(in_memory(access, reader, &Filter::of(request)?, (MAX_PAGE, usize::MAX), Vec::new(), 0))
}

/// `tasks`, and after them those in memory from the end with the number `from` on: at most so many tasks and
/// bytes.
fn in_memory(
    access: &Access,
    reader: Reader,
    asked: &Filter,
    (size, most_bytes): (usize, usize),
    mut tasks: Vec<proto::EndedTask>,
    from: u64,
) -> proto::ListHistoryResponse {
    let snapshot = access.snapshot.borrow().clone();
    let bytes_of = |task: &proto::EndedTask| task.encoded_len() + FRAMING_BYTES;
    let mut bytes: usize = tasks.iter().map(bytes_of).sum();
    for end in access.events.ended(from) {
        let task = ended::message(&end, &snapshot);
        if !asked.has(end.event.at, &task) {
            continue;
        }
        let task = shown(task, reader);
        bytes += bytes_of(&task);
        if tasks.len() >= size || (bytes > most_bytes && !tasks.is_empty()) {
            let next_page_token = end.event.seq.to_string();
            return proto::ListHistoryResponse { tasks, next_page_token };
        }
        tasks.push(task);
    }
    proto::ListHistoryResponse { tasks, next_page_token: String::new() }
}

/// One of them.
pub(super) fn message(access: &Access, reader: Reader, task: &Ended) -> proto::EndedTask {
    shown(ended::message(task, &access.snapshot.borrow()), reader)
}

/// As `reader` may read it.
fn shown(mut task: proto::EndedTask, reader: Reader) -> proto::EndedTask {
    task.command = reader.command(task.command, task.uid);
    task
}

/// What the node did.
///
/// # Errors
/// InvalidArgument for a page token of somewhere else; Unavailable where the disk of the history does not
/// answer.
pub async fn node(
    history: Option<&History>,
    asked: proto::ListNodeHistoryRequest,
) -> Result<proto::ListNodeHistoryResponse, CommandError> {
    let Some(history) = history else { return Ok(proto::ListNodeHistoryResponse::default()) };
    let from = if asked.page_token.is_empty() { 0 } else { number(&asked.page_token)? };
    let kind = if asked.cycles { Kind::Cycles } else { Kind::Minutes };
    let time = |at: &Option<_>| at.as_ref().map(wire::wall_time);
    let (since, until) = (time(&asked.since), time(&asked.until));
    let is_wanted = move |row: &proto::NodeFigures| {
        row.at.is_some_and(|at| within(wire::wall_time(&at), since, until))
    };
    let wanted = move |row| Some(row).filter(is_wanted);
    let page = history.page(kind, from, MAX_READ, wanted).await?;
    let next_page_token = page.next.map_or_else(String::new, |next| next.to_string());
    Ok(proto::ListNodeHistoryResponse { figures: page.rows, next_page_token })
}
