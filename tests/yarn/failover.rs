//! Two ResourceManagers, of which one takes over from the other.

use crate::cluster::Role;
use crate::conf::Options;
use crate::offers::{self, CONFIGURED};
use crate::site::{GROWN, Site, offering};

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn an_offer_follows_the_active_resource_manager() {
    let options = Options { resource_managers: 2, containers: CONFIGURED, ..Options::default() };
    let site = &mut Site::start("failover", options, GROWN, &offering());
    let (job, containers) = offers::begin(site, 60, &offering());
    offers::is_in_force(site);

    // In order: the node registers with the new one as the old one had it, offer included.
    site.cluster.activate(1);
    offers::is_in_force(site);
    assert_eq!(site.all_found(containers.len()), containers, "the containers run on");

    // By a crash, and the NodeManager's too: only lrsd can report the offer to the new one.
    site.cluster.kill(Role::NodeManager(0));
    site.cluster.kill(Role::ResourceManager(1));
    site.cluster.activate(0);
    site.cluster.launch(Role::NodeManager(0));
    site.cluster.wait_running();
    offers::is_in_force(site);
    assert_eq!(site.all_found(containers.len()), containers, "the containers run on");

    offers::stop(site, &containers);
    site.daemon.launch();
    let ended = job.succeeded(&site.cluster);
    assert_eq!(site.cluster.masters(&ended.application()), 1);
    site.nothing_left();
}
