//! Which node is offered to.

use super::*;

const A_WHILE: Duration = Duration::from_secs(70);

#[test]
fn another_node_than_the_one_set_gets_nothing() {
    let set = Endpoints { node_id: Some("node9:1".parse().unwrap()), ..Endpoints::default() };
    let mut scene = Scene::with(set, OfferBy::Rest);
    scene.cluster.other = Some("node9:1");
    scene.run(&view(3), A_WHILE);
    assert_eq!(scene.cluster.updates, [], "not between two polls either");
    let reason = &scene.changes[0].reason;
    assert!(reason.contains("node9:1") && reason.contains("node1:45454"), "{reason}");
    scene.cluster.nm_down = true;
    scene.run(&view(4), A_WHILE);
    assert_eq!(scene.cluster.updates, [], "the node has not been set otherwise since");
    (scene.cluster.nm_down, scene.cluster.node_id) = (false, "NODE9:1".into());
    scene.run(&view(3), A_WHILE);
    assert_eq!(scene.cluster.updates, [plus(3)]);
}

#[test]
fn the_one_set_is_offered_to_while_its_node_manager_says_nothing() {
    let set = Endpoints { node_id: Some("node9:1".parse().unwrap()), ..Endpoints::default() };
    let mut scene = Scene::with(set, OfferBy::Rest);
    scene.cluster.nm_down = true;
    scene.run(&view(3), A_WHILE);
    assert!(scene.changes[0].reason.contains("knows no node node9:1"), "{:?}", scene.changes[0]);
    scene.cluster.other = Some("node9:1");
    scene.run(&view(3), A_WHILE);
    assert_eq!(scene.cluster.updates, [plus(3)]);
}

#[test]
fn a_node_of_another_host_is_not_believed() {
    for (called, words) in
        [("node2:45454", "node2 is no name of this node"), ("node2", "no node id")]
    {
        let mut scene = Scene::new();
        scene.cluster.node_id = called.into();
        scene.run(&view(3), A_WHILE);
        assert_eq!(scene.cluster.updates, []);
        assert!(scene.changes[0].reason.contains(words), "{:?}", scene.changes[0]);
        assert!(scene.agent.report().node_manager.unwrap().error.unwrap().contains(words));
        scene.cluster.node_id = "node1:45454".into();
        scene.run(&view(3), A_WHILE);
        assert_eq!(scene.cluster.updates, [plus(3)]);
    }
}

#[test]
fn who_answers_in_the_node_managers_place_changes_nothing() {
    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    scene.cluster.state = "DECOMMISSIONING";
    scene.reconcile(&view(2));
    scene.cluster.state = "RUNNING";
    // It names another node and says that it has just started.
    scene.cluster.node_id = "node2:45454".into();
    (scene.cluster.other, scene.cluster.nm_started) = (Some("node1:45454"), 2);
    scene.run(&view(4), A_WHILE);
    assert_eq!(scene.cluster.updates, [plus(2)]);
    (scene.cluster.node_id, scene.cluster.nm_started) = ("node1:45454".into(), 1);
    scene.run(&view(4), A_WHILE);
    let error = scene.agent.report().last_error.unwrap();
    assert!(error.contains("was being decommissioned"), "{error}");
    assert_eq!(scene.cluster.updates, [plus(2)]);
}

#[test]
fn what_was_offered_is_taken_back_while_the_node_is_unknown() {
    let mut scene = Scene::new();
    scene.reconcile(&view(3));
    scene.cluster.node_id = "node2:45454".into();
    scene.cluster.other = Some("node1:45454");
    scene.run(&view(3), A_WHILE);
    assert_eq!(scene.cluster.updates, [plus(3), SITE]);
    assert!(scene.agent.is_clear());
    assert!(scene.agent.failure().unwrap().contains("node2"), "and it is still reported");
    scene.cluster.node_id = "node1:45454".into();
    scene.run(&view(3), A_WHILE);
    assert_eq!(scene.cluster.updates, [plus(3), SITE, plus(3)]);
}

#[test]
fn a_new_lrsd_takes_back_what_stands_although_the_node_manager_is_down() {
    let mut scene = Scene::new();
    scene.reconcile(&view(3));
    scene.kill_and_restart();
    scene.cluster.nm_down = true;
    scene.run(&View { offer: false, ..view(0) }, A_WHILE);
    assert_eq!(scene.cluster.updates, [plus(3), SITE]);
}

#[test]
fn a_name_that_cannot_be_looked_up_is_reported() {
    let mut scene = Scene::new();
    let names = scene.cluster.here.take();
    scene.run(&view(2), A_WHILE);
    assert_eq!(scene.cluster.updates, []);
    let reason = &scene.changes[0].reason;
    assert!(
        reason.contains("no name server answers") && reason.contains("yarn.node_id"),
        "{reason}"
    );
    scene.cluster.here = names;
    scene.run(&view(2), A_WHILE);
    assert_eq!(scene.cluster.updates, [plus(2)]);
}
