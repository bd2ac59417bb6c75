//! The agent against a cluster that is played, with time as the tests have it.

use tempfile::TempDir;

use super::super::offer::{NodeMemory, SlotSize, Slots};
use super::super::played::Played;
use super::*;
use lrs_core::units::{Bytes, WallTime};

mod less;
mod node;
mod others;
mod refused;
mod unseen;

const GIB: u64 = 1 << 30;
const SITE: Resource = Resource { memory_mib: 8192, vcores: 8 };

fn plus(slots: u32) -> Resource {
    Resource { memory_mib: 8192 + 1024 * u64::from(slots), vcores: 8 + slots }
}

fn view(beyond: u32) -> View {
    View {
        slots: Slots { active: 2, passive: 2 + beyond, base: 2, given_out: true },
        memory: NodeMemory { total: Some(Bytes(64 * GIB)), reserve: Bytes(GIB) },
        slot: SlotSize { memory: Bytes(GIB), vcores: 1 },
        offer: true,
        enforce: true,
        poll: Duration::from_secs(5),
    }
}

fn wall(now: BootTime) -> WallTime {
    WallTime::from_unix_micros(i64::try_from(now.0.as_micros()).unwrap())
}

/// An agent, its cluster, and a clock that only the agent's own wishes move.
struct Scene {
    dir: TempDir,
    endpoints: Endpoints,
    by: OfferBy,
    agent: Agent,
    cluster: Played,
    now: BootTime,
    changes: Vec<Change>,
    complaints: Vec<String>,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(Endpoints::default(), OfferBy::Rest)
    }

    fn with(endpoints: Endpoints, by: OfferBy) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let file = LedgerFile::in_dir(&dir.path().join("state"));
        let (agent, damage) = Agent::new(endpoints.clone(), by, file);
        assert!(damage.is_none());
        let now = BootTime(Duration::from_secs(1000));
        let (changes, complaints) = (Vec::new(), Vec::new());
        let cluster = Played::at(endpoints.configured);
        Scene { dir, endpoints, by, agent, cluster, now, changes, complaints }
    }

    /// lrsd was killed and started again.
    fn kill_and_restart(&mut self) {
        let file = LedgerFile::in_dir(&self.dir.path().join("state"));
        let (agent, damage) = Agent::new(self.endpoints.clone(), self.by, file);
        assert!(damage.is_none());
        self.agent = agent;
    }

    fn pass(&mut self, view: &View) {
        self.now = self.now.max(self.agent.next(view));
        let now = Moment { boot: self.now, wall: wall(self.now) };
        let outcome = self.agent.pass(&mut self.cluster, view, now);
        self.changes.extend(outcome.changes);
        self.complaints.extend(outcome.complaints);
    }

    /// Passes when they are due, for this long.
    fn run(&mut self, view: &View, time: Duration) {
        let end = self.now.after(time);
        for _ in 0..10_000 {
            if self.agent.next(view) > end {
                self.now = end;
                return;
            }
            self.pass(view);
        }
        panic!("it never rests");
    }

    fn reconcile(&mut self, view: &View) {
        self.run(view, Duration::from_secs(20));
    }

    fn kinds(&self) -> Vec<(EventKind, Option<&str>)> {
        self.changes.iter().map(|change| (change.kind, change.to.as_deref())).collect()
    }
}

#[test]
fn slots_that_open_are_offered_once_and_verified() {
    let mut scene = Scene::new();
    scene.reconcile(&view(3));
    assert_eq!(scene.cluster.updates, [plus(3)]);
    assert_eq!(scene.kinds(), [(EventKind::Offered, Some("11264 MiB, 11 vcores"))]);
    let change = &scene.changes[0];
    assert_eq!(change.from.as_deref(), Some("8192 MiB, 8 vcores"));
    assert_eq!(change.reason, "3 slots are open beyond the base");
    assert_eq!(change.inputs["verified"], true);
    assert_eq!(change.inputs["configured"], "8192 MiB, 8 vcores");
    assert_eq!(change.inputs["node"], "node1:45454");
    let report = scene.agent.report();
    assert_eq!(report.verified, Some(true));
    assert_eq!(report.advertised.unwrap().memory_mib, 11_264);
    assert_eq!(report.configured.unwrap().memory_mib, 8192);
    assert!(report.last_error.is_none());
}

#[test]
fn shrinking_goes_at_once_and_growing_keeps_its_pace() {
    let mut scene = Scene::new();
    scene.reconcile(&view(1));
    let before = scene.now;
    scene.pass(&view(2));
    scene.pass(&view(2));
    scene.pass(&view(3));
    assert_eq!(scene.cluster.updates, [plus(1), plus(2)], "a raise waits after a raise");
    scene.pass(&view(0));
    assert_eq!(scene.cluster.updates, [plus(1), plus(2), SITE]);
    assert!(scene.now.since(before) < Duration::from_secs(1));
    scene.reconcile(&view(3));
    assert_eq!(scene.cluster.updates.last(), Some(&plus(3)));
}

#[test]
fn a_node_manager_that_registered_anew_gets_its_offer_again() {
    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    (scene.cluster.shown, scene.cluster.nm_started) = (SITE, 2);
    scene.reconcile(&view(2));
    assert_eq!(scene.cluster.updates, [plus(2), plus(2)]);
    assert!(scene.changes[1].reason.ends_with("registered anew"), "{:?}", scene.changes[1]);
}

#[test]
fn a_node_manager_with_another_port_is_followed() {
    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    scene.cluster.node_id = "node1:33333".into();
    scene.cluster.shown = SITE;
    scene.reconcile(&view(2));
    assert_eq!(scene.cluster.shown, plus(2));
    assert_eq!(scene.agent.report().node_manager.unwrap().node_id.as_deref(), Some("node1:33333"));
}

#[test]
fn a_manager_that_restarts_or_changes_is_reported_again() {
    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    scene.cluster.rm_down = true;
    scene.run(&view(2), Duration::from_secs(120));
    assert_eq!(scene.kinds()[1..], [(EventKind::OfferFailed, Some("10240 MiB, 10 vcores"))]);
    assert!(scene.agent.report().last_error.unwrap().contains("cannot be reached"));
    scene.cluster.rm_down = false;
    scene.cluster.started = 2;
    scene.cluster.shown = SITE;
    scene.run(&view(2), Duration::from_secs(70));
    assert_eq!(scene.cluster.updates, [plus(2), plus(2)]);
    assert!(scene.changes[2].reason.contains("another one took over"), "{:?}", scene.changes[2]);
    assert!(scene.agent.report().last_error.is_none());
}

#[test]
fn pauses_after_errors_grow() {
    let mut scene = Scene::new();
    scene.cluster.rm_down = true;
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let before = scene.now;
        scene.pass(&view(2));
        pauses.push(scene.now.since(before).as_secs());
    }
    assert_eq!(pauses, [0, 1, 2, 4, 5, 5, 5, 5, 5], "no longer than yarn.poll");
    assert_eq!(scene.changes.len(), 1, "the same error is reported once");
}

#[test]
fn after_a_kill_an_offer_is_known_for_one() {
    let mut scene = Scene::new();
    scene.reconcile(&view(3));
    scene.kill_and_restart();
    scene.reconcile(&view(3));
    assert_eq!(scene.cluster.updates, [plus(3)], "nothing to do");
    assert_eq!(scene.agent.report().configured.unwrap().memory_mib, 8192);
    scene.reconcile(&view(0));
    assert_eq!(scene.cluster.shown, SITE);
}

#[test]
fn killed_at_any_step_the_configured_value_is_never_lost() {
    for steps in 0..12 {
        let mut scene = Scene::new();
        scene.cluster.lag = 2;
        for step in 0..steps {
            scene.pass(&view(if step % 4 < 2 { 1 } else { 4 }));
        }
        scene.kill_and_restart();
        scene.reconcile(&view(2));
        assert_eq!(scene.cluster.shown, plus(2), "killed after {steps} passes");
        scene.reconcile(&View { offer: false, ..view(2) });
        assert_eq!(scene.cluster.shown, SITE, "killed after {steps} passes");
        assert!(scene.agent.is_clear());
    }
}

/// What the next lrsd, a removal of LRS and whoever tells an operator what to type go by.
fn recorded(scene: &Scene) -> Option<Ledger> {
    LedgerFile::in_dir(&scene.dir.path().join("state")).read().unwrap()
}

#[test]
fn the_record_follows_a_node_that_registered_with_other_values() {
    let other = Resource { memory_mib: 12_288, vcores: 12 };
    let off = View { offer: false, ..view(2) };
    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    assert!(!recorded(&scene).unwrap().is_clear());
    (scene.cluster.shown, scene.cluster.nm_started) = (other, 2);
    scene.reconcile(&off);
    assert_eq!(
        recorded(&scene),
        None,
        "no offer of ours is in force, and 8192 MiB are no figure of LRS"
    );

    let endpoints = Endpoints { configured: Some(SITE), ..Endpoints::default() };
    let mut scene = Scene::with(endpoints, OfferBy::Rest);
    scene.reconcile(&view(2));
    (scene.cluster.site, scene.cluster.nm_started) = (Some(other), 2);
    scene.reconcile(&View { enforce: false, ..view(2) });
    assert_eq!(recorded(&scene).unwrap().configured, other, "under an offer that still stands");

    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    scene.reconcile(&off);
    assert!(recorded(&scene).unwrap().is_clear());
    (scene.cluster.shown, scene.cluster.started) = (plus(2), 2);
    scene.reconcile(&View { enforce: false, ..view(2) });
    assert!(!recorded(&scene).unwrap().is_clear(), "a fail-over brought it back");
}

#[test]
fn no_advice_to_lower_a_node_that_was_decommissioned() {
    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    scene.cluster.state = "DECOMMISSIONING";
    scene.reconcile(&view(2));
    scene.cluster.state = "RUNNING";
    scene.reconcile(&View { enforce: false, ..view(2) });
    let error = scene.agent.failure().unwrap().to_owned();
    assert!(error.contains("was being decommissioned") && !error.contains("rmadmin"), "{error}");
    scene.cluster.shown = Resource { memory_mib: 16_384, vcores: 1 };
    scene.reconcile(&view(2));
    let error = scene.agent.failure().unwrap().to_owned();
    assert!(error.contains("NodeManager is restarted") && !error.contains("rmadmin"), "{error}");
    scene.cluster.shown = Resource { memory_mib: 4096, vcores: 1 };
    scene.reconcile(&view(2));
    let error = scene.agent.failure().unwrap().to_owned();
    assert!(error.contains("8192 8 -1"), "a raise kills nothing: {error}");
}

#[test]
fn a_node_that_others_keep_small_stays_small() {
    for site in [None, Some(SITE)] {
        let endpoints = Endpoints { configured: site, ..Endpoints::default() };
        let mut scene = Scene::with(endpoints, OfferBy::Rest);
        scene.reconcile(&view(2));
        let nothing = Resource { memory_mib: 0, vcores: 0 };
        scene.cluster.shown = nothing;
        scene.run(&view(2), Duration::from_secs(300));
        scene.run(&view(4), Duration::from_secs(300));
        scene.kill_and_restart();
        scene.run(&view(2), Duration::from_secs(300));
        assert_eq!((scene.cluster.shown, scene.cluster.updates.len()), (nothing, 1), "{site:?}");
        let error = scene.agent.report().last_error.unwrap();
        assert!(
            error.contains("`yarn rmadmin -updateNodeResource node1:45454 8192 8 -1`"),
            "{error}"
        );
        assert_eq!(scene.changes.len(), 3, "the offer, and once by each lrsd: {:?}", scene.changes);
        scene.reconcile(&View { offer: false, ..view(2) });
        assert!(scene.agent.report().last_error.is_none() && scene.agent.is_clear());
        scene.cluster.shown = SITE;
        scene.reconcile(&view(2));
        assert_eq!(scene.cluster.shown, plus(2));
        assert!(scene.agent.report().last_error.is_none());
    }
}

#[test]
fn off_it_only_reads_and_takes_back_what_is_ours() {
    let off = View { offer: false, ..view(3) };
    let mut scene = Scene::new();
    scene.reconcile(&off);
    assert_eq!(scene.cluster.updates, []);
    assert!(scene.agent.report().advertised.is_some() && scene.agent.report().offered.is_none());
    scene.reconcile(&view(3));
    scene.reconcile(&off);
    assert_eq!(scene.cluster.updates, [plus(3), SITE]);
    assert!(scene.changes[1].reason.contains("its own figure back"), "{:?}", scene.changes[1]);
    scene.cluster.rm_down = true;
    scene.run(&off, Duration::from_secs(60));
    assert_eq!((scene.changes.len(), scene.complaints.len()), (2, 1), "logged, not an event");
}

#[test]
fn in_observe_mode_nothing_is_changed() {
    let mut scene = Scene::new();
    scene.reconcile(&View { enforce: false, ..view(3) });
    assert_eq!((scene.cluster.updates.len(), scene.changes.len()), (0, 0));
    assert_eq!(scene.agent.report().advertised.unwrap().memory_mib, 8192);
    assert!(!scene.agent.report().offer_enabled);
}

#[test]
fn an_update_that_comes_to_nothing_is_an_error() {
    let mut scene = Scene::new();
    scene.cluster.deaf = true;
    scene.reconcile(&view(3));
    let [failed] = scene.changes.as_slice() else { panic!("{:?}", scene.changes) };
    assert_eq!(failed.kind, EventKind::OfferFailed);
    assert!(failed.reason.contains("still shows 8192 MiB, 8 vcores"), "{failed:?}");
    assert_eq!(scene.agent.report().verified, Some(false));
    scene.cluster.deaf = false;
    scene.run(&view(3), Duration::from_secs(120));
    assert_eq!(scene.cluster.shown, plus(3));
}

#[test]
fn a_slow_update_is_waited_for() {
    let mut scene = Scene::new();
    scene.cluster.lag = 5;
    scene.reconcile(&view(3));
    assert_eq!(scene.cluster.updates, [plus(3)], "sent once");
    assert_eq!(scene.kinds(), [(EventKind::Offered, Some("11264 MiB, 11 vcores"))]);
}

#[test]
fn a_node_that_is_not_running_waits() {
    let mut scene = Scene::new();
    scene.cluster.state = "UNHEALTHY";
    scene.reconcile(&view(3));
    assert_eq!(scene.cluster.updates, []);
    assert!(scene.changes[0].reason.contains("UNHEALTHY"), "{:?}", scene.changes[0]);
    scene.cluster.state = "RUNNING";
    scene.run(&view(3), Duration::from_secs(70));
    assert_eq!(scene.cluster.shown, plus(3));
}

#[test]
fn a_node_with_gpus_keeps_them() {
    let mut scene = Scene::new();
    scene.cluster.gpus = 2;
    scene.reconcile(&view(3));
    assert_eq!(scene.cluster.updates, []);
    assert!(scene.changes[0].reason.contains("yarn.io/gpu"), "{:?}", scene.changes[0]);
}

#[test]
fn nothing_names_this_node() {
    let mut scene = Scene::new();
    scene.cluster.nm_down = true;
    scene.reconcile(&view(3));
    assert!(scene.changes[0].reason.contains("set yarn.node_id"), "{:?}", scene.changes[0]);
}

#[test]
fn an_offer_that_cannot_be_written_down_is_not_sent() {
    let mut scene = Scene::new();
    std::fs::remove_dir_all(scene.dir.path().join("state")).unwrap();
    scene.reconcile(&view(3));
    assert_eq!(scene.cluster.updates, []);
    assert!(
        scene.changes[0].reason.contains("could not be written down"),
        "{:?}",
        scene.changes[0]
    );
}

#[test]
fn what_could_not_be_written_is_written_later_and_reported_once() {
    let mut scene =
        Scene::with(Endpoints { configured: Some(SITE), ..Endpoints::default() }, OfferBy::Rest);
    let state = scene.dir.path().join("state");
    std::fs::remove_dir(&state).unwrap();
    scene.cluster.shown = Resource { memory_mib: 4096, vcores: 4 };
    scene.reconcile(&view(2));
    assert_eq!(scene.complaints.len(), 1, "{:?}", scene.complaints);
    assert!(scene.complaints[0].contains("is not written down"), "{:?}", scene.complaints);
    std::fs::create_dir(&state).unwrap();
    scene.reconcile(&view(2));
    assert_eq!(recorded(&scene).unwrap().lowered_from(), Some(SITE));
    std::fs::remove_dir_all(&state).unwrap();
    scene.reconcile(&view(2));
    assert_eq!(scene.complaints.len(), 1, "there is no news to write");
}

#[test]
fn what_a_node_shows_while_it_is_decommissioned_is_no_setting() {
    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    let allocated = Resource { memory_mib: 3072, vcores: 3 };
    (scene.cluster.state, scene.cluster.shown) = ("DECOMMISSIONING", allocated);
    scene.reconcile(&view(2));
    assert_eq!(scene.cluster.updates, [plus(2)], "nothing is sent meanwhile");
    (scene.cluster.state, scene.cluster.shown) = ("RUNNING", plus(2));
    scene.reconcile(&view(2));
    assert_eq!(scene.agent.report().configured.unwrap().memory_mib, SITE.memory_mib);
    scene.reconcile(&view(4));
    assert_eq!(scene.cluster.updates, [plus(2)], "no raise: lowering it would kill");
    let error = scene.agent.report().last_error.unwrap();
    assert!(error.contains("was being decommissioned"), "{error}");
    scene.kill_and_restart();
    scene.reconcile(&view(4));
    assert_eq!(scene.cluster.updates, [plus(2)], "a new lrsd knows");
    scene.reconcile(&view(0));
    scene.reconcile(&View { offer: false, ..view(0) });
    assert_eq!(scene.cluster.updates, [plus(2)], "nor less: what is free now is soon in use");
    scene.cluster.nm_started = 2;
    scene.reconcile(&view(4));
    assert_eq!(scene.cluster.shown, plus(4));
}

#[test]
fn a_manager_that_restarts_while_the_node_is_decommissioned_does_not_end_that() {
    let mut scene = Scene::new();
    scene.reconcile(&view(3));
    scene.cluster.state = "DECOMMISSIONING";
    scene.reconcile(&view(3));
    scene.cluster.nm_started = 2;
    scene.reconcile(&view(3));
    scene.kill_and_restart();
    scene.cluster.state = "RUNNING";
    scene.reconcile(&view(1));
    assert_eq!(scene.cluster.updates, [plus(3)], "it would kill");
    assert!(scene.agent.failure().unwrap().contains("was being decommissioned"));
}

#[test]
fn an_unhealthy_node_gives_back() {
    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    scene.cluster.state = "UNHEALTHY";
    scene.reconcile(&view(1));
    assert_eq!(scene.cluster.shown, plus(1), "less goes through");
    scene.run(&View { offer: false, ..view(2) }, Duration::from_secs(70));
    assert_eq!(scene.cluster.shown, SITE);
}

#[test]
fn an_offer_is_given_back_though_it_cannot_be_written_down() {
    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    std::fs::remove_dir_all(scene.dir.path().join("state")).unwrap();
    scene.reconcile(&View { offer: false, ..view(2) });
    assert_eq!(scene.cluster.shown, SITE);
    assert!(scene.complaints[0].contains("without a record"), "{:?}", scene.complaints);
    assert_eq!((scene.complaints.len(), scene.agent.failure()), (1, None), "nothing else failed");
    std::fs::create_dir(scene.dir.path().join("state")).unwrap();
    scene.reconcile(&View { offer: false, ..view(2) });
    assert!(recorded(&scene).unwrap().is_clear());
}

#[test]
fn an_offer_that_comes_back_after_it_was_given_back_is_still_ours() {
    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    scene.reconcile(&view(0));
    assert!(scene.agent.is_clear());
    scene.run(&view(0), Duration::from_secs(100));
    for restarts in [false, true] {
        if restarts {
            scene.kill_and_restart();
        }
        (scene.cluster.shown, scene.cluster.started) = (plus(2), scene.cluster.started + 1);
        scene.reconcile(&view(0));
        assert_eq!(scene.cluster.shown, SITE, "a fail-over brought it back");
    }
    scene.run(&view(0), Duration::from_secs(400));
    (scene.cluster.shown, scene.cluster.started) = (plus(2), 9);
    scene.reconcile(&view(0));
    assert_eq!(scene.cluster.shown, plus(2), "after that time it is an operator's");
}

#[test]
fn a_site_that_is_raised_to_an_old_offer_is_believed() {
    let endpoints = Endpoints { configured: Some(SITE), ..Endpoints::default() };
    let mut scene = Scene::with(endpoints, OfferBy::Rest);
    scene.reconcile(&view(2));
    (scene.cluster.site, scene.cluster.shown, scene.cluster.nm_started) =
        (Some(plus(2)), plus(2), 2);
    scene.reconcile(&view(1));
    assert_eq!(scene.cluster.shown, plus(3));
}

#[test]
fn observe_mode_says_that_an_offer_stands() {
    let mut scene = Scene::new();
    scene.reconcile(&view(2));
    scene.kill_and_restart();
    let observe = View { enforce: false, ..view(2) };
    scene.reconcile(&observe);
    assert_eq!(scene.cluster.updates, [plus(2)]);
    let error = scene.agent.report().last_error.unwrap();
    assert!(error.contains("an earlier offer stands"), "{error}");
    assert!(error.ends_with("`yarn rmadmin -updateNodeResource node1:45454 8192 8 -1`"), "{error}");
    assert_eq!(scene.agent.next(&observe), scene.agent.next_poll, "and looks go on");
}

#[test]
fn of_several_node_managers_none_is_offered_to_until_one_is_named() {
    let mut scene = Scene::new();
    scene.cluster.node_managers = 2;
    scene.reconcile(&view(2));
    assert_eq!(scene.cluster.updates, []);
    assert!(scene.changes[0].reason.contains("set yarn.node_id"), "{:?}", scene.changes[0]);
    let set = Endpoints { node_id: Some("node1:45454".parse().unwrap()), ..Endpoints::default() };
    let mut scene = Scene::with(set, OfferBy::Rest);
    scene.cluster.node_managers = 2;
    scene.reconcile(&view(2));
    assert_eq!(scene.cluster.shown, plus(2));
}

#[test]
fn a_fault_in_hadoops_files_is_reported_and_no_request_sent() {
    let fault = Some(String::from("a key is wrong"));
    let mut scene = Scene::with(Endpoints { fault, ..Endpoints::default() }, OfferBy::Rest);
    scene.reconcile(&view(2));
    assert_eq!(scene.cluster.updates, []);
    assert!(scene.agent.report().last_error.unwrap().contains("a key is wrong"));
}
