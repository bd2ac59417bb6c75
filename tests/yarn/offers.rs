//! Offers that stand while the processors are busy, and where they go: to the fair scheduler, over
//! https.

use crate::certificate;
use crate::conf::{Options, Scheduler};
use crate::jobs::{self, Job};
use crate::process::Container;
use crate::site::{GROWING, GROWN, Site, offering, settings};

/// A master and a task for each slot of [`GROWN`].
pub const CONFIGURED: u32 = 5;
/// Two of the slots are none of the base.
pub const OFFERED: u32 = CONFIGURED + 2;

/// Starts a job with a container for all that will be offered, each for so many seconds, and waits
/// until they run. Slots are opened only while processors have spare time, for which no test can
/// wait; so the base is taken back from slots in use, which stay open.
pub fn begin(site: &mut Site, seconds: u32, yarn: &str) -> (Job, Vec<Container>) {
    site.reload(GROWN, yarn);
    site.advertises(CONFIGURED);
    let job = jobs::sleep(&mut site.cluster, OFFERED - 1, 0, seconds);
    site.all_found(CONFIGURED as usize);
    site.reload(GROWING, yarn);
    site.advertises(OFFERED);
    (job, site.all_found(OFFERED as usize))
}

/// Waits until the active ResourceManager shows the offer, and lrsd has read it there: the node may
/// have reported it before lrsd came back to it.
pub fn is_in_force(site: &Site) {
    site.advertises(OFFERED);
    let url = site.cluster.manager_url();
    site.cluster.patiently("the word of lrsd on the active resource manager", |_| {
        let status = site.yarn();
        let active = status["resource_manager"]["active"] == url.as_str();
        (active && status["verified"] == true).then_some(())
    });
}

/// Stops lrsd, which takes the offer back, and no container with it.
pub fn stop(site: &mut Site, containers: &[Container]) {
    site.daemon.stop();
    assert_eq!(site.cluster.advertised(0), Some(CONFIGURED), "{}", site.daemon.log());
    assert_eq!(site.cluster.containers(), containers, "none has to go for that");
    let log = site.daemon.log();
    assert!(!log.contains("may stand there"), "it went, and lrsd did not know:\n{log}");
}

/// A job uses what is offered, and a stop takes it back.
fn is_used_and_taken_back(site: &mut Site, yarn: &str) {
    let (job, containers) = begin(site, 20, yarn);
    stop(site, &containers);
    site.daemon.launch();
    job.succeeded(&site.cluster);
    site.nothing_left();
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn the_fair_scheduler_places_containers_in_what_is_offered() {
    let scheduler = Scheduler::Fair;
    let options = Options { scheduler, containers: CONFIGURED, ..Options::default() };
    let site = &mut Site::start("fair", options, GROWN, &offering());
    is_used_and_taken_back(site, &offering());
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn https_takes_a_certificate_that_is_trusted() {
    let options = Options { https: true, containers: CONFIGURED, ..Options::default() };
    let site = &mut Site::start("https", options, GROWN, &offering());
    // By itself lrsd trusts whom the system does.
    let error = site
        .cluster
        .patiently("a refusal", |_| site.yarn()["last_error"].as_str().map(str::to_owned));
    assert!(error.contains("https://127.0.0.1:") && error.contains("yarn.ca_file"), "{error}");
    assert_eq!(site.yarn()["advertised"], serde_json::Value::Null);

    site.daemon.stop();
    let pem = certificate::pem(site.cluster.dir());
    let trusting = format!("{}ca_file = {pem:?}", offering());
    site.daemon.configure(&settings(&site.cluster, GROWN, &trusting));
    site.daemon.launch();
    is_used_and_taken_back(site, &trusting);
}
