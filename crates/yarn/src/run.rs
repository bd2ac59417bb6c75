//! The work: look at lrsd, ask the managers, change the offer, report, tell hints, wait.
//!
//! One step after the other, with calls that block. It wakes when lrsd's status changes, when a pass
//! is due and when it is to stop. Settings that decide whom to talk to begin the agent anew, from the
//! ledger, as a restart does; so do addresses that Hadoop's files have changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lrs_api::{proto, wire};
use lrs_core::event::Change;
use lrs_core::units::{BootTime, Bytes, Moment};
use lrs_host::clock;
use tokio::sync::watch;

use crate::agent::{Agent, Outcome, View};
use crate::client::Client;
use crate::give_back::{self, Witness};
use crate::hints::Hints;
use crate::ledger::LedgerFile;
use crate::link::{Link, Lrsd, LrsdState};
use crate::offer::{NodeMemory, SlotSize, Slots};
use crate::settings::{Mode, Settings};
use crate::{Endpoints, notify};

/// How long lrsd may be away before the offer is taken back: longer than a restart takes.
const AWAY: Duration = Duration::from_secs(15);

/// How long a pass for hints may go on; a slow ResourceManager would else have the offer wait for
/// dozens of calls. What is not read then is in one of the next passes.
const HINTS_WITHIN: Duration = Duration::from_secs(2);

/// How often it is reported how things stand, although nothing changed: lrsd warns of silence.
const REPORT_EVERY: Duration = Duration::from_secs(20);

/// When a report that was not taken is made again.
const REPORT_AGAIN: Duration = Duration::from_secs(1);

/// When Hadoop's files that could not be read are tried again.
const FILES_AGAIN: Duration = Duration::from_secs(10);

/// Changes in one report, as many as it may have; of more that lrsd did not take the newest are kept.
const CHANGES: usize = 8;

/// Longest reason of a change, in bytes, that lrsd takes.
const REASON_BYTES: usize = 4096;

/// What it runs with.
#[derive(Clone, Debug)]
pub struct Parts {
    /// lrsd.
    pub link: Link,
    /// Where the ledger is.
    pub state_dir: PathBuf,
    /// Becomes true when it is to stop.
    pub stopping: watch::Receiver<bool>,
}

impl Parts {
    /// Says of an offer that is left behind.
    pub fn witness(&self) -> Witness {
        Witness::of(&self.state_dir, self.link.seen.borrow().settings.as_deref())
    }
}

/// Works until it is to stop, or until lrsd says that `yarn.enabled` is false. An offer in force
/// then is taken back, or reported.
pub fn until_stopped(mut parts: Parts) {
    let mut reports = Reports::new(Box::new(parts.link.clone()));
    let mut logged = None;
    let left = loop {
        let seen = parts.link.seen.borrow_and_update().clone();
        let is_off = seen.is_fresh && seen.settings.as_ref().is_some_and(|it| !it.yarn.enabled);
        let begun = match seen.settings {
            Some(settings) => Talker::begin(&parts, settings),
            None => Err(String::from("lrsd has not answered yet")),
        };
        match begun {
            Ok(mut talker) => {
                logged = None;
                if !is_off && talker.run(&mut reports) == Ended::Anew {
                    tracing::info!("other managers are to be called now: it begins anew");
                    continue;
                }
                break talker.give_back(&mut reports);
            }
            Err(why) if is_off || *parts.stopping.borrow() => break Err(why),
            Err(why) => {
                // What is wrong with lrsd is logged where it is followed.
                if seen.is_fresh {
                    if logged.as_ref() != Some(&why) {
                        tracing::error!(
                            "YARN's managers are not called, which is tried again: {why}"
                        );
                    }
                    reports.trouble(&why);
                    logged = Some(why);
                }
                wait(&parts, FILES_AGAIN);
            }
        }
    };
    if parts.link.seen.borrow().settings.as_ref().is_some_and(|settings| !settings.yarn.enabled) {
        tracing::info!("yarn.enabled is false: nothing is to be done");
    }
    if let Err(why) = left
        && let Err(left) = parts.witness().check(&why)
    {
        tracing::warn!("{left}");
    }
}

/// Until lrsd says something that was not looked at, the stop, or this long.
fn wait(parts: &Parts, at_most: Duration) {
    let (mut seen, mut stopping) = (parts.link.seen.clone(), parts.stopping.clone());
    notify::alive();
    parts.link.runtime.block_on(async {
        tokio::select! {
            // An error means that the sender is gone: a stop.
            _ = stopping.wait_for(|stop| *stop) => {}
            Ok(()) = seen.changed() => {}
            () = tokio::time::sleep(at_most) => {}
        }
    });
}

/// Why the work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It is to stop.
    Stop,
    /// Other settings than it began with hold now.
    Anew,
}

struct Talker {
    parts: Parts,
    client: Client,
    endpoints: Endpoints,
    agent: Agent,
    known: Hints,
    /// The last message about hints that cannot be read.
    hint_problem: Option<String>,
    settings: Arc<Settings>,
    was_away: bool,
}

impl Talker {
    fn begin(parts: &Parts, settings: Arc<Settings>) -> Result<Talker, String> {
        let lasting = &settings.yarn.lasting;
        let endpoints = Endpoints::read(lasting).map_err(|error| error.to_string())?;
        Talker::at(endpoints, parts, settings)
    }

    fn at(endpoints: Endpoints, parts: &Parts, settings: Arc<Settings>) -> Result<Talker, String> {
        let client = Client::of(&settings.yarn, endpoints.clone());
        let client = client.map_err(|error| error.to_string())?.with(Some(parts.link.clone()));
        let file = LedgerFile::in_dir(&parts.state_dir);
        let (agent, damage) = Agent::new(endpoints.clone(), settings.yarn.lasting.offer_by, file);
        if let Some(error) = damage {
            tracing::warn!(%error, "what LRS offered YARN before is not known: {error}");
        }
        notify::patience(settings.yarn.timeout);
        Ok(Talker {
            parts: parts.clone(),
            client,
            endpoints,
            agent,
            known: Hints::default(),
            hint_problem: None,
            settings,
            was_away: true,
        })
    }

    fn run(&mut self, reports: &mut Reports) -> Ended {
        loop {
            if self.is_stopping() {
                return Ended::Stop;
            }
            let now = clock::now();
            let seen = self.parts.link.seen.borrow_and_update().clone();
            if !self.take(&seen) {
                return Ended::Anew;
            }
            let away = seen.away_since.map(|since| since.after(AWAY));
            if std::mem::replace(&mut self.was_away, seen.away_since.is_some()) && !self.was_away {
                // An lrsd that has just begun knows nothing of us.
                reports.due = BootTime::default();
                self.known.tell_all_again();
            }
            let Some(view) = view(&seen, &self.settings, now.boot) else {
                self.wait(now, away.unwrap_or(now.boot.after(AWAY)));
                continue;
            };
            let next = self.agent.next(&view);
            if next <= now.boot {
                let polls = self.agent.is_poll(now.boot);
                if polls && self.has_other_addresses() {
                    return Ended::Anew;
                }
                let timeout = self.settings.yarn.timeout;
                self.client.set_timeouts(timeout, timeout);
                let outcome = self.agent.pass(&mut self.client, &view, now);
                reports.tell(&self.agent, outcome);
                if polls && !self.was_away && !self.is_stopping() {
                    self.look_for_hints(now.boot, reports);
                }
            } else if reports.due <= now.boot {
                reports.tell(&self.agent, Outcome::default());
            } else {
                let away = away.filter(|at| *at > now.boot);
                self.wait(
                    now,
                    [Some(next), away].into_iter().flatten().fold(reports.due, BootTime::min),
                );
            }
        }
    }

    fn is_stopping(&self) -> bool {
        *self.parts.stopping.borrow()
    }

    /// Whether Hadoop's files name other managers than it calls. Files that cannot be read now change
    /// nothing; the client says so, which reads them too.
    fn has_other_addresses(&self) -> bool {
        if self.endpoints.conf.is_none() {
            return false;
        }
        let now = Endpoints::read(&self.settings.yarn.lasting);
        now.is_ok_and(|now| !now.calls_the_same(&self.endpoints))
    }

    /// Takes the settings that may change under way; `false`: others have changed too.
    fn take(&mut self, seen: &LrsdState) -> bool {
        let Some(settings) = seen.settings.as_ref().filter(|_| seen.is_fresh) else { return true };
        if !settings.yarn.enabled || settings.yarn.lasting != self.settings.yarn.lasting {
            return false;
        }
        if self.settings.yarn.timeout != settings.yarn.timeout {
            notify::patience(settings.yarn.timeout);
        }
        self.settings = Arc::clone(settings);
        true
    }

    fn wait(&self, now: Moment, until: BootTime) {
        wait(&self.parts, until.since(now.boot));
    }

    fn look_for_hints(&mut self, now: BootTime, reports: &mut Reports) {
        let Talker { client, agent, known, settings, parts, .. } = self;
        let until = clock::boot_time().after(HINTS_WITHIN);
        let enough = || {
            let now = clock::boot_time();
            let newest = view(&parts.link.seen.borrow(), settings, now);
            *parts.stopping.borrow()
                || now > until
                || newest.is_none_or(|view| agent.asks_for_less(&view))
        };
        let (hints, problem) = known.look(client, &enough, now);
        if !hints.is_empty()
            && let Err(error) = reports.lrsd.hint(hints)
        {
            tracing::debug!("hints are sent again with the next pass: {error}");
            known.tell_all_again();
        }
        let problem = problem.map(|problem| problem.to_string());
        if let Some(problem) =
            problem.as_ref().filter(|new| self.hint_problem.as_ref() != Some(*new))
        {
            tracing::info!("YARN: {problem}");
        }
        self.hint_problem = problem;
    }

    fn give_back(&mut self, reports: &mut Reports) -> Result<(), String> {
        let status = self.parts.link.seen.borrow().status.clone().unwrap_or_default();
        let view = View { offer: false, ..of(&status, &self.settings) };
        let Talker { agent, client, settings, .. } = self;
        give_back::at_stop(agent, client, &view, settings.yarn.timeout, |agent, outcome| {
            reports.tell(agent, outcome);
        })
    }
}

/// The reports to lrsd.
struct Reports {
    lrsd: Box<dyn Lrsd>,
    last: Option<proto::YarnStatus>,
    /// When the next one is due although nothing changes.
    due: BootTime,
    /// Changes that it did not take yet.
    unsent: Vec<proto::IntegrationChange>,
    /// Why it took none, as it was last logged.
    refused: Option<String>,
}

impl Reports {
    fn new(lrsd: Box<dyn Lrsd>) -> Reports {
        Reports { lrsd, last: None, due: BootTime::default(), unsent: Vec::new(), refused: None }
    }

    /// Tells lrsd of a pass, if there is news or it is time, and the log of what is no event.
    fn tell(&mut self, agent: &Agent, outcome: Outcome) {
        for error in &outcome.complaints {
            tracing::warn!(%error, "YARN: {error}");
        }
        self.report(agent.report(), outcome.changes);
    }

    /// The managers cannot be called, and why.
    fn trouble(&mut self, why: &str) {
        let mut report = proto::YarnStatus { enabled: true, ..proto::YarnStatus::default() };
        report.last_error = Some(why.to_owned());
        let same = self.last.as_ref().filter(|last| last.last_error == report.last_error);
        report.last_error_at = same
            .and_then(|last| last.last_error_at)
            .or_else(|| Some(wire::proto_time(clock::now().wall)));
        self.report(report, Vec::new());
    }

    fn report(&mut self, report: proto::YarnStatus, changes: Vec<Change>) {
        let now = clock::boot_time();
        if self.due > now && changes.is_empty() && self.last.as_ref() == Some(&report) {
            return;
        }
        self.unsent.extend(changes.into_iter().map(wire_change));
        let surplus = self.unsent.len().saturating_sub(CHANGES);
        self.unsent.drain(..surplus);
        let request = proto::ReportIntegrationRequest {
            yarn: Some(report.clone()),
            changes: self.unsent.clone(),
        };
        match self.lrsd.report(request) {
            Ok(()) => {
                self.unsent.clear();
                self.refused = None;
                self.due = now.after(REPORT_EVERY);
            }
            Err(error) => {
                self.due = now.after(REPORT_AGAIN);
                let error = error.to_string();
                if self.refused.as_ref() != Some(&error) {
                    tracing::warn!("lrsd takes no report, which is made again: {error}");
                    self.refused = Some(error);
                }
            }
        }
        self.last = Some(report);
    }
}

fn wire_change(change: Change) -> proto::IntegrationChange {
    let Change { kind, from, to, mut reason, inputs } = change;
    // lrsd logs it too; this line is for the time it is away.
    tracing::debug!("YARN: {}: {reason}", kind.as_str());
    let end = (0..=REASON_BYTES.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
    reason.truncate(end.unwrap_or_default());
    let inputs = Some(wire::proto_object(&inputs));
    proto::IntegrationChange { r#type: kind.as_str().to_owned(), from, to, reason, inputs }
}

/// What the agent goes by now; `None`: it is too early to tell.
fn view(seen: &LrsdState, settings: &Settings, now: BootTime) -> Option<View> {
    let away = seen.away_since.is_some_and(|since| since.after(AWAY) <= now);
    match &seen.status {
        Some(status) if seen.is_fresh => {
            let view = of(status, settings);
            Some(View { offer: view.offer && !away, ..view })
        }
        _ if away => Some(View { offer: false, ..of(&proto::Status::default(), settings) }),
        _ => None,
    }
}

/// What of status and settings the agent goes by.
fn of(status: &proto::Status, settings: &Settings) -> View {
    let slots = status.slots.unwrap_or_default();
    let (active, passive) = (slots.active.unwrap_or_default(), slots.passive.unwrap_or_default());
    let memory = status.node.as_ref().and_then(|node| node.memory.as_ref());
    // Of the node, whatever limit binds the tasks of LRS now: containers are also elsewhere, and an offer
    // follows the slots, which heed the limit.
    let total = memory.and_then(|memory| memory.node_total_bytes).map(Bytes);
    View {
        slots: Slots {
            active: active.capacity,
            passive: passive.capacity,
            base: passive.base,
            given_out: status.state == proto::NodeState::Accepting as i32,
        },
        memory: NodeMemory {
            total,
            reserve: settings.guard.memory_reserve.of(total.unwrap_or_default()),
        },
        slot: SlotSize { memory: settings.yarn.slot_memory, vcores: settings.yarn.slot_vcores },
        offer: settings.yarn.offer,
        enforce: settings.daemon.mode == Mode::Enforce,
        poll: settings.yarn.poll,
    }
}

#[cfg(test)]
mod tests;
