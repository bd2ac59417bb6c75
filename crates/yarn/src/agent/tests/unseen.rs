//! Behind Kerberos.

use super::super::unseen::REPEAT_UNSEEN;
use super::*;

fn scene() -> Scene {
    let endpoints = Endpoints {
        node_id: Some("node1:45454".parse().unwrap()),
        configured: Some(SITE),
        ..Endpoints::default()
    };
    let mut scene = Scene::with(endpoints, OfferBy::Rmadmin);
    scene.cluster.kerberos = true;
    scene
}

#[test]
fn behind_kerberos_the_command_works_unseen() {
    let mut scene = scene();
    scene.run(&view(3), REPEAT_UNSEEN / 2);
    assert_eq!(scene.cluster.updates, [plus(3)]);
    assert!(scene.changes[0].reason.contains("not verified"), "{:?}", scene.changes[0]);
    assert_eq!(scene.changes[0].inputs["verified"], false);
    assert_eq!(scene.agent.report().verified, Some(false));
    scene.run(&view(3), REPEAT_UNSEEN);
    assert_eq!(scene.cluster.updates, [plus(3), plus(3)], "again, in case it was lost");
    assert_eq!(scene.changes.len(), 1);
    scene.reconcile(&View { offer: false, ..view(3) });
    assert_eq!(scene.cluster.updates.last(), Some(&SITE));
    assert!(scene.agent.is_clear());
    let count = scene.cluster.updates.len();
    scene.run(&View { offer: false, ..view(3) }, REPEAT_UNSEEN * 3);
    assert_eq!(scene.cluster.updates.len(), count, "and no more");
}

#[test]
fn behind_kerberos_what_a_failed_run_left_is_not_taken_for_what_was_sent() {
    let mut scene = scene();
    scene.reconcile(&view(3));
    // A run that is given up may have been carried out: the raise may stand.
    scene.cluster.unsure = true;
    scene.reconcile(&view(5));
    let failed = scene.changes.last().unwrap();
    assert_eq!(failed.kind, EventKind::OfferFailed, "{failed:?}");
    assert!(failed.reason.contains("was killed"), "{failed:?}");
    assert_eq!(scene.cluster.updates.last(), Some(&plus(5)), "and it cannot be read");
    assert!(scene.agent.next(&view(5)) > scene.now, "it is tried again later");
    scene.cluster.unsure = false;
    scene.reconcile(&view(3));
    assert_eq!(scene.cluster.updates.last(), Some(&plus(3)), "though that was sent before");
    assert!(scene.agent.failure().is_none());
    let count = scene.cluster.updates.len();
    scene.reconcile(&view(3));
    assert_eq!(scene.cluster.updates.len(), count, "and no more");
}

#[test]
fn behind_kerberos_a_new_lrsd_takes_back_what_the_last_one_could_not() {
    let mut scene = scene();
    scene.reconcile(&view(3));
    scene.kill_and_restart();
    let observe = View { enforce: false, ..view(3) };
    scene.reconcile(&observe);
    assert_eq!(scene.cluster.updates, [plus(3)]);
    let error = scene.agent.failure().unwrap().to_owned();
    assert!(error.contains("for node1:45454 may stand"), "{error}");
    assert!(error.ends_with("`yarn rmadmin -updateNodeResource node1:45454 8192 8 -1`"), "{error}");
    assert_eq!(scene.agent.next(&observe), scene.agent.next_poll, "and looks go on");
    scene.kill_and_restart();
    scene.reconcile(&View { offer: false, ..view(3) });
    assert_eq!(scene.cluster.updates, [plus(3), SITE]);
    assert!(scene.agent.is_clear());
}

#[test]
fn behind_kerberos_a_node_that_was_decommissioned_before_is_sent_nothing() {
    let mut scene = scene();
    scene.cluster.kerberos = false;
    scene.reconcile(&view(3));
    scene.cluster.state = "DECOMMISSIONING";
    scene.reconcile(&view(3));
    (scene.cluster.state, scene.cluster.kerberos) = ("RUNNING", true);
    for restarts in [false, true] {
        if restarts {
            scene.kill_and_restart();
        }
        let off = View { offer: false, ..view(3) };
        for view in [view(1), view(5), off, View { enforce: false, ..view(3) }] {
            scene.run(&view, REPEAT_UNSEEN * 2);
            assert_eq!(scene.cluster.updates, [plus(3)], "{view:?}");
            let error = scene.agent.failure().unwrap();
            assert!(error.contains("was being decommissioned"), "{error}");
            assert!(!error.contains("rmadmin"), "that would kill too: {error}");
        }
    }
    scene.cluster.nm_started = 2;
    scene.reconcile(&view(2));
    assert_eq!(scene.cluster.updates, [plus(3), plus(2)], "it has a record without that");
    assert!(scene.agent.failure().is_none());
}

#[test]
fn behind_kerberos_rest_says_what_to_use_instead() {
    let mut scene = Scene::new();
    scene.cluster.kerberos = true;
    scene.reconcile(&view(3));
    let [failed] = scene.changes.as_slice() else { panic!("{:?}", scene.changes) };
    assert!(failed.reason.contains("rmadmin"), "{failed:?}");
}

#[test]
fn behind_kerberos_an_edited_site_counts_and_not_what_was_written_down() {
    let mut scene = scene();
    scene.reconcile(&view(3));
    let less = Resource { memory_mib: 4096, vcores: 4 };
    scene.cluster.site = Some(less);
    scene.reconcile(&View { enforce: false, ..view(3) });
    assert_eq!(
        recorded(&scene).unwrap().configured,
        less,
        "what the message tells an operator to set"
    );
    scene.reconcile(&view(3));
    let offer = Resource { memory_mib: 4096 + 3 * 1024, vcores: 7 };
    assert_eq!(scene.cluster.updates, [plus(3), offer]);
    scene.kill_and_restart();
    scene.cluster.site = Some(SITE);
    scene.reconcile(&view(1));
    assert_eq!(scene.cluster.updates.last(), Some(&plus(1)));
    scene.cluster.site = None;
    scene.reconcile(&View { offer: false, ..view(1) });
    assert_eq!(
        scene.cluster.updates.last(),
        Some(&SITE),
        "what was known when it reported nothing"
    );
}

#[test]
fn behind_kerberos_a_node_that_may_have_gpus_keeps_them() {
    let mut scene = scene();
    scene.cluster.types = "yarn.io/gpu";
    scene.reconcile(&view(3));
    assert_eq!(scene.cluster.updates, []);
    assert!(scene.changes[0].reason.contains("yarn.io/gpu"), "{:?}", scene.changes[0]);
    scene.cluster.types = "memory-mb,vcores";
    scene.run(&view(3), Duration::from_secs(70));
    assert_eq!(scene.cluster.updates, [plus(3)]);
}

#[test]
fn behind_kerberos_one_of_several_has_to_be_named() {
    let endpoints = Endpoints { configured: Some(SITE), ..Endpoints::default() };
    let mut scene = Scene::with(endpoints, OfferBy::Rmadmin);
    (scene.cluster.kerberos, scene.cluster.node_managers) = (true, 2);
    scene.reconcile(&view(3));
    assert_eq!(scene.cluster.updates, []);
    assert!(scene.changes[0].reason.contains("set yarn.node_id"), "{:?}", scene.changes[0]);
}
