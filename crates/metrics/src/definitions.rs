//! The names: one entry for each metric, in the order of the text.
//!
//! A name is stable: it is in dashboards and alert rules of others. Units are base units. A counter
//! begins anew with each lrsd unless its text says that it is kept over a restart.

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, until it begins anew.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts by upper bounds.
    Histogram,
    /// A constant 1, with what it tells in the labels.
    Info,
}

/// One metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// What it is.
    pub kind: Kind,
    /// Its name without the prefix `lrs_`, the unit and the ending of its kind.
    pub name: &'static str,
    /// Its unit; "": a plain number.
    pub unit: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says, as a sentence.
    pub help: &'static str,
}

impl Definition {
    /// The name of its series (of a histogram: without `_bucket`, `_sum`, `_count`).
    pub fn full_name(&self) -> String {
        let unit = if self.unit.is_empty() { "" } else { "_" };
        let ending = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        format!("lrs_{}{unit}{}{ending}", self.name, self.unit)
    }
}

macro_rules! definitions {
    ($($id:ident = $kind:ident $name:literal $unit:literal [$($label:literal),*] $help:literal;)+) => {
        $(
            #[doc = $help]
            pub static $id: Definition = Definition {
                kind: Kind::$kind,
                name: $name,
                unit: $unit,
                labels: &[$($label),*],
                help: $help,
            };
        )+

        /// All of them.
        pub static ALL: &[&Definition] = &[$(&$id),+];
    };
}

definitions! {
    UP = Gauge "up" "" []
        "1: lrsd answered. 0: it did not, and nothing else is known.";
    BUILD = Info "build" "" ["version"]
        "The version of lrsd.";
    START_TIME = Gauge "start_time" "seconds" []
        "When lrsd started, as seconds since 1970.";
    LAST_TURN_AGE = Gauge "last_turn_age" "seconds" []
        "How long ago the control loop of lrsd finished a turn; above 10, and three times sample_period, it hangs.";
    WARNINGS = Gauge "warnings" "" []
        "Warnings of lrsctl status.";
    STATE = Gauge "state" "" ["state"]
        "1 for what the node does: accepting, holding (the guard opens no passive slots), draining.";
    MODE = Gauge "mode" "" ["mode"]
        "1 for the mode: enforce, observe (nothing is written).";

    CAPACITY = Gauge "slots_capacity" "" ["tier"]
        "Slots that a tier has now.";
    SLOTS = Gauge "slots" "" ["tier", "state"]
        "Slots by what is in them: used, reserved; free: what a reservation would get now.";
    PASSIVE_BASE = Gauge "slots_passive_base" "" []
        "Passive slots before any expansion.";
    PASSIVE_MAX = Gauge "slots_passive_max" "" []
        "The most passive slots that expansion may open.";

    TASKS = Gauge "tasks" "" ["tier", "class"]
        "Running tasks; one with a slot on loan counts as active.";
    FLAGGED = Gauge "tasks_flagged" "" ["flag"]
        "Running tasks by what is out of the ordinary: starving (passive, wants the CPU, got less than a tenth of one in the last cycle), frozen, stopped, contested, overflow, slotless, opportunistic, capped, loan (passive by its slot, with the weights of an active one that sleeps).";
    TIER_CPU = Gauge "tier_cpu" "ratio" ["tier"]
        "Share of the node's CPUs that the tasks of a tier used over the last cycle.";
    LANE_TASKS = Gauge "lane_tasks" "" ["lane"]
        "Passive tasks in the I/O lane: io, or slow (over their part).";
    LANE_CPU = Gauge "lane_cpu" "ratio" []
        "Share of the node's CPUs that the tasks in the I/O lane used over the last cycle.";

    QUEUE = Gauge "queue_length" "" []
        "Requests that wait for a slot.";
    QUEUE_REASON = Gauge "queue_requests" "" ["reason"]
        "The same by reason: full, holding, draining, starting, order.";
    OLDEST_WAIT = Gauge "queue_oldest_wait" "seconds" []
        "How long the request has waited that first asked; absent where none waits.";
    RESERVATIONS = Gauge "reservations" "" []
        "Reservations, which have a slot.";

    ADMITTED = Counter "tasks_admitted" "" []
        "Tasks that got a slot; kept over a restart.";
    COMPLETED = Counter "tasks_completed" "" []
        "Tasks that ended; kept over a restart.";
    LEFT = Counter "tasks_left" "" []
        "Of those, tasks that ended because their last process left for another cgroup; kept over a restart.";
    FAILED = Counter "tasks_failed" "" []
        "Main processes that are known to have ended otherwise than with status 0.";
    RELEASED = Counter "tasks_released" "" []
        "Tasks that were given back and go on; kept over a restart.";
    PROMOTIONS = Counter "promotions" "" []
        "Changes of a task from passive to active; kept over a restart.";
    DEMOTIONS = Counter "demotions" "" []
        "Changes of a task from active to passive; kept over a restart.";
    REFUSALS = Counter "refusals" "" []
        "Requests that got no slot; kept over a restart.";
    EVENTS = Counter "events" "" ["type"]
        "Events of lrsctl events by type; expanded and shrunk are steps of expansion.";
    PROMOTION = Histogram "promotion" "seconds" []
        "From the moment at which lrsd noticed that a slot came free until the weights of the promoted task, its record and its event were written.";
    SLOT_GAP = Histogram "slot_gap" "seconds" []
        "How long slots were empty that requests waited for: from the moment at which lrsd gave one to the request, in the turn in which it noticed that it was free, until its task was in place, with its weights, record and event, and its client had the answer.";

    GUARD_ENABLED = Gauge "guard_enabled" "" []
        "Whether the guard is on.";
    GUARD_STAGE = Gauge "guard_stage" "" []
        "Stage of the guard: 0 nothing, 1 no passive slots, 2 headroom, 3 freezing.";
    GUARD_DRY_RUN = Gauge "guard_dry_run" "" []
        "Whether that stage is reported only.";
    GUARD_FROZEN = Gauge "guard_frozen_tasks" "" []
        "Tasks that the guard froze.";
    GUARD_MISSING = Gauge "guard_missing_signals" "" []
        "Signals that the guard wants and this node does not give.";

    TIER_EFFECT = Gauge "tier_effect" "" ["resource", "mechanism"]
        "Whether the tiers split a resource (cpu, io) on this node, and by what.";
    TIER_VERIFIED = Gauge "tier_verified" "" ["resource"]
        "Whether a test has measured that they do: lrsctl doctor --verify.";
    ROOT_WEIGHT = Gauge "root_weight" "" []
        "What all tasks together weigh beside the other groups of the node; 100 is neutral, 0 behind all.";

    CPUS = Gauge "cpus" "" []
        "CPUs that tasks may use.";
    CPU_QUOTA = Gauge "cpu_quota_cpus" "" []
        "The least CPU quota above the tasks, where one is less than these CPUs.";
    CPU = Gauge "cpu" "ratio" ["by"]
        "Share of the CPU time of these CPUs over the last cycle: tasks, others, iowait, idle, steal.";
    PRESSURE = Gauge "pressure" "ratio" ["resource", "stall"]
        "Share of the last cycle in which some or all (full) tasks of the node stalled.";
    DISK = Gauge "disk" "bytes_per_second" ["direction"]
        "Bytes read and written on the disks of the node over the last cycle.";
    MEMORY_TOTAL = Gauge "memory_total" "bytes" []
        "Memory that tasks may have: the node's, or the limit that binds.";
    MEMORY_AVAILABLE = Gauge "memory_available" "bytes" []
        "What of it is available, cache included.";
    SWAP = Gauge "swap_used" "bytes" []
        "Swap of the node in use.";

    PERIOD = Gauge "cycle_period" "seconds" []
        "Length of a cycle.";
    CYCLE = Gauge "cycle_duration" "seconds" []
        "How long the last reading of the node and its tasks took.";
    DAEMON_CPU = Counter "daemon_cpu" "seconds" []
        "CPU time of lrsd.";
    DAEMON_RESIDENT = Gauge "daemon_resident" "bytes" []
        "Resident memory of lrsd.";

    HISTORY_LOST = Counter "history_lost" "" []
        "Cycles, minutes and ended tasks that history.directory could not take; absent where none is kept.";

    YARN_ENABLED = Gauge "yarn_enabled" "" []
        "Whether this is a YARN node (yarn.enabled).";
    YARN_REPORT_AGE = Gauge "yarn_report_age" "seconds" []
        "How long ago lrs-yarn reported; absent: not since lrsd started.";
    YARN_MEMORY = Gauge "yarn_memory" "bytes" ["figure"]
        "Memory of the node for containers: configured, advertised by the ResourceManager, offered by LRS.";
    YARN_VCORES = Gauge "yarn_vcores" "" ["figure"]
        "The same in vcores.";
    YARN_CONTAINERS = Gauge "yarn_containers" "" []
        "Containers found on the node.";
    YARN_ERROR = Gauge "yarn_error" "" []
        "Whether something went wrong last and has not gone right since (lrsctl yarn status).";

    JOB_TASKS = Gauge "job_tasks" "" ["name"]
        "Running tasks of the largest jobs, of all users who have a job of that name; other: of the rest. Only with metrics.jobs.";
    JOB_WAITING = Gauge "job_waiting" "" ["name"]
        "Requests of these jobs that wait for a slot.";
    JOB_CPU = Gauge "job_cpu" "ratio" ["name"]
        "Share of the node's CPUs that these jobs used over the last cycle.";

    COLLECTION = Gauge "collection_duration" "seconds" []
        "How long lrsd took for the answers to all of this.";
}
