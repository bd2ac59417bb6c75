//! ResourceManager, NodeManager and lrsd killed in every order: no container and no task is lost.

use std::time::Instant;

use crate::cluster::Role;
use crate::conf::Options;
use crate::harness::slot_tier;
use crate::jobs::{self, Words};
use crate::offers::{self, CONFIGURED};
use crate::site::{GROWN, Site, offering};

#[derive(Clone, Copy, Debug)]
enum Part {
    Manager,
    Node,
    Lrs,
}

const ORDERS: [[Part; 3]; 6] = {
    use Part::{Lrs, Manager, Node};
    [
        [Manager, Node, Lrs],
        [Manager, Lrs, Node],
        [Node, Manager, Lrs],
        [Node, Lrs, Manager],
        [Lrs, Manager, Node],
        [Lrs, Node, Manager],
    ]
};

fn kill(site: &mut Site, part: Part) {
    match part {
        Part::Manager => site.cluster.kill(Role::ResourceManager(0)),
        Part::Node => site.cluster.kill(Role::NodeManager(0)),
        Part::Lrs => site.daemon.kill(),
    }
}

fn launch(site: &mut Site, part: Part) {
    match part {
        Part::Manager => site.cluster.launch(Role::ResourceManager(0)),
        Part::Node => site.cluster.launch(Role::NodeManager(0)),
        Part::Lrs => site.daemon.launch(),
    }
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn no_order_of_restarts_loses_a_container_or_a_task() {
    let options = Options { containers: 4, ..Options::default() };
    let slots = "[slots]\nactive = 1\npassive = 4\nexpand = false";
    let site = &mut Site::start("restarts", options, slots, "");
    for order in ORDERS {
        let began = Instant::now();
        let job = jobs::sleep(&mut site.cluster, 2, 1, 20);
        let containers = site.all_found(4);
        let before = identities(site);
        for part in order {
            kill(site, part);
        }
        for part in order {
            launch(site, part);
        }
        site.cluster.wait_running();
        assert_eq!(site.all_found(4), containers, "{order:?}");
        assert_eq!(identities(site), before, "{order:?}: the same tasks under the same ids");
        let ended = job.succeeded(&site.cluster);
        assert_eq!(site.cluster.masters(&ended.application()), 1, "{order:?}");
        site.nothing_left();
        println!("{order:?}: {:.1} s", began.elapsed().as_secs_f64());
    }
    let totals = site.daemon.status()["totals"].clone();
    assert_eq!((&totals["admitted"], &totals["completed"]), (&24.into(), &24.into()), "{totals}");
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn an_offer_stands_again_after_restarts_and_goes_with_lrsd() {
    let options = Options { containers: CONFIGURED, ..Options::default() };
    let site = &mut Site::start("standing", options, GROWN, &offering());
    for order in [[Part::Manager, Part::Lrs], [Part::Node, Part::Manager]] {
        let began = Instant::now();
        let (job, containers) = offers::begin(site, 75, &offering());
        for part in order {
            kill(site, part);
        }
        for part in order {
            launch(site, part);
        }
        site.cluster.wait_running();
        offers::is_in_force(site);
        assert_eq!(site.all_found(containers.len()), containers, "{order:?}");
        offers::stop(site, &containers);
        site.daemon.launch();
        offers::is_in_force(site);
        job.succeeded(&site.cluster);
        site.nothing_left();
        println!("{order:?}: {:.1} s", began.elapsed().as_secs_f64());
    }
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn an_offer_outlives_lrs_yarn_and_goes_back_while_lrsd_is_away() {
    let options = Options { containers: CONFIGURED, ..Options::default() };
    let site = &mut Site::start("away", options, GROWN, &offering());
    let (job, containers) = offers::begin(site, 75, &offering());
    let before = identities(site);
    site.daemon.kill_yarn();
    assert_eq!(identities(site), before);
    site.daemon.launch_yarn();
    offers::is_in_force(site);

    site.daemon.lrsd().kill();
    site.advertises(CONFIGURED);
    assert_eq!(site.cluster.containers(), containers, "none has to go for that");
    site.daemon.lrsd().launch();
    offers::is_in_force(site);
    assert_eq!(identities(site), before);
    job.succeeded(&site.cluster);
    site.nothing_left();
    site.daemon.stop();
    assert_eq!(site.cluster.advertised(0), Some(CONFIGURED));
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn containers_that_started_without_lrs_are_found_and_the_output_is_right() {
    let site = &mut Site::start("late", Options::default(), "slots.active = 1", "");
    site.daemon.kill();
    let words = Words::write(&site.cluster.fresh("words"), 4, 2_000);
    let waiting = jobs::sleep(&mut site.cluster, 1, 1, 10);
    site.cluster.patiently("containers", |c| (c.containers().len() == 3).then_some(()));
    site.daemon.launch();
    site.all_found(3);
    let (counting, out) = jobs::word_count(&mut site.cluster, &words);
    site.daemon.kill();
    waiting.succeeded(&site.cluster);
    site.daemon.launch();
    counting.succeeded(&site.cluster);
    words.check_counts(&jobs::text_of(&out));
    site.nothing_left();
}

/// Each task's id with its container's and its tier.
fn identities(site: &Site) -> Vec<(String, String, String)> {
    let tasks = site.daemon.tasks();
    let word = |task: &serde_json::Value, key: &str| task[key].as_str().unwrap_or("").to_owned();
    let mut found: Vec<_> =
        tasks.iter().map(|t| (word(t, "id"), word(t, "name"), slot_tier(t).to_owned())).collect();
    found.sort();
    found
}
