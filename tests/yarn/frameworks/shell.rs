//! DistributedShell: its containers are commands, which nothing but their number tells from a
//! master of a framework that is not known.

use std::fs;

use super::{HeldContainers, check, check_with, kill_first_master};
use crate::cluster::Cluster;
use crate::conf::Options;
use crate::hadoop::{OLDER, framework};
use crate::jobs::{Job, show};
use crate::shaped::TWO;
use crate::site::Site;

const CLIENT: &str = "org.apache.hadoop.yarn.applications.distributedshell.Client";
const MASTER: &str = "org.apache.hadoop.yarn.applications.distributedshell.ApplicationMaster";
const UNMANAGED: &str =
    "org.apache.hadoop.yarn.applications.unmanagedamlauncher.UnmanagedAMLauncher";

/// Its client needs libraries that later versions do not bring, and later ones are not published.
fn options() -> Options {
    Options { version: OLDER, containers: 6, ..Options::default() }
}

/// Three containers that are held; each writes its id at its end.
fn submit(cluster: &mut Cluster, held: &HeldContainers, options: &[&str]) -> Job {
    let lib = framework("applications/lib");
    let jar = lib.join(format!("hadoop-yarn-applications-distributedshell-{OLDER}.jar"));
    let command = format!("{}; echo $CONTAINER_ID", held.command());
    let words = ["-jar", show(&jar), "-shell_command", &command, "-num_containers", "3"];
    let memory = ["-master_memory", "256", "-container_memory", "256"];
    let words = [&words, &memory[..], options].concat();
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let client = cluster.client_of(&[lib.as_path()], CLIENT, &words);
    Job::of(client, "DistributedShell".to_owned())
}

/// What the containers wrote, by the NodeManager's logs: each its own id, once.
fn is_right(cluster: &Cluster, application: &str) {
    let logs = cluster.logs_of_containers(0).join(application);
    for number in 2..=4 {
        let id = format!("{}_01_{number:06}", application.replace("application", "container"));
        let text = fs::read_to_string(logs.join(&id).join("stdout")).expect("its output");
        assert_eq!(text.trim(), id);
    }
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and DistributedShell"]
fn commands_are_tasks_in_tiers() {
    let site = &mut Site::start("shell", options(), TWO, "");
    let held = HeldContainers::new(&mut site.cluster);
    let job = submit(&mut site.cluster, &held, &[]);
    let application = job.application(&site.cluster);
    check(site, &application, &[("none", 3)]);
    held.release(site, 3);
    job.succeeded(&site.cluster);
    is_right(&site.cluster, &application);
    site.nothing_left();
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and DistributedShell"]
fn containers_outlive_their_master_and_have_another() {
    let site = &mut Site::start("shell-again", options(), TWO, "");
    let keep = "-keep_containers_across_application_attempts";
    let held = HeldContainers::new(&mut site.cluster);
    let job = submit(&mut site.cluster, &held, &[keep]);
    let application = job.application(&site.cluster);
    check(site, &application, &[("none", 3)]);
    kill_first_master(site, &application, 3);
    check(site, &application, &[("none", 3)]);
    held.release(site, 3);
    job.succeeded(&site.cluster);
    is_right(&site.cluster, &application);
    site.nothing_left();
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and DistributedShell"]
fn a_master_outside_of_yarn_leaves_the_first_number_to_a_command() {
    let site = &mut Site::start("unmanaged", options(), TWO, "");
    let cluster = &mut site.cluster;
    let held = HeldContainers::new(cluster);
    let dir = cluster.fresh("master");
    fs::create_dir(&dir).expect("a directory");
    // The file its client would have given it: a length, as DataOutput.writeUTF has it, and text.
    let command = held.command();
    let length = u16::try_from(command.len()).expect("a short command").to_be_bytes();
    let file = [&length[..], command.as_bytes()].concat();
    fs::write(dir.join("shellCommands"), file).expect("the command");
    let mut java = cluster.hadoop.java(&cluster.conf(0), "256m");
    let paths = java.last_mut().expect("the class path");
    *paths += &format!(":{}/*", framework("applications/lib").display());
    // Each container has the variable of masters; the first has their number too.
    let arguments = "--container_memory 256 --container_vcores 1 --num_containers 3 --priority 0 \
        --shell_env APPLICATION_WEB_PROXY_BASE=/claimed";
    let master = format!("{} {MASTER} {arguments}", java.join(" "));
    let mut words: Vec<String> = ["env", "-C", show(&dir), "USER=root"].map(str::to_owned).to_vec();
    words.extend(java);
    words.extend([UNMANAGED, "-appname", "unmanaged", "-cmd", &master].map(str::to_owned));
    let job = Job::of(cluster.program(&words), "an unmanaged master".to_owned());
    let application = job.application(&site.cluster);
    // The first is what it claims until the ResourceManager has reported where the master is.
    site.cluster.patiently("no master in a container", |_| {
        let tasks = site.daemon.tasks();
        (tasks.len() == 3 && tasks.iter().all(|task| task["slotless"] == false)).then_some(())
    });
    check_with(site, &application, 0, &[("am", 1), ("none", 2)]);
    let tasks = site.daemon.tasks();
    let first = |name: &str| name.ends_with("_01_000001");
    assert!(tasks.iter().any(|task| task["name"].as_str().is_some_and(first)), "{tasks:?}");
    held.release(site, 3);
    job.succeeded(&site.cluster);
    site.nothing_left();
}
