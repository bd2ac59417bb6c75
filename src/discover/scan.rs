//! All processes of the node, against the rules, pass after pass.
//!
//! A pass lists /proc and reads only what may have changed: processes that are new, those that
//! are young (what runs in a process is decided by the exec that follows its fork, often by
//! several in a row), and a thirty-second of the others, so that a late exec or a move to another
//! group is noticed within 32 passes. New ones differ from old ones by the inode that comes
//! with the list, without a read of its own.
//!
//! Of what matches, one process stands for each task. Of processes to be moved it is the top-most:
//! one with an ancestor that matches the same rule with the same id belongs to that ancestor's
//! task, as the launcher's shell and the program below it do. Of processes in a group to be managed
//! in place it is the oldest in the group itself or, where there is none, below it.
//!
//! Never proposed: threads of the kernel, process 1, the daemon and its children, what has ended,
//! what is in a group of LRS's already, the root group and a group that holds LRS's root.
//!
//! Cost, with 1,000 idle tasks found by command line and user among 1,100 processes, in a debug
//! build on a node with two cores: 6 ms a pass, of which 0.8 ms list /proc, 2 ms read 33
//! processes and the rest would shrink in a release build; 60 to 120 us for each process that is
//! new (`what_a_pass_costs` in the tests).

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use super::processes::{Listed, Proc, ProcessReader, Unreadable};
use super::rules::{self, Subject as _};
use crate::config::rule::{Means, Rule};
use crate::core::model::{Label, Labels};
use crate::units::{Pid, ProcessRef};

/// Passes a process is read in each time, counted from the last change that was seen.
const YOUNG: u8 = 4;

/// Passes within which each process is read.
const TURN: u32 = 32;

/// Generations that are looked up for an ancestor that is the task. A chain this long is made to
/// be long.
const GENERATIONS: usize = 256;

/// What never changes while the daemon runs.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where processes are read.
    pub proc: Proc,
    /// The daemon itself.
    pub daemon: Pid,
    /// LRS's root below the mount, with a leading slash; `None`: there is none (observe mode).
    pub lrs_root: Option<String>,
}

/// A task that the rules see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The process that stands for it.
    pub process: ProcessRef,
    /// Index of the rule that matched.
    pub rule: usize,
    /// What the rule's templates made.
    pub labels: Labels,
    /// The group to manage in place; `None`: the process is to be moved.
    pub group: Option<GroupMembers>,
    /// The group it was seen in, where the rule asks for one.
    pub place: Option<String>,
    /// Seen the same twice: before, it may be a child between fork and exec.
    pub steady: bool,
}

/// A group that a rule names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMembers {
    /// Below the mount, with a leading slash.
    pub path: String,
    /// Processes that matched in it and below, in ascending order.
    pub members: Vec<ProcessRef>,
}

/// The processes as the last passes saw them.
#[derive(Debug)]
pub struct Scan {
    node: Node,
    rules: Vec<Rule>,
    seen: HashMap<Pid, ProcessEntry>,
    pass: u32,
    /// Processes read in this pass.
    read: usize,
    trouble: Vec<Unreadable>,
}

#[derive(Debug)]
struct ProcessEntry {
    process: ProcessRef,
    inode: u64,
    parent: Option<Pid>,
    /// Passes for which it is read each time.
    young: u8,
    /// Never a task, whatever it runs: a thread of the kernel, the daemon.
    exempt: bool,
    /// The pass that saw it last.
    pass: u32,
    /// Of what was read, to notice a change.
    fingerprint: u64,
    verdict: Match,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Match {
    /// No rule, or a place LRS must not touch.
    No,
    /// To be moved.
    Own {
        rule: usize,
        labels: Labels,
        /// In a group of LRS's already.
        inside: bool,
        /// See [`Candidate::place`].
        place: Option<String>,
    },
    /// Its group is to be managed.
    InPlace {
        rule: usize,
        labels: Labels,
        group: String,
        /// In that group itself, not below it.
        direct: bool,
    },
}

impl Scan {
    /// Nothing seen yet.
    pub fn new(node: Node, rules: Vec<Rule>) -> Scan {
        Scan { node, rules, seen: HashMap::new(), pass: 0, read: 0, trouble: Vec::new() }
    }

    /// The rules, in the order of the file.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Looks at the node; [`Scan::candidates`] has what follows.
    ///
    /// # Errors
    /// The list of processes cannot be read; what was seen before stays.
    pub fn pass(&mut self) -> std::io::Result<()> {
        let listed = self.node.proc.list()?;
        self.pass = self.pass.wrapping_add(1);
        self.read = 0;
        for listed in listed {
            match self.seen.get_mut(&listed.pid) {
                Some(seen) if seen.inode == listed.inode && !seen.is_due(self.pass) => {
                    seen.pass = self.pass;
                }
                _ => self.look(listed),
            }
        }
        let pass = self.pass;
        self.seen.retain(|_, seen| seen.pass == pass);
        Ok(())
    }

    /// Whether the last pass saw `process`.
    pub fn has(&self, process: ProcessRef) -> bool {
        self.seen.get(&process.pid).is_some_and(|seen| seen.process == process)
    }

    /// Files that could not be read since this was last asked, although their processes were
    /// there.
    pub fn trouble(&mut self) -> Vec<Unreadable> {
        std::mem::take(&mut self.trouble)
    }

    fn look(&mut self, listed: Listed) {
        let mut reader = match self.node.proc.open(listed.pid) {
            Ok(Some(reader)) => reader,
            Ok(None) => return,
            Err(trouble) => {
                // A moment without file descriptors says nothing of the process: what was known
                // of it stands.
                if let Some(known) = self.seen.get_mut(&listed.pid) {
                    known.pass = self.pass;
                }
                return self.trouble.push(trouble);
            }
        };
        self.read += 1;
        let process = reader.process();
        let stat = reader.stat();
        let parent = Pid::new(stat.parent);
        let exempt = stat.is_kernel_thread()
            || listed.pid.raw() == 1
            || listed.pid == self.node.daemon
            || parent == Some(self.node.daemon);
        let verdict = if exempt || stat.ended() {
            Match::No
        } else {
            verdict(&self.node, &self.rules, &mut reader)
        };
        self.trouble.extend(reader.trouble());
        // What is missing of a process that went says nothing of one that took its number.
        if reader.gone() || verdict != Match::No && !reader.still_there() {
            return;
        }
        let fingerprint = fingerprint(&verdict, &mut reader);
        let unchanged =
            |seen: &&ProcessEntry| seen.process == process && seen.fingerprint == fingerprint;
        let known = self.seen.get(&listed.pid).filter(unchanged);
        let young = known.map_or(YOUNG, |seen| seen.young.saturating_sub(1));
        let pass = self.pass;
        let inode = listed.inode;
        let seen =
            ProcessEntry { process, inode, parent, young, exempt, pass, fingerprint, verdict };
        self.seen.insert(listed.pid, seen);
    }

    /// What the rules make of the processes that the last pass saw, oldest first.
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut found = Vec::new();
        let mut groups: HashMap<&str, Vec<(&ProcessEntry, bool)>> = HashMap::new();
        for seen in self.seen.values() {
            match &seen.verdict {
                Match::No | Match::Own { inside: true, .. } => {}
                Match::Own { rule, labels, inside: false, place } => {
                    if !self.belongs_to_ancestor(seen, *rule, &labels.name) {
                        found.push(Candidate {
                            process: seen.process,
                            rule: *rule,
                            labels: labels.clone(),
                            group: None,
                            place: place.clone(),
                            steady: seen.is_steady(),
                        });
                    }
                }
                Match::InPlace { group, direct, .. } => {
                    groups.entry(group).or_default().push((seen, *direct));
                }
            }
        }
        found.extend(groups.into_iter().filter_map(|(path, members)| in_place(path, &members)));
        found.sort_by_key(|candidate| age(candidate.process));
        found
    }

    fn belongs_to_ancestor(
        &self,
        of: &ProcessEntry,
        its_rule: usize,
        its_name: &Option<Label>,
    ) -> bool {
        let mut child = of;
        for _ in 0..GENERATIONS {
            let Some(parent) = child.parent.and_then(|parent| self.seen.get(&parent)) else {
                return false;
            };
            // A parent's number may have gone to a younger process since it was read.
            if parent.process.start_ticks > child.process.start_ticks {
                return false;
            }
            if let Match::Own { rule, labels, .. } = &parent.verdict
                && *rule == its_rule
                && labels.name == *its_name
            {
                return true;
            }
            child = parent;
        }
        false
    }
}

impl ProcessEntry {
    fn is_steady(&self) -> bool {
        self.young < YOUNG
    }

    fn is_due(&self, pass: u32) -> bool {
        let place = self.process.pid.raw().unsigned_abs().wrapping_add(pass);
        !self.exempt && (self.young > 0 || place.is_multiple_of(TURN))
    }
}

/// Older processes first; of one tick the smaller number, which mostly is the older.
fn age(process: ProcessRef) -> (u64, i32) {
    (process.start_ticks, process.pid.raw())
}

/// The task that the group at `path` is.
fn in_place(path: &str, members: &[(&ProcessEntry, bool)]) -> Option<Candidate> {
    let (main, _) = members.iter().min_by_key(|(seen, direct)| (!direct, age(seen.process)))?;
    let Match::InPlace { rule, labels, .. } = &main.verdict else { return None };
    let mut members: Vec<ProcessRef> = members.iter().map(|(seen, _)| seen.process).collect();
    members.sort_unstable();
    Some(Candidate {
        process: main.process,
        rule: *rule,
        labels: labels.clone(),
        group: Some(GroupMembers { path: path.to_owned(), members }),
        place: None,
        steady: main.is_steady(),
    })
}

fn verdict(node: &Node, rules: &[Rule], reader: &mut ProcessReader<'_>) -> Match {
    let Some(found) = rules::first_match(rules, reader) else { return Match::No };
    let Some(means) = rules.get(found.rule).map(|rule| rule.attach) else { return Match::No };
    // Outside of what the mount shows nothing can be moved or weighed.
    let Some(path) = reader.cgroup() else { return Match::No };
    let within =
        |path: &str, group: Option<&str>| group.is_some_and(|group| is_within(path, group));
    let root = node.lrs_root.as_deref();
    let rule = found.rule;
    let labels = found.labels;
    match (means, found.group) {
        (Means::Own, _) => {
            let place = rules.get(rule).and_then(|rule| rule.cgroup.as_ref());
            let place = place.map(|_| path.to_owned());
            Match::Own { rule, labels, inside: within(path, root), place }
        }
        (Means::InPlace, Some(group)) => {
            let holds_root = root.is_some_and(|root| is_within(root, &group));
            if group == "/" || holds_root || within(&group, root) {
                return Match::No;
            }
            let direct = path == group;
            Match::InPlace { rule, labels, group, direct }
        }
        // The configuration refuses a rule in place that names no group.
        (Means::InPlace, None) => Match::No,
    }
}

/// Of the verdict and of the command line, where it was read for it.
fn fingerprint(verdict: &Match, reader: &mut ProcessReader<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    verdict.hash(&mut hasher);
    reader.command_read().hash(&mut hasher);
    hasher.finish()
}

/// Whether `path` is `group` or below it.
fn is_within(path: &str, group: &str) -> bool {
    let below = path.strip_prefix(group.trim_end_matches('/'));
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
pub(crate) mod tests;
