//! The containers of this node as LRS knows them: one entry each, from its pid file to its end.

use std::fmt;
use std::time::Duration;

use super::classify::{Kind, Launch};
use super::ids::{ContainerId, label};
use super::watch::PidFile;
use crate::core::model::{Label, Labels, Priority, TaskId};
use crate::discover::{Attach, DiscoveredTask, Finder, Presumed, Standing};
use crate::executor::refusals::Refusals;
use crate::units::{BootTime, Pid, ProcessRef};
use crate::{clock, discover};

/// First and longest time between two checks of a container that is not ready yet.
const FIRST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a launch script may take to come to its end; it links files and may list them.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long after its first refusal a container is proposed again.
pub(super) const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// What the ResourceManager or the NodeManager says of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// The application's priority; `None`: not known.
    pub priority: Option<Priority>,
    /// Whether its execution type is OPPORTUNISTIC; `None`: not known.
    pub opportunistic: Option<bool>,
    /// The queue of its application; `None`: not known.
    pub queue: Option<Label>,
    /// Where its application's master is; `None`: not known.
    pub master: Option<Master>,
}

impl From<&discover::Hint> for Hint {
    fn from(hint: &discover::Hint) -> Hint {
        Hint {
            priority: hint.priority,
            opportunistic: hint.opportunistic,
            queue: hint.queue.clone(),
            master: hint.master.as_ref().and_then(|master| match master {
                discover::Master::Container(id) => id.parse().ok().map(Master::Container),
                discover::Master::Outside => Some(Master::Outside),
            }),
        }
    }
}

/// Where an application's master is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Master {
    /// In this container.
    Container(ContainerId),
    /// In none: an unmanaged application's.
    Outside,
}

/// What is known of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerInfo {
    /// Its id, which has that of its application.
    pub id: ContainerId,
    /// What it does; `None`: not known, or a framework LRS has no word for.
    pub kind: Option<Kind>,
    /// Its main process, once there is one that may be it.
    pub process: Option<ProcessRef>,
    /// How it was taken; `None`: not yet, or not at all.
    pub attach: Option<Attach>,
    /// `host:port` of its NodeManager, as its launch script says.
    pub node_id: Option<String>,
    /// Its task, once it is one.
    pub task: Option<TaskId>,
    /// Why it is no task.
    pub ignored: Option<String>,
}

/// Where a container is on its way to be a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// There is no pid file; inotify or the next listing tells.
    Expected,
    /// Its process is not what it will be. Looked at again at `next`.
    Starting { since: BootTime, next: BootTime, pause: Duration },
    /// Given to the loop, which has not answered.
    Proposed,
    /// A task.
    Taken(TaskId),
    /// No task, and why. Looked at again with each listing.
    Ignored(String),
    /// The loop would not have it. Proposed again at `next`.
    Refused { next: BootTime },
}

/// One container.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) id: ContainerId,
    /// Whether it has a pid file that can be read.
    pub(super) has_file: bool,
    /// Its process as /proc says, where there is no pid file, and the NodeManager's user.
    pub(super) running: Option<(Pid, u32)>,
    /// The pid file its process was found by.
    pub(super) file: Option<PidFile>,
    /// The pid file that was there last, and when it was first read.
    read: Option<(PidFile, BootTime)>,
    pub(super) launch: Option<Launch>,
    pub(super) process: Option<ProcessRef>,
    pub(super) attach: Option<Attach>,
    pub(super) state: State,
    /// The refusals of the loop.
    refusals: Option<Refusals>,
    /// Why it would not when last asked; it may be asked again just now.
    refused: Option<String>,
    pub(super) hint: Hint,
    /// Whether it is its attempt's only master on this node.
    pub(super) masters: bool,
}

impl Entry {
    pub(super) fn new(id: ContainerId, hint: Hint) -> Entry {
        Entry {
            id,
            has_file: false,
            running: None,
            file: None,
            read: None,
            launch: None,
            process: None,
            attach: None,
            state: State::Expected,
            refusals: None,
            refused: None,
            hint,
            masters: false,
        }
    }

    /// When this pid file was first read; one that was just read and is new: now. Whoever began
    /// before it was written began before that, whatever was done to the wall clock since.
    pub(super) fn first_read(&mut self, file: &PidFile) -> BootTime {
        match self.read {
            Some((before, at)) if before == *file => at,
            _ => {
                let now = clock::boot_time();
                self.read = Some((*file, now));
                now
            }
        }
    }

    /// Its process is this one: what was known of another, before a relaunch, is forgotten.
    pub(super) fn is(&mut self, process: ProcessRef) {
        if self.process.replace(process).is_some_and(|before| before != process) {
            self.launch = None;
            self.attach = None;
            self.masters = false;
            self.refusals = None;
            self.refused = None;
            self.state = State::Expected;
        }
    }

    /// Whether the loop has it, or is asked.
    pub(super) fn is_decided(&self) -> bool {
        matches!(self.state, State::Taken(_) | State::Proposed)
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        self.launch.as_ref().and_then(|launch| launch.kind)
    }

    /// When it has to be looked at again, if not by an event.
    pub(super) fn due(&self) -> Option<BootTime> {
        match self.state {
            State::Starting { next, .. } | State::Refused { next } => Some(next),
            State::Expected | State::Proposed | State::Taken(_) | State::Ignored(_) => None,
        }
    }

    /// Not ready at `now`: waits, longer each time, and not for ever.
    pub(super) fn wait(&mut self, now: BootTime, why: String) {
        let (since, pause) = match self.state {
            State::Starting { since, pause, .. } => (since, (pause * 2).min(LONGEST_PAUSE)),
            _ => (now, FIRST_PAUSE),
        };
        if now.since(since) >= PATIENCE || matches!(self.state, State::Ignored(_)) {
            self.ignore(why);
        } else {
            self.state = State::Starting { since, next: now.after(pause), pause };
        }
    }

    /// Leaves it alone. Logged once for each reason.
    pub(super) fn ignore(&mut self, why: String) {
        let state = State::Ignored(why);
        if self.state != state {
            if let State::Ignored(why) = &state {
                tracing::warn!("{} is not taken: {why}", self.id);
            }
            self.state = state;
        }
    }

    /// The loop refused it. Logged once for each reason.
    pub(super) fn refuse(&mut self, now: BootTime, why: &dyn fmt::Display) {
        let reason = why.to_string();
        let refusals = self.refusals.get_or_insert_with(|| Refusals::new(REFUSED_PAUSE));
        if refusals.add(&reason, now) {
            tracing::warn!("{} is not taken: {reason}", self.id);
        }
        self.refused = Some(reason);
        self.state = State::Refused { next: refusals.again_at() };
    }

    /// What is proposed to the loop; `None` until its process is known.
    pub(super) fn found(&self) -> Option<DiscoveredTask> {
        let (standing, presumed) = self.standing();
        Some(DiscoveredTask {
            process: self.process?,
            labels: Labels {
                name: label(self.id),
                job: label(self.id.application),
                kind: self.kind().and_then(|kind| label(kind.word())),
                group: self.hint.queue.clone(),
                ..Labels::default()
            },
            priority: self.hint.priority,
            standing,
            presumed,
            attach: self.attach.clone()?,
            // Its process is its task's, and the loop knows which it released.
            again: false,
            finder: Finder::Yarn,
        })
    }

    /// Whether the ResourceManager confirms what a command or a script claims, that it is
    /// the master of this attempt. `None`: it has reported nothing of this attempt.
    fn is_confirmed(&self) -> Option<bool> {
        let attempt = |id: ContainerId| (id.application, id.attempt);
        match self.hint.master? {
            Master::Outside => Some(false),
            Master::Container(id) => (attempt(id) == attempt(self.id)).then_some(id == self.id),
        }
    }

    /// What kind of place it needs, and what a new one needs where that is `None`. Until the
    /// ResourceManager has confirmed a master, only the number counts that no other container of
    /// an attempt gets.
    fn standing(&self) -> (Option<Standing>, Presumed) {
        const MASTER: u64 = 1;
        let reported = self.hint.opportunistic.map(|opportunistic| match opportunistic {
            true => Standing::Opportunistic,
            false => Standing::Slot,
        });
        let claims = self.kind() == Some(Kind::ApplicationMaster) && self.masters;
        let first = self.id.sequence == MASTER;
        let standing = match (claims, self.is_confirmed()) {
            (true, Some(true)) => Some(Standing::Slotless),
            (true, None) if first => return (None, Presumed::Slotless),
            // A master is guaranteed to its NodeManager; that takes nothing back from one that was
            // confirmed before.
            (true, None) => reported.filter(|standing| *standing == Standing::Opportunistic),
            // It was presumed to be the master.
            (true, Some(false)) if first => reported.or(Some(Standing::Slot)),
            _ => reported,
        };
        // LinuxContainerExecutor gives one cpu.shares 2 or cpu.weight 1, and any other a thousand
        // or a hundred times its vcores (CGroupsCpuResourceHandlerImpl,
        // CGroupsV2CpuResourceHandlerImpl: CPU_DEFAULT_WEIGHT_OPPORTUNISTIC).
        (standing, Presumed::LeastIsOpportunistic)
    }

    pub(super) fn info(&self) -> ContainerInfo {
        let ignored = match &self.state {
            State::Ignored(why) => Some(why.clone()),
            // Until the answer comes, it is what it was when it was asked before.
            State::Refused { .. } | State::Proposed => self.refused.clone(),
            State::Expected | State::Starting { .. } | State::Taken(_) => None,
        };
        let task = match self.state {
            State::Taken(task) => Some(task),
            _ => None,
        };
        ContainerInfo {
            id: self.id,
            kind: self.kind(),
            process: self.process,
            attach: self.attach.clone(),
            node_id: self.launch.as_ref().and_then(|launch| launch.node_id.clone()),
            task,
            ignored,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let id = "container_1_0001_01_000002".parse().unwrap();
        let mut entry = Entry::new(id, Hint::default());
        entry.process = Some(ProcessRef { pid: Pid::new(42).unwrap(), start_ticks: 1 });
        entry.attach = Some(Attach::Session { from: None });
        entry
    }

    #[test]
    fn a_start_is_waited_for_at_growing_distance_and_not_for_ever() {
        let mut entry = entry();
        let mut now = BootTime::default();
        let mut looks = 0;
        while entry.due().is_some() || looks == 0 {
            entry.wait(now, "why".into());
            now = entry.due().unwrap_or(now);
            looks += 1;
        }
        assert!((60..80).contains(&looks), "{looks}");
        assert_eq!(entry.info().ignored.as_deref(), Some("why"));
        // A later look with the same outcome begins no new wait.
        entry.wait(now, "why".into());
        assert_eq!(entry.due(), None);
    }

    #[test]
    fn what_is_refused_again_and_again_is_proposed_less_often() {
        let mut entry = entry();
        let mut pauses = Vec::new();
        let mut now = BootTime::default();
        for _ in 0..6 {
            entry.refuse(now, &"frozen");
            let due = entry.due().unwrap();
            pauses.push(due.since(now).as_secs());
            entry.state = State::Proposed;
            assert_eq!(entry.info().ignored.as_deref(), Some("frozen"), "while it is asked, too");
            now = due;
        }
        assert_eq!(pauses, [30, 60, 120, 240, 300, 300]);
        entry.is(ProcessRef { pid: Pid::new(43).unwrap(), start_ticks: 2 });
        assert_eq!(entry.info().ignored, None);
        entry.refuse(now, &"frozen");
        assert_eq!(entry.due(), Some(now.after(REFUSED_PAUSE)), "a relaunch begins anew");
    }

    #[test]
    fn standing_and_labels_follow_kind_and_hint() {
        let mut entry = entry();
        let found = entry.found().unwrap();
        assert_eq!(found.labels.name.unwrap().as_str(), "container_1_0001_01_000002");
        assert_eq!(found.labels.job.unwrap().as_str(), "application_1_0001");
        assert_eq!((found.labels.kind, found.standing), (None, None), "not reported yet");
        entry.hint = Hint {
            priority: Some(Priority(5)),
            opportunistic: Some(true),
            queue: label("root.batch"),
            master: None,
        };
        let found = entry.found().unwrap();
        assert_eq!(found.labels.group.unwrap().as_str(), "root.batch");
        assert_eq!(
            (found.priority, found.standing),
            (Some(Priority(5)), Some(Standing::Opportunistic))
        );
        let kind = Some(Kind::ApplicationMaster);
        entry.launch = Some(Launch { kind, node_id: None });
        assert_eq!(
            entry.found().unwrap().standing,
            Some(Standing::Opportunistic),
            "a second master"
        );
        entry.masters = true;
        assert_eq!(entry.found().unwrap().labels.kind.unwrap().as_str(), "am");
        let container = |id: &str| Some(Master::Container(id.parse().unwrap()));
        for (sequence, master, is_master) in [
            (1, None, true),
            (2, None, false),
            (2, container("container_1_0001_01_000002"), true),
            (2, container("container_1_0001_01_000001"), false),
            // The ResourceManager's word is of the attempt before.
            (1, container("container_1_0001_09_000002"), true),
            (2, container("container_1_0001_09_000002"), false),
            // The first number is an ordinary container's.
            (1, Some(Master::Outside), false),
        ] {
            entry.id.sequence = sequence;
            entry.hint.master = master;
            let found = entry.found().unwrap();
            let presumed = found.standing.is_none() && found.presumed == Presumed::Slotless;
            let slotless = presumed || found.standing == Some(Standing::Slotless);
            assert_eq!(slotless, is_master, "{sequence} {master:?}");
            // Only what the ResourceManager says can change a task that is known.
            assert_eq!(presumed, is_master && entry.is_confirmed().is_none());
        }
        entry.hint = Hint { opportunistic: Some(false), master: None, ..entry.hint };
        entry.id.sequence = 2;
        assert_eq!(entry.found().unwrap().standing, None, "an earlier lrsd may know better");
        entry.id.sequence = 1;
        entry.hint.master = Some(Master::Outside);
        // Hadoop 2 says of no container whether it is opportunistic.
        entry.hint.opportunistic = None;
        assert_eq!(entry.found().unwrap().standing, Some(Standing::Slot), "the claim is refused");
    }
}
