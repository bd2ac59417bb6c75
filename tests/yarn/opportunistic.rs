//! Opportunistic containers of a real scheduler: known as such, and behind all others.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::conf::Options;
use crate::harness::slot_tier;
use crate::jobs::{self, Job};
use crate::rest;
use crate::shaped::TWO;
use crate::site::Site;

const ALL_MAPS: &str = "-Dmapreduce.job.num-opportunistic-maps-percent=100";

/// Containers, each with its execution type.
type Types = BTreeMap<String, String>;

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn opportunistic_containers_lose_their_slots_to_guaranteed_ones() {
    // Room for all at once: for what does not fit the NodeManager kills opportunistic containers.
    let options = Options { containers: 8, opportunistic: 4, ..Options::default() };
    let site = &mut Site::start("opportunistic", options, TWO, "");

    let [behind, before] = lose_their_slots(site);
    site.cluster.patiently("the types its node manager says", |_| {
        let types = types_of_node_manager(site)?;
        let opportunistic = types.values().filter(|kind| *kind == "OPPORTUNISTIC").count();
        (types == types_of_lrs(site) && (opportunistic, types.len()) == (2, 6)).then_some(())
    });

    before.succeeded(&site.cluster);
    until(site, &[("active", true), ("active", true)]);
    behind.succeeded(&site.cluster);
    site.nothing_left();
}

/// Two opportunistic maps, and two guaranteed ones that take the slots from them: both jobs.
pub fn lose_their_slots(site: &mut Site) -> [Job; 2] {
    let behind = jobs::sleep_with(&mut site.cluster, 2, 0, 45, &[ALL_MAPS]);
    site.all_found(3);
    // While no other container wants the slots they have them.
    until(site, &[("active", true), ("active", true)]);

    let before = jobs::sleep(&mut site.cluster, 2, 0, 10);
    site.all_found(6);
    until(site, &[("active", false), ("active", false), ("passive", true), ("passive", true)]);
    [behind, before]
}

/// Waits for tasks with these tiers, each opportunistic or not.
fn until(site: &Site, wanted: &[(&str, bool)]) {
    let wanted: Vec<_> = wanted.iter().map(|&(tier, last)| (tier.to_owned(), last)).collect();
    site.cluster.patiently(&format!("{wanted:?}"), |_| (tiers(site) == wanted).then_some(()));
}

/// Tier of the slot of each task that has one and whether it is opportunistic, in order.
fn tiers(site: &Site) -> Vec<(String, bool)> {
    let tasks = site.daemon.tasks();
    let with_slot = tasks.iter().filter(|task| task["slotless"] != true);
    let of = |task: &Value| (slot_tier(task).to_owned(), task["opportunistic"] == true);
    let mut found: Vec<_> = with_slot.map(of).collect();
    found.sort();
    found
}

fn types_of_lrs(site: &Site) -> Types {
    let status = site.yarn();
    let containers = status["containers"].as_array().cloned().unwrap_or_default();
    types(&containers, "execution_type")
}

fn types_of_node_manager(site: &Site) -> Option<Types> {
    let address = format!("{}/ws/v1/node/containers", site.cluster.node_url(0));
    let answer = site.cluster.get(&address)?;
    Some(types(&rest::list(&answer, "containers", "container"), "executionType"))
}

fn types(containers: &[Value], key: &str) -> Types {
    let word = |container: &Value, key: &str| Some(container[key].as_str()?.to_owned());
    containers.iter().filter_map(|one| Some((word(one, "id")?, word(one, key)?))).collect()
}
