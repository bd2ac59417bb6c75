//! Tez: its master and its containers, each of which runs many tasks.

use std::path::Path;

use super::streaming::Counting;
use super::{check, kill_first_master};
use crate::cluster::Cluster;
use crate::conf::{CONTAINER, Options};
use crate::hadoop::{SMALL_JVM, framework};
use crate::jobs::{Job, Words, show, text_of};
use crate::shaped::TWO;
use crate::site::Site;

const EXAMPLES: &str = "org.apache.tez.examples.ExampleDriver";
fn settings(cluster: &Cluster, lib: &Path) -> Vec<String> {
    let jvm = format!("-Xmx300m {}", SMALL_JVM.join(" "));
    let settings = [
        format!("tez.lib.uris=file://{}", lib.display()),
        "tez.use.cluster.hadoop-libs=true".to_owned(),
        format!("tez.staging-dir={}", cluster.dir().join("staging").display()),
        format!("tez.am.resource.memory.mb={CONTAINER}"),
        format!("tez.task.resource.memory.mb={CONTAINER}"),
        format!("tez.am.launch.cmd-opts={jvm}"),
        format!("tez.task.launch.cmd-opts={jvm}"),
        "tez.runtime.io.sort.mb=32".to_owned(),
        // Its pages need a web stack that this Hadoop no longer brings.
        "tez.am.tez-ui.webservice.enable=false".to_owned(),
        // A container without a task ends at once; by itself after five seconds.
        "tez.am.container.idle.release-timeout-min.millis=500".to_owned(),
        "tez.am.container.idle.release-timeout-max.millis=600".to_owned(),
    ];
    settings.map(|setting| format!("-D{setting}")).to_vec()
}

/// A streaming job that Tez runs as a graph, so that a test can hold its tasks.
fn streaming(cluster: &mut Cluster) -> (Job, Counting) {
    let lib = framework("tez/lib");
    let mut settings = settings(cluster, &lib);
    settings.push("-Dmapreduce.framework.name=yarn-tez".to_owned());
    Counting::submit(cluster, &[&lib], &settings)
}

fn start(name: &str) -> Site {
    Site::start(name, Options { containers: 6, ..Options::default() }, TWO, "")
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and Tez"]
fn containers_of_a_graph_are_tasks_in_tiers() {
    let site = &mut start("tez");
    let (job, counting) = streaming(&mut site.cluster);
    let application = job.application(&site.cluster);
    check(site, &application, &[("executor", 3)]);
    counting.held.release(site, 3);
    job.succeeded(&site.cluster);
    counting.is_right();
    site.nothing_left();
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and Tez"]
fn an_example_of_tez_is_right_beside_lrs() {
    let site = &mut start("tez-example");
    let words = Words::write(&site.cluster.fresh("words"), 2, 1_000);
    let out = site.cluster.fresh("counts");
    let lib = framework("tez/lib");
    let mut line = vec!["wordcount".to_owned()];
    line.extend(settings(&site.cluster, &lib));
    line.extend([words.dir(), &out].map(|path| show(path).to_owned()));
    let client = site.cluster.client_of(&[&lib], EXAMPLES, &line);
    Job::of(client, "wordcount of Tez".to_owned()).succeeded(&site.cluster);
    words.check_counts(&text_of(&out));
    site.nothing_left();
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and Tez"]
fn a_second_attempt_of_a_graphs_master_is_a_master_too() {
    let site = &mut start("tez-again");
    let (job, counting) = streaming(&mut site.cluster);
    let application = job.application(&site.cluster);
    check(site, &application, &[("executor", 3)]);
    kill_first_master(site, &application, 0);
    check(site, &application, &[("executor", 3)]);
    counting.held.release_all(site);
    job.succeeded(&site.cluster);
    counting.is_right();
    site.nothing_left();
}
