//! The store against crashes, damage and full disks.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, json};

use super::*;
use crate::core::counts::Counts;
use crate::core::event::EventKind;
use crate::core::model::{Label, Labels, Order, Priority, Tier};
use crate::core::slots::Seat;
use crate::core::state::Reservation;
use crate::core::task::{
    Attaching, Attachment, Booked, Finder, FoundRecord, GroupRecord, Hold, Kin, Life, Who,
};
use crate::units::{BootTime, Moment, Pid, ProcessRef, WallTime};

fn open(dir: &Path) -> (Store, Recovered) {
    Store::open(dir, "boot-a", 7).unwrap()
}

fn event(seq: u64, kind: EventKind, task: Option<TaskId>) -> Event {
    Event {
        seq,
        at: WallTime::from_unix_micros(seq as i64),
        kind,
        task: task.map(|id| id.to_string()),
        from: None,
        to: None,
        reason: None,
        inputs: Map::new(),
    }
}

fn id(number: u64) -> TaskId {
    TaskId { epoch: 7, number }
}

fn record(number: u64) -> Task {
    let booked = Booked {
        followed: false,
        group: GroupRecord {
            attachment: Attachment::None,
            path: "/batch/7".into(),
            inode: 12,
            elsewhere: Vec::new(),
            for_member: false,
            origin: Default::default(),
            found: Vec::new(),
        },
        baseline: None,
    };
    let used = Reservation {
        labels: Labels::default(),
        uid: 5,
        priority: Priority(1),
        order: Order(9),
        tier: Tier::Passive,
        created_at: WallTime::from_unix_micros(2),
        expires: BootTime(Duration::from_secs(60)),
        yields_from: BootTime(Duration::from_secs(5)),
        by_member: true,
    };
    Task {
        id: id(number),
        labels: Labels { name: Some(Label::new("sort a/b").unwrap()), ..Labels::default() },
        who: Who {
            process: Some(ProcessRef { pid: Pid::new(42).unwrap(), start_ticks: 99 }),
            admitted_by: Some(0),
            as_admin: true,
            found: Some(FoundRecord {
                by: Finder::Rule(Label::new("batch").unwrap()),
                priority: Some(Priority(4)),
                standing: Some(crate::core::model::Standing::Opportunistic),
                kin: Kin::Session,
            }),
            unit: None,
            lost_by_move: Some("a stop".into()),
            stays_because: Some("a limit".into()),
            origin: [("cpu".into(), "/".into())].into(),
        },
        uid: Some(1000),
        priority: Priority(i32::MIN),
        opportunistic: true,
        life: Life::Attaching(Attaching {
            reason: "an active slot was free".into(),
            used: Some(Box::new((ReservationId { epoch: 7, number: 3 }, used))),
            booked: Some(Box::new(booked)),
            ..Attaching::default()
        }),
        admitted_at: Moment {
            boot: BootTime(Duration::from_secs(5)),
            wall: WallTime::from_unix_micros(1),
        },
        repaired: 3,
        counts: Counts { cpu_before: Duration::from_millis(1500), ..Counts::default() },
        frozen: false,
        halted: None,
        main_exited: false,
        left_for: None,
        lost: false,
        ..Task::lost(id(number), Order(number), Seat::Passive)
    }
}

#[test]
fn a_life_is_stored_by_its_name() {
    for (life, stored) in [
        (Life::Placed(Hold::Contested), json!("placed")),
        (Life::Releasing(Hold::Kept), json!("releasing")),
        (Life::Attaching(Attaching::default()), json!({"attaching": {"reason": ""}})),
    ] {
        assert_eq!(serde_json::to_value(&life).unwrap(), stored);
        let back: Life = serde_json::from_value(stored).unwrap();
        assert_eq!(std::mem::discriminant(&back), std::mem::discriminant(&life));
    }
}

#[test]
fn records_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    store.put_task(&record(2)).unwrap();
    store.put_task(&record(1)).unwrap();
    let (reserved, reservation) = record(1).promise().cloned().expect("it uses one");
    let reservation = ReservationRecord { id: reserved, reservation };
    store.put_reservation(&reservation).unwrap();
    drop(store);
    let (store, recovered) = open(dir.path());
    assert_eq!(recovered.tasks, [record(1), record(2)], "in order of admission");
    assert_eq!(recovered.reservations, std::slice::from_ref(&reservation));
    assert_eq!(recovered.damaged, []);
    store.remove_task(id(1)).unwrap();
    store.remove_task(id(1)).unwrap();
    store.remove_reservation(reservation.id).unwrap();
    let (_, recovered) = open(dir.path());
    assert_eq!(recovered.tasks.len(), 1);
    assert!(recovered.reservations.is_empty());
}

#[test]
fn records_of_another_boot_are_known_as_such() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).0.put_task(&record(1)).unwrap();
    let (_, recovered) = Store::open(dir.path(), "boot-b", 8).unwrap();
    assert!(recovered.tasks.is_empty());
    assert_eq!(recovered.tasks_of_earlier_boots, [record(1)]);
}

#[test]
fn a_damaged_record_is_set_aside_with_a_warning_and_nothing_else_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    for number in 1..=3 {
        store.put_task(&record(number)).unwrap();
    }
    let state = dir.path().join("state");
    fs::write(state.join(format!("task-{}.json", id(1))), "{\"version\":1,").unwrap();
    fs::write(state.join(format!("task-{}.json", id(2))), "{\"version\":99}").unwrap();
    let copy = state.join(format!("task-{}.json", id(4)));
    fs::copy(state.join(format!("task-{}.json", id(3))), copy).unwrap();
    fs::write(state.join("note.txt"), "an operator's").unwrap();
    let (_, recovered) = open(dir.path());
    assert_eq!(recovered.tasks, [record(3)]);
    let mut damaged = recovered.damaged_tasks.clone();
    damaged.sort_unstable();
    assert_eq!(damaged, [id(1), id(2), id(4)]);
    assert_eq!(recovered.damaged.len(), 3);
    assert!(recovered.damaged.iter().any(|d| d.what.contains("of another task")), "{recovered:?}");
    assert!(recovered.damaged.iter().any(|d| d.what.contains("format 99")), "{recovered:?}");
    assert_eq!(recovered.damage_in_words().len(), 3);
    assert!(state.join(format!("task-{}.json.damaged", id(1))).exists());
    assert!(state.join("note.txt").exists());
}

#[test]
fn totals_are_a_fold_over_the_history() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    store.append(&event(1, EventKind::Admitted, Some(id(0)))).unwrap();
    store.append(&event(2, EventKind::Admitted, Some(id(4)))).unwrap();
    let mut completed = event(3, EventKind::Completed, Some(id(0)));
    completed.inputs.insert("job".into(), json!("grep"));
    completed.inputs.insert("group".into(), json!("etl"));
    completed.inputs.insert("computing_rate".into(), json!(0.5));
    completed.inputs.insert("elapsed_seconds".into(), json!(8.0));
    completed.inputs.insert("ended_at".into(), json!("2026-01-01T00:00:00Z"));
    store.append(&completed).unwrap();
    let mut away = completed.clone();
    away.seq = 4;
    away.task = Some(id(4).to_string());
    away.inputs.insert("ended_at".into(), json!(null));
    store.append(&away).unwrap();
    let mut refused = event(5, EventKind::Refused, None);
    refused.inputs.insert("refused_since_last_event".into(), json!(17));
    store.append(&refused).unwrap();
    store.append(&event(6, EventKind::Draining, None)).unwrap();
    let before = store.standing().clone();
    drop(store);
    let (store, recovered) = open(dir.path());
    assert_eq!(*store.standing(), before);
    let standing = store.standing();
    assert_eq!((standing.totals.admitted, standing.totals.completed), (2, 2));
    assert_eq!(standing.totals.refused, 17);
    assert_eq!((standing.counters.next_seq, standing.counters.next_task), (7, 5));
    assert!(standing.live.is_empty() && standing.draining_since.is_some());
    let finished = standing.jobs.values().next().unwrap();
    assert_eq!(finished.group.as_ref().map(Label::as_str), Some("etl"));
    assert_eq!(
        (finished.count, finished.rates.count()),
        (2, 1),
        "an unseen end leaves the rate alone"
    );
    assert_eq!((finished.seconds.mean(), finished.last_timed), (Some(8.0), Some(completed.at)));
    assert_eq!(recovered.events.len(), 6);
    drop(store);
    for _ in 0..10 {
        open(dir.path());
    }
    assert_eq!(open(dir.path()).1.events.len(), 6, "restarts do not push history out");
}

#[test]
fn a_torn_line_costs_that_line_only() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    store.append(&event(1, EventKind::Admitted, Some(id(0)))).unwrap();
    drop(store);
    let segment = dir.path().join("state/journal-0000000001.jsonl");
    let mut text = fs::read(&segment).unwrap();
    text.extend_from_slice(b"{\"seq\":2,\"at\":\"20");
    fs::write(&segment, text).unwrap();
    let (mut store, recovered) = open(dir.path());
    assert_eq!(recovered.events.len(), 1);
    assert_eq!(recovered.damaged.len(), 1);
    store.append(&event(2, EventKind::Completed, Some(id(0)))).unwrap();
    drop(store);
    let (store, recovered) = open(dir.path());
    assert_eq!(store.standing().totals.completed, 1);
    assert_eq!(recovered.events.len(), 2);
}

#[test]
fn history_is_bounded_and_totals_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    let events = 30_000u64;
    for seq in 1..=events {
        store.append(&event(seq, EventKind::Promoted, Some(id(seq)))).unwrap();
    }
    drop(store);
    let (store, recovered) = open(dir.path());
    assert_eq!(store.standing().totals.promoted, events);
    assert_eq!(store.standing().counters.next_seq, events + 1);
    assert!(recovered.events.len() < events as usize);
    assert_eq!(recovered.events.last().unwrap().seq, events);
    let bytes: u64 = fs::read_dir(dir.path().join("state"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes < 4 << 20, "{bytes}");
}

#[test]
fn what_a_failed_append_could_not_write_is_in_the_next_segment() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    store.append(&event(1, EventKind::Admitted, Some(id(0)))).unwrap();
    // A closed segment stands for a disk that ran full: the next append must make a new one.
    let state = dir.path().join("state");
    let hidden = dir.path().join("hidden");
    store.journal.break_for_test();
    fs::rename(&state, &hidden).unwrap();
    let error = store.append(&event(2, EventKind::Completed, Some(id(0)))).unwrap_err();
    assert!(error.to_string().contains("journal-"), "{error}");
    fs::rename(&hidden, &state).unwrap();
    // One attempt a cycle: each copies the whole history state.
    let error = store.append(&event(3, EventKind::Promoted, Some(id(9)))).unwrap_err();
    assert!(error.to_string().contains("the next cycle tries again"), "{error}");
    store.journal.begin_anew().unwrap();
    store.append(&event(4, EventKind::Promoted, Some(id(9)))).unwrap();
    drop(store);
    let (store, _) = open(dir.path());
    let totals = store.standing().totals;
    assert_eq!((totals.admitted, totals.completed, totals.promoted), (1, 1, 2));
    assert!(store.standing().live.is_empty());
}

/// Each bit of `bytes` flipped in turn; in all that can be seen of it.
fn flips(bytes: &[u8], step: usize) -> impl Iterator<Item = Vec<u8>> + '_ {
    (0..bytes.len() * 8).step_by(step).map(|bit| {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    })
}

#[test]
fn no_flipped_bit_of_a_record_goes_unseen() {
    let task = record::write("boot-a", &record(1)).unwrap();
    assert_eq!(record::read::<Task>(&task).unwrap().record, record(1));
    for flipped in flips(&task, 1) {
        let read = record::read::<Task>(&flipped);
        assert!(read.is_err(), "{}", String::from_utf8_lossy(&flipped));
    }
    let (id, reservation) = record(1).promise().cloned().expect("it uses one");
    let stored = ReservationRecord { id, reservation };
    let bytes = record::write("boot-a", &stored).unwrap();
    assert_eq!(record::read::<ReservationRecord>(&bytes).unwrap().record, stored);
    for flipped in flips(&bytes, 1) {
        let read = record::read::<ReservationRecord>(&flipped);
        assert!(read.is_err(), "{}", String::from_utf8_lossy(&flipped));
    }
}

#[test]
fn no_flipped_bit_of_the_journal_goes_unseen() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    for seq in 1..=4 {
        let mut event = event(seq, EventKind::Admitted, Some(id(seq)));
        event.inputs.insert("name".into(), json!("grep"));
        store.append(&event).unwrap();
    }
    let history_state = store.standing().clone();
    drop(store);
    let segment = "state/journal-0000000001.jsonl";
    let bytes = fs::read(dir.path().join(segment)).unwrap();
    let whole = open(dir.path()).1.events;
    // A prime, so that all bits of a byte have their turn.
    for flipped in flips(&bytes, 3) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("state")).unwrap();
        fs::write(dir.path().join(segment), &flipped).unwrap();
        let text = String::from_utf8_lossy(&flipped);
        let (store, recovered) = open(dir.path());
        assert!(recovered.history_damaged, "{text}");
        assert!(recovered.events.iter().all(|event| whole.contains(event)), "{text}");
        assert!(recovered.events.len() + 2 >= whole.len(), "{text}");
        assert!(store.damage_warning().unwrap().contains("jsonl.damaged"), "{text}");
        drop(store);
        let kept = fs::read(dir.path().join(segment).with_extension("jsonl.damaged")).unwrap();
        assert_eq!(kept, flipped);
        // It is warned of once; what could be read is there still.
        let (mut store, again) = open(dir.path());
        assert!(!again.history_damaged && again.events == recovered.events, "{text}");
        let totals = store.standing().totals.admitted;
        assert!(totals + 2 >= history_state.totals.admitted, "{text}");
        store.append(&event(9, EventKind::Promoted, Some(id(1)))).unwrap();
    }
}

#[test]
fn many_files_that_are_no_records_are_one_sentence_each_start() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).0.put_task(&record(1)).unwrap();
    let state = dir.path().join("state");
    for number in 10..1010 {
        let version = "{\"version\":99}";
        fs::write(state.join(format!("task-{}.json", id(number))), version).unwrap();
    }
    let (store, recovered) = open(dir.path());
    assert_eq!((recovered.tasks.len(), recovered.damaged_tasks.len()), (1, 1000));
    let [sentence] = &recovered.damage_in_words()[..] else {
        panic!("{:?}", recovered.damage_in_words())
    };
    assert!(sentence.contains("1000 files") && sentence.contains("format 99"), "{sentence}");
    assert!(store.damage_warning().unwrap().contains("and 999 more"));
    drop(store);
    assert!(open(dir.path()).1.damage_in_words().is_empty(), "they are set aside");
}

#[test]
fn what_was_planted_is_not_followed_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    store.put_task(&record(1)).unwrap();
    store.append(&event(1, EventKind::Promoted, Some(id(1)))).unwrap();
    drop(store);
    let state = dir.path().join("state");
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let pipe = |name: &str| {
        let (mode, kind) = (rustix::fs::Mode::from(0o600), rustix::fs::FileType::Fifo);
        rustix::fs::mknodat(rustix::fs::CWD, state.join(name), kind, mode, 0).unwrap();
    };
    pipe(&format!("task-{}.json", id(2)));
    pipe("journal-0000000007.jsonl");
    std::os::unix::fs::symlink(&victim, state.join(format!("task-{}.json.new", id(1)))).unwrap();
    std::os::unix::fs::symlink(&victim, state.join("reservation-x.json")).unwrap();
    let (store, recovered) = open(dir.path());
    store.put_task(&record(1)).unwrap();
    assert_eq!(recovered.tasks, [record(1)]);
    assert_eq!(recovered.events.len(), 1);
    let sentence = recovered.damage_in_words().join("\n");
    for words in ["it is a pipe", "it is a symbolic link", "journal-0000000007.jsonl.damaged"] {
        assert!(sentence.contains(words), "{sentence}");
    }
    assert_eq!(fs::read_to_string(victim).unwrap(), "precious");
    // The directory itself is no link either.
    fs::rename(&state, dir.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", &state).unwrap();
    let error = Store::open(dir.path(), "boot-a", 7).unwrap_err().to_string();
    assert!(error.contains("state") && error.contains("is a symbolic link"), "{error}");
}

#[test]
fn a_crash_loop_does_not_wipe_out_the_history() {
    let dir = tempfile::tempdir().unwrap();
    for seq in 1..=20 {
        let (mut store, recovered) = open(dir.path());
        assert_eq!(recovered.events.len() as u64, seq - 1);
        store.append(&event(seq, EventKind::Started, None)).unwrap();
    }
}

#[test]
fn events_of_running_tasks_outlive_every_segment() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    store.append(&event(1, EventKind::Admitted, Some(id(1)))).unwrap();
    store.append(&event(2, EventKind::Promoted, Some(id(1)))).unwrap();
    let mut long = event(3, EventKind::Refused, None);
    long.reason = Some("x".repeat(300_000));
    let flood = |store: &mut Store, long: &mut Event, to: u64| {
        while long.seq < to {
            store.append(long).unwrap();
            long.seq += 1;
        }
    };
    let about = |recovered: &Recovered| {
        let own = recovered.events.iter().filter(|event| event.task == Some(id(1).to_string()));
        own.map(|event| event.seq).collect::<Vec<_>>()
    };
    for to in [60, 120] {
        flood(&mut store, &mut long, to);
        drop(store);
        let (again, recovered) = open(dir.path());
        store = again;
        assert_eq!(about(&recovered), [1, 2]);
        assert!(recovered.events.is_sorted_by(|a, b| a.seq < b.seq));
        assert!(!recovered.history_damaged && recovered.events[2].seq > 2 + 14);
        assert_eq!(store.standing().counters.next_seq, to);
        assert_eq!(store.standing().totals.admitted, 1, "it is counted once");
    }
    store.append(&event(120, EventKind::Completed, Some(id(1)))).unwrap();
    long.seq = 121;
    flood(&mut store, &mut long, 200);
    drop(store);
    assert!(about(&open(dir.path()).1).is_empty(), "it has ended long ago");
}

#[test]
fn a_long_segment_is_read_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let files = fs::read_dir(dir.path().join("state")).unwrap().flatten();
    let mut paths = files.map(|file| file.path());
    let path = paths.find(|path| path.extension().is_some_and(|end| end == "jsonl")).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    let mut long = event(1, EventKind::Promoted, Some(id(1)));
    long.reason = Some("x".repeat(4 << 20));
    for seq in 1..=17 {
        long.seq = seq;
        let line = checksum::add(serde_json::to_vec(&long).unwrap());
        std::io::Write::write_all(&mut file, &[&line[..], b"\n"].concat()).unwrap();
    }
    let (store, recovered) = open(dir.path());
    assert!(!recovered.history_damaged);
    assert_eq!((recovered.events.len(), store.standing().counters.next_seq), (17, 18));
}

#[test]
fn full_segments_make_way() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    let mut long = event(1, EventKind::Refused, None);
    long.reason = Some("x".repeat(300_000));
    for seq in 1..=20 {
        long.seq = seq;
        store.append(&long).unwrap();
    }
    let segments = fs::read_dir(dir.path().join("state")).unwrap().flatten();
    let segments = segments.filter(|file| file.file_name().to_string_lossy().ends_with("jsonl"));
    assert_eq!(segments.count(), 2);
}

#[test]
fn a_key_that_is_not_known_is_named_at_every_depth() {
    let text = String::from_utf8(record::write("boot-a", &record(1)).unwrap()).unwrap();
    let text = text
        .replace("\"process\":", "\"x\":1,\"process\":")
        .replace("\"meter\":{", "\"meter\":{\"y\":[],");
    let body = &text[..text.rfind(",\"crc32\"").unwrap()];
    let read = record::read::<Task>(&checksum::add(format!("{body}}}").into())).unwrap();
    assert_eq!(read.record, record(1));
    assert_eq!(read.unknown, ["record.who.x", "record.counts.meter.y"]);
}

#[test]
fn state_of_another_format_is_kept_and_the_way_back_is_named() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).0.put_task(&record(1)).unwrap();
    let state = dir.path().join("state");
    let task = format!("task-{}.json", id(2));
    let segment = "journal-0000000001.jsonl";
    // With a checksum and without.
    let other = checksum::add(br#"{"version":2,"body":[]}"#.to_vec());
    let journal = "{\"journal\":7,\"totals\":[]}\n{}\n";
    fs::write(state.join(&task), &other).unwrap();
    fs::write(state.join(segment), journal).unwrap();
    let (mut store, recovered) = open(dir.path());
    assert_eq!(
        (&recovered.tasks[..], &recovered.damaged_tasks[..]),
        (&[record(1)][..], &[id(2)][..])
    );
    assert!(recovered.history_damaged);
    let words = recovered.damage_in_words().join("\n");
    for part in ["is of format 2 and", "is of format 7 and", "start that version"] {
        assert!(words.contains(part), "{words}");
    }
    let kept = |name: &str| fs::read(state.join(format!("{name}.damaged"))).unwrap();
    assert_eq!((kept(&task), kept(segment)), (other, journal.as_bytes().to_vec()));
    store.append(&event(1, EventKind::Promoted, Some(id(1)))).unwrap();
}

/// What lrsd 0.1.0 writes, byte for byte: each later lrsd reads it, and one that writes something else
/// keeps these files and adds its own. `LRS_REGENERATE=1` writes one that is not there yet.
fn written(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/state/0.1.0").join(name);
    if std::env::var_os("LRS_REGENERATE").is_some() && !path.exists() {
        fs::write(&path, bytes).unwrap();
    }
    let golden = fs::read(&path).unwrap();
    assert_eq!(
        String::from_utf8_lossy(bytes),
        String::from_utf8_lossy(&golden),
        "{name} is written otherwise than by 0.1.0: an older lrsd may not read it, see state::FORMAT"
    );
    golden
}

/// One in its slot, with all that a record can say.
fn placed() -> Task {
    let sample = |seconds: u64| crate::core::sample::TaskSample {
        cpu: Some(Duration::from_secs(seconds)),
        resident: Some(crate::units::Bytes(1 << 20)),
        pressure: Some(Default::default()),
        asleep: Some(true),
        disk_wait: Some(false),
        thread: Some(Default::default()),
        ..Default::default()
    };
    let mut counts = Counts { baseline: Some(sample(1)), ..Counts::default() };
    let at = |seconds| BootTime(Duration::from_secs(seconds));
    counts.begin(at(10), sample(2));
    counts.finish(at(14), sample(4), crate::core::cpus::UsableCpus::new(2, None));
    let group = GroupRecord {
        attachment: Attachment::InPlace,
        path: "/system.slice/a.service".into(),
        inode: 12,
        origin: [("unified".into(), "/system.slice/a.service".into())].into(),
        found: vec![("cpu.weight".into(), "100".into())],
        elsewhere: vec!["freezer".into()],
        for_member: true,
    };
    let unit = crate::core::unit::UnitRecord {
        name: serde_json::from_value(json!("a.service")).unwrap(),
        control_group: group.path.clone(),
        found: [("CPUWeight".to_owned(), 250)].into(),
    };
    let label = |text| Some(Label::new(text).unwrap());
    let labels = Labels {
        name: label("n"),
        job: label("j"),
        kind: label("map"),
        group: label("g"),
        command: None,
        hint: None,
    };
    Task {
        labels,
        who: Who { unit: Some(unit), ..record(2).who },
        life: Life::Placed(Hold::Kept),
        promoted_at: Some(WallTime::from_unix_micros(3)),
        group: Some(group),
        counts,
        frozen: true,
        exit: Some(crate::core::exit::Exit::Signal { number: 9, core: true }),
        lost: true,
        ..record(2)
    }
}

#[test]
fn what_0_1_0_wrote_is_read() {
    let (attaching, placed) = (record(1), placed());
    for (name, task) in [("attaching.json", attaching.clone()), ("placed.json", placed)] {
        let golden = written(name, &record::write("boot-a", &task).unwrap());
        let read = record::read::<Task>(&golden).unwrap();
        // The newest reading is not stored.
        let counts = Counts {
            last: None,
            growth: None,
            resident_at: None,
            rates: Default::default(),
            burst: None,
            demand: None,
            idle: None,
            lost: None,
            ..task.counts
        };
        assert_eq!((read.record, read.unknown), (Task { counts, ..task }, Vec::new()));
    }
    let (id, reservation) = attaching.promise().cloned().expect("it uses one");
    let reservation = ReservationRecord { id, reservation };
    let golden = written("reservation.json", &record::write("boot-a", &reservation).unwrap());
    assert_eq!(record::read::<ReservationRecord>(&golden).unwrap().record, reservation);

    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    let inputs = json!({"job": "j", "uid": 5, "computing_rate": 0.5, "elapsed_seconds": 8.0,
        "ended_at": "2026-01-01T00:00:00Z"});
    let ended = Event {
        reason: Some("its last process ended".into()),
        inputs: inputs.as_object().cloned().unwrap(),
        ..event(2, EventKind::Completed, Some(self::id(0)))
    };
    for event in [event(1, EventKind::Admitted, Some(self::id(0))), ended] {
        store.append(&event).unwrap();
    }
    // The second segment begins with what the first adds up to.
    store.journal.break_for_test();
    store.append(&event(3, EventKind::Draining, None)).unwrap();
    let standing = store.standing().clone();
    drop(store);
    let state = dir.path().join("state");
    for segment in ["journal-0000000001.jsonl", "journal-0000000002.jsonl"] {
        let golden = written(segment, &fs::read(state.join(segment)).unwrap());
        fs::write(state.join(segment), golden).unwrap();
    }
    let (store, recovered) = open(dir.path());
    assert_eq!((recovered.damaged, recovered.events.len()), (Vec::new(), 3));
    assert_eq!(*store.standing(), standing);
}
