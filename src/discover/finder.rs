//! What the rules found: proposed once, and again where it was refused.
//!
//! One thread calls [`RuleFinder::pass`] from time to time, hands what comes out to the loop and
//! brings back each answer ([`RuleFinder::answered`]). A task the loop has taken is not proposed
//! again while its process lives, whatever becomes of the task: an operator who released it meant
//! it. What was refused is proposed again after a second, then two, up to five minutes, and logged
//! once for each process and reason ([`crate::executor::refusals`]).
//!
//! A group in place outlives its processes, and its path may be used again: a slot of HTCondor's
//! keeps its name from job to job. So the task of a group counts as the same while any of the
//! processes last seen in it is there; else the group is proposed afresh, and the loop, which
//! knows its groups by inode, says whether it has it already.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::scan::{Candidate, Node, Scan};
use super::{Attach, DiscoveredTask, Finder, Hint, Hints, Presumed, Standing};
use crate::command::{CommandError, ErrorKind};
use crate::core::model::{Label, Labels, TaskId};
use crate::executor::refusals::Refusals;
use crate::units::{BootTime, ProcessRef};

/// Pause before what was refused once is proposed again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The rules at work.
#[derive(Debug)]
pub struct RuleFinder {
    scan: Scan,
    proposals: HashMap<Subject, Proposal>,
    /// Proposals without an answer yet, with the rule that found them.
    asked: HashMap<ProcessRef, (Subject, Label)>,
    /// Something was seen for the first time.
    unsteady: bool,
    /// The time of the last pass.
    now: BootTime,
    /// Kinds of files that could not be read, each logged once.
    complained: HashSet<String>,
}

/// What a task is known by here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Process(ProcessRef),
    Group(String),
}

#[derive(Debug)]
struct Proposal {
    state: State,
    /// The processes last seen in a group.
    members: Vec<ProcessRef>,
    /// What its scheduler had reported of it when it was proposed.
    hint: Option<Hint>,
}

#[derive(Debug)]
enum State {
    /// The answer is to come; what was refused before, if it was.
    Asked(Option<Refusals>),
    /// The loop had it, and hears what its scheduler says now; the answer is to come.
    AskedAgain,
    /// The loop has it.
    Taken,
    Refused(Refusals),
}

impl RuleFinder {
    /// Nothing found yet.
    pub fn new(scan: Scan) -> RuleFinder {
        RuleFinder {
            scan,
            proposals: HashMap::new(),
            asked: HashMap::new(),
            unsteady: false,
            now: BootTime::default(),
            complained: HashSet::new(),
        }
    }

    /// A finder by `rules` on `node`.
    pub fn with_rules(node: Node, rules: Vec<crate::config::rule::Rule>) -> RuleFinder {
        RuleFinder::new(Scan::new(node, rules))
    }

    /// Looks at the node and answers what to propose to the loop, oldest first. Each wants an
    /// answer. `hints`: what schedulers reported of tasks by name.
    pub fn pass(&mut self, hints: &Hints, now: BootTime) -> Vec<DiscoveredTask> {
        self.now = now;
        if let Err(error) = self.scan.pass() {
            self.complain("/proc", format!("cannot list the processes of the node: {error}"));
            return Vec::new();
        }
        for trouble in self.scan.trouble() {
            let file = trouble.path.file_name().unwrap_or_default().to_string_lossy();
            let kind = format!("{file}: {}", trouble.reason);
            let path = trouble.path.display();
            self.complain(&kind, format!("cannot read {path}: {}", trouble.reason));
        }
        let candidates = self.scan.candidates();
        self.forget(&candidates);
        self.unsteady = candidates.iter().any(|candidate| !candidate.steady);
        let steady = candidates.into_iter().filter(|candidate| candidate.steady);
        steady.filter_map(|candidate| self.propose(candidate, hints)).collect()
    }

    /// Whether something waits to be seen a second time: a pass before its time would find it.
    pub fn wants_pass_soon(&self) -> bool {
        self.unsteady
    }

    /// The loop's word on what [`RuleFinder::pass`] found. Where the loop cannot be asked, that is an
    /// answer too.
    pub fn answered(&mut self, process: ProcessRef, answer: Result<TaskId, CommandError>) {
        let Some((subject, rule)) = self.asked.remove(&process) else { return };
        let Some(proposal) = self.proposals.get_mut(&subject) else { return };
        let before = match &mut proposal.state {
            State::Asked(before) => before.take(),
            State::AskedAgain => {
                // One that was released meanwhile is not to be had again. What the loop could not
                // take just now is proposed again with the next pass.
                proposal.state = State::Taken;
                if answer.is_err_and(|error| error.kind == ErrorKind::Unavailable) {
                    proposal.hint = None;
                }
                return;
            }
            State::Taken | State::Refused(_) => return,
        };
        let error = match answer {
            Ok(_) => {
                proposal.state = State::Taken;
                return;
            }
            Err(CommandError { kind: ErrorKind::AlreadyExists(_), .. }) => {
                proposal.state = State::Taken;
                return;
            }
            Err(error) => error,
        };
        let mut refusals = before.unwrap_or_else(|| Refusals::new(FIRST_PAUSE));
        if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Unavailable) {
            // Gone, or lrsd stops: nothing anybody has to know.
            refusals.put_off(self.now);
        } else if refusals.add(&error.message, self.now) {
            tracing::warn!(
                "process {}, found by [[discover]] rule {rule}, is not taken as a task: {}; it is \
                 tried again",
                process.pid,
                error.message
            );
        }
        proposal.state = State::Refused(refusals);
    }

    /// Drops what is no more.
    fn forget(&mut self, candidates: &[Candidate]) {
        let groups: HashMap<&str, &[ProcessRef]> = candidates
            .iter()
            .filter_map(|candidate| candidate.group.as_ref())
            .map(|group| (group.path.as_str(), group.members.as_slice()))
            .collect();
        let scan = &self.scan;
        self.proposals.retain(|subject, proposal| match subject {
            Subject::Process(process) => scan.has(*process),
            Subject::Group(path) => groups.get(path.as_str()).is_some_and(|members| {
                let same = proposal.members.iter().any(|old| members.binary_search(old).is_ok());
                proposal.members = members.to_vec();
                same
            }),
        });
        let proposals = &self.proposals;
        self.asked.retain(|_, (subject, _)| proposals.contains_key(subject));
    }

    fn propose(&mut self, candidate: Candidate, hints: &Hints) -> Option<DiscoveredTask> {
        let rule = self.scan.rules().get(candidate.rule)?;
        let process = candidate.process;
        let (subject, attach, members) = match candidate.group {
            None => (
                Subject::Process(process),
                Attach::Descendants { from: candidate.place },
                Vec::new(),
            ),
            Some(group) => {
                let attach = Attach::InPlace { cgroup: group.path.clone() };
                (Subject::Group(group.path), attach, group.members)
            }
        };
        let name = candidate.labels.name.as_ref();
        let hint = name
            .filter(|_| rule.is_named_by_cgroup())
            .and_then(|name| hints.get(name.as_str()))
            .cloned();
        let state = match self.proposals.remove(&subject) {
            None => State::Asked(None),
            // Its scheduler reports something else of it now.
            Some(Proposal { state: State::Taken, hint: heeded, .. })
                if hint.is_some() && hint != heeded =>
            {
                State::AskedAgain
            }
            Some(Proposal { state: State::Refused(refusals), .. })
                if refusals.again_at() <= self.now =>
            {
                State::Asked(Some(refusals))
            }
            Some(proposal) => {
                self.proposals.insert(subject, proposal);
                return None;
            }
        };
        self.asked.insert(process, (subject.clone(), rule.name.clone()));
        let opportunistic = hint.as_ref().and_then(|hint| hint.opportunistic);
        let standing = match opportunistic {
            Some(true) => Standing::Opportunistic,
            Some(false) if rule.standing == Standing::Opportunistic => Standing::Slot,
            Some(false) | None => rule.standing,
        };
        let priority = hint.as_ref().and_then(|hint| hint.priority).unwrap_or(rule.priority);
        let group = hint.as_ref().and_then(|hint| hint.queue.clone());
        let again = matches!(state, State::AskedAgain);
        self.proposals.insert(subject, Proposal { state, members, hint });
        Some(DiscoveredTask {
            process,
            labels: Labels { group, ..candidate.labels },
            priority: Some(priority),
            standing: Some(standing),
            presumed: Presumed::Slot,
            attach,
            again,
            finder: Finder::Rule(rule.name.clone()),
        })
    }

    fn complain(&mut self, kind: &str, what: String) {
        if self.complained.insert(kind.to_owned()) {
            tracing::warn!("{what}; tasks may go unnoticed by [[discover]] rules");
        }
    }
}

#[cfg(test)]
mod tests;
