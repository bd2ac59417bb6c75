//! The cluster without LRS: what the other tests build on is there, and its jobs are right.

use crate::cluster::{Cluster, Role};
use crate::conf::{Options, Scheduler};
use crate::hadoop::OLDER;
use crate::jobs;

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn a_job_is_right_and_nothing_stays() {
    let mut cluster = Cluster::start(Options::default());
    let dir = cluster.dir().to_owned();
    let ended = jobs::check_word_count(&mut cluster, 2);
    assert_eq!(cluster.masters(&ended.application()), 1);
    cluster.patiently("the end of the master", |c| c.containers().is_empty().then_some(()));
    assert_eq!(cluster.advertised(0), Some(3));
    drop(cluster);
    assert!(!dir.exists());
    assert_eq!(crate::process::naming(dir.as_os_str().as_encoded_bytes()), Vec::<i32>::new());
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn tasks_outlive_their_node_manager_and_resource_manager() {
    let mut cluster = Cluster::start(Options { version: OLDER, ..Options::default() });
    let job = jobs::sleep(&mut cluster, 1, 1, 15);
    let before = cluster.patiently("three containers", |c| {
        let found = c.containers();
        (found.len() == 3).then_some(found)
    });
    cluster.kill(Role::NodeManager(0));
    cluster.kill(Role::ResourceManager(0));
    cluster.launch(Role::ResourceManager(0));
    cluster.launch(Role::NodeManager(0));
    cluster.wait_running();
    assert_eq!(cluster.containers(), before);
    let ended = job.succeeded(&cluster);
    assert_eq!(cluster.masters(&ended.application()), 1);
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn files_of_hdfs_are_counted_under_the_fair_scheduler() {
    let mut cluster =
        Cluster::start(Options { scheduler: Scheduler::Fair, hdfs: true, ..Options::default() });
    jobs::check_word_count_in_hdfs(&mut cluster);
}
