//! The history over restarts, and on disks that do not take it.

use std::path::Path;

use serde_json::Map;

use super::*;
use crate::core::event::{Event, EventKind};
use crate::core::exit::Exit;
use crate::proto;

/// Some time in 2026.
const BEGAN: i64 = 1_790_000_000;

fn status(seconds: i64, completed: u64) -> Arc<Status> {
    let sampled_at = Some(prost_types::Timestamp { seconds, nanos: 0 });
    let node = proto::Node { sampled_at, period_ms: 3_000, ..Default::default() };
    let totals = Totals { completed, ..Default::default() };
    Arc::new(Status { node: Some(node), totals: Some(totals), ..Default::default() })
}

fn end(ring: &EventRing, seq: u64, exit: Option<u8>) {
    ring.push(completed(seq, exit));
}

fn completed(seq: u64, exit: Option<u8>) -> Event {
    let mut inputs = Map::new();
    if let Some(status) = exit {
        Exit::Status(status).note(&mut inputs);
    }
    let at = clock::now().wall;
    let kind = EventKind::Completed;
    let task = Some(format!("t0000001-{seq}"));
    Event { seq, at, kind, task, from: None, to: None, reason: None, inputs }
}

fn keeper(dir: &Path, ring: &Arc<EventRing>) -> Keeper {
    let snapshot = watch::channel(Arc::default()).1;
    let place = (dir.to_owned(), "machine".to_owned());
    Keeper::new(place, Arc::clone(ring), snapshot, Arc::default())
}

fn tasks(keeper: &mut Keeper) -> Vec<(String, Option<i32>)> {
    let page = keeper.page(Kind::Tasks, 0, 1_000, |row: EndRow| row.task);
    assert_eq!(page.next, None);
    page.rows.into_iter().map(|task| (task.id, task.exit_status)).collect()
}

fn rows(keeper: &mut Keeper, kind: Kind) -> Vec<NodeFigures> {
    keeper.page(kind, 0, 10_000, Some).rows
}

fn lost(keeper: &Keeper) -> (u64, u64) {
    let News { lost_rows, lost_ends, .. } = &*keeper.news;
    (lost_rows.load(Ordering::Relaxed), lost_ends.load(Ordering::Relaxed))
}

#[test]
fn cycles_and_their_minutes_are_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let ring = Arc::new(EventRing::new(10, []));
    let mut first = keeper(dir.path(), &ring);
    for nth in 0..41 {
        first.cycle(&status(BEGAN + nth * 3, nth.unsigned_abs()));
        // A reload publishes the same reading again.
        first.cycle(&status(BEGAN + nth * 3, nth.unsigned_abs()));
    }
    let mut next = keeper(dir.path(), &ring);
    let cycles = rows(&mut next, Kind::Cycles);
    assert_eq!(cycles.len(), 41);
    assert_eq!(cycles.iter().map(|row| row.completed).sum::<u32>(), 40, "from cycle to cycle");
    let minutes = rows(&mut next, Kind::Minutes);
    let lengths: Vec<f32> = minutes.iter().map(|row| row.seconds).collect();
    assert_eq!(lengths, [42.0, 60.0], "it began 20 s after a whole minute");
    // What a stop finds is stored too.
    first.end_minute();
    let minutes = rows(&mut keeper(dir.path(), &ring), Kind::Minutes);
    assert_eq!(minutes.iter().map(|row| row.seconds).sum::<f32>(), 41.0 * 3.0);
    assert_eq!(lost(&first), (0, 0));
}

#[test]
fn an_end_is_stored_once_and_with_how_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let ring = Arc::new(EventRing::new(10, []));
    let mut first = keeper(dir.path(), &ring);
    end(&ring, 1, Some(0));
    end(&ring, 2, None);
    end(&ring, 3, Some(3));
    first.store_ends(false);
    let whole = |number: u64, exit| (format!("t0000001-{number}"), exit);
    assert_eq!(
        tasks(&mut first),
        [whole(1, Some(0))],
        "in order, so the third waits for the second"
    );
    let mut inputs = Map::new();
    Exit::Status(7).note(&mut inputs);
    let (task, at) = (Some("t0000001-2".to_owned()), clock::now().wall);
    let kind = EventKind::Exit;
    ring.push(Event { seq: 4, at, kind, task, from: None, to: None, reason: None, inputs });
    first.store_ends(false);
    let all = [whole(1, Some(0)), whole(2, Some(7)), whole(3, Some(3))];
    assert_eq!(tasks(&mut first), all);
    // A daemon that was killed: the next has the same ends in its records.
    end(&ring, 5, None);
    let mut next = keeper(dir.path(), &ring);
    next.store_ends(true);
    assert_eq!(tasks(&mut next)[..3], all);
    assert_eq!(tasks(&mut next)[3..], [whole(5, None)]);
    assert_eq!(lost(&next), (0, 0));
}

#[test]
fn an_end_is_stored_once_where_the_last_stored_has_left_memory() {
    let dir = tempfile::tempdir().unwrap();
    let ends = [1, 2, 3, 4].map(|seq| completed(seq, Some(0)));
    let ring = Arc::new(EventRing::new(10, ends[..3].iter().cloned()));
    keeper(dir.path(), &ring).store_ends(true);
    // The third was of a user with many ends.
    let rest = [&ends[0], &ends[1], &ends[3]].map(Clone::clone);
    let mut next = keeper(dir.path(), &Arc::new(EventRing::new(10, rest)));
    next.store_ends(true);
    let stored: Vec<String> = tasks(&mut next).into_iter().map(|(id, _)| id).collect();
    assert_eq!(stored, ends.map(|end| end.task.unwrap()));
}

#[tokio::test]
async fn a_page_has_a_bound_of_rows_read_and_of_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let ring = Arc::new(EventRing::new(1, []));
    let mut keeper = keeper(dir.path(), &ring);
    let job = Some("j".repeat(1_000));
    for at in 0..=MAX_READ as i64 {
        let task = Some(proto::EndedTask { job: job.clone(), ..Default::default() });
        assert!(keeper.put(Kind::Tasks, &EndRow { at, task }));
    }
    let full = keeper.page(Kind::Tasks, 0, usize::MAX, |row: EndRow| row.task);
    let bytes: usize = full.rows.iter().map(|task| task.encoded_len() + FRAMING_BYTES).sum();
    assert!((MAX_PAGE_BYTES * 9 / 10..=MAX_PAGE_BYTES).contains(&bytes), "{bytes}");
    assert!(full.next.is_some());
    let last = |row: EndRow| (row.at == MAX_READ as i64).then_some(row.at);
    let part = keeper.page(Kind::Tasks, 0, 10, last);
    assert_eq!((part.rows.len(), part.next.is_some()), (0, true));
    // A client gets no empty page before the last.
    let (history, jobs) = History::queue();
    let thread = std::thread::spawn(move || keeper.serve(&jobs));
    assert_eq!(history.page(Kind::Tasks, 0, 10, last).await.unwrap().rows, [MAX_READ as i64]);
    drop(history);
    thread.join().unwrap();
}

#[test]
fn what_a_disk_did_not_take_is_stored_later_or_counted() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("history");
    std::fs::write(&place, "in the way").unwrap();
    let ring = Arc::new(EventRing::new(3, []));
    let mut keeper = keeper(&place, &ring);
    keeper.cycle(&status(BEGAN, 0));
    assert!(keeper.news.problem.lock().unwrap().is_some());
    for seq in 1..=5 {
        end(&ring, seq, Some(0));
        keeper.store_ends(false);
    }
    assert_eq!(lost(&keeper), (1, 2), "three are in memory");
    std::fs::remove_file(&place).unwrap();
    keeper.cycle(&status(BEGAN + 3, 0));
    assert_eq!(tasks(&mut keeper).len(), 3);
    assert_eq!(lost(&keeper), (1, 2));
    assert_eq!(*keeper.news.problem.lock().unwrap(), None);
    // Removed while it runs: made anew with the cycle after the next.
    std::fs::remove_dir_all(&place).unwrap();
    keeper.cycle(&status(BEGAN + 6, 0));
    keeper.cycle(&status(BEGAN + 9, 0));
    assert!(!rows(&mut keeper, Kind::Cycles).is_empty());
}

#[test]
fn the_loop_does_not_wait_for_a_thread_that_hangs() {
    // Nothing is taken out of the queue.
    let (history, _jobs) = History::queue();
    for nth in 0..QUEUE as i64 + 5 {
        history.cycle(&status(BEGAN + nth, 0));
    }
    assert_eq!(history.lost(), 5);
    history.end();
}
