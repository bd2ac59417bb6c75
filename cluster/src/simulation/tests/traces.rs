//! Logs in and traces out: what is in the files is what happened, whatever wrote them.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use crate::simulation::swf;
use crate::simulation::trace::{Files, Traced, Untraced, trace};

use super::*;

struct Traces {
    tasks: String,
    jobs: String,
    traced: Traced,
}

fn traces(scenario: &Scenario) -> Traces {
    let (mut tasks, mut jobs) = (Vec::new(), Vec::new());
    let files = Files { tasks: &mut tasks, jobs: &mut jobs };
    let traced = trace(scenario, "a, case", no_clock, files).unwrap();
    let [tasks, jobs] = [tasks, jobs].map(|bytes| String::from_utf8(bytes).unwrap());
    Traces { tasks, jobs, traced }
}

/// The rows of a CSV without quoted cells that matter, by the names of its columns.
fn rows(text: &str) -> Vec<BTreeMap<String, String>> {
    let text = text.replace("\"a, case\"", "a case");
    let mut lines = text.lines();
    let heads: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), heads.len(), "{line}");
        heads.iter().zip(cells).map(|(head, cell)| ((*head).into(), cell.into())).collect()
    };
    lines.map(row).collect()
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} of {row:?}"))
}

/// From the rows alone: slots are not used twice, jobs begin and end with their tasks, and the sums are those
/// that the simulation counts.
#[test]
fn the_files_of_every_kind_of_node_agree_with_each_other_and_with_the_figures() {
    let mut outcomes = BTreeMap::<String, usize>::new();
    for (name, scenario) in &small().cases {
        let Traces { tasks, jobs, traced } = traces(scenario);
        let figures = run(scenario, no_clock, &|_| {}).unwrap();
        let (tasks, jobs) = (rows(&tasks), rows(&jobs));
        let ended = tasks.iter().filter(|row| row["outcome"] == "ended").count();
        assert_eq!(ended as u64, figures.tasks(), "{name}");
        assert_eq!(jobs.len() as f64, figures.get("jobs", None).unwrap(), "{name}");
        let of = |id: &str| -> Vec<_> { tasks.iter().filter(|row| row["job_id"] == id).collect() };
        for job in &jobs {
            let tasks = of(&job["job_id"]);
            let first =
                tasks.iter().map(|row| number(row, "starting_time")).fold(f64::MAX, f64::min);
            let last = tasks.iter().map(|row| number(row, "finish_time")).fold(0.0, f64::max);
            assert_eq!(number(job, "starting_time"), first, "{name}");
            assert!(number(job, "finish_time") <= last, "{name}");
            let ended = tasks.iter().filter(|row| row["outcome"] == "ended").count();
            assert_eq!(number(job, "requested_number_of_resources") as usize, ended, "{name}");
            let took = number(job, "finish_time") - number(job, "submission_time");
            assert!((number(job, "turnaround_time") - took).abs() < 1e-5);
            assert_eq!((&*job["success"], &*job["final_state"]), ("1", "COMPLETED_SUCCESSFULLY"));
        }
        let times = |column| jobs.iter().map(move |job| number(job, column));
        let mean = times("turnaround_time").sum::<f64>() / jobs.len() as f64;
        assert!((mean - figures.get("job_mean", None).unwrap()).abs() < 1e-4, "{name}");
        let held = |row: &BTreeMap<_, _>| number(row, "finish_time") - number(row, "starting_time");
        let maps: Vec<f64> = tasks
            .iter()
            .filter(|row| row["kind"] == "map" && row["outcome"] == "ended")
            .map(held)
            .collect();
        let mean = maps.iter().sum::<f64>() / maps.len() as f64;
        assert!((mean - figures.get("map_mean", None).unwrap()).abs() < 1e-4, "{name}");
        let schedule = rows(&traced.schedule).remove(0);
        let makespan = figures.get("makespan", None).unwrap();
        assert!((number(&schedule, "makespan") - makespan).abs() < 1e-5, "{name}");
        let all = ["time_computing", "time_idle", "time_unavailable"];
        let all: f64 = all.iter().map(|column| number(&schedule, column)).sum();
        assert!((all - 6.0 * makespan).abs() < 1e-3, "{name}: {all}");
        assert_eq!(traced.gantt.matches("<rect x=").count(), tasks.len(), "{name}");
        for row in &tasks {
            *outcomes.entry(row["outcome"].clone()).or_default() += 1;
            assert!(number(row, "waiting_time") >= 0.0, "{row:?}");
            let is_there =
                |row: &BTreeMap<_, _>| number(row, "input_time") >= number(row, "starting_time");
            assert!(
                row["outcome"] != "ended" && row["input_time"].is_empty() || is_there(row),
                "{row:?}"
            );
        }
        if name.starts_with("static/") {
            no_slot_is_used_twice(name, &tasks);
        }
    }
    assert!(outcomes["node_down"] > 0 && outcomes["preempted"] > 0, "{outcomes:?}");
}

/// On static nodes: never more at once than the node has slots, three.
fn no_slot_is_used_twice(name: &str, tasks: &[BTreeMap<String, String>]) {
    for node in 0..6 {
        let node = format!("n{node}");
        let mut edges: Vec<(f64, i32)> = tasks
            .iter()
            .filter(|row| row["node"] == node)
            .flat_map(|row| [(number(row, "starting_time"), 1), (number(row, "finish_time"), -1)])
            .collect();
        edges.sort_by(|one, other| one.partial_cmp(other).unwrap());
        let mut now = 0;
        for (at, change) in edges {
            now += change;
            assert!(now <= 3, "{name}: {now} tasks on {node} at {at}");
        }
    }
}

/// A log of two users, made up, on four slots.
const LOG: &str = "\
; Version: 2.2
; Computer: made up
1 0  -1 10 4 5 -1 4 -1 -1 1 1 -1 -1 -1 -1 -1 -1
2 1  -1 20 2 20 -1 2 -1 -1 1 2 -1 -1 -1 -1 -1 -1
3 30 -1 5  1 -1 -1 1 -1 -1 1 1 -1 -1 -1 -1 -1 -1
";

fn logged(text: &str) -> Scenario {
    let suite = format!(
        "title = ''\npolicy = 'fifo'\nheartbeat_seconds = 1\n[nodes]\ncount = 2\nactive = 2\n{text}"
    );
    let mut scenario = Suite::parse(&suite).unwrap().cases.remove(0).1;
    let log = swf::read(LOG.as_bytes()).unwrap();
    scenario.take(Arc::new(log.in_groups(&scenario.groups)));
    scenario
}

#[test]
fn the_jobs_of_a_log_arrive_when_it_says_and_take_what_it_says() {
    let traces = traces(&logged(""));
    let column = |name: &str| -> Vec<String> {
        rows(&traces.jobs).iter().map(|row| row[name].clone()).collect()
    };
    assert_eq!(column("job_id"), ["1", "2", "3"]);
    assert_eq!(column("submission_time"), ["0.000000", "1.000000", "30.000000"]);
    assert_eq!(column("requested_number_of_resources"), ["4", "2", "1"]);
    let (starts, ends) = (column("starting_time"), column("finish_time"));
    let [starts, ends] = [starts, ends]
        .map(|all| all.iter().map(|at| at.parse::<f64>().unwrap()).collect::<Vec<_>>());
    // Each node starts one task a report, two reports a second; the first slot is free 10 s later.
    assert!(
        starts[0] < 1.0 && (10.0..12.0).contains(&starts[1]) && (30.0..32.0).contains(&starts[2])
    );
    assert!((10.0..13.0).contains(&ends[0]) && (30.0..33.0).contains(&ends[1]), "{ends:?}");
    assert_eq!(column("allocated_resources")[0], "0-1");
    assert_eq!(rows(&traces.tasks).len(), 7);
}

#[test]
fn a_users_jobs_are_in_one_group() {
    let scenario = logged(
        "[[groups]]\nname = 'all'\nweight = 1\n[[groups]]\nname = 'a'\nweight = 1\nparent = 'all'\n\
         [[groups]]\nname = 'b'\nweight = 1\nparent = 'all'",
    );
    assert_eq!(scenario.check(), []);
    let groups: Vec<&str> =
        scenario.jobs().iter().map(|job| job.group.as_deref().unwrap()).collect();
    assert_eq!(groups, ["b", "a", "b"]);
    assert!(run(&scenario, no_clock, &|_| {}).is_ok());
}

#[test]
fn jobs_that_arrive_at_a_time_all_do() {
    let check = |text: &str| {
        let text = format!("title = ''\n{text}");
        let faults = Suite::parse(&text).unwrap().cases[0].1.check();
        faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    let job = |more: &str| format!("[[job]]\nname = 'j'\nmaps = 1\n{more}\n");
    assert_eq!(check(&(job("at_seconds = 5") + &job("at_seconds = 3"))), "");
    assert!(check(&(job("at_seconds = 5") + &job(""))).starts_with("job[].at_seconds: with this"));
    assert!(check(&job("at_seconds = -1")).starts_with("job[0].at_seconds: -1"));
    let repeated = "arrivals = { repeat = 2 }\n".to_owned() + &job("at_seconds = 1");
    assert!(check(&repeated).starts_with("job[].at_seconds"));
}

/// A disk that is full.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_row_that_cannot_be_written_is_an_error() {
    let scenario = logged("");
    let mut jobs = b"".to_vec();
    let files = Files { tasks: &mut Full, jobs: &mut jobs };
    let error = trace(&scenario, "", no_clock, files).unwrap_err();
    assert!(matches!(error, Untraced::Io(_)), "{error}");
}
