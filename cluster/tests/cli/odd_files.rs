//! Files that are none, that are too large, or that ask for too much: a sentence and status 1, within bounds of time
//! and memory.

use std::fmt::Write as _;
use std::fs;

use tempfile::TempDir;

use crate::{Ended, lrs_place, lrs_place_within_bounds as bounded};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/two-racks.json");
const LINKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/suites/links.toml");
const JAR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/Count.jar");

/// A directory, and the path of a name in it.
struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn with(&self, name: &str, text: &str) -> String {
        fs::write(self.at(name), text).unwrap();
        self.at(name)
    }

    fn fifo(&self, name: &str) -> String {
        let path = self.at(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    /// A file of zeros that takes no room.
    fn zeros(&self, name: &str, bytes: u64) -> String {
        fs::File::create(self.at(name)).unwrap().set_len(bytes).unwrap();
        self.at(name)
    }
}

#[track_caller]
fn assert_refused(ended: &Ended, says: &[&str]) {
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert!(says.iter().all(|part| ended.err.contains(part)), "{says:?}: {ended:?}");
}

/// Every argument that is a file to read.
fn readers(path: &str) -> [Ended; 5] {
    [
        bounded(&["plan", path]),
        bounded(&["simulate", path]),
        bounded(&["simulate", LINKS, "--swf", path]),
        bounded(&["classify", path]),
        bounded(&["classify", JAR, "--class-path", path]),
    ]
}

#[test]
fn what_is_no_regular_file_is_refused_and_not_waited_for() {
    let files = Files::new();
    let link = files.at("link");
    std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
    let socket = files.at("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, says) in [
        (files.fifo("fifo"), "it is a pipe"),
        (files.at(""), "it is a directory"),
        ("/dev/zero".into(), "it is a device"),
        (link, "it is a device"),
        (socket, "it is a socket"),
        (files.at("missing"), "No such file or directory"),
    ] {
        for ended in readers(&path) {
            assert_refused(&ended, &[&path, says]);
            assert!(ended.err.lines().count() <= 2, "{ended:?}");
        }
    }
}

#[test]
fn a_file_that_is_too_large_is_not_read_to_its_end() {
    let files = Files::new();
    let large = files.zeros("large", 1 << 40);
    assert_refused(&bounded(&["plan", &large]), &["it has more than 67108864 bytes"]);
    assert_refused(&bounded(&["simulate", &large]), &["it has more than 262144 bytes"]);
    assert_refused(&bounded(&["classify", &large]), &["is not a jar"]);
    // A line of a log has an end, whatever its length.
    let log = files.zeros("log", 1 << 28);
    assert_refused(&bounded(&["simulate", LINKS, "--swf", &log]), &["longer than 4096 bytes"]);
}

#[test]
fn a_cluster_of_another_version_is_refused_in_a_sentence() {
    let files = Files::new();
    let file = files.with("new.json", r#"{"version": 2, "machines": []}"#);
    let ended = lrs_place(&["plan", &file]);
    assert_refused(&ended, &["version: 2; this program reads version 1"]);
    assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
}

#[test]
fn of_very_many_faults_the_first_are_named_and_the_others_counted() {
    let files = Files::new();
    let mut json = String::from(
        r#"{"nodes": [{"name": "a", "slots": {}}], "jobs": [{"name": "j", "tasks": ["#,
    );
    for task in 0..100_000 {
        let comma = if task == 0 { "" } else { "," };
        write!(json, r#"{comma}{{"name": "t{task}", "replicas": ["x"]}}"#).unwrap();
    }
    let others = files.with("others.json", &format!("{json}]}}]}}"));
    let shapes = files.with("shapes.json", &format!(r#"{{"nodes": [1{}]}}"#, ",1".repeat(99_999)));
    for file in [others, shapes] {
        let ended = bounded(&["plan", &file]);
        assert_refused(&ended, &["the file: 99000 more faults; these are the first 1000"]);
        assert_eq!(ended.err.lines().count(), 1001);
    }
    let mut fields = String::new();
    (0..100_000).for_each(|field| write!(fields, r#", "x{field}": 1"#).unwrap());
    let unknown = files
        .with("unknown.json", &format!(r#"{{"nodes": [{{"name": "a", "slots": {{}}}}]{fields}}}"#));
    let ended = bounded(&["plan", &unknown, "--json"]);
    assert_eq!(ended.code, Some(0));
    let plan: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    let warnings = plan["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1001);
    assert_eq!(warnings[1000], "99000 more fields are not known, they are ignored");
}

#[test]
fn values_beyond_what_memory_is_for_are_refused() {
    let files = Files::new();
    let file = files.with("values.json", &format!(r#"{{"x": [1{}]}}"#, ",1".repeat(6_000_000)));
    assert_refused(&bounded(&["plan", &file]), &["has more than 5000000 values, at line 1"]);
}

#[test]
fn an_input_on_too_many_nodes_is_refused() {
    let files = Files::new();
    let numbers = 0..100_000;
    let nodes: Vec<String> =
        numbers.clone().map(|node| format!(r#"{{"name": "{node}", "slots": {{}}}}"#)).collect();
    let replicas: Vec<String> = numbers.map(|node| format!(r#""{node}""#)).collect();
    let file = files.with(
        "replicas.json",
        &format!(
            r#"{{"nodes": [{}], "jobs": [{{"name": "j", "tasks": [{{"name": "t", "replicas": [{}]}}]}}]}}"#,
            nodes.join(","),
            replicas.join(",")
        ),
    );
    let says = "jobs[0].tasks[0].replicas: 100000 nodes; at most 1000 are possible";
    assert_refused(&bounded(&["plan", &file]), &[says]);
}

#[test]
fn a_suite_that_asks_for_too_much_is_refused() {
    let files = Files::new();
    let job = "[[job]]\nname = 'j'\nmaps = 1\n";
    let cases: String = (0..1001).map(|case| format!("[[case]]\nname = '{case}'\n")).collect();
    for (text, says) in [
        (
            "[[job]]\nname = 'j'\nmaps = 4294967295\n".to_owned(),
            "4294967295 tasks in all classes together; at most 10000000",
        ),
        ("[[job]]\nname = 'j'\nmaps = 4294967296\n".to_owned(), "job.maps: integer `4294967296`"),
        (format!("seeds = 1000000000000\n{job}"), "seeds: 1000000000000; a number from 1 to 10000"),
        (format!("nodes = {{ count = 10000000000 }}\n{job}"), "nodes.count: 10000000000;"),
        (
            format!("nodes = {{ count = 1000000, kind = 'lrs' }}\n{job}"),
            "nodes.count: 1000000; a number from 1 to 5e4",
        ),
        (
            format!("nodes = {{ count = 1000000, active = 10000 }}\n{job}"),
            "nodes.active and nodes.passive of all: 10000000000;",
        ),
        (
            format!("nodes = {{ count = 1000000 }}\nreplicas = 1000000\n{job}"),
            "replicas: 1000000; a number from 1 to 1e2",
        ),
        (format!("once = {{ waiting = 1000000000000 }}\n{job}"), "once.waiting: 1000000000000;"),
        (
            "analysis = { nodes = 1, slots = 1, replicas = 1, tasks = 4294967295 }\n".to_owned(),
            "analysis.tasks: 4294967295;",
        ),
        (
            format!("arrivals = {{ repeat = 1000000000000 }}\n{job}"),
            "arrivals.repeat: 1000000000000;",
        ),
        (format!("{job}{cases}"), "1001 cases with their policies; at most 1000"),
        (format!("replicas = {}1", "[".repeat(200_000)), "the file: "),
    ] {
        let file = files.with("suite.toml", &format!("title = ''\n{text}"));
        let ended = bounded(&["simulate", &file]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.out.contains(says) || ended.err.contains(says), "{says}: {ended:?}");
    }
}

#[test]
fn what_cannot_be_written_is_known_before_the_runs() {
    let files = Files::new();
    let fifo = files.fifo("fifo");
    for (path, says) in [
        (files.at(""), "Is a directory"),
        (files.at("missing/file"), "No such file or directory"),
        (fifo, "it is a pipe from which no program reads"),
    ] {
        for option in ["--json", "--csv"] {
            assert_refused(
                &bounded(&["simulate", LINKS, option, &path]),
                &["cannot write", &path, says],
            );
        }
    }
    let suite = files.with("suite.toml", "title = ''\nseeds = 1\n[[job]]\nname = 'j'\nmaps = 1\n");
    let full = bounded(&["simulate", &suite, "--json", "/dev/full"]);
    assert_eq!(full.code, Some(1), "{full:?}");
    assert!(full.err.contains("cannot write /dev/full: No space left"), "{full:?}");
    let one = bounded(&["simulate", &suite, "--json", "/dev/stdout"]);
    assert_eq!(one.code, Some(0), "{one:?}");
    assert!(one.out.contains("\"makespan\""), "{one:?}");
}

#[test]
fn numbers_on_the_command_line_have_bounds() {
    for args in [
        ["simulate", LINKS, "--threads", "0"],
        ["simulate", LINKS, "--threads", "100000"],
        ["simulate", LINKS, "--seeds", "1000000"],
        ["queue", "--cpus", "4294967295", "--short"],
        ["plan", EXAMPLE, "--policy", "best"],
    ] {
        assert_eq!(lrs_place(&args).code, Some(2), "{args:?}");
    }
}
