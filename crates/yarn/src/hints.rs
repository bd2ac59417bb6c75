//! What the cluster knows of the containers on this node: priority and queue from the
//! ResourceManager, execution type from the NodeManager.
//!
//! Hints only: a container is found, and its end noticed, on the node itself. What cannot be read
//! leaves the hint before it standing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::client::{Cluster, ClusterError};
use super::http::{CallError, Problem};
use super::shapes::{App, application_of};
use lrs_api::proto::ContainerHint;
use lrs_core::model::Label;
use lrs_core::units::BootTime;

/// Most applications asked for in one look; the rest have their turn in the next ones. A node
/// runs containers of a few applications at a time, and each costs a call.
const APPS_A_PASS: usize = 64;

/// How often everything is sent again. The finder of containers keeps a bounded number of hints for
/// those that come, and a container may be lost and found again.
const ALL_EVERY: Duration = Duration::from_secs(60);

/// The hints of one node.
#[derive(Debug, Default)]
pub struct Hints {
    given: BTreeMap<String, ContainerHint>,
    apps: BTreeMap<String, App>,
    /// Where the next look at the applications begins.
    next_app: Option<String>,
    next_all: BootTime,
}

/// A pass that did not show everything.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum HintError {
    #[error("execution types and priorities of containers are not read: {0}")]
    Containers(CallError),
    #[error("priority and queue of {0} are not read: {1}")]
    Application(String, ClusterError),
}

impl Hints {
    /// Looks; answers what is new or changed, once a minute all, and the first thing that could
    /// not be read. `enough` is asked before each call, whether something else is due; the
    /// applications that are left then have their turn first in the next look.
    pub fn look(
        &mut self,
        cluster: &mut dyn Cluster,
        enough: &dyn Fn() -> bool,
        now: BootTime,
    ) -> (Vec<ContainerHint>, Option<HintError>) {
        if enough() {
            return (Vec::new(), None);
        }
        let containers = match cluster.containers() {
            Ok(containers) => containers,
            Err(error) => return (Vec::new(), Some(HintError::Containers(error))),
        };
        let apps: BTreeSet<String> =
            containers.iter().filter_map(|container| application_of(&container.id)).collect();
        let problem = self.look_at_applications(cluster, enough, &apps);
        let all = now >= self.next_all;
        if all {
            self.next_all = now.after(ALL_EVERY);
        }
        let mut changed = Vec::new();
        let mut given = BTreeMap::new();
        for container in containers.into_iter().filter(|one| Label::new(&one.id).is_ok()) {
            let app = application_of(&container.id).and_then(|id| self.apps.get(&id));
            let hint = ContainerHint {
                priority: app.and_then(|app| app.priority),
                opportunistic: container.execution_type.map(|kind| kind == "OPPORTUNISTIC"),
                // One that is no label would have the whole request refused.
                queue: app
                    .and_then(|app| app.queue.clone())
                    .filter(|queue| Label::new(queue).is_ok()),
                master: app.and_then(|app| app.master()),
                container: container.id,
            };
            if all || self.given.get(&hint.container) != Some(&hint) {
                changed.push(hint.clone());
            }
            given.insert(hint.container.clone(), hint);
        }
        self.given = given;
        (changed, problem)
    }

    /// Those that were answered last were not taken.
    pub fn tell_all_again(&mut self) {
        self.next_all = BootTime::default();
    }

    fn look_at_applications(
        &mut self,
        cluster: &mut dyn Cluster,
        enough: &dyn Fn() -> bool,
        wanted: &BTreeSet<String>,
    ) -> Option<HintError> {
        self.apps.retain(|id, _| wanted.contains(id));
        let start = self.next_app.take().unwrap_or_default();
        let mut turn = wanted.range(start.clone()..).chain(wanted.range(..start)).peekable();
        let mut problem = None;
        for _ in 0..APPS_A_PASS {
            if enough() {
                break;
            }
            let Some(id) = turn.next() else { return problem };
            match cluster.application(id) {
                Ok(app) => {
                    self.apps.insert(id.clone(), app);
                }
                Err(error) => {
                    let over = concerns_all(&error);
                    problem.get_or_insert(HintError::Application(id.clone(), error));
                    if over {
                        break;
                    }
                }
            }
        }
        self.next_app = turn.peek().map(|id| (*id).clone());
        problem
    }
}

/// Whether every application would fail likewise, each after the timeout. A fault of one (it is
/// forgotten, its answer is too long or wrong) is no sign for the next.
fn concerns_all(error: &ClusterError) -> bool {
    match error {
        ClusterError::Call(error) => !matches!(
            error.problem,
            Problem::NotFound(_)
                | Problem::Status { .. }
                | Problem::TooLong(_)
                | Problem::Malformed { .. }
        ),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::played::Played;
    use super::*;

    const START: BootTime = BootTime(Duration::ZERO);

    fn look(
        hints: &mut Hints,
        played: &mut Played,
        now: BootTime,
    ) -> (Vec<ContainerHint>, Option<HintError>) {
        hints.look(played, &|| false, now)
    }

    fn crowd(count: usize) -> Played {
        let mut played = Played::default();
        for n in 0..count {
            played.run(&format!("container_1_{n:04}_01_000001"), None);
            played.app(&format!("application_1_{n:04}"), Some(1), "q");
        }
        played
    }

    /// How many applications were read.
    fn known(sent: &[ContainerHint]) -> usize {
        sent.iter().filter(|hint| hint.priority.is_some()).count()
    }

    #[test]
    fn only_what_changed_is_reported() {
        let mut played = Played::default();
        played.run("container_1_0001_01_000002", Some("GUARANTEED"));
        played.run("container_e1_1_0002_01_000007", Some("OPPORTUNISTIC"));
        played.app("application_1_0001", Some(5), "root.default");
        played.app("application_1_0002", None, "root.batch");
        let mut hints = Hints::default();
        let (sent, problem) = look(&mut hints, &mut played, START);
        assert!(problem.is_none());
        let [first, second] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!((first.priority, first.opportunistic), (Some(5), Some(false)));
        assert_eq!((second.priority, second.opportunistic), (None, Some(true)));
        assert_eq!(second.queue.as_deref(), Some("root.batch"));
        assert_eq!(look(&mut hints, &mut played, START).0, []);
        assert_eq!(look(&mut hints, &mut played, START.after(ALL_EVERY)).0, sent, "all again");
        played.app("application_1_0001", Some(9), "root.default");
        let sent = look(&mut hints, &mut played, START).0;
        assert_eq!(sent.iter().map(|hint| hint.priority).collect::<Vec<_>>(), [Some(9)]);
    }

    #[test]
    fn a_manager_that_is_away_takes_nothing_back() {
        let mut played = Played::default();
        played.run("container_1_0001_01_000002", None);
        played.app("application_1_0001", Some(5), "q");
        let mut hints = Hints::default();
        assert_eq!(look(&mut hints, &mut played, START).0[0].opportunistic, None);
        played.rm_down = true;
        let (sent, problem) = look(&mut hints, &mut played, START);
        assert!(sent.is_empty() && matches!(problem, Some(HintError::Application(..))));
        played.nm_down = true;
        assert!(
            matches!(look(&mut hints, &mut played, START), (sent, Some(HintError::Containers(_))) if sent.is_empty())
        );
    }

    #[test]
    fn many_applications_take_turns() {
        let mut played = crowd(APPS_A_PASS + 10);
        let mut hints = Hints::default();
        assert_eq!(known(&look(&mut hints, &mut played, START).0), APPS_A_PASS);
        assert_eq!(known(&look(&mut hints, &mut played, START).0), 10);
    }

    #[test]
    fn an_application_that_cannot_be_read_hides_no_other() {
        let reason = || String::from("x");
        for problem in [
            Problem::NotFound(reason()),
            Problem::Status { status: 500, excerpt: reason() },
            Problem::TooLong(1),
            Problem::Malformed { reason: reason(), excerpt: reason() },
        ] {
            let mut played = crowd(5);
            played.bad_app("application_1_0001", problem);
            let (sent, problem) = look(&mut Hints::default(), &mut played, START);
            assert_eq!(known(&sent), 4);
            let Some(HintError::Application(id, _)) = problem else { panic!("{problem:?}") };
            assert_eq!(id, "application_1_0001");
        }
    }

    #[test]
    fn a_manager_that_hangs_is_waited_for_once_and_the_next_begins_behind() {
        let mut played = crowd(5);
        played.bad_app("application_1_0001", Problem::TimedOut(Duration::from_secs(10)));
        let mut hints = Hints::default();
        assert_eq!(known(&look(&mut hints, &mut played, START).0), 1);
        assert_eq!(known(&look(&mut hints, &mut played, START).0), 3, "though it hangs still");
    }

    #[test]
    fn what_is_due_waits_for_one_call_at_most() {
        let mut played = crowd(50);
        let mut hints = Hints::default();
        let asked = std::cell::Cell::new(0);
        // The containers and three applications.
        let enough = || {
            asked.set(asked.get() + 1);
            asked.get() > 4
        };
        let (sent, problem) = hints.look(&mut played, &enough, START);
        assert!(problem.is_none());
        assert_eq!(known(&sent), 3);
        assert_eq!(known(&look(&mut hints, &mut played, START).0), 47, "the rest");
        played.nm_down = true;
        let (sent, problem) = hints.look(&mut played, &|| true, START);
        assert!(sent.is_empty() && problem.is_none(), "no call was made");
    }
}
