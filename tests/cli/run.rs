//! `run` and `admit`.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use super::fake::{Ended, Fake, Script};
use lrs::proto::{Attachment, EndedTask, Queued, Task};
use tonic::Status as Failure;

fn wait_ms(fake: &Fake) -> Vec<u64> {
    fake.script.lock().unwrap().admitted.iter().map(|request| request.wait_ms).collect()
}

#[test]
fn run_becomes_the_command_with_its_own_pid_and_status() {
    let fake = Fake::start(Script::default());
    let mut command = fake.command(&["run", "--name", "n", "--", "sh", "-c", "echo $$; exit 7"]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.out), (Some(7), format!("{pid}\n")));
    let script = fake.script.lock().unwrap();
    assert_eq!(script.peers, [Some(pid as i32)]);
    let request = &script.admitted[0];
    assert_eq!((request.pid, request.wait_ms, request.wait_forever), (0, 0, false));
    assert_eq!((request.name.as_deref(), request.priority), (Some("n"), None));
}

#[test]
fn a_slot_that_another_process_got_is_given_back() {
    let task = Task {
        attachment: Attachment::Own as i32,
        cgroup: Some("/lrs/t0000000-1".into()),
        pid: Some(7),
        ..Task::default()
    };
    let fake = Fake::start(Script { task, ..Script::default() });
    let ended = fake.run(&["run", "--", "echo", "ran"]);
    assert_eq!((ended.code, &*ended.out), (Some(125), ""), "{ended:?}");
    for part in ["pid 7, and not to this one", "keeps the slot: task", "ssh NODE lrsctl run"] {
        assert!(ended.err.contains(part), "{part}: {ended:?}");
    }
}

#[test]
fn the_command_dies_of_its_own_signal() {
    let fake = Fake::start(Script::default());
    let status = fake.command(&["run", "--", "sh", "-c", "kill -TERM $$"]).status().unwrap();
    assert_eq!(status.signal(), Some(15));
}

/// Value of a `Sig...` line of proc_pid_status(5).
fn mask(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

/// What a shell script prints that starts `command` in `exec "$@"`, once as it is and once
/// through `lrsctl run`: the two must not differ.
fn direct_and_through(fake: &Fake, script: &str, command: &[&str]) -> [String; 2] {
    [&[][..], &[env!("CARGO_BIN_EXE_lrsctl"), "run", "--"]].map(|wrapper| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script, "sh"]).args(wrapper).args(command);
        shell.env("LRS_ENDPOINT", format!("unix:{}", fake.socket().display()));
        Ended::from(shell.output().unwrap()).out
    })
}

#[test]
fn sigpipe_and_the_mask_are_as_inherited() {
    let fake = Fake::start(Script::default());
    let sigpipe = 1 << (libc::SIGPIPE - 1);
    let usr1 = 1 << (libc::SIGUSR1 - 1);
    for (script, ignored, blocked) in [
        ("exec \"$@\"", 0, 0),
        ("trap '' PIPE; exec \"$@\"", sigpipe, 0),
        ("exec env --block-signal=USR1 \"$@\"", 0, usr1),
    ] {
        let [direct, through] = direct_and_through(&fake, script, &["cat", "/proc/self/status"]);
        assert_eq!(mask(&direct, "SigIgn:") & sigpipe, ignored, "{script}");
        assert_eq!(mask(&direct, "SigBlk:") & usr1, blocked, "{script}");
        for name in ["SigIgn:", "SigBlk:", "SigCgt:"] {
            assert_eq!(mask(&through, name), mask(&direct, name), "{script} {name}");
        }
    }
}

#[test]
fn the_command_finds_no_descriptor_of_ours() {
    let fake = Fake::start(Script::default());
    // std opens /dev/null on a standard descriptor that its parent closed; the command must
    // not see that either
    for script in ["exec \"$@\"", "exec \"$@\" <&-", "exec \"$@\" 7</dev/null"] {
        let [direct, through] = direct_and_through(&fake, script, &["ls", "/proc/self/fd"]);
        assert_ne!(direct, "");
        assert_eq!(through, direct, "{script}");
    }
}

#[test]
fn a_command_that_cannot_run_takes_no_slot() {
    let fake = Fake::start(Script::default());
    for (name, code) in
        [("no-such-command", 127), ("/no/such/command", 127), ("/etc/passwd", 126), ("/", 126)]
    {
        let ended = fake.run(&["run", "--", name]);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.err.contains(name), "{ended:?}");
    }
    assert!(fake.script.lock().unwrap().admitted.is_empty());
}

#[test]
fn a_script_without_interpreter_line_is_run_by_the_shell() {
    use std::os::unix::fs::PermissionsExt;
    let fake = Fake::start(Script::default());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("script");
    std::fs::write(&file, "echo \"$1\"\n").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    let ended = fake.run(&["run", "--", file.to_str().unwrap(), "word"]);
    assert_eq!(ended.out, "word\n", "{ended:?}");
}

#[test]
fn a_nested_run_uses_the_outer_slot() {
    let inside = || Failure::already_exists("the process is in task t0000000-9 already");
    let fake = Fake::start(Script { admit: [inside(), inside()].into(), ..Script::default() });
    let ended = fake.run(&["run", "--", "echo", "ran"]);
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (Some(0), "ran\n", ""));
    let ended = fake.run(&["run", "--verbose", "--", "echo", "ran"]);
    assert!(ended.err.contains("t0000000-9"), "{ended:?}");
}

#[test]
fn a_full_node_is_124_and_the_command_does_not_run() {
    for failure in
        [Failure::resource_exhausted("no free slot"), Failure::deadline_exceeded("waited 1 s")]
    {
        let fake = Fake::start(Script { admit: [failure].into(), ..Script::default() });
        let ended = fake.run(&["run", "--wait=1s", "--", "echo", "ran"]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(124), ""), "{ended:?}");
        assert_eq!(wait_ms(&fake).len(), 1);
    }
}

#[test]
fn waiting_rides_through_a_restart() {
    let stopping = Failure::unavailable("lrsd is stopping");
    let fake = Fake::start(Script { admit: [stopping].into(), ..Script::default() });
    let ended = fake.run(&["run", "--wait=20s", "--", "echo", "ran"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "ran\n"), "{ended:?}");
    let waits = wait_ms(&fake);
    assert_eq!(waits.len(), 2);
    assert!(waits[0] <= 20_000 && waits[1] < waits[0], "{waits:?}");
}

#[test]
fn a_connection_that_breaks_is_made_again() {
    let fake = Fake::new(Script::default());
    let listener = std::os::unix::net::UnixListener::bind(fake.socket()).unwrap();
    let child = fake
        .command(&["run", "--wait", "--", "echo", "ran"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // kill -9 of a daemon that had taken the request: the peer just goes away
    drop(listener.accept().unwrap());
    drop(listener);
    std::fs::remove_file(fake.socket()).unwrap();
    fake.serve();
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "ran\n"), "{ended:?}");
    assert!(fake.script.lock().unwrap().admitted[0].wait_forever);
}

#[test]
fn patience_ends_also_without_a_daemon() {
    let fake = Fake::new(Script::default());
    let ended = fake.run(&["run", "--wait=100ms", "--", "echo", "ran"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(125), ""), "{ended:?}");
}

#[test]
fn admit_goes_on_after_a_refusal() {
    let fine = || Failure::ok("");
    let full = || Failure::resource_exhausted("no free slot");
    let fake = Fake::start(Script {
        admit: [fine(), Failure::not_found("no process 2"), fine(), full(), full()].into(),
        ..Script::default()
    });
    let ended = fake.run(&["admit", "1", "2", "3", "--job", "j"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.out, "t0000000-1\nt0000000-3\n");
    assert!(ended.err.contains("no process 2"), "{ended:?}");
    let ended = fake.run(&["admit", "4", "5", "--in-place"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(4), ""), "{ended:?}");
    let script = fake.script.lock().unwrap();
    assert_eq!(script.admitted.iter().map(|r| r.pid).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert!(script.admitted[3].in_place && !script.admitted[0].in_place);
}

#[test]
fn run_keeps_its_unit_without_the_option_to_leave_it() {
    let fake = Fake::start(Script::default());
    fake.run(&["run", "--", "true"]);
    fake.run(&["run", "--leave-unit", "--", "true"]);
    fake.run(&["admit", "1"]);
    let script = fake.script.lock().unwrap();
    let keeps: Vec<bool> = script.admitted.iter().map(|request| request.keep_unit).collect();
    assert_eq!(keeps, [true, false, false]);
}

#[test]
fn a_task_that_stays_in_its_unit_is_warned_about() {
    let stays = Task {
        ratio_group: Some("/system.slice".into()),
        stays_because: Some("memory.max = 1".into()),
        ..Task::default()
    };
    let fake = Fake::start(Script { task: stays, ..Script::default() });
    let ended = fake.run(&["run", "--", "echo", "ran"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "ran\n"), "{ended:?}");
    for words in ["warning: ", "/system.slice", "memory.max = 1", "--leave-unit"] {
        assert!(ended.err.contains(words), "{words}: {ended:?}");
    }
}

#[test]
fn a_wait_says_why() {
    use lrs::proto::{ActiveSlots, PassiveSlots, Slots, Status};
    let active = ActiveSlots { capacity: 2, used: 2, ..Default::default() };
    let passive = PassiveSlots { capacity: 4, used: 3, reserved: 1, ..Default::default() };
    let slots = Some(Slots { active: Some(active), passive: Some(passive) });
    let status = Status { slots, waiting: 3, ..Default::default() };
    let fake = Fake::start(Script { status, full: true, ..Script::default() });
    let ended = fake.run(&["run", "--wait=1500ms", "--timeout=1s", "--", "true"]);
    let why =
        "waiting for a slot: 3 requests wait, 2 of 2 active and 4 of 4 passive slots are taken (";
    assert!(ended.err.contains(why), "{ended:?}");
    let place = Some(3);
    fake.script.lock().unwrap().queue.push(Queued { place, ..Default::default() });
    let ended = fake.run(&["run", "--verbose", "--wait=1500ms", "--timeout=1s", "--", "true"]);
    assert!(ended.err.contains("slot: 2 ahead, 2 of 2 active"), "{ended:?}");
    assert_eq!(ended.err.matches("waiting for a slot").count(), 1, "{ended:?}");
    let ended = fake.run(&["run", "--wait=500ms", "--", "true"]);
    assert!(!ended.err.contains("waiting"), "no word of a short wait: {ended:?}");
    let ended = fake.run(&["run", "--wait=1500ms", "--each", "a", "b", "--", "true"]);
    assert_eq!(ended.err.matches("waiting for a slot").count(), 1, "of all of them: {ended:?}");
}

#[test]
fn the_command_is_sent_in_part_or_not_at_all() {
    let fake = Fake::start(Script::default());
    let long = "ü".repeat(60);
    fake.run(&["run", "--", "echo", "a\tb", &long]);
    fake.run(&["run", "--no-command", "--", "true", "--password=x"]);
    fake.run(&["run", "--job", "day", "--each", "a", "--", "echo"]);
    fake.run(&["run", "--no-command", "--each", "x", "--", "true"]);
    let script = fake.script.lock().unwrap();
    let sent: Vec<_> = script.admitted.iter().map(|request| request.command.as_deref()).collect();
    let beginning = format!("echo a b {}", "ü".repeat(35));
    assert_eq!(sent, [Some(&*beginning), None, Some("echo a"), None]);
    let names: Vec<_> = script.admitted.iter().map(|request| request.name.as_deref()).collect();
    assert_eq!(names, [None, None, Some("day[1]"), Some("each[1]")]);
}

#[test]
fn a_job_list_is_tried_again_logged_and_resumed() {
    let fake = Fake::start(Script::default());
    let dir = tempfile::tempdir().unwrap();
    let (log, tries) = (dir.path().join("log"), dir.path().join("tries"));
    let script =
        "echo {#} >>\"$TRIES\"; case {} in slow) exec sleep 60;; bad) test -e \"$FINE\";; esac";
    let each = |more: &[&str], fine: &str| {
        let options = ["run", "--keep-going", "--retries=2", "--joblog", log.to_str().unwrap()];
        let list = ["--each", "good", "bad", "slow", "--", "sh", "-c", script];
        let mut command = fake.command(&[&options, more, &list].concat());
        let ended = command.env("TRIES", &tries).env("FINE", fine).output().unwrap();
        let mut tried: Vec<_> =
            std::fs::read_to_string(&tries).unwrap().lines().map(str::to_owned).collect();
        tried.sort();
        std::fs::remove_file(&tries).unwrap();
        (Ended::from(ended), tried)
    };
    let (ended, tried) = each(&["--time-limit=300ms"], "/nonexistent");
    assert_eq!(tried, ["1", "2", "2", "3", "3"], "{ended:?}");
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.err.contains("1 done, 2 failed") && ended.err.contains("3 slow: status 124"),
        "{ended:?}"
    );
    let (ended, tried) = each(&["--resume", "--time-limit=300ms"], "/");
    assert_eq!(tried, ["2", "3", "3"], "{ended:?}");
    assert!(ended.err.contains("1 done, 1 failed, 1 done before"), "{ended:?}");
    let rows = std::fs::read_to_string(&log).unwrap();
    let ends: Vec<_> = rows.lines().map(|row| row.split('\t').nth(6).unwrap()).collect();
    assert_eq!(ends.iter().filter(|end| **end == "0").count(), 2, "{rows}");
    assert_eq!(rows.lines().count(), 6, "a head and one line of each end: {rows}");
}

#[test]
fn a_request_that_its_list_ends_has_no_status_of_a_command() {
    let fake = Fake::start(Script { full: true, ..Script::default() });
    let (theirs, own) = std::os::unix::net::UnixStream::pair().unwrap();
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).unwrap();
    let parent = std::os::fd::AsRawFd::as_raw_fd(&theirs).to_string();
    let options = ["run", "--wait=60s", "--parent", &parent, "--", "echo", "ran"];
    let child = fake.command(&options).stdout(Stdio::piped()).spawn().unwrap();
    drop((theirs, own));
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.signal(), &*ended.stdout), (Some(15), &b""[..]), "{ended:?}");
}

#[test]
fn a_list_that_a_failure_ends_counts_who_waited_as_given_up() {
    let fake = Fake::start(Script { full_after: Some(1), ..Script::default() });
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fails = format!("read word <'{}'; false", fifo.display());
    let each = ["run", "--each", "1", "2", "3", "--", "sh", "-c", &fails];
    let child = fake.command(&each).stderr(Stdio::piped()).spawn().unwrap();
    while fake.script.lock().unwrap().waiting < 2 {
        std::thread::yield_now();
    }
    std::fs::write(&fifo, "go\n").unwrap();
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("0 done, 1 failed, 2 ended or gave up"), "{ended:?}");
}

#[test]
fn what_is_a_task_already_keeps_its_labels_and_admit_says_so() {
    let (name, job) = (Some("first".into()), Some("j".into()));
    let task = Task { name, job, priority: Some(3), ..Task::default() };
    let fake = Fake::start(Script { task, ..Script::default() });
    let ended = fake.run(&["admit", "7", "--name", "first", "--job", "j", "--priority", "3"]);
    assert_eq!((ended.code, &*ended.err), (Some(0), ""), "{ended:?}");
    let ended = fake.run(&["admit", "7", "--name", "second", "--kind", "k", "--priority", "5"]);
    assert_eq!((ended.code, &*ended.out), (Some(0), "t0000000-2\n"), "{ended:?}");
    for words in [
        "pid 7: is task t0000000-2 already",
        "the name first, no kind, the priority 3;",
        "lrsctl release",
    ] {
        assert!(ended.err.contains(words), "{words}: {ended:?}");
    }
}

#[test]
fn what_overlaps_is_not_started() {
    let own = rustix::process::geteuid().as_raw();
    let task =
        |name: &str, uid| Task { name: Some(name.into()), uid: Some(uid), ..Task::default() };
    let fake = Fake::start(Script {
        pages: vec![vec![task("others", own + 1), task("sweep[12]", own), task("ab", own)]],
        queue: vec![Queued { name: Some("waits".into()), uid: own, ..Queued::default() }],
        ..Script::default()
    });
    for (name, out) in
        [("others", "ran\n"), ("sweep", ""), ("a", "ran\n"), ("ab", ""), ("waits", "")]
    {
        let ended = fake.run(&["run", "--unless-queued", name, "--", "echo", "ran"]);
        assert_eq!((ended.code, &*ended.out), (Some(0), out), "{name}: {ended:?}");
        assert_eq!(ended.err.lines().count(), usize::from(out.is_empty()), "{ended:?}");
    }
    let script = fake.script.lock().unwrap();
    let names: Vec<_> = script.admitted.iter().map(|request| request.name.as_deref()).collect();
    assert_eq!(names, [Some("others"), Some("a")]);
}

#[test]
fn submit_without_systemd_is_refused_and_says_what_serves() {
    let fake = Fake::start(Script::default());
    let ended = fake.run(&["submit", "--", "no-such-program"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(127), ""), "{ended:?}");
    if std::path::Path::new("/run/systemd/system").exists() {
        // tests/vm/guest/checks/submit.sh has the rest.
        eprintln!("SKIPPED: systemd runs here");
        return;
    }
    let ended = fake.run(&["submit", "--", "true"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(125), ""), "{ended:?}");
    assert!(ended.err.contains("systemd") && ended.err.contains("lrsctl run --wait"), "{ended:?}");
}

#[test]
fn log_asks_the_journal_by_the_name_of_the_task() {
    let task = Task { id: "t0000000-1".into(), name: Some("a b".into()), ..Task::default() };
    let end = EndedTask {
        id: "t0000000-2".into(),
        name: Some("third".into()),
        uid: Some(1000),
        ..EndedTask::default()
    };
    let script = Script { pages: vec![vec![task]], history: vec![end], ..Script::default() };
    let fake = Fake::start(script);
    let dir = tempfile::tempdir().unwrap();
    let journalctl = dir.path().join("journalctl");
    std::fs::write(&journalctl, "#!/bin/sh\nprintf '%s\\n' \"$@\"\n").unwrap();
    std::fs::set_permissions(&journalctl, PermissionsExt::from_mode(0o755)).unwrap();
    let log = |args: &[&str]| {
        let mut command = fake.command(args);
        Ended::from(command.env("PATH", dir.path()).output().unwrap())
    };
    let ended = log(&["log", "-f", "-n", "5", "t0000000-1"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.out.ends_with("--lines=5\n--follow\nSYSLOG_IDENTIFIER=lrs-submit-a\\x20b\n"),
        "{ended:?}"
    );
    // Anybody may write as lrs-submit-third.
    let ended = log(&["log", "t0000000-2"]);
    assert!(ended.out.ends_with("-third\n_UID=1000\n_UID=0\n"), "{ended:?}");
    let ended = log(&["log", "t0000000-3"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "an id is no name: {ended:?}");
    let ended = log(&["log", "thrid"]);
    assert!(ended.err.contains("does not know thrid"), "{ended:?}");
    // The journal needs no daemon.
    drop(fake);
    let away = Fake::new(Script::default());
    let mut command = away.command(&["log", "nightly"]);
    let ended = Ended::from(command.env("PATH", dir.path()).output().unwrap());
    assert!(
        ended.out.ends_with("--lines=all\nSYSLOG_IDENTIFIER=lrs-submit-nightly\n"),
        "{ended:?}"
    );
}
