//! Figures that others set.

use super::*;

const RAISED: Resource = Resource { memory_mib: 16_384, vcores: 16 };

fn at_site() -> Scene {
    Scene::with(Endpoints { configured: Some(SITE), ..Endpoints::default() }, OfferBy::Rest)
}

#[test]
fn a_node_that_was_raised_before_is_built_on_and_never_lowered() {
    for view in [view(2), view(0), View { offer: false, ..view(2) }] {
        let mut scene = at_site();
        // dynamic-resources.xml, or by hand; the directory of the ledger is empty after a boot.
        scene.cluster.shown = RAISED;
        scene.run(&view, Duration::from_secs(400));
        assert!(scene.cluster.updates.iter().all(|sent| !RAISED.exceeds(*sent)), "{view:?}");
        let report = scene.agent.report();
        let memory = |found: Option<proto::YarnResource>| found.unwrap().memory_mib;
        assert_eq!((memory(report.configured), memory(report.site)), (16_384, 8192));
        scene.reconcile(&View { offer: false, ..view });
        assert_eq!(scene.cluster.shown, RAISED);
    }
    let mut scene = at_site();
    scene.cluster.shown = RAISED;
    scene.reconcile(&view(2));
    assert_eq!(scene.cluster.shown, Resource { memory_mib: 16_384 + 2048, vcores: 18 });
}

#[test]
fn a_raise_outlives_a_restart_of_lrs_yarn_without_an_offer() {
    let mut scene = at_site();
    scene.cluster.shown = RAISED;
    scene.reconcile(&View { offer: false, ..view(2) });
    scene.kill_and_restart();
    scene.reconcile(&view(0));
    assert_eq!((scene.cluster.shown, scene.cluster.updates.len()), (RAISED, 0));
}

#[test]
fn a_node_raised_while_it_was_decommissioned_stays_so() {
    let mut scene = at_site();
    (scene.cluster.shown, scene.cluster.state) = (RAISED, "DECOMMISSIONING");
    scene.reconcile(&view(0));
    (scene.cluster.state, scene.cluster.nm_started) = ("RUNNING", 2);
    scene.reconcile(&view(0));
    assert_eq!((scene.cluster.shown, scene.cluster.updates.len()), (RAISED, 0));
}

#[test]
fn a_figure_set_by_others_becomes_the_configured_value() {
    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    scene.run(&view(2), Duration::from_secs(70));
    scene.cluster.shown = Resource { memory_mib: 12_288, vcores: 12 };
    scene.reconcile(&view(2));
    assert_eq!(scene.cluster.shown, Resource { memory_mib: 14_336, vcores: 14 });
    let reason = "another client gave the node 12288 MiB, 12 vcores, which the offer builds on";
    assert_eq!(scene.changes[1].reason, reason);
    scene.reconcile(&View { offer: false, ..view(2) });
    assert_eq!(scene.cluster.shown, Resource { memory_mib: 12_288, vcores: 12 });
}

#[test]
fn an_earlier_figure_of_ours_that_others_set_is_theirs() {
    // While an offer stands, and after it was given back.
    for (now, set) in [(view(4), 2), (view(0), 2), (view(0), 4)] {
        let mut scene = at_site();
        scene.reconcile(&view(2));
        scene.reconcile(&view(4));
        scene.reconcile(&now);
        scene.cluster.shown = plus(set);
        scene.reconcile(&now);
        let configured = scene.agent.report().configured.unwrap();
        assert_eq!(configured.memory_mib, plus(set).memory_mib, "{now:?} {set}");
        scene.reconcile(&view(0));
        assert_eq!(scene.cluster.shown, plus(set));
    }
}

#[test]
fn after_a_restart_of_lrs_yarn_it_is_theirs_too_once_nothing_can_be_late() {
    let mut scene = at_site();
    scene.reconcile(&view(2));
    scene.reconcile(&view(0));
    scene.run(&view(0), Duration::from_secs(69));
    scene.kill_and_restart();
    scene.cluster.shown = plus(2);
    scene.reconcile(&view(0));
    assert_eq!((scene.cluster.shown, scene.cluster.updates.len()), (plus(2), 2));
}

#[test]
fn an_update_that_was_given_up_and_is_carried_out_late_is_ours() {
    let mut scene = at_site();
    scene.reconcile(&view(0));
    scene.cluster.refuses = true;
    scene.reconcile(&view(2));
    scene.cluster.refuses = false;
    scene.reconcile(&view(0));
    scene.cluster.shown = plus(2);
    scene.reconcile(&view(0));
    assert_eq!(scene.cluster.shown, SITE);
}

#[test]
fn its_own_figure_set_by_others_is_not_taken_for_a_restart() {
    for (started, words) in [(1, "another client gave the node 8192 MiB"), (2, "registered anew")] {
        let mut scene = at_site();
        scene.run(&view(2), Duration::from_secs(70));
        (scene.cluster.shown, scene.cluster.nm_started) = (SITE, started);
        // A pass that no poll is due for sees it first: it asks the NodeManager itself.
        scene.pass(&view(1));
        scene.reconcile(&view(1));
        assert!(scene.changes[1].reason.contains(words), "{:?}", scene.changes);
    }
}
