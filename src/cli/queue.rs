//! `lrsctl queue`: the requests that wait for a slot, in the order of service.

use std::collections::BTreeMap;
use std::time::Duration;

use lrs_api::client::{Connection, every_page};
use lrs_api::words;
pub(super) use lrs_api::words::queued_title as title;
use tonic::Status;

use super::args::QueueArgs;
use super::client::{Lrsd, ask};
use super::failure::{Failure, Purpose};
use super::handle::refers_to;
use super::output::{Column, Columns, Output, printable, say};
use super::show::status::no_more_slots;
use super::show::{age, seconds_age, tier_word};
use crate::clock;
use crate::proto::{GetStatusRequest, ListQueueRequest, Queued};
use crate::units::WallTime;
use crate::wire::wall_time;

/// `lrsctl queue`
pub(super) fn queue(lrsd: &Lrsd, args: &QueueArgs, out: &mut Output) -> Result<(), Failure> {
    let (mut queue, status) = ask(lrsd, Purpose::Other, |mut lrsd| async move {
        let status = lrsd.get_status(GetStatusRequest {}).await?.into_inner();
        Ok((whole(lrsd, ListQueueRequest::default()).await?, status))
    })?;
    let own = rustix::process::geteuid().as_raw();
    queue.retain(|one| {
        (!args.mine || one.uid == own) && (args.job.is_none() || one.job == args.job)
    });
    if out.is_json() {
        return out.json(&queue);
    }
    if queue.is_empty() {
        say(format_args!("no request waits for a slot, and none is reserved"));
        return Ok(());
    }
    let table = table(&queue, clock::now().wall, out.width());
    out.table(&if args.no_header { table.without_heads() } else { table })?;
    if let Some(why) = no_more_slots(&status) {
        say(format_args!("{why}"));
    }
    Ok(())
}

/// All pages.
pub(super) async fn whole(
    lrsd: Connection,
    asked: ListQueueRequest,
) -> Result<Vec<Queued>, Status> {
    every_page(async |page_token| {
        let asked = ListQueueRequest { page_token, ..asked.clone() };
        let page = lrsd.clone().list_queue(asked).await?.into_inner();
        Ok((page.queue, page.next_page_token))
    })
    .await
}

/// The id of what waits or is reserved under `word`, which is its id, its number or its name.
///
/// # Errors
/// INVALID_ARGUMENT if there are several.
pub(super) async fn id_of(lrsd: Connection, word: &str) -> Result<Option<String>, Status> {
    let queue = whole(lrsd, ListQueueRequest::default()).await?;
    let mut meant = queue.into_iter().filter(|one| refers_to(word, &one.id, one.name.as_deref()));
    let first = meant.next().map(|one| one.id);
    match meant.next() {
        None => Ok(first),
        Some(_) => Err(Status::invalid_argument(format!(
            "several requests are called {:?}; `lrsctl queue` has their ids",
            printable(word)
        ))),
    }
}

/// `lrsctl task ID` of something in the queue.
pub(super) fn one(lrsd: &Lrsd, id: String, out: &mut Output) -> Result<(), Failure> {
    let asked = ListQueueRequest { id: Some(id), ..ListQueueRequest::default() };
    let queue = ask(lrsd, Purpose::Other, |lrsd| whole(lrsd, asked.clone()))?;
    if out.is_json() {
        return queue.first().map_or(Ok(()), |one| out.json(one));
    }
    let now = clock::now().wall;
    queue.iter().try_for_each(|one| out.line(printable(&in_words(one, now))))
}

fn in_words(one: &Queued, now: WallTime) -> String {
    let left = match (&one.expires_at, one.place) {
        (Some(at), Some(_)) => format!("; it gives up in {}", until(wall_time(at), now)),
        (Some(at), None) => format!(", for another {}", until(wall_time(at), now)),
        (None, _) => String::new(),
    };
    match one.place {
        Some(place) => format!(
            "{} waits for a slot since {}: place {place} in the queue, {}{}{left}",
            title(one),
            since(one, now),
            because(&one.reason),
            one.expected_wait_seconds.map_or_else(String::new, |_| format!(
                "; a slot is expected in {}",
                seconds_age(one.expected_wait_seconds)
            )),
        ),
        None => format!("a reservation: {} slot{left}", tier_word(one.tier)),
    }
}

/// What a reason means.
fn because(reason: &str) -> &str {
    match reason {
        "full" => "every slot is taken",
        "holding" => "the guard holds passive slots back (`lrsctl why guard`)",
        "draining" => "the node is draining (`lrsctl resume` ends that)",
        "starting" => "lrsd has just started",
        "order" => "others are before it",
        other => other,
    }
}

/// Lines narrower than this have [`NARROW`] columns.
const WIDE: usize = 80;

/// Place, id, when a slot is expected, name.
const NARROW: [usize; 4] = [0, 1, 5, 8];

fn table(queue: &[Queued], now: WallTime, width: usize) -> Columns {
    let columns = [
        ("PLACE", Column::Figure),
        ("ID", Column::Text),
        ("USER", Column::Text),
        ("PRIO", Column::Figure),
        ("SINCE", Column::Figure),
        ("START", Column::Figure),
        ("REASON", Column::Text),
        ("LIMIT", Column::Figure),
        ("NAME", Column::Elastic(8)),
        ("CLASS", Column::Text),
    ];
    let hinted = queue.iter().any(|one| one.hinted);
    let shown = |index: &usize| match index {
        9 => hinted,
        index => width >= WIDE || NARROW.contains(index),
    };
    let shown: Vec<usize> = (0..columns.len()).filter(shown).collect();
    let mut users = BTreeMap::new();
    let mut table = Columns::new(&shown.iter().map(|index| columns[*index]).collect::<Vec<_>>());
    for one in queue {
        let name: &mut String = users.entry(one.uid).or_insert_with(|| user(one.uid));
        let reason = match one.reason.as_str() {
            "reserved" => format!("reserved, {}", tier_word(one.tier)),
            reason if one.parked => format!("{reason}, parked"),
            reason => reason.to_owned(),
        };
        let mut cells = [
            one.place.map_or_else(|| "-".to_owned(), |place| place.to_string()),
            one.id.clone(),
            name.clone(),
            one.priority.to_string(),
            since(one, now),
            seconds_age(one.expected_wait_seconds),
            reason,
            one.expires_at.as_ref().map_or_else(|| "-".to_owned(), |at| until(wall_time(at), now)),
            title(one),
            if one.hinted { words::class(one.class, true) } else { "-".to_owned() },
        ];
        table.row(shown.iter().map(|index| std::mem::take(&mut cells[*index])).collect());
    }
    table
}

/// The name of a user, or the number of one without.
fn user(uid: u32) -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
    user.ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

fn since(one: &Queued, now: WallTime) -> String {
    one.since.as_ref().map_or_else(|| "-".to_owned(), |at| until(now, wall_time(at)))
}

/// From `from` to `to`; nothing if that is over.
fn until(to: WallTime, from: WallTime) -> String {
    let micros = to.unix_micros().saturating_sub(from.unix_micros());
    age(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_line_has_what_matters_and_no_name_steers_it() {
        let one = Queued {
            id: "w3fc0e1d2-12345".to_owned(),
            place: Some(10_000),
            uid: u32::MAX,
            expected_wait_seconds: Some(86_400.0),
            reason: "order".to_owned(),
            name: Some("\u{1b}[2J\u{202e}evil\u{200d}\u{e0041}".repeat(9)),
            ..Queued::default()
        };
        let now = WallTime::default();
        let narrow = table(std::slice::from_ref(&one), now, 40).render(Some(40));
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
        assert!(narrow.contains("START") && !narrow.contains("PRIO"), "{narrow}");
        assert!(narrow.contains(&one.id) && !narrow.contains("\u{1b}"), "{narrow}");
        let wide = table(&[one], now, 80).render(Some(80));
        assert!(wide.lines().all(|line| line.chars().count() <= 80), "{wide}");
        assert!(wide.contains("PRIO") && !wide.contains('\u{1b}'), "{wide}");
    }
}
