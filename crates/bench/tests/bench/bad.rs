//! Suites that cannot be run and tasks that misbehave. All but the last need neither root nor
//! cgroups: plain processes are enough.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use lrs_bench::record::Outcome;

use super::{Ended, SuiteDir, lrsctl};

/// One load `l` of these tasks, two slots.
fn suite(tasks: &str) -> String {
    format!(
        "name = \"s\"\nrounds = 1\ntime_limit = \"1s\"\n[[setting]]\nname = \"two\"\nslots = 2\n\
         [[load]]\nname = \"l\"\nclass = \"cpu\"\n{tasks}"
    )
}

const TRUE: &str = "[[load.tasks]]\nname = \"t\"\ncommand = [\"true\"]\n";

/// Nothing ran: exit code 1, each of `words` on stderr, no output directory, nothing left.
fn refused(place: &SuiteDir, args: &[&str], code: i32, words: &[&str]) {
    let ended = place.bench(args);
    assert_eq!(ended.code, Some(code), "{ended:?}");
    for word in words {
        assert!(ended.err.contains(word), "{word} in {ended:?}");
    }
    assert_eq!(ended.out, "");
    assert!(!place.output().join("machine.json").exists(), "{ended:?}");
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn what_is_missing_is_reported_before_anything_runs() {
    let command = "[[load.tasks]]\nname = \"t\"\ncommand = [\"no-such-program-1\", \"x\"]\n";
    let place = SuiteDir::new(&format!("programs = [\"no-such-program-2\"]\n{}", suite(command)));
    let both = ["no-such-program-1", "no-such-program-2", "nothing was run"];
    refused(&place, &[], 1, &both);

    let place = SuiteDir::new(&format!("space = \"1PiB\"\n{}", suite(TRUE)));
    refused(&place, &[], 1, &["are free in", "needs 1.0 PiB", "--dir"]);
}

#[test]
fn suites_that_say_too_little_or_too_much_are_refused() {
    refused(&SuiteDir::new(&suite("")), &[], 1, &["suite.toml:7", "has no task"]);
    let zero = suite("[[load.tasks]]\nname = \"t\"\ncount = 0\ncommand = [\"true\"]\n");
    refused(&SuiteDir::new(&zero), &[], 1, &["suite.toml:12", "count = 0", "1..=10000"]);
    refused(&SuiteDir::new(&suite(&TRUE.repeat(2))), &[], 1, &["\"t\" is taken by line 10"]);
    let after = format!("{TRUE}after = [\"t\"]\n");
    refused(&SuiteDir::new(&suite(&after)), &[], 1, &["\"t\" waits for itself"]);
    refused(&SuiteDir::new(&suite(TRUE)), &["--setting", "three"], 2, &["no 'three'", "'two'"]);
    refused(&SuiteDir::new(&suite(TRUE)), &["--load", "m"], 2, &["no 'm'", "'l'"]);
}

#[test]
fn keys_of_lrsd_are_judged_by_lrsd_where_they_stand() {
    // Line 11 is that of `lrs`; 4 goes with the default of slots.passive, and not with 6.
    let with = |lrsd: &str, lrs: &str| {
        SuiteDir::new(&suite(TRUE).replace(
            "[[load]]",
            &format!("[lrsd]\n{lrsd}\n[[setting]]\nname = \"a\"\nlrs = {{ {lrs} }}\n[[load]]"),
        ))
    };
    let keys =
        "\"slots.expnad\" = false, \"daemon.sample_period\" = \"1ms\", \"dbus.bus\" = \"off\"";
    let bad = with("", &format!("{keys}, \"x\" = 1"));
    let words = ["suite.toml:11: setting.lrs.", "slots.expand", "daemon.sample_period", "dbus.bus"];
    refused(&bad, &[], 1, &words);
    let both = with("\"slots.passive\" = 6", "\"slots.passive_max\" = 4");
    refused(&both, &[], 1, &["suite.toml:11: setting.lrs.\"slots.passive_max\""]);
    refused(
        &with("\"slots.passive\" = \"x\"", ""),
        &[],
        1,
        &["suite.toml:8: lrsd.\"slots.passive\""],
    );
}

#[test]
fn an_unwritable_place_is_reported() {
    let place = SuiteDir::new(&suite(TRUE));
    std::fs::write(place.path().join("file"), "").unwrap();
    let mut command = Command::new(lrsctl());
    command.args(["bench", "suite.toml", "--dir", "file"]).current_dir(place.path());
    let ended = Ended::from(command.output().unwrap());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("cannot create") && ended.err.contains("--dir"), "{ended:?}");

    std::fs::create_dir(place.output()).unwrap();
    std::fs::write(place.output().join("runs.jsonl"), "{}\n").unwrap();
    refused(&place, &[], 1, &["has the runs of another bench"]);
}

#[test]
fn a_task_that_fails_fails_its_run_and_no_other() {
    let tasks = "[[load.tasks]]\nname = \"good\"\ncommand = [\"true\"]\n\
         [[load.tasks]]\nname = \"bad\"\ncommand = [\"sh\", \"-c\", \"echo no luck >&2; exit 3\"]\n\
         [[load]]\nname = \"m\"\nclass = \"io\"\n[[load.tasks]]\nname = \"t\"\ncommand = [\"true\"]\n";
    let place = SuiteDir::new(&suite(tasks));
    let ended = place.bench(&[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("1 of 2 runs failed") && ended.err.contains("no luck"), "{ended:?}");
    let [bad, good] = &*place.runs() else { panic!("{ended:?}") };
    assert_eq!(bad.makespan_seconds, None);
    assert_eq!(bad.faults, ["bad-1: exit status 3: no luck"]);
    assert_eq!(bad.tasks[1].outcome, Outcome::Exit(3));
    assert_eq!(bad.tasks[0].outcome, Outcome::Ok);
    assert!(good.makespan_seconds.is_some() && good.faults.is_empty());
    let text = std::fs::read_to_string(place.output().join("logs/l-two-0-bad-1.log")).unwrap();
    assert_eq!(text, "no luck\n");
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn a_check_that_does_not_hold_fails_the_run() {
    let tasks = format!("check = [\"sh\", \"-c\", \"echo {{run}}; exit 1\"]\n{TRUE}");
    let place = SuiteDir::new(&suite(&tasks));
    let ended = place.bench(&[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let [run] = &*place.runs() else { panic!("{ended:?}") };
    assert_eq!((run.makespan_seconds, run.faults.len()), (None, 1));
    assert!(run.faults[0].starts_with("the check: exit status 1"), "{run:?}");
    assert!(place.output().join("logs/l-two-0-check.log").exists(), "{run:?}");
}

#[test]
fn what_a_check_leaves_behind_ends_before_the_next_run() {
    let tasks = "check = [\"sh\", \"-c\", \"setsid sleep 600 & echo $! > ../../pid\"]\n\
         [[load.tasks]]\nname = \"t\"\ncommand = [\"sh\", \"-c\", \
         \"test ! -e ../../pid || ! kill -0 $(cat ../../pid)\"]\n";
    let place = SuiteDir::new(&suite(tasks).replace("rounds = 1", "rounds = 2"));
    let ended = place.bench(&[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(place.runs().len(), 2);
}

#[test]
fn a_task_that_cannot_be_started_says_why() {
    let tasks = format!("{TRUE}count = 100\ndirectory = \"nowhere\"\n");
    let place = SuiteDir::new(&suite(&tasks));
    let ended = place.bench(&[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let [run] = &*place.runs() else { panic!("{ended:?}") };
    assert!(run.tasks.iter().all(|task| matches!(task.outcome, Outcome::NotSpawned(_))), "{run:?}");
    assert!(run.faults[0].starts_with("t-1: could not be started: No such file"), "{run:?}");
    assert_eq!(run.faults.last().unwrap(), "and 92 more tasks");
}

#[test]
fn a_task_without_an_end_is_killed_with_all_it_started() {
    // the one it leaves is in a session of its own; both write who they are
    let command = "echo $$ >> pids; setsid sh -c 'echo $$ >> pids; exec sleep 600' & \
                   exec sleep 600";
    let tasks = format!(
        "[[load.tasks]]\nname = \"endless\"\ncount = 3\ncommand = [\"sh\", \"-c\", \"{command}\"]\n"
    );
    let place = SuiteDir::new(&suite(&tasks).replace("echo $$ >> pids", "echo $$ >> ../../pids"));
    let ended = place.bench(&[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let [run] = &*place.runs() else { panic!("{ended:?}") };
    let outcomes: Vec<&Outcome> = run.tasks.iter().map(|task| &task.outcome).collect();
    assert_eq!(outcomes, [&Outcome::TimeLimit, &Outcome::TimeLimit, &Outcome::NotStarted]);
    assert!(run.faults[0].contains("the time limit"), "{run:?}");
    let pids = std::fs::read_to_string(place.path().join("pids")).unwrap();
    for pid in pids.lines() {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!command.starts_with(b"sleep"), "{pid} lives");
    }
    assert!(pids.lines().count() >= 2, "{pids}");
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn an_interrupt_gives_what_is_there() {
    use std::io::{BufRead, BufReader};
    let tasks = format!(
        "{TRUE}[[load]]\nname = \"m\"\nclass = \"cpu\"\n[[load.tasks]]\nname = \"t\"\n\
         command = [\"sleep\", \"600\"]\n"
    );
    let place = SuiteDir::new(&suite(&tasks).replace("\"1s\"", "\"10m\""));
    let mut command = place.command(&[]);
    let mut child = command
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.find(|line| line.as_ref().unwrap().starts_with("[1/2]"));
    assert!(first.is_some());
    // SAFETY: kill(2) takes no pointer; the child is not reaped yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    lines.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(place.runs().len(), 1);
    assert!(place.output().join("report.json").exists());
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn a_bench_that_was_cut_off_is_resumed_with_whole_rounds() {
    let second = "[[setting]]\nname = \"one\"\nslots = 1\n";
    let place = SuiteDir::new(&suite(TRUE).replace("[[load]]", &format!("{second}[[load]]")));
    assert_eq!(place.bench(&["--rounds", "2"]).code, Some(0));
    let before = place.runs();
    let file = place.output().join("runs.jsonl");
    let lines = std::fs::read_to_string(&file).unwrap();
    // The last run of the second round is missing, and half of the one before it.
    let cut = lines.lines().take(2).collect::<Vec<_>>().join("\n") + "\n{\"load\": \"l";
    std::fs::write(&file, cut).unwrap();
    let resume = |rounds: &[&str]| {
        let mut command = Command::new(lrsctl());
        command.args(["bench", "--resume", "out", "--dir", "."]).args(rounds);
        let output = command.current_dir(place.path()).env_remove("LRS_ENDPOINT").output();
        Ended::from(output.unwrap())
    };
    let ended = resume(&["--rounds", "3"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("1 of 3 rounds are there"), "{ended:?}");
    let rounds: Vec<_> = place.runs().iter().map(|run| run.round).collect();
    assert_eq!(rounds, [0, 0, 1, 1, 2, 2]);
    assert_eq!(place.runs()[..2], before[..2]);
    // Nothing is left to do.
    assert_eq!(resume(&[]).code, Some(0));
    assert_eq!(place.runs().len(), 6);

    let machine = place.output().join("machine.json");
    let text = std::fs::read_to_string(&machine).unwrap();
    std::fs::write(&machine, text.replace("\"kernel\":", "\"kernel\": \"Other 1\", \"was\":"))
        .unwrap();
    let ended = resume(&["--rounds", "4"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("the kernel was Other 1 and is Linux"), "{ended:?}");
    assert_eq!(place.runs().len(), 6);
    assert_eq!(place.left(), [""; 0]);
}

/// `lrsctl` as an account without rights: as root under the uid of `nobody`, with a copy of the
/// executables which that account can reach.
fn unprivileged(place: &SuiteDir, args: &[&str]) -> Ended {
    let mut command = place.command(args);
    // SAFETY: it only asks.
    if unsafe { libc::geteuid() } == 0 {
        let copy = place.path().join("lrsctl");
        std::fs::copy(lrsctl(), &copy).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_lrs-bench"), copy.with_file_name("lrs-bench")).unwrap();
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o777)).unwrap();
        command = Command::new(copy);
        command.args(["bench", "suite.toml", "--out", "out", "--dir", "."]).args(args);
        command.current_dir(place.path()).uid(65_534).gid(65_534);
    }
    Ended::from(command.output().unwrap())
}

#[test]
fn without_root_there_are_plain_processes_and_a_word_about_the_rest() {
    let text =
        suite(TRUE).replace("[[load]]", "[[setting]]\nname = \"shaped\"\nlrs = {}\n[[load]]");
    let place = SuiteDir::new(&text);
    let ended = unprivileged(&place, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("needs root"), "{ended:?}");
    assert!(ended.err.contains("--setting 'two'"), "{ended:?}");
    let ended = unprivileged(&place, &["--setting", "two"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(place.runs()[0].makespan_seconds.is_some());
}
