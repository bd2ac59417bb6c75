//! `org.lrs.Shaper1.Manager`: methods, properties and signals of the whole daemon.
//!
//! `a{sv}` holds fields named as in `lrsctl --json`; a field that is not known is absent. A
//! property that is not known is an error here, which Get answers and GetAll leaves out, so that
//! no client takes a 0 for a fact. A text that is not there is "".

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;
use zbus::fdo;
use zbus::object_server::SignalEmitter;
use zbus::zvariant::{Fd, ObjectPath, OwnedObjectPath};

use super::call::{Call, Pin};
use super::error::CallError;
use super::limited;
use super::path::task_path;
use super::polkit::{Action, Question};
use super::value::{self, Dict, Options};
use crate::command::{CommandError, Subject};
use crate::server::query::Reader;
use crate::server::{ending, history, pidfd, query, request};
use crate::units::WallTime;
use crate::{proto, wire};

/// Most events in one answer.
const MAX_EVENTS: usize = 1000;

/// The daemon, as one call or one announcement sees it.
pub(super) struct Manager {
    pub status: Arc<proto::Status>,
    /// `None` in announcements, which read properties alone.
    pub call: Option<Call>,
}

/// A property that is not known.
pub(super) fn known<T>(value: Option<T>) -> fdo::Result<T> {
    value.ok_or_else(|| fdo::Error::Failed("not known".to_owned()))
}

/// A text that is not there is "".
pub(super) fn text(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

/// RFC 3339.
pub(super) fn time(time: Option<&prost_types::Timestamp>) -> String {
    time.map(|time| wire::wall_time(time).to_string()).unwrap_or_default()
}

/// The time that an option says.
fn time_of(option: &str, text: &str) -> Result<prost_types::Timestamp, CommandError> {
    text.parse::<WallTime>().map(wire::proto_time).map_err(|_| {
        let start: String = text.chars().take(64).collect();
        request::invalid(format!(
            "option {option} is {start:?}, no RFC 3339 time; write it as 2026-01-02T03:04:05Z"
        ))
    })
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AdmitOptions {
    name: Option<String>,
    job: Option<String>,
    kind: Option<String>,
    group: Option<String>,
    command: Option<String>,
    hinted_rate: Option<f64>,
    priority: Option<i32>,
    reservation: Option<String>,
    in_place: bool,
    keep_unit: bool,
    leave_unit: bool,
    wait_ms: u64,
    wait_forever: bool,
    ticket: Option<String>,
    unit: Option<String>,
}

impl AdmitOptions {
    fn request(self, pid: i32) -> Result<proto::AdmitRequest, CommandError> {
        Ok(proto::AdmitRequest {
            pid,
            name: self.name,
            job: self.job,
            kind: self.kind,
            group: self.group,
            command: self.command,
            hinted_rate: self.hinted_rate,
            priority: self.priority,
            reservation: self.reservation,
            in_place: self.in_place,
            keep_unit: self.keep_unit,
            leave_unit: self.leave_unit,
            wait_ms: self.wait_ms,
            wait_forever: self.wait_forever,
            unit: self.unit,
            ticket: self.ticket,
        })
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReserveOptions {
    job: Option<String>,
    kind: Option<String>,
    group: Option<String>,
    hinted_rate: Option<f64>,
    priority: i32,
    ttl_ms: Option<u64>,
    wait_ms: u64,
    wait_forever: bool,
    tier: Option<String>,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HistoryOptions {
    job: Option<String>,
    uid: Option<u32>,
    since: Option<String>,
    failed: bool,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct QueueOptions {
    id: Option<String>,
    pid: Option<i32>,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WaitOptions {
    wait_ms: Option<u64>,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct JobOptions {
    uid: Option<u32>,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EvaluateOptions {
    job: Option<String>,
    kind: Option<String>,
    computing_rate: Option<f64>,
    mean_computing_rate: Option<f64>,
    uid: Option<u32>,
}

impl EvaluateOptions {
    fn asked(self) -> proto::EvaluateJobRequest {
        let EvaluateOptions { job, kind, computing_rate, mean_computing_rate, uid } = self;
        proto::EvaluateJobRequest { job, kind, computing_rate, mean_computing_rate, uid }
    }
}

impl Manager {
    fn call(&self) -> Result<&Call, CallError> {
        self.call.as_ref().ok_or_else(|| CallError::internal("a call without a caller"))
    }

    fn node(&self) -> fdo::Result<&proto::Node> {
        known(self.status.node.as_ref())
    }

    fn active(&self) -> fdo::Result<proto::ActiveSlots> {
        known(self.status.slots.and_then(|slots| slots.active))
    }

    fn passive(&self) -> fdo::Result<proto::PassiveSlots> {
        known(self.status.slots.and_then(|slots| slots.passive))
    }

    fn guard(&self) -> fdo::Result<&proto::Guard> {
        known(self.status.guard.as_ref())
    }

    fn cgroup(&self) -> fdo::Result<&proto::CgroupStatus> {
        known(self.status.cgroup.as_ref())
    }

    async fn admitted(
        &self,
        request: crate::command::AdmitRequest,
    ) -> Result<(String, OwnedObjectPath), CallError> {
        let call = self.call()?;
        let (about, pin) = match &request.subject {
            Subject::Process(pid) => (
                ("pid", pid.to_string()),
                Some(Pin { pid: *pid, start_ticks: request.start_ticks }),
            ),
            Subject::Unit(unit) => (("unit", unit.to_string()), None),
        };
        let question = Question::new(Action::ManageTasks, "Admit", Some(about));
        let task = call
            .change(question, pin, |caller, earlier| {
                let request = match earlier {
                    None => request.clone(),
                    Some(earlier) => earlier.again(&request),
                };
                call.server.service.admit(caller, request)
            })
            .await?;
        let path = ObjectPath::try_from(task_path(&task.id)).map_err(CallError::internal)?;
        Ok((task.id, path.into()))
    }
}

// By hand, so that the properties and the signals are a table.
#[rustfmt::skip]
#[zbus::interface(name = "org.lrs.Shaper1.Manager")]
impl Manager {
    /// The node, its slots and the state of the daemon, now.
    #[zbus(out_args("status"))]
    fn get_status(&self) -> Dict {
        value::message(&*self.status)
    }

    /// One running task.
    #[zbus(out_args("task"))]
    fn get_task(&self, id: &str) -> Result<Dict, CallError> {
        Ok(value::message(&Reader::OTHER.task(&*query::task(&self.call()?.snapshot(), id)?)))
    }

    /// All running tasks, by order of admission.
    #[zbus(out_args("tasks"))]
    async fn list_tasks(&self) -> Result<Vec<Dict>, CallError> {
        let call = self.call()?;
        let mut tasks = Vec::with_capacity(call.snapshot().tasks.len());
        for task in call.snapshot().tasks.values() {
            tasks.push(value::message(&Reader::OTHER.task(task)));
            tokio::task::consume_budget().await;
        }
        limited(tasks)
    }

    /// Jobs known here, by user, name and kind.
    #[zbus(out_args("jobs"))]
    fn list_jobs(&self) -> Result<Vec<Dict>, CallError> {
        let call = self.call()?;
        limited(Reader::OTHER.jobs(&call.snapshot().jobs).map(value::message).collect())
    }

    /// Tasks that ended, the latest end last: the last 4096, as far as the history on disk goes back.
    /// Options: job (s), uid (u), since (s, RFC 3339), failed (b): only those with a main process
    /// known to have ended otherwise than with status 0.
    #[zbus(out_args("tasks"))]
    fn list_history(&self, options: Options) -> Result<Vec<Dict>, CallError> {
        let HistoryOptions { job, uid, since, failed } = options.read()?;
        let since = since.map(|text| time_of("since", &text)).transpose()?;
        let asked = proto::ListHistoryRequest {
            job, uid, since, failed, ..proto::ListHistoryRequest::default()
        };
        let answer = history::recent(self.call()?.server.service.access(), Reader::OTHER, &asked)?;
        limited(answer.tasks.iter().map(value::message).collect())
    }

    /// The task as in ListHistory, once it has ended. Options: wait_ms (t): no longer than that. The
    /// wait ends when the caller leaves the bus.
    #[zbus(out_args("task"))]
    async fn wait_task(&self, id: String, options: Options) -> Result<Dict, CallError> {
        let WaitOptions { wait_ms } = options.read()?;
        let call = self.call()?;
        let asked = proto::WaitTaskRequest { id, wait_ms };
        let access = call.server.service.access();
        let ended = async { Ok(ending::of_task(access, Reader::OTHER, asked).await?) };
        Ok(value::message(&call.unless_left("WaitTask", ended).await?))
    }

    /// What waits for a slot, in the order in which it is served, after the reservations, which have
    /// one. Options: id (s), pid (i): only what waits under this id, or for this process (as in Admit).
    #[zbus(out_args("queue"))]
    async fn list_queue(&self, options: Options) -> Result<Vec<Dict>, CallError> {
        let QueueOptions { id, pid } = options.read()?;
        let mut asked = proto::ListQueueRequest { id, pid, ..proto::ListQueueRequest::default() };
        let call = self.call()?;
        let mut queue = Vec::new();
        loop {
            let caller = call.identity();
            let request = request::queue(asked.clone(), &pidfd::still(&caller))?;
            let page = call.server.service.list_queue(caller, request).await?;
            let page = request::queue_page(page);
            queue.extend(page.queue.iter().map(value::message));
            asked.page_token = page.next_page_token;
            if asked.page_token.is_empty() {
                return limited(queue);
            }
        }
    }

    /// Puts a running process, with its descendants, into a slot; pid 0 is the caller. Another pid is
    /// refused from a caller in another pid namespace than lrsd's. Options:
    /// name, job, kind, group, command (s), hinted_rate (d), priority (i), reservation (s), in_place (b), wait_ms (t),
    /// wait_forever (b), ticket (s): of ListQueue, to keep the place in the queue over a restart of
    /// lrsd; unit (s): with pid 0, a running service or scope of systemd's, in place; keep_unit (b): leave
    /// the unit of systemd's that it is in only if nothing is lost by it, as lrsctl run does; leave_unit
    /// (b): leave it, or for an admin the group of another manager, whatever is lost. A wait ends when the
    /// caller leaves the bus. AlreadyExists has the task's id as its second argument.
    #[zbus(out_args("id", "task"))]
    async fn admit(
        &self,
        pid: i32,
        options: Options,
    ) -> Result<(String, OwnedObjectPath), CallError> {
        let asked = options.read::<AdmitOptions>()?.request(pid)?;
        let request = request::admit(asked, &pidfd::still(&self.call()?.identity()))?;
        self.admitted(request).await
    }

    /// As Admit, for the process behind a pidfd: no other process can be meant, whatever the pid
    /// namespace of the caller.
    #[zbus(out_args("id", "task"))]
    async fn admit_pidfd(
        &self,
        pidfd: Fd<'_>,
        options: Options,
    ) -> Result<(String, OwnedObjectPath), CallError> {
        let process = pidfd::process(&pidfd)?;
        let asked = options.read::<AdmitOptions>()?.request(process.pid.raw())?;
        self.admitted(request::admit_process(asked, process)?).await
    }

    /// Promises a slot for a limited time, before its task exists. Options: job, kind, group (s),
    /// hinted_rate (d), priority (i), ttl_ms (t), wait_ms (t), wait_forever (b), tier (s): "active": no other. A wait
    /// ends when the caller leaves the bus.
    #[zbus(out_args("id", "tier", "expires_at"))]
    async fn reserve(&self, options: Options) -> Result<(String, String, String), CallError> {
        let ReserveOptions {
            job, kind, group, hinted_rate, priority, ttl_ms, wait_ms, wait_forever, tier,
        } = options.read()?;
        let tier = match tier.as_deref() {
            None => proto::Tier::Unspecified,
            Some("active") => proto::Tier::Active,
            // Refused like any other that cannot be.
            Some(_) => proto::Tier::Passive,
        };
        let asked = request::reserve(proto::ReserveRequest {
            job, kind, group, hinted_rate, priority, ttl_ms, wait_ms, wait_forever, count: 1,
            tier: tier.into(),
        })?;
        let call = self.call()?;
        let question = Question::new(Action::ManageTasks, "Reserve", None);
        let reserve = |caller, _| call.server.service.reserve(caller, asked.clone());
        let granted = call.change(question, None, reserve).await?;
        let tier = text(wire::tier_word(granted.tier));
        Ok((granted.id, tier, time(granted.expires_at.as_ref())))
    }

    /// Gives a promised slot back, or ends the wait of a request.
    async fn cancel_reservation(&self, id: &str) -> Result<(), CallError> {
        let id = request::queue_id(id)?;
        let call = self.call()?;
        let about = Some(("reservation", id.to_string()));
        let question = Question::new(Action::ManageTasks, "CancelReservation", about);
        let cancel = |caller, _| call.server.service.cancel_reservation(caller, id);
        call.change(question, None, cancel).await
    }

    /// Gives a running task back to where it came from; its processes go on.
    async fn release(&self, id: &str) -> Result<(), CallError> {
        self.call()?.release(id).await
    }

    /// Gives a task another priority; higher runs sooner.
    async fn set_priority(&self, id: &str, priority: i32) -> Result<(), CallError> {
        self.call()?.set_priority(id, priority).await
    }

    /// The same for all that runs and waits of a job. Options: uid (u): the owner of the job; else
    /// the caller's own, or of an admin's call the jobs of that name of all users. tasks and
    /// waiting say how many.
    #[zbus(out_args("tasks", "waiting"))]
    async fn set_job_priority(
        &self,
        job: String,
        priority: i32,
        options: Options,
    ) -> Result<(u32, u32), CallError> {
        let JobOptions { uid } = options.read()?;
        let asked = proto::SetJobPriorityRequest { job, uid, priority };
        let asked = request::job_priority(asked)?;
        let about = Some(("job", asked.job.to_string()));
        let question = Question::new(Action::ManageTasks, "SetJobPriority", about);
        let call = self.call()?;
        let set = |caller, _| call.server.service.set_job_priority(caller, asked.clone());
        let changed = call.change(question, None, set).await?;
        Ok((changed.tasks, changed.waiting))
    }

    /// Stops offering slots. Running tasks are not touched.
    async fn drain(&self) -> Result<(), CallError> {
        let call = self.call()?;
        let drain = |caller, _| call.server.service.drain(caller);
        call.change(Question::new(Action::Operate, "Drain", None), None, drain).await
    }

    /// Offers slots again.
    async fn resume(&self) -> Result<(), CallError> {
        let call = self.call()?;
        let resume = |caller, _| call.server.service.resume(caller);
        call.change(Question::new(Action::Operate, "Resume", None), None, resume).await
    }

    /// Applies the changed configuration file, or keeps the old one and says why.
    #[zbus(out_args("changed"))]
    async fn reload(&self) -> Result<Vec<String>, CallError> {
        let call = self.call()?;
        let reload = |caller, _| call.server.service.reload(caller);
        call.change(Question::new(Action::Operate, "Reload", None), None, reload).await
    }

    /// The settings in force, as TOML.
    #[zbus(out_args("toml"))]
    fn get_config(&self) -> Result<String, CallError> {
        Ok(self.call()?.snapshot().config_toml.to_string())
    }

    /// Every kept decision that touched a task or a reservation, with its inputs (numbers are x,
    /// or d with a fraction); truncated when older ones are not kept any more.
    #[zbus(out_args("events", "truncated"))]
    fn explain(&self, id: &str) -> Result<(Vec<Dict>, bool), CallError> {
        self.call()?.explain(id)
    }

    /// The co-location test: does this job suit this node? Options: job, kind (s), uid (u),
    /// computing_rate, mean_computing_rate (d). Advice only.
    #[zbus(out_args("advice"))]
    fn evaluate_job(&self, question: Options) -> Result<Dict, CallError> {
        let asked = question.read::<EvaluateOptions>()?.asked();
        Ok(value::message(&query::evaluate(&self.call()?.snapshot(), asked)?))
    }

    /// The same for several jobs, the one to take first in front; of no questions every job known
    /// here. Each answer has job, kind, uid as asked, and evaluation (a{sv}).
    #[zbus(out_args("jobs"))]
    fn evaluate_jobs(&self, questions: Vec<Options>) -> Result<Vec<Dict>, CallError> {
        let asked = |one: Options| one.read::<EvaluateOptions>().map(EvaluateOptions::asked);
        let jobs = questions.into_iter().map(asked).collect::<Result<_, _>>()?;
        let asked = proto::EvaluateJobsRequest { jobs };
        let answer = query::evaluate_all(&self.call()?.snapshot(), asked)?;
        limited(answer.jobs.iter().map(value::message).collect())
    }

    /// Kept events from sequence number since on, oldest first: at most limit, and at most
    /// 1000, which 0 means too. lost counts those gone before and between those given. Numbers in
    /// inputs are x, or d with a fraction.
    #[zbus(out_args("events", "lost"))]
    fn events(&self, since: u64, limit: u32) -> Result<(Vec<Dict>, u64), CallError> {
        let call = self.call()?;
        let limit = if limit == 0 { MAX_EVENTS } else { MAX_EVENTS.min(limit as usize) };
        let page = call.server.service.events().read_on(since, limit);
        let event = |event: &Arc<_>| value::message(&query::event(event));
        Ok((limited(page.events.iter().map(event).collect())?, page.lost))
    }

    /// How this node stands with YARN: its managers, what is offered, its containers.
    #[zbus(out_args("yarn"))]
    fn get_yarn(&self) -> Result<Dict, CallError> {
        let call = self.call()?;
        limited(value::message(&query::yarn(&call.snapshot())))
    }

    /// A task is in its slot; its object is there.
    #[zbus(signal)]
    pub async fn task_admitted(
        emitter: &SignalEmitter<'_>, id: &str, task: ObjectPath<'_>, seq: u64, reason: &str,
    ) -> zbus::Result<()>;

    /// A passive task became active.
    #[zbus(signal)]
    pub async fn task_promoted(
        emitter: &SignalEmitter<'_>, id: &str, task: ObjectPath<'_>, seq: u64, reason: &str,
    ) -> zbus::Result<()>;

    /// An active task became passive.
    #[zbus(signal)]
    pub async fn task_demoted(
        emitter: &SignalEmitter<'_>, id: &str, task: ObjectPath<'_>, seq: u64, reason: &str,
    ) -> zbus::Result<()>;

    /// The last process of a task has ended; its object is gone.
    #[zbus(signal)]
    pub async fn task_completed(
        emitter: &SignalEmitter<'_>, id: &str, task: ObjectPath<'_>, seq: u64, reason: &str,
    ) -> zbus::Result<()>;

    /// A task was given back; its object is gone.
    #[zbus(signal)]
    pub async fn task_released(
        emitter: &SignalEmitter<'_>, id: &str, task: ObjectPath<'_>, seq: u64, reason: &str,
    ) -> zbus::Result<()>;

    /// What a scheduler may claim has changed.
    #[zbus(signal)]
    pub async fn slots_changed(
        emitter: &SignalEmitter<'_>, active_capacity: u32, active_free: u32, passive_capacity: u32,
        passive_free: u32,
    ) -> zbus::Result<()>;

    /// Of lrsd.
    #[zbus(property)] fn version(&self) -> String { self.status.version.clone() }
    /// RFC 3339.
    #[zbus(property)] fn started_at(&self) -> String { time(self.status.started_at.as_ref()) }
    #[zbus(property)] fn hostname(&self) -> fdo::Result<String> { Ok(self.node()?.hostname.clone()) }
    /// CPUs the tasks of LRS may use.
    #[zbus(property)] fn cores(&self) -> fdo::Result<u32> { Ok(self.node()?.cores) }
    /// Of the node, by the settings: what schedulers know it by.
    #[zbus(property)] fn labels(&self) -> fdo::Result<HashMap<String, String>> {
        Ok(self.node()?.labels.clone().into_iter().collect())
    }
    /// accepting, holding or draining.
    #[zbus(property)] fn state(&self) -> String { text(wire::node_state_word(self.status.state)) }
    /// enforce or observe.
    #[zbus(property)] fn mode(&self) -> String { text(wire::mode_word(self.status.mode)) }
    #[zbus(property)] fn active_capacity(&self) -> fdo::Result<u32> { Ok(self.active()?.capacity) }
    #[zbus(property)] fn active_used(&self) -> fdo::Result<u32> { Ok(self.active()?.used) }
    #[zbus(property)] fn active_reserved(&self) -> fdo::Result<u32> { Ok(self.active()?.reserved) }
    /// What Reserve would grant now.
    #[zbus(property)] fn active_free(&self) -> fdo::Result<u32> { Ok(self.active()?.free) }
    #[zbus(property)] fn passive_capacity(&self) -> fdo::Result<u32> { Ok(self.passive()?.capacity) }
    /// Before any expansion.
    #[zbus(property)] fn passive_base(&self) -> fdo::Result<u32> { Ok(self.passive()?.base) }
    /// The base included.
    #[zbus(property)] fn passive_max(&self) -> fdo::Result<u32> { Ok(self.passive()?.max) }
    #[zbus(property)] fn passive_used(&self) -> fdo::Result<u32> { Ok(self.passive()?.used) }
    #[zbus(property)] fn passive_reserved(&self) -> fdo::Result<u32> { Ok(self.passive()?.reserved) }
    /// What Reserve would grant now.
    #[zbus(property)] fn passive_free(&self) -> fdo::Result<u32> { Ok(self.passive()?.free) }
    /// Discovered tasks beyond capacity, not in PassiveUsed.
    #[zbus(property)] fn passive_overflow(&self) -> fdo::Result<u32> { Ok(self.passive()?.overflow) }
    /// Why no further passive slot opens: off, max, memory, active_tier, throughput or compute. Empty: nothing
    /// keeps one from opening, a slot is free, or it is not known.
    #[zbus(property)] fn passive_bound(&self) -> fdo::Result<String> {
        Ok(text(wire::bound_word(self.passive()?.bound)))
    }
    /// Requests waiting for a slot.
    #[zbus(property)] fn waiting(&self) -> u32 { self.status.waiting }
    /// Empty while the active tier is.
    #[zbus(property)] fn lowest_active_priority(&self) -> Vec<i32> {
        self.status.lowest_active_priority.into_iter().collect()
    }
    /// 0: nothing held.
    #[zbus(property)] fn guard_stage(&self) -> fdo::Result<u32> { Ok(self.guard()?.stage) }
    /// Empty at stage 0.
    #[zbus(property)] fn guard_reason(&self) -> fdo::Result<String> {
        Ok(text(self.guard()?.reason.as_deref()))
    }
    /// 0: no hierarchy in use.
    #[zbus(property)] fn cgroup_version(&self) -> fdo::Result<u32> { Ok(self.cgroup()?.version) }
    /// Below the controller's mount.
    #[zbus(property)] fn cgroup_root(&self) -> fdo::Result<String> { Ok(self.cgroup()?.root.clone()) }
    /// idle, weight or none.
    #[zbus(property)] fn cpu_tiers(&self) -> fdo::Result<String> { Ok(self.cgroup()?.cpu_tiers.clone()) }
    /// bfq, iocost, ioprio or none.
    #[zbus(property)] fn io_tiers(&self) -> fdo::Result<String> { Ok(self.cgroup()?.io_tiers.clone()) }
    /// Why the tiers are what they are.
    #[zbus(property)] fn tiers_reason(&self) -> fdo::Result<String> { Ok(self.cgroup()?.reason.clone()) }
    /// What an operator should know now.
    #[zbus(property)] fn warnings(&self) -> Vec<String> { self.status.warnings.clone() }
    /// Since the state directory was made.
    #[zbus(property)]
    fn totals(&self) -> fdo::Result<HashMap<String, u64>> {
        let totals = json!(known(self.status.totals.as_ref())?);
        let counts = totals.as_object().into_iter().flatten();
        Ok(counts.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect())
    }

    /// CPU, disk, pressure and memory over the last cycle; what runs, summed up.
    #[zbus(property(emits_changed_signal = "false"))]
    fn measured(&self) -> fdo::Result<Dict> {
        let node = self.node()?;
        Ok(value::dict(json!({
            "cpu": node.cpu,
            "disk": node.disk,
            "pressure": node.pressure,
            "memory": node.memory,
            "sampled_at": node.sampled_at.as_ref().map(|at| time(Some(at))),
            "period_ms": node.period_ms,
            "running": self.status.running,
        })))
    }
}
