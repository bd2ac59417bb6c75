//! Reading commands: the JSON of the contract, and text that fits and cannot harm.

use lrs::proto::*;
use serde_json::{Value, json};

use super::fake::{Fake, Script};

fn time(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds, nanos: 6_000 })
}

/// Every key of `shape` is in `value`; null in `shape` means "any value".
fn assert_has(value: &Value, shape: &Value, path: &str) {
    if let Value::Object(shape) = shape {
        for (key, inner) in shape {
            let found =
                value.get(key).unwrap_or_else(|| panic!("{path}.{key} is missing: {value}"));
            assert_has(found, inner, &format!("{path}.{key}"));
        }
    } else if !shape.is_null() {
        assert_eq!(value, shape, "{path}");
    }
}

fn full_status() -> Status {
    Status {
        node: Some(Node {
            hostname: "node-1".into(),
            cores: 2,
            cpu: Some(CpuUse { effective: Some(0.5), tasks: Some(0.3), ..Default::default() }),
            disk: Some(DiskUse::default()),
            pressure: Some(Pressure { cpu_some: Some(0.1), ..Default::default() }),
            memory: Some(MemoryUse::default()),
            sampled_at: time(1_767_323_045),
            period_ms: 3_000,
            labels: [("rack".to_owned(), "r1".to_owned())].into(),
            cpu_quota: Some(1.5),
        }),
        slots: Some(Slots {
            active: Some(ActiveSlots { capacity: 2, used: 1, reserved: 0, free: 1 }),
            passive: Some(PassiveSlots { capacity: 2, base: 2, max: 8, ..Default::default() }),
        }),
        lowest_active_priority: None,
        state: NodeState::Accepting as i32,
        mode: Mode::Enforce as i32,
        guard: Some(Guard::default()),
        cgroup: Some(CgroupStatus {
            root_weight: Some(200),
            version: 1,
            root: "/lrs".into(),
            cpu_tiers: "idle".into(),
            io_tiers: "none".into(),
            cpu_effect: "without effect".into(),
            io_effect: "none".into(),
            tested: Some("on CPU 1 both got as much".into()),
            tested_at: None,
            reason: "the disk vda runs mq-deadline, which knows no weights; ".repeat(3),
        }),
        totals: Some(Totals { admitted: 3, ..Default::default() }),
        version: "0.1.0".into(),
        waiting: 0,
        warnings: vec!["the I/O tiers have no effect ".repeat(5)],
        started_at: time(1_767_323_000),
        running: Some(Running { tasks: 1, ..Default::default() }),
        last_turn_seconds: Some(0.25),
        daemon: None,
    }
}

#[test]
fn status_fails_when_the_loop_hangs() {
    let node = Some(Node { period_ms: 4000, ..Node::default() });
    for (age, code) in [(None, 0), (Some(11.9), 0), (Some(12.1), 1), (Some(-1.0), 0)] {
        let status = Status { last_turn_seconds: age, node: node.clone(), ..Status::default() };
        let fake = Fake::start(Script { status, ..Script::default() });
        for args in [&["status"][..], &["status", "--json"]] {
            let output = fake.run(args);
            assert_eq!(output.code, Some(code), "{age:?}");
            assert!(!output.out.is_empty(), "it is shown all the same");
        }
    }
}

#[test]
fn status_json_is_the_contract() {
    let fake = Fake::start(Script { status: full_status(), ..Script::default() });
    let status = fake.run(&["status", "--json"]).json();
    let shape = json!({
        "node": {
            "hostname": "node-1", "cores": 2,
            "cpu": {"effective": 0.5, "iowait": null, "idle": null, "steal": null, "tasks": 0.3},
            "disk": {"write_bytes_per_sec": null, "read_bytes_per_sec": null},
            "pressure": {}, "memory": {},
            "sampled_at": "2026-01-02T03:04:05.000006Z", "period_ms": 3000,
            "labels": {"rack": "r1"}, "cpu_quota": 1.5,
        },
        "slots": {
            "active": {"capacity": 2, "used": 1, "reserved": 0, "free": 1},
            "passive": {
                "capacity": 2, "base": 2, "max": 8, "used": 0, "reserved": 0, "free": 0,
                "overflow": 0,
            },
        },
        "lowest_active_priority": null,
        "state": "accepting", "mode": "enforce", "guard": {},
        "cgroup": {"version": 1, "root": "/lrs", "root_weight": 200, "cpu_tiers": "idle", "io_tiers": "none",
                   "reason": null},
        "totals": {"admitted": 3, "completed": 0, "released": 0, "refused": 0, "promoted": 0,
                   "demoted": 0},
        "version": "0.1.0",
        "running": {"tasks": 1, "rated": 0, "rate_sum": 0.0},
        "last_turn_seconds": 0.25,
    });
    assert_has(&status, &shape, "status");
    // unknown is null, never 0
    assert_eq!(status["node"]["cpu"]["iowait"], Value::Null);
    assert_eq!(status["node"]["disk"]["write_bytes_per_sec"], Value::Null);
    assert_eq!(status["lowest_active_priority"], Value::Null);
    assert_eq!(status["running"]["next_free_slot_seconds"], Value::Null);
}

#[test]
fn tasks_json_is_the_contract_over_all_pages() {
    let task = Task {
        id: "t0000000-1".into(),
        tier: Tier::Passive as i32,
        class: Class::Unknown as i32,
        attachment: Attachment::InPlace as i32,
        admitted_at: time(0),
        priority: Some(0),
        kernel: Some(Kernel { cpu_weight: Some(2), ..Default::default() }),
        ..Task::default()
    };
    let second = Task { id: "t0000000-2".into(), ..task.clone() };
    let fake = Fake::start(Script { pages: vec![vec![task], vec![second]], ..Script::default() });
    let tasks = fake.run(&["--json", "tasks"]).json();
    assert_eq!(tasks[1]["id"], "t0000000-2");
    let unknown = [
        "name",
        "job",
        "kind",
        "pid",
        "uid",
        "computing_rate",
        "computing_rate_raw",
        "cpu_seconds",
        "cpu_share",
        "write_bytes_per_sec",
        "elapsed_seconds",
        "expected_remaining_seconds",
        "promoted_at",
        "cgroup",
        "ratio_group",
        "unit",
        "found_by",
        "cpu_quota",
    ];
    for key in unknown {
        assert_eq!(tasks[0].get(key), Some(&Value::Null), "{key}");
    }
    let shape = json!({
        "id": "t0000000-1", "tier": "passive", "priority": 0, "class": "unknown",
        "admitted_at": "1970-01-01T00:00:00.000006Z", "attachment": "in_place",
        "overflow": false, "slotless": false, "frozen": false, "contested": false,
        "opportunistic": false, "repaired": 0,
        "main_exited": false, "kernel": {"cpu_weight": 2, "cpu_idle": null, "io_weight": null},
    });
    assert_has(&tasks[0], &shape, "task");
    assert_eq!(fake.run(&["task", "t0000000-1", "--json"]).json(), tasks[0]);
    assert_eq!(fake.run(&["task", "t0000000-7"]).code, Some(1));
}

#[test]
fn a_task_is_meant_by_its_id_its_number_or_its_name() {
    let task = |number: u32, name: &str| Task {
        id: format!("t0000000-{number}"),
        name: Some(name.into()),
        ..Task::default()
    };
    let pages = vec![vec![task(1, "a b"), task(12, "twin")], vec![task(13, "twin")]];
    let fake = Fake::start(Script { pages, ..Script::default() });
    for (word, id) in [("t0000000-12", "t0000000-12"), ("12", "t0000000-12"), ("a b", "t0000000-1")]
    {
        assert_eq!(fake.run(&["task", word, "--json"]).json()["id"], id, "{word}");
    }
    let ended = fake.run(&["task", "twin"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("2 tasks are called \"twin\""), "{ended:?}");
    assert!(ended.err.contains("t0000000-12, t0000000-13"), "{ended:?}");
    let ended = fake.run(&["task", "2"]);
    assert_eq!(ended.err, "lrsctl: no task 2\n", "lrsd's own words");
}

#[test]
fn events_json_is_one_object_a_line_and_says_what_is_lost() {
    use event_stream_item::Item;
    let inputs = lrs::wire::proto_object(json!({"cores": 2, "share": 0.5}).as_object().unwrap());
    let event = Event {
        seq: 8,
        at: time(0),
        r#type: "promoted".into(),
        task: Some("t0000000-1".into()),
        from: Some("passive".into()),
        to: Some("active".into()),
        reason: Some("an active slot came free".into()),
        inputs: Some(inputs),
    };
    let fake = Fake::start(Script {
        events: vec![Item::Lost(7), Item::Event(event.clone())],
        story: ExplainResponse { events: vec![event], truncated: false },
        ..Script::default()
    });
    let ended = fake.run(&["events", "--json", "--no-follow"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<Value> =
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], json!({"lost": 7}));
    let expected = json!({
        "seq": 8, "at": "1970-01-01T00:00:00.000006Z", "type": "promoted", "task": "t0000000-1",
        "from": "passive", "to": "active", "reason": "an active slot came free",
        "inputs": {"cores": 2, "share": 0.5},
    });
    assert_eq!(lines[1], expected);
    assert!(ended.err.contains("7 events"), "{ended:?}");
    for (args, warned) in [
        (&["-n", "1"][..], false),
        (&["-n", "2"], true),
        (&["--since", "10m"], false),
        (&["--since", "40000d"], true),
        (&["--since", "1"], true),
    ] {
        let ended = fake.run(&[&["events", "--no-follow"], args].concat());
        assert_eq!(ended.err.contains("7 events"), warned, "{args:?} {ended:?}");
    }

    assert_eq!(fake.run(&["why", "t0000000-1", "--json"]).json()["events"][0], expected);
    let story = fake.run(&["why", "t0000000-1"]).out;
    for part in ["promoted passive -> active", "an active slot came free", "cores 2", "share 0.5"] {
        assert!(story.contains(part), "{part}: {story}");
    }
}

#[test]
fn text_fits_80_columns_and_cannot_steer_the_terminal() {
    let evil = Task {
        id: "t0123abc-123456".into(),
        name: Some(format!("\u{1b}]0;owned\u{7}{}", "long name ".repeat(20))),
        job: Some("job".repeat(60)),
        tier: Tier::Active as i32,
        class: Class::Moderate as i32,
        priority: Some(i32::MIN),
        computing_rate: Some(0.5),
        cpu_share: Some(1.0),
        write_bytes_per_sec: Some(1023.9 * 1024.0 * 1024.0),
        elapsed_seconds: Some(1e6),
        overflow: true,
        ..Task::default()
    };
    let fake =
        Fake::start(Script { status: full_status(), pages: vec![vec![evil]], ..Script::default() });
    for args in [&["status"][..], &["tasks"], &["task", "t0123abc-123456"], &["jobs"]] {
        let ended = fake.run(args);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.out.contains(['\u{1b}', '\u{7}']), "{args:?}: {}", ended.out);
    }
    for (width, columns) in [(60, 6), (80, 9), (200, 9)] {
        for command in ["status", "tasks", "jobs"] {
            let shown = on_terminal(&fake, width, command);
            assert!(!shown.contains(['\u{1b}', '\u{7}']), "{command}: {shown}");
            for line in shown.lines().filter(|line| !line.starts_with("warning:")) {
                assert!(line.trim_end().chars().count() <= width, "{command} {width}: {line}");
            }
        }
        let shown = on_terminal(&fake, width, "tasks");
        let heads = shown.lines().next().unwrap();
        assert_eq!(heads.split_whitespace().count(), columns, "{width}: {heads}");
    }
    // Who reads no terminal searches.
    let table = fake.run(&["tasks"]).out;
    assert!(table.contains("t0123abc-123456") && table.contains("-2147483648"), "{table}");
    assert!(table.contains("long name ".repeat(20).trim_end()), "{table}");
    let cells = fake.run(&["tasks", "-o", "id,priority", "--no-header"]).out;
    assert_eq!(cells, "t0123abc-123456  -2147483648\n");
}

/// What a command shows on a terminal of so many columns, without colour.
fn on_terminal(fake: &Fake, width: usize, command: &str) -> String {
    let lrsctl = env!("CARGO_BIN_EXE_lrsctl");
    let ended = std::process::Command::new("script")
        .args(["-qec", &format!("stty cols {width}; exec {lrsctl} {command}"), "/dev/null"])
        .env("LRS_ENDPOINT", format!("unix:{}", fake.socket().display()))
        .env("NO_COLOR", "1")
        .output()
        .expect("script, of util-linux");
    String::from_utf8(ended.stdout).unwrap()
}

#[test]
fn tasks_are_picked_and_sorted_by_fields_of_the_json() {
    let task = |id: &str, job: &str, share: Option<f64>, uid: u32| Task {
        id: id.into(),
        job: Some(job.into()),
        cpu_share: share,
        uid: Some(uid),
        ..Task::default()
    };
    let own = nix::unistd::geteuid().as_raw();
    let tasks = vec![
        task("t0-1", "x", Some(0.1), own),
        task("t0-2", "y", None, own),
        task("t0-3", "x", Some(0.5), own + 1),
    ];
    let fake = Fake::start(Script { pages: vec![tasks], ..Script::default() });
    let ids = |args: &[&str]| {
        let ended = fake.run(&[&["tasks", "-o", "id", "--no-header"], args].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(ids(&["--sort", "cpu_share"]), ["t0-1", "t0-3", "t0-2"]);
    assert_eq!(ids(&["--sort", "-cpu_share"]), ["t0-3", "t0-1", "t0-2"], "unknown is last");
    assert_eq!(ids(&["--job", "x"]), ["t0-1", "t0-3"]);
    assert_eq!(ids(&["--mine"]), ["t0-1", "t0-2"]);
    for args in [["-o", "zebra"], ["--sort", "zebra"]] {
        let ended = fake.run(&[&["tasks"][..], &args].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains("cpu_share"), "the fields there are: {ended:?}");
    }
    assert_eq!(fake.run(&["tasks", "--job", "y", "--json"]).json()[0]["id"], "t0-2");
}

#[test]
fn events_are_picked_by_task_job_type_and_number_and_have_names() {
    use event_stream_item::Item;
    let inputs = lrs::wire::proto_object(json!({"job": "j", "name": "n"}).as_object().unwrap());
    let of_slots = lrs::wire::proto_object(json!({"job": "k"}).as_object().unwrap());
    let event = |seq: u64, kind: &str, task: u32, inputs: Option<prost_types::Struct>| {
        let task = (task > 0).then(|| format!("t0-{task}"));
        Item::Event(Event {
            seq,
            at: time(0),
            r#type: kind.into(),
            task,
            inputs,
            ..Event::default()
        })
    };
    let fake = Fake::start(Script {
        events: vec![
            event(1, "admitted", 1, Some(inputs)),
            event(2, "admitted", 2, None),
            event(3, "promoted", 1, None),
            event(4, "completed", 1, None),
            event(5, "expanded", 0, Some(of_slots)),
            event(6, "guard", 0, None),
        ],
        ..Script::default()
    });
    let numbers = |args: &[&str]| {
        let ended = fake.run(&[&["events", "--no-follow"], args].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let first = |line: &str| line.split(' ').next().unwrap().to_owned();
        ended.out.lines().map(first).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&[]), ["1", "2", "3", "4", "5", "6"]);
    assert_eq!(numbers(&["--task", "n"]), ["1", "3", "4"]);
    assert_eq!(numbers(&["--task", "2"]), ["2"]);
    assert_eq!(numbers(&["--job", "j", "--type", "promoted,completed"]), ["3", "4"]);
    assert_eq!(numbers(&["-n", "2"]), ["5", "6"]);
    assert_eq!(numbers(&["--job", "k"]), ["5"], "the next one is about no job");
    assert_eq!(numbers(&["-n", "1", "--type", "admitted"]), ["2"]);
    assert_eq!(numbers(&["--since", "1h"]), [""; 0], "all of them are old");
    let lines = fake.run(&["events", "--no-follow", "--type", "promoted", "--utc"]).out;
    assert_eq!(lines, "3 1970-01-01 00:00:00.000006Z promoted t0-1 (j n)\n");
}

#[test]
fn why_of_a_request_that_waits_is_its_place_and_reason() {
    let queued = Queued {
        id: "w0-3".into(),
        name: Some("waits".into()),
        place: Some(2),
        reason: "draining".into(),
        since: time(0),
        ..Queued::default()
    };
    let fake = Fake::start(Script { queue: vec![queued], ..Script::default() });
    let ended = fake.run(&["why", "waits"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("place 2 in the queue, the node is draining"), "{ended:?}");
    assert_eq!(fake.run(&["why", "waits", "--json"]).code, Some(1), "it has no events");
}

#[test]
fn config_show_is_toml_or_json() {
    let toml = "[slots]\nexpand = true\n".to_owned();
    let fake = Fake::start(Script { toml: toml.clone(), ..Script::default() });
    assert_eq!(fake.run(&["config", "show"]).out, toml);
    assert_eq!(fake.run(&["config", "show", "--json"]).json(), json!({"slots": {"expand": true}}));
}

#[test]
fn yarn_json_is_the_contract() {
    let yarn = YarnStatus {
        enabled: true,
        node_manager: Some(YarnNodeManager {
            last_seen: time(1_767_323_045),
            ..Default::default()
        }),
        configured: Some(YarnResource { memory_mib: 8192, vcores: 8 }),
        containers: vec![YarnContainer { tier: Tier::Passive as i32, ..Default::default() }],
        ..Default::default()
    };
    let fake = Fake::start(Script { yarn, ..Script::default() });
    let status = fake.run(&["yarn", "status", "--json"]).json();
    let shape = json!({
        "enabled": true,
        "node_manager": {
            "url": null, "node_id": null, "last_seen": "2026-01-02T03:04:05.000006Z",
        },
        "resource_manager": null,
        "configured": {"memory_mib": 8192, "vcores": 8},
        "containers": null,
    });
    assert_has(&status, &shape, "yarn");
    assert_eq!(status["containers"][0]["tier"], "passive");
    for unknown in ["advertised", "offered", "verified", "verified_at", "last_error"] {
        assert_eq!(status[unknown], Value::Null, "{unknown}");
    }
}

#[test]
fn node_attributes_are_valid_lines_with_the_daemon_up_and_down() {
    let fake = Fake::new(Script { status: full_status(), ..Script::default() });
    let down = fake.run(&["yarn", "node-attributes"]);
    assert_eq!(
        down.out,
        "NODE_ATTRIBUTE:lrs-state,STRING,down\nNODE_ATTRIBUTE:lrs-spare,STRING,no\n"
    );
    assert_eq!(down.code, Some(0));
    fake.serve();
    let up = fake.run(&["yarn", "node-attributes"]);
    assert_eq!(up.code, Some(0));
    assert!(up.out.contains("NODE_ATTRIBUTE:lrs-active-slots,STRING,2\n"), "{}", up.out);
    for line in up.out.lines() {
        let fields: Vec<_> = line.split(',').collect();
        assert!(fields.len() == 3 && fields[0].starts_with("NODE_ATTRIBUTE:lrs-"), "{line}");
    }
}

#[test]
fn history_reads_well_and_asks_for_what_is_wanted() {
    let ended = EndedTask {
        id: "t0z2whlh-293".into(),
        name: Some("third".into()),
        job: Some("nightly".into()),
        kind: Some("map".into()),
        uid: Some(1000),
        tier: Tier::Active as i32,
        exit_signal: Some(11),
        core_dumped: Some(true),
        ended_at: time(1_767_323_045),
        elapsed_seconds: Some(192.0),
        cpu_seconds: Some(31.25),
        peak_memory_bytes: Some(5 << 30),
        peak_memory_sampled: true,
        class: Class::Cpu as i32,
        ..EndedTask::default()
    };
    let away = EndedTask {
        id: "t0z2whlh-294".into(),
        exit_status: Some(3),
        oom_kills: Some(2),
        elapsed_seconds: Some(0.254),
        ..Default::default()
    };
    let history = || Script { history: vec![ended.clone(), away.clone()], ..Script::default() };
    let fake = Fake::start(history());
    let json = fake
        .run(&["history", "--json", "--job", "nightly", "--user", "root", "--failed", "--since=1h"])
        .json();
    assert_eq!(json[0]["exit_signal"], 11);
    assert_eq!(json[0]["read_bytes"], Value::Null, "not known");
    assert_eq!(json[1]["ended_at"], Value::Null);
    assert_eq!(json.as_array().unwrap().len(), 2, "of all pages");
    let asked = fake.script.lock().unwrap().history_asked.clone();
    assert_eq!(asked[1].page_token, "7");
    for asked in asked {
        assert_eq!(
            (asked.job.as_deref(), asked.uid, asked.failed),
            (Some("nightly"), Some(0), true)
        );
        assert!(asked.since.is_some());
    }
    // A pipe counts as 80 columns.
    let shown = Fake::start(history()).run(&["history"]);
    for part in ["SIGSEGV+core", "3+oom", "0.25s", "3m12s", "~5.0 GiB", "away", "nightly/map third"]
    {
        assert!(shown.out.contains(part), "{part}: {shown:?}");
    }
    let fake = Fake::start(history());
    assert!(
        shown.err.contains("2 ended, 2 failed; time 1m36s in the mean, 95 % within 3m12s"),
        "{shown:?}"
    );
    let last = fake.run(&["history", "--last=1", "-o", "id", "--no-header"]);
    assert_eq!(last.out, "t0z2whlh-294\n");
    let fake = Fake::start(history());
    let one = fake.run(&["task", "third"]);
    assert!(one.out.contains("exit              SIGSEGV+core"), "{one:?}");
    assert_eq!(fake.run(&["task", "t0z2whlh-294", "--json"]).json()["exit_status"], 3);
    let fake = Fake::start(history());
    let picked = fake.run(&["history", "-o", "exit,id", "--no-header"]);
    assert_eq!(picked.out, "SIGSEGV+core  t0z2whlh-293\n3+oom         t0z2whlh-294\n");
    let none = Fake::start(Script::default()).run(&["history"]);
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""));
    let unknown = Fake::start(Script::default()).run(&["history", "--user", "no such user"]);
    assert_eq!(unknown.code, Some(2));
}

#[test]
fn what_the_node_did_reads_well_and_a_long_time_is_asked_for_by_the_minute() {
    let row = |seconds| NodeFigures {
        at: time(seconds),
        seconds: 60.0,
        active_slots: 2.0,
        active_used: 2.0,
        passive_slots: 4.0,
        passive_used: 1.25,
        guard_stage: 1,
        cpu_tasks: Some(0.5),
        completed: 3,
        ..NodeFigures::default()
    };
    let figures = vec![row(1_767_323_045), row(1_767_323_105)];
    let node = || Script { figures: figures.clone(), ..Script::default() };
    let fake = Fake::start(node());
    let shown = fake.run(&["--utc", "history", "--node"]).out;
    let line = shown.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>();
    // A pipe counts as 80 columns.
    let wanted =
        ["2026-01-02", "03:04:05", "2/2", "1.2/4", "0", "50%", "-", "-", "-", "1", "0", "3"];
    assert_eq!(line, wanted, "{shown}");
    let json = fake.run(&["history", "--node", "--since", "3h", "--until", "1h", "--json"]).json();
    assert_eq!((&json[1]["completed"], &json[1]["cpu_idle"]), (&3.into(), &Value::Null));
    let picture = fake.run(&["plot", "-o", "-", "--since", "2026-01-01"]);
    assert!(
        picture.out.starts_with("<svg") && picture.out.contains("active (blue)"),
        "{picture:?}"
    );
    let asked = fake.script.lock().unwrap().node_asked.clone();
    let asked: Vec<_> =
        asked.iter().map(|one| (one.cycles, one.since.is_some(), one.until.is_some())).collect();
    assert_eq!(asked, [(true, true, false), (false, true, true), (false, true, false)]);
    assert_eq!(fake.run(&["history", "--node", "--failed"]).code, Some(2));
    assert_eq!(fake.run(&["history", "--since", "1h", "--until", "2h"]).code, Some(2));
    let none = Fake::start(Script::default());
    assert_eq!(none.run(&["plot", "-o", "-"]).code, Some(1));
    assert_eq!(none.run(&["history", "--node"]).out, "");
}

#[test]
fn the_queue_reads_well_and_an_id_of_it_is_explained() {
    let now = lrs::clock::now().wall.unix_micros() / 1_000_000;
    let reservation = Queued {
        id: "r0000abc-3".into(),
        reason: "reserved".into(),
        tier: Tier::Passive as i32,
        since: time(now),
        expires_at: time(now + 30),
        ..Queued::default()
    };
    let waiter = Queued {
        id: "w0000abc-7".into(),
        place: Some(1),
        job: Some("nightly".into()),
        kind: Some("map".into()),
        name: Some("a\u{1b}[2Jb".into()),
        uid: 4_000_000_000,
        since: time(now - 192),
        reason: "full".into(),
        parked: true,
        ..Queued::default()
    };
    let mine = Queued {
        id: "w0000abc-9".into(),
        place: Some(2),
        pid: Some(4711),
        uid: rustix::process::geteuid().as_raw(),
        since: time(now - 5),
        reason: "order".into(),
        ..Queued::default()
    };
    let queue = vec![reservation, waiter, mine];
    let fake = Fake::start(Script { queue, ..Script::default() });
    let shown = fake.run(&["queue"]);
    for part in
        ["reserved, passive", "4000000000", "full, parked", "3m1", "nightly/map", "pid 4711"]
    {
        assert!(shown.out.contains(part), "{part}: {shown:?}");
    }
    assert!(!shown.out.contains('\u{1b}'), "{shown:?}");
    assert_eq!(fake.run(&["queue", "--job", "nightly", "--no-header"]).out.lines().count(), 1);
    let json = fake.run(&["queue", "--mine", "--json"]).json();
    assert!(json.as_array().unwrap().iter().any(|one| one["id"] == "w0000abc-9"), "{json}");
    assert!(json.as_array().unwrap().iter().all(|one| one["uid"] != 4_000_000_000_u32), "{json}");
    let shown = fake.run(&["task", "w0000abc-7"]);
    assert!(shown.out.contains("place 1 in the queue, every slot is taken"), "{shown:?}");
    let shown = fake.run(&["task", "r0000abc-3"]);
    assert!(shown.out.starts_with("a reservation: passive slot, for another "), "{shown:?}");
    assert_eq!(fake.run(&["task", "w0000abc-8"]).code, Some(1));
    let empty = Fake::start(Script::default()).run(&["queue"]);
    assert_eq!((empty.code, empty.out.as_str()), (Some(0), ""));
}

#[test]
fn a_shell_completes_tasks_by_name_and_id_and_jobs() {
    let task =
        |id: &str, name: &str| Task { id: id.into(), name: Some(name.into()), ..Task::default() };
    let tasks =
        vec![task("t1-0", "sort"), task("t1-1", "twin"), task("t1-2", "twin"), task("t1-3", "a b")];
    let fake = Fake::start(Script { pages: vec![tasks], ..Script::default() });
    let script = fake.run(&["completions", "bash"]);
    assert!(script.out.contains("LRSCTL_COMPLETE"), "{script:?}");
    let complete = |words: &[&str]| {
        let mut command = fake.command(&[&["--", "lrsctl"], words].concat());
        let last = words.len().to_string();
        command.envs([("LRSCTL_COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", &last)]);
        command.env("_CLAP_IFS", "\n");
        let out = String::from_utf8(command.output().unwrap().stdout).unwrap();
        out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    // A name of two tasks stands for none, and one with a space needs quotes.
    assert_eq!(complete(&["why", "s"]), ["sort"]);
    assert_eq!(complete(&["why", "t"]), ["t1-0", "t1-1", "t1-2", "t1-3"]);
    assert_eq!(complete(&["tasks", "--job", ""]), ["wordcount"]);
    let commands = complete(&[""]);
    assert!(commands.iter().any(|c| c == "run") && !commands.iter().any(|c| c == "__daemon"));
}

#[test]
fn doctor_has_what_a_test_of_the_tiers_showed_and_quietly_only_what_is_wrong() {
    let fake = Fake::start(Script { status: full_status(), ..Script::default() });
    let checks = |quiet: &[&str]| {
        let asked = [&["doctor", "--verify", "--json"], quiet].concat();
        let output = fake.command(&asked).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["checks"].as_array().unwrap().clone()
    };
    let (all, checks) = (checks(&[]), checks(&["--quiet"]));
    let effect = checks.iter().find(|check| check["id"] == "cpu_effect").unwrap();
    assert_eq!(effect["verdict"], "warn");
    assert_eq!(effect["found"], "without effect: on CPU 1 both got as much");
    assert!(checks.iter().all(|it| it["verdict"] == "warn" || it["verdict"] == "fail"));

    // With all left out nothing is printed: cron sends no mail.
    let ids: Vec<&str> = all.iter().map(|check| check["id"].as_str().unwrap()).collect();
    let except = ids.join(",");
    let asked = ["doctor", "--verify", "--quiet", "--except", &except];
    let output = fake.command(&asked).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!((output.stdout.len(), output.stderr.len()), (0, 0));
}
