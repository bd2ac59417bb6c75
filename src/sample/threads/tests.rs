use std::fs;

use super::*;

struct Fixture(tempfile::TempDir);

impl Fixture {
    fn thread(&self, pid: i32, tid: i32, state: char, start: u64) {
        let dir = self.0.path().join(format!("{pid}/task/{tid}"));
        fs::create_dir_all(&dir).unwrap();
        let stat = format!("{tid} (x) {state} {}{start} 0\n", "0 ".repeat(18));
        fs::write(dir.join("stat"), stat).unwrap();
    }

    fn counters(&self, pid: i32, tid: i32, ran: u64, switches: u64) {
        let dir = self.0.path().join(format!("{pid}/task/{tid}"));
        fs::write(dir.join("schedstat"), format!("{ran} 7 9\n")).unwrap();
        let status = format!(
            "Name:\tx\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t1\n"
        );
        fs::write(dir.join("status"), status).unwrap();
    }

    fn look(&self, watch: &mut Watch, pids: &[i32]) -> Option<ThreadLook> {
        let mut problems = Vec::new();
        let seen = watch.look(
            self.0.path(),
            |_| pids.to_vec(),
            &Descriptors::new(0),
            &mut Vec::new(),
            &mut problems,
        );
        assert_eq!(problems, Vec::<String>::new());
        seen
    }

    fn read(&self, watch: &mut Watch) -> Option<ThreadCounters> {
        watch.counters(self.0.path(), &Descriptors::new(0), &mut Vec::new(), &mut Vec::new())
    }
}

#[test]
fn one_busy_thread_of_25_is_found() {
    let fixture = Fixture(tempfile::tempdir().unwrap());
    for tid in 10..35 {
        fixture.thread(10, tid, if tid == 31 { 'R' } else { 'S' }, 5);
    }
    let mut watch = Watch::default();
    assert_eq!(fixture.look(&mut watch, &[10]), Some(ThreadLook::Runnable));
    // The next look needs neither the list of processes nor that of threads.
    let again = watch.look(
        fixture.0.path(),
        |_| panic!("asked for the processes"),
        &Descriptors::new(0),
        &mut Vec::new(),
        &mut Vec::new(),
    );
    assert_eq!(again, Some(ThreadLook::Runnable));
    fixture.thread(10, 31, 'D', 5);
    assert_eq!(fixture.look(&mut watch, &[10]), Some(ThreadLook::DiskWait));
    fixture.thread(10, 31, 'S', 5);
    assert_eq!(fixture.look(&mut watch, &[10]), Some(ThreadLook::Asleep));
}

#[test]
fn vanished_and_dead_processes_say_nothing() {
    let fixture = Fixture(tempfile::tempdir().unwrap());
    let mut watch = Watch::default();
    assert_eq!(fixture.look(&mut watch, &[77]), None);
    fixture.thread(10, 10, 'Z', 5);
    assert_eq!(fixture.look(&mut watch, &[10, 77]), None);
    fixture.thread(12, 12, 'S', 5);
    assert_eq!(fixture.look(&mut watch, &[10, 12]), Some(ThreadLook::Asleep));
}

#[test]
fn counters_add_up_over_threads_and_ignore_a_recycled_id() {
    let fixture = Fixture(tempfile::tempdir().unwrap());
    let mut watch = Watch::default();
    fixture.thread(10, 10, 'R', 5);
    fixture.counters(10, 10, 1000, 3);
    fixture.look(&mut watch, &[10]);
    // What it did before it was seen is not counted.
    assert_eq!(fixture.read(&mut watch), Some(ThreadCounters::default()));
    fixture.counters(10, 10, 1500, 5);
    let total = fixture.read(&mut watch).unwrap();
    assert_eq!((total.ran, total.voluntary), (Duration::from_nanos(500), 2));

    // The same numbers, another thread.
    fixture.thread(10, 10, 'R', 6);
    fixture.counters(10, 10, 9_000_000, 900);
    fixture.look(&mut watch, &[10]);
    assert_eq!(fixture.read(&mut watch), Some(total));

    fs::remove_dir_all(fixture.0.path().join("10")).unwrap();
    assert_eq!(fixture.look(&mut watch, &[10]), None);
    assert_eq!(fixture.read(&mut watch), None);
}

/// With files kept open the looks are the same, and another thread brings its own files.
#[test]
fn kept_files_follow_the_thread_that_is_awake() {
    let fixture = Fixture(tempfile::tempdir().unwrap());
    let descriptors = Descriptors::new(10);
    let mut watch = Watch::default();
    let look = |watch: &mut Watch| {
        let (mut buffer, mut problems) = (Vec::new(), Vec::new());
        let pids = |_: &mut Vec<u8>| vec![10];
        let seen = watch.look(fixture.0.path(), pids, &descriptors, &mut buffer, &mut problems);
        assert_eq!(problems, Vec::<String>::new());
        seen
    };
    fixture.thread(10, 10, 'R', 5);
    fixture.thread(10, 11, 'S', 5);
    assert_eq!(look(&mut watch), Some(ThreadLook::Runnable));
    assert_eq!(look(&mut watch), Some(ThreadLook::Runnable));
    assert_eq!(descriptors.kept(), 1);
    fixture.thread(10, 10, 'S', 5);
    assert_eq!(look(&mut watch), Some(ThreadLook::Asleep));
    fixture.thread(10, 11, 'R', 5);
    assert_eq!(look(&mut watch), Some(ThreadLook::Runnable));
    fixture.thread(10, 11, 'D', 5);
    assert_eq!(look(&mut watch), Some(ThreadLook::DiskWait));
    assert_eq!(descriptors.kept(), 1, "the first thread's file is closed");
    drop(watch);
    assert_eq!(descriptors.kept(), 0);
}
