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
    let mut inputs = Map::new();
    if let Some(status) = exit {
        Exit::Status(status).note(&mut inputs);
    }
    let at = clock::now().wall;
    let kind = EventKind::Completed;
    let task = Some(format!("t0000001-{seq}"));
    ring.push(Event { seq, at, kind, task, from: None, to: None, reason: None, inputs });
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
