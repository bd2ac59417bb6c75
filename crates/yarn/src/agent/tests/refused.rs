//! Updates that are refused: a Java machine each.

use super::*;

/// Seconds between the updates that were tried while figures change every three.
fn pauses(scene: &mut Scene, figures: &[u32]) -> Vec<u64> {
    let mut at = Vec::new();
    let end = scene.now.after(Duration::from_secs(300));
    let mut beyond = figures.iter().cycle();
    let (mut next, mut now) = (scene.now, view(figures[0]));
    while scene.now < end {
        if scene.now >= next {
            next = scene.now.after(Duration::from_secs(3));
            now = view(*beyond.next().unwrap());
        }
        let before = scene.cluster.updates.len();
        if scene.agent.next(&now) < next {
            scene.pass(&now);
        } else {
            scene.now = next;
        }
        at.extend((before..scene.cluster.updates.len()).map(|_| scene.now));
    }
    at.windows(2).map(|two| two[1].since(two[0]).as_secs()).collect()
}

fn hidden() -> Scene {
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
fn the_pause_grows_to_a_minute_whatever_is_wanted_by_then() {
    for (mut scene, figures) in [
        (hidden(), &[2][..]),
        (hidden(), &[2, 3]),
        (Scene::new(), &[2]),
        (Scene::new(), &[2, 3]),
        // Nothing to be sent in between.
        (Scene::new(), &[2, 0]),
    ] {
        scene.cluster.refuses = true;
        let pauses = pauses(&mut scene, figures);
        assert!((6..=10).contains(&pauses.len()), "{figures:?} {pauses:?}");
        assert!(pauses[..2].iter().sum::<u64>() <= 9, "{figures:?} {pauses:?}");
        assert!(pauses.iter().skip(6).all(|pause| *pause >= 60), "{figures:?} {pauses:?}");
        assert_eq!(scene.changes.len(), 1, "{figures:?} {:?}", scene.changes);
        assert!(scene.changes[0].reason.contains("no ticket"), "{:?}", scene.changes);
        scene.reconcile(&view(2));
        assert!(scene.agent.failure().unwrap().contains("no ticket"), "while it waits too");
        scene.cluster.refuses = false;
        scene.run(&view(2), Duration::from_secs(61));
        assert_eq!((scene.cluster.updates.last(), scene.agent.failure()), (Some(&plus(2)), None));
    }
}

#[test]
fn another_reason_is_reported_and_a_lower_figure_does_not_wait() {
    let mut scene = Scene::new();
    scene.reconcile(&view(4));
    scene.cluster.refuses = true;
    scene.run(&view(6), Duration::from_secs(200));
    let tried = scene.cluster.updates.len();
    let before = scene.now;
    scene.pass(&view(2));
    assert_eq!(scene.cluster.updates[tried..], [plus(2)]);
    assert_eq!(scene.now, before);
    scene.run(&view(2), Duration::from_secs(20));
    assert_eq!(scene.cluster.updates.len(), tried + 1, "once");
    (scene.cluster.refuses, scene.cluster.deaf) = (false, true);
    scene.run(&view(2), Duration::from_secs(200));
    let reasons: Vec<&str> = scene.changes.iter().map(|change| change.reason.as_str()).collect();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert!(reasons[1].contains("no ticket") && reasons[2].contains("still shows"), "{reasons:?}");
}

#[test]
fn a_manager_that_restarts_is_tried_at_once() {
    let mut scene = Scene::new();
    scene.cluster.refuses = true;
    scene.run(&view(2), Duration::from_secs(200));
    (scene.cluster.refuses, scene.cluster.started) = (false, 2);
    scene.run(&view(2), Duration::from_secs(6));
    assert_eq!(scene.cluster.shown, plus(2));
}
