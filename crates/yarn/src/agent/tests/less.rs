//! Less goes at once, whatever is being waited for.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Passes until there are this many updates, and how long that took.
fn sent(scene: &mut Scene, view: &View, count: usize) -> Duration {
    let before = scene.now;
    for _ in 0..100 {
        if scene.cluster.updates.len() >= count {
            return scene.now.since(before);
        }
        scene.pass(view);
    }
    panic!("{count} updates never come: {:?}", scene.cluster.updates);
}

#[test]
fn less_does_not_wait_for_a_raise_to_show() {
    let mut scene = Scene::new();
    scene.reconcile(&view(0));
    scene.cluster.lag = 6;
    sent(&mut scene, &view(4), 1);
    assert!(sent(&mut scene, &view(1), 2) <= SECOND);
    assert_eq!(scene.cluster.updates, [plus(4), plus(1)]);
    scene.reconcile(&view(1));
    assert_eq!(scene.cluster.shown, plus(1));
    assert_eq!(scene.kinds(), [(EventKind::Offered, Some("9216 MiB, 9 vcores"))]);
    assert_eq!(scene.changes[0].from.as_deref(), Some("12288 MiB, 12 vcores"));
}

#[test]
fn a_raise_on_its_way_is_called_back_to_what_shows() {
    for offer in [true, false] {
        let mut scene = Scene::new();
        scene.reconcile(&view(0));
        scene.cluster.lag = 6;
        sent(&mut scene, &view(4), 1);
        let back = View { offer, ..view(0) };
        assert!(sent(&mut scene, &back, 2) <= SECOND, "it shows that already");
        scene.reconcile(&back);
        assert_eq!(scene.cluster.updates[..2], [plus(4), SITE]);
        assert_eq!(scene.cluster.shown, SITE);
        assert!(scene.agent.is_clear());
    }
}

#[test]
fn more_right_after_less_keeps_its_pace() {
    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    sent(&mut scene, &view(0), 2);
    assert!(sent(&mut scene, &view(4), 3) > SECOND, "no manager registered anew");
}

#[test]
fn less_ends_the_pause_after_an_error_and_more_does_not() {
    let mut scene = Scene::new();
    scene.reconcile(&view(4));
    scene.cluster.rm_down = true;
    scene.run(&view(4), Duration::from_secs(300));
    scene.cluster.rm_down = false;
    assert!(scene.agent.next(&view(5)) > scene.now);
    assert!(sent(&mut scene, &view(2), 2) <= SECOND);
    assert_eq!(scene.cluster.updates, [plus(4), plus(2)]);
    scene.reconcile(&view(4));
    scene.cluster.rm_down = true;
    scene.run(&view(4), Duration::from_secs(300));
    scene.cluster.rm_down = false;
    let off = View { offer: false, ..view(4) };
    assert!(sent(&mut scene, &off, 4) <= SECOND);
    assert_eq!(scene.cluster.updates.last(), Some(&SITE));
}

#[test]
fn a_manager_that_is_away_is_tried_once_a_second_at_most() {
    let mut scene = Scene::new();
    scene.reconcile(&view(9));
    scene.cluster.rm_down = true;
    scene.run(&view(9), Duration::from_secs(300));
    let mut gaps = Vec::new();
    for beyond in (0..9).rev() {
        let before = scene.now;
        scene.pass(&view(beyond));
        gaps.push(scene.now.since(before));
    }
    assert!(gaps.iter().skip(1).all(|gap| *gap == SECOND), "{gaps:?}");
    let before = scene.now;
    for _ in 0..4 {
        scene.pass(&view(0));
    }
    assert_eq!(scene.now.since(before), SECOND * (1 + 2 + 4 + 5), "the pauses grow again");
}

proptest! {
    #[test]
    fn what_was_sent_last_is_never_too_much_for_long(
        steps in prop::collection::vec((0u32..6, 0u32..7, prop::bool::weighted(0.2), 0u64..4000), 1..30)
    ) {
        let mut scene = Scene::new();
        scene.reconcile(&view(0));
        let mut last = 0;
        for (beyond, lag, away, millis) in steps {
            // With several on their way an earlier one may be the like of the newest, and be taken for it.
            let well = scene.agent.failure().is_none() && scene.cluster.on_their_way() < 2;
            (scene.cluster.lag, scene.cluster.rm_down) = (lag, away);
            scene.run(&view(beyond), Duration::from_millis(millis));
            if well && !away && millis > 1000 {
                let sent = scene.cluster.updates.last().copied().unwrap_or(SITE);
                prop_assert!(!sent.exceeds(plus(beyond)), "{sent} for {beyond} slots");
            }
            last = beyond;
        }
        scene.cluster.rm_down = false;
        scene.run(&view(last), Duration::from_secs(200));
        prop_assert_eq!(scene.cluster.shown, plus(last));
    }
}
