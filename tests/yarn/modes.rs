//! The runbook's own path: watch a day, then shape. A job that runs through the change is shaped, and
//! ends right.

use crate::cluster::Role;
use crate::conf::Options;
use crate::jobs;
use crate::shaped::TWO;
use crate::site::{Site, check_members, group_of, settings};

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn containers_found_while_lrsd_observed_are_shaped_once_it_enforces() {
    let options = Options { containers: 6, ..Options::default() };
    let observe = format!("daemon.mode = \"observe\"\n{TWO}");
    let site = &mut Site::start("modes", options, &observe, "");
    let job = jobs::sleep(&mut site.cluster, 4, 1, 30);
    let containers = site.all_found(6);
    let own = group_of(site.cluster.pid(Role::NodeManager(0)));
    let all_are = |site: &Site, attachment: &str| {
        site.cluster.patiently(&format!("all tasks {attachment}"), |_| {
            let tasks = site.daemon.tasks();
            let fits = tasks.len() == 6 && tasks.iter().all(|t| t["attachment"] == attachment);
            fits.then_some(tasks)
        })
    };
    let identity = |task: &serde_json::Value| {
        ["id", "name", "pid", "tier", "kind", "slotless"].map(|field| task[field].clone())
    };
    let booked: Vec<_> = all_are(site, "none").iter().map(identity).collect();
    let change = |site: &mut Site, slots: &str| {
        site.daemon.stop();
        site.daemon.configure(&settings(&site.cluster, slots, ""));
        site.daemon.launch();
    };

    change(site, TWO);
    let shaped = all_are(site, "own");
    assert_eq!(shaped.iter().map(identity).collect::<Vec<_>>(), booked);
    for task in &shaped {
        check_members(&site.daemon, task);
    }
    change(site, &observe);
    assert_eq!(all_are(site, "none").iter().map(identity).collect::<Vec<_>>(), booked);
    for container in containers {
        assert_eq!(group_of(container.leader), own, "{} was not given back", container.id);
    }
    change(site, TWO);
    all_are(site, "own");
    job.succeeded(&site.cluster);
    site.nothing_left();
}
