//! Tasks in groups of a scheduler with a supervisor in them, as slurmstepd is on cgroup
//! v2: it outlives the job, leaves the group and removes it.

use std::fs;
use std::path::PathBuf;

use lrs_testbed::groups::cpu_mount;
use serde_json::Value;

use crate::harness::{Daemon, Foreign, weight_file};

/// A daemon with a rule for jobs, the group that they are in, and the group of the job 7.
fn with_jobs(name: &str, except: &str) -> (Daemon, Foreign, PathBuf) {
    let mut daemon = Daemon::new(name, "");
    daemon.configure(&format!(
        "daemon.sample_period = \"200ms\"\nslots.active = 1\nslots.passive = 1\n\
         [[discover]]\nname = \"jobs\"\ncgroup = '/{}-owner/job_(?<id>\\d+)'\nid = \"job-${{id}}\"\n\
         attach = \"in_place\"\n{except}\n",
        daemon.root
    ));
    daemon.launch();
    let jobs = Foreign::beside(&daemon);
    let job = jobs.0.join("job_7");
    for group in ["step_0/slurm", "step_0/user"] {
        fs::create_dir_all(job.join(group)).unwrap();
    }
    if jobs.0.join("cgroup.subtree_control").exists() {
        fs::write(jobs.0.join("cgroup.subtree_control"), "+cpu").unwrap();
    }
    (daemon, jobs, job)
}

fn put(pid: i32, group: PathBuf) {
    fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
}

/// The event of this type of the task.
fn event(daemon: &Daemon, kind: &str) -> Option<Value> {
    daemon.events().into_iter().find(|event| event["type"] == kind && event["task"].is_string())
}

#[test]
#[ignore = "needs root and cgroups"]
fn what_a_rule_excepts_is_not_the_task_and_does_not_hold_it_back() {
    let except = "except = '/.+/job_\\d+/step_[^/]+/slurm'";
    let (mut daemon, _jobs, job) = with_jobs("excepts", except);
    let supervisor = daemon.process(&["cat"]);
    put(supervisor, job.join("step_0/slurm"));
    let work = daemon.process(&["cat"]);
    put(work, job.join("step_0/user"));
    let task = daemon.task_of(work);
    assert_eq!((&task["name"], &task["attachment"]), (&"job-7".into(), &"in_place".into()));

    // What goes on in the background holds the job, the supervisor does not.
    let second = daemon.process(&["cat"]);
    put(second, job.join("step_0/user"));
    daemon.finish(work);
    daemon.join(work);
    daemon.eventually("its first process has ended", |daemon| {
        daemon.tasks().first().filter(|task| task["main_exited"] == true).map(|_| ())
    });
    daemon.finish(second);
    daemon.join(second);
    daemon.eventually("the end of the job", |daemon| event(daemon, "completed"));
    assert!(daemon.tasks().is_empty());
    assert_eq!(event(&daemon, "contested"), None);
    assert!(lrs_testbed::groups::members(&job.join("step_0/slurm")).contains(&supervisor));
    daemon.finish(supervisor);
    daemon.join(supervisor);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_group_that_its_owner_leaves_and_removes_is_a_task_that_completed() {
    let (mut daemon, _jobs, job) = with_jobs("removes", "");
    let supervisor = daemon.process(&["cat"]);
    put(supervisor, job.join("step_0/slurm"));
    daemon.task_of(supervisor);
    put(supervisor, cpu_mount().expect("cgroups").0);
    for group in ["step_0/slurm", "step_0/user", "step_0", ""] {
        fs::remove_dir(job.join(group)).unwrap();
    }
    let completed = daemon.eventually("the end of the job", |daemon| event(daemon, "completed"));
    assert_eq!(completed["inputs"]["exit_status"], Value::Null, "its supervisor runs on");
    assert_eq!(event(&daemon, "contested"), None);
    assert_eq!(daemon.status()["totals"]["released"], 0);
    daemon.finish(supervisor);
    daemon.join(supervisor);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_process_that_is_moved_out_of_a_group_that_stays_is_a_task_no_more() {
    let (mut daemon, _jobs, job) = with_jobs("stays", "");
    let weight = job.join(weight_file(&job));
    let read = || fs::read_to_string(&weight).unwrap().trim().to_owned();
    fs::write(&weight, "333").unwrap();
    let process = daemon.process(&["cat"]);
    put(process, job.join("step_0/user"));
    daemon.task_of(process);
    assert_ne!(read(), "333", "the weight of its tier");
    put(process, cpu_mount().expect("cgroups").0);
    let contested = daemon.eventually("LRS gives way", |daemon| event(daemon, "contested"));
    assert!(contested["reason"].as_str().unwrap().contains("moved out"), "{contested}");
    daemon.eventually("it is released", |daemon| event(daemon, "released"));
    assert_eq!(event(&daemon, "completed"), None);
    daemon.eventually("its owner's weight, back", |_| (read() == "333").then_some(()));
    daemon.finish(process);
    daemon.join(process);
}
