use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::units::WallTime;

fn event(seq: u64, kind: EventKind, id: Option<&str>, uid: Option<u32>) -> Arc<Packed> {
    let mut inputs = Map::new();
    if let Some(uid) = uid {
        inputs.insert("uid".into(), json!(uid));
    }
    let task = id.map(str::to_owned);
    let (at, from, to, reason) = (WallTime::default(), None, None, None);
    Packed::of(&Event { seq, at, kind, task, from, to, reason, inputs })
}

fn kinds(kept: &KeptEvents, id: &str) -> Vec<EventKind> {
    kept.about(id).0.iter().map(|event| event.kind).collect()
}

#[test]
fn a_flood_erases_its_own_and_leaves_running_tasks_whole() {
    let mut kept = KeptEvents::new(100);
    kept.push(event(1, EventKind::Started, None, None));
    kept.push(event(2, EventKind::Admitted, Some("t-1"), Some(0)));
    kept.push(event(3, EventKind::Promoted, Some("t-1"), None));
    for number in 0..10 {
        let id = format!("r-{number}");
        kept.push(event(4 + 2 * number, EventKind::Reserved, Some(&id), Some(0)));
        kept.push(event(5 + 2 * number, EventKind::Cancelled, Some(&id), None));
    }
    for number in 0..5_200 {
        let id = format!("r-{}", 100 + number);
        kept.push(event(24 + 2 * number, EventKind::Reserved, Some(&id), Some(7)));
        kept.push(event(25 + 2 * number, EventKind::Cancelled, Some(&id), None));
    }
    assert_eq!(kinds(&kept, "t-1"), [EventKind::Admitted, EventKind::Promoted]);
    assert!(!kept.about("t-1").1, "nothing of it is gone");
    assert_eq!(kinds(&kept, "r-0"), [EventKind::Reserved, EventKind::Cancelled]);
    assert!(kept.events.contains_key(&1), "that of no user");
    assert_eq!(kept.events.len(), 100 + 2);
    assert_eq!(kept.about("r-100"), (vec![], true));
    // Once it has ended its events are its user's.
    let end = 24 + 2 * 5_200;
    kept.push(event(end, EventKind::Completed, Some("t-1"), None));
    assert_eq!(kept.about("t-1").0.len(), 3);
    assert_eq!(kept.of_running().count(), 0);
    assert_eq!(kept.events.len(), 100);
}

#[test]
fn a_task_that_runs_keeps_the_last_of_each_kind() {
    let mut kept = KeptEvents::new(2);
    kept.push(event(1, EventKind::Admitted, Some("t-1"), Some(7)));
    kept.push(event(2, EventKind::Promoted, Some("t-1"), None));
    for seq in 3..1_000 {
        kept.push(event(seq, EventKind::Priority, Some("t-1"), None));
    }
    let (events, cut) = kept.about("t-1");
    let seqs: Vec<_> = events.iter().map(|event| event.seq).collect();
    assert_eq!((seqs, cut), (vec![1, 2, 997, 998, 999], true));
}

#[test]
fn gaps_are_counted_where_they_are() {
    let mut kept = KeptEvents::new(3);
    for (seq, uid) in [(1, 0), (2, 7), (3, 7), (4, 0), (5, 7), (6, 7)] {
        kept.push(event(seq, EventKind::Reserved, Some(&format!("r-{seq}")), Some(uid)));
    }
    // Of uid 7 the last; of 0 both, of which it had fewer.
    let mut seen = Vec::new();
    let mut next = 1;
    loop {
        let page = kept.read(next, 10);
        let Some(last) = page.events.last() else { break };
        next = last.seq + 1;
        seen.push((page.lost, page.events.iter().map(|event| event.seq).collect::<Vec<_>>()));
    }
    let lost: u64 = seen.iter().map(|(lost, _)| lost).sum();
    let all: Vec<u64> = seen.iter().flat_map(|(_, seqs)| seqs.clone()).collect();
    assert_eq!((lost, all.len()), (3, 3), "{seen:?}");
    assert_eq!(all.last(), Some(&6));
}

proptest! {
    #[test]
    fn the_room_is_shared_and_bounded(
        capacity in 1usize..20,
        all in prop::collection::vec((0..4u32, 0..6u8, 0..5u64), 1..200),
    ) {
        use EventKind::{Admitted, Completed, Priority, Promoted, Reserved};
        let mut kept = KeptEvents::new(capacity);
        let mut ends = Ends::new(capacity);
        let mut running: BTreeSet<String> = BTreeSet::new();
        for (seq, (uid, what, number)) in (1..).zip(all) {
            let task = format!("t-{uid}-{number}");
            let (kind, id) = match what {
                0 => (Admitted, Some(task)),
                1 => (Completed, Some(task)),
                2 => (Promoted, Some(task)),
                3 => (Priority, Some(task)),
                4 => (Reserved, Some(format!("r-{seq}"))),
                _ => (EventKind::Guard, None),
            };
            match (kind, &id) {
                (Admitted, Some(id)) => drop(running.insert(id.clone())),
                (Completed, Some(id)) => drop(running.remove(id)),
                _ => {}
            }
            // Some name their user.
            let named = matches!(kind, Admitted | Completed | Reserved).then_some(uid);
            let event = event(seq, kind, id.as_deref(), named);
            ends.note(&event);
            kept.push(event);
            prop_assert!(kept.events.contains_key(&seq) , "the newest is there");
            prop_assert!(kept.room.used <= capacity);
            let of_running = kept.of_running().count();
            prop_assert_eq!(kept.events.len(), kept.room.used + of_running);
            prop_assert!(of_running <= running.len() * 3);
            for id in &running {
                prop_assert!(kinds(&kept, id).contains(&Admitted), "{id} runs");
            }
            // Whoever lost something has an equal part at least.
            let users = kept.room.by_owner.len();
            let most = kept.room.by_owner.values().map(BTreeSet::len).max().unwrap_or(0);
            prop_assert!(kept.room.used < capacity || most * users >= capacity);
            prop_assert!(ends.ended.len() <= capacity);
            // Each index says what is there.
            let indexed: BTreeSet<u64> =
                kept.stories.values().flat_map(|story| story.seqs.iter().copied()).collect();
            let about = kept.events.values().filter(|event| event.task.is_some());
            prop_assert_eq!(indexed, about.map(|event| event.seq).collect::<BTreeSet<_>>());
        }
    }
}
