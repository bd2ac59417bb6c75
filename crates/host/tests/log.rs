//! The log of a whole process, which has one stderr: each test is a process that logs, and its parent
//! that reads what comes out.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // tests, helpers included

use std::io::{BufRead as _, PipeReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lrs_host::log::{FlushAtEnd, Log, last_words, trouble};

/// Long beside what the end of a process takes, and finite.
const SOON: Duration = Duration::from_secs(20);

/// Set for the processes that the tests start: whoever runs all ignored tests runs those as nothing.
const PROCESS: &str = "LRS_TEST_LOG_PROCESS";

/// Runs the test `name` of this file with the end of a pipe as its stderr.
fn process(name: &str) -> (Child, PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--test-threads=1", "--nocapture"])
        .env(PROCESS, "1")
        .env_remove("JOURNAL_STREAM")
        .env_remove("RUST_BACKTRACE")
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .unwrap();
    (child, reader)
}

fn read(mut reader: PipeReader) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn lines_come_in_order_with_the_last_words_behind_them_and_repeats_counted() {
    let (mut child, reader) = process("logs_and_ends");
    let text = read(reader);
    assert!(child.wait().unwrap().success());
    let lines: Vec<&str> = text.lines().collect();
    let counted = "99 times more in the last minute: no descriptor";
    let all = ["line 1", "line 2", "no descriptor", counted, "why it ends"];
    assert_eq!(lines.len(), all.len(), "{text}");
    for (line, words) in lines.iter().zip(all) {
        assert!(line.contains(words), "{words} in {text}");
    }
}

#[test]
#[ignore = "a process of the test above"]
fn logs_and_ends() {
    if std::env::var_os(PROCESS).is_none() {
        return;
    }
    let _flush = FlushAtEnd;
    let _log = Log::start("test", "info").unwrap();
    tracing::info!("line 1");
    tracing::info!("line 2");
    for _ in 0..100 {
        tracing::warn!("no descriptor");
    }
    last_words("why it ends");
}

#[test]
fn a_process_with_an_unread_log_goes_on_and_ends() {
    let begun = Instant::now();
    let (mut child, reader) = process("logs_more_than_there_is_room_for");
    assert!(child.wait().unwrap().success());
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let text = read(reader);
    assert!(text.contains("line 1 "), "what was written stays");
}

#[test]
fn once_the_pipe_is_read_the_log_says_how_much_is_missing() {
    let (mut child, reader) = process("logs_more_than_there_is_room_for_and_waits");
    let mut talk = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    talk.find(|line| line.as_ref().unwrap().ends_with(LOGGED)).unwrap().unwrap();
    let text = read(reader);
    assert!(child.wait().unwrap().success());
    let numbers = text.lines().filter(|line| line.contains(" line ")).count() as u64;
    let missing = text.lines().find_map(|line| {
        let (head, _) = line.split_once(" lines of the log before this one were lost")?;
        head.rsplit(' ').next()?.parse::<u64>().ok()
    });
    assert_eq!(missing.unwrap() + numbers, LINES, "{missing:?} of {LINES}");
}

/// Says that all lines are logged.
const LOGGED: &str = "all is logged";

/// Two MiB: more than a pipe and the queue hold.
const LINES: u64 = 20_000;

fn log_lines() {
    for number in 1..=LINES {
        tracing::info!(
            "line {number} of some length, so that there is no room for all of them here"
        );
    }
    assert!(trouble().unwrap().contains("no program reads them"), "{:?}", trouble());
}

#[test]
#[ignore = "a process of the test above"]
fn logs_more_than_there_is_room_for() {
    if std::env::var_os(PROCESS).is_none() {
        return;
    }
    let _flush = FlushAtEnd;
    let _log = Log::start("test", "info").unwrap();
    log_lines();
}

#[test]
#[ignore = "a process of the test above"]
fn logs_more_than_there_is_room_for_and_waits() {
    if std::env::var_os(PROCESS).is_none() {
        return;
    }
    let _log = Log::start("test", "info").unwrap();
    log_lines();
    println!("{LOGGED}");
    while trouble().is_some() {
        lrs_host::log::flush();
    }
    lrs_host::log::flush();
}

#[test]
fn the_words_of_a_panic_come_out_and_stop_no_thread() {
    let (mut child, reader) = process("panics_beside_a_full_pipe");
    assert!(child.wait().unwrap().success());
    drop(reader);
    let (mut child, reader) = process("panics");
    let text = read(reader);
    assert!(child.wait().unwrap().success());
    assert!(text.contains("thread 'shaper' panicked at crates/host/tests/log.rs"), "{text}");
    assert!(text.contains("\nit broke"), "{text}");
}

fn panic_in_a_thread() {
    let thread = std::thread::Builder::new().name("shaper".to_owned());
    thread.spawn(|| panic!("it broke")).unwrap().join().unwrap_err();
}

#[test]
#[ignore = "a process of the test above"]
fn panics() {
    if std::env::var_os(PROCESS).is_none() {
        return;
    }
    let _flush = FlushAtEnd;
    let _log = Log::start("test", "off").unwrap();
    panic_in_a_thread();
}

#[test]
#[ignore = "a process of the test above"]
fn panics_beside_a_full_pipe() {
    if std::env::var_os(PROCESS).is_none() {
        return;
    }
    let _flush = FlushAtEnd;
    let _log = Log::start("test", "info").unwrap();
    log_lines();
    panic_in_a_thread();
}

#[test]
fn a_stderr_that_takes_nothing_is_reported_and_never_waited_for() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "logs_to_a_full_disk", "--ignored", "--test-threads=1", "--nocapture"])
        .env(PROCESS, "1")
        .stdout(Stdio::null())
        .stderr(full)
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "a process of the test above"]
fn logs_to_a_full_disk() {
    if std::env::var_os(PROCESS).is_none() {
        return;
    }
    let _flush = FlushAtEnd;
    let _log = Log::start("test", "info").unwrap();
    tracing::info!("a line");
    while trouble().is_none() {
        std::thread::yield_now();
    }
    assert!(trouble().unwrap().contains("cannot be written (No space left"), "{:?}", trouble());
}
