//! The names of the D-Bus interface: what introspection shows and what calls are matched
//! against. One table for each interface, so that what is described is what is served.
//!
//! Types are D-Bus signatures. `a{sv}` holds fields named as in `lrsctl --json`; a field that
//! is not known is absent.

/// Name on the bus.
pub const NAME: &str = "org.lrs.Shaper1";
/// The manager, and the ObjectManager of all tasks.
pub const MANAGER_PATH: &str = "/org/lrs/Shaper1";
/// Tasks are objects right below.
pub const TASKS_PATH: &str = "/org/lrs/Shaper1/task";
/// Interface of [`MANAGER_PATH`].
pub const MANAGER: &str = "org.lrs.Shaper1.Manager";
/// Interface of every task.
pub const TASK: &str = "org.lrs.Shaper1.Task";

pub(super) const PEER: &str = "org.freedesktop.DBus.Peer";
pub(super) const INTROSPECTABLE: &str = "org.freedesktop.DBus.Introspectable";
pub(super) const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
pub(super) const OBJECT_MANAGER: &str = "org.freedesktop.DBus.ObjectManager";

/// An argument: its name and its type.
pub(super) type Argument = (&'static str, &'static str);

/// A method.
#[derive(Debug)]
pub(super) struct Method {
    pub name: &'static str,
    /// What it comes to in the code.
    pub call: Call,
    pub takes: &'static [Argument],
    pub gives: &'static [Argument],
    pub doc: &'static str,
}

/// A signal.
#[derive(Debug)]
pub(super) struct Signal {
    pub name: &'static str,
    pub gives: &'static [Argument],
    pub doc: &'static str,
}

/// What a member comes to in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Answered from the newest snapshot and the kept events.
    Read(Read),
    /// Becomes a command for the loop.
    Change(Change),
}

/// Reading calls, those of the standard interfaces included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Ping,
    GetMachineId,
    Introspect,
    Get,
    GetAll,
    /// Refused: no property can be written.
    Set,
    GetManagedObjects,
    GetStatus,
    GetTask,
    ListTasks,
    ListJobs,
    GetConfig,
    Explain,
    EvaluateJob,
    Events,
    GetYarn,
}

/// Changing calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Admit,
    AdmitPidfd,
    Reserve,
    CancelReservation,
    Release,
    SetPriority,
    Drain,
    Resume,
    Reload,
}

const fn read(
    name: &'static str,
    read: Read,
    takes: &'static [Argument],
    gives: &'static [Argument],
    doc: &'static str,
) -> Method {
    Method { name, call: Call::Read(read), takes, gives, doc }
}

const fn change(
    name: &'static str,
    change: Change,
    takes: &'static [Argument],
    gives: &'static [Argument],
    doc: &'static str,
) -> Method {
    Method { name, call: Call::Change(change), takes, gives, doc }
}

pub(super) const MANAGER_METHODS: &[Method] = &[
    read(
        "GetStatus",
        Read::GetStatus,
        &[],
        &[("status", "a{sv}")],
        "The node, its slots and the state of the daemon, now.",
    ),
    read("GetTask", Read::GetTask, &[("id", "s")], &[("task", "a{sv}")], "One running task."),
    read(
        "ListTasks",
        Read::ListTasks,
        &[],
        &[("tasks", "aa{sv}")],
        "All running tasks, by order of admission.",
    ),
    read(
        "ListJobs",
        Read::ListJobs,
        &[],
        &[("jobs", "aa{sv}")],
        "Jobs known here, by name and kind.",
    ),
    change(
        "Admit",
        Change::Admit,
        &[("pid", "i"), ("options", "a{sv}")],
        &[("id", "s"), ("task", "o")],
        "Puts a running process, with its descendants, into a slot; pid 0 is the caller. Options: \
         name, job, kind (s), priority (i), reservation (s), in_place (b), wait_ms (t), \
         wait_forever (b), first_requested_at (s, RFC 3339), unit (s): with pid 0, a running \
         service or scope of systemd's, in place; keep_unit (b): leave the unit of systemd's that \
         it is in only if nothing is lost by it, as lrsctl run does. A wait ends when the caller leaves the bus. \
         AlreadyExists has the task's id as its second argument.",
    ),
    change(
        "AdmitPidfd",
        Change::AdmitPidfd,
        &[("pidfd", "h"), ("options", "a{sv}")],
        &[("id", "s"), ("task", "o")],
        "As Admit, for the process behind a pidfd: no other process can be meant.",
    ),
    change(
        "Reserve",
        Change::Reserve,
        &[("options", "a{sv}")],
        &[("id", "s"), ("tier", "s"), ("expires_at", "s")],
        "Promises a slot for a limited time, before its task exists. Options: job, kind (s), \
         priority (i), ttl_ms (t).",
    ),
    change(
        "CancelReservation",
        Change::CancelReservation,
        &[("id", "s")],
        &[],
        "Gives a promised slot back.",
    ),
    change(
        "Release",
        Change::Release,
        &[("id", "s")],
        &[],
        "Gives a running task back to where it came from; its processes go on.",
    ),
    change(
        "SetPriority",
        Change::SetPriority,
        &[("id", "s"), ("priority", "i")],
        &[],
        "Gives a task another priority; higher runs sooner.",
    ),
    change(
        "Drain",
        Change::Drain,
        &[],
        &[],
        "Stops offering slots. Running tasks are not touched.",
    ),
    change("Resume", Change::Resume, &[], &[], "Offers slots again."),
    change(
        "Reload",
        Change::Reload,
        &[],
        &[("changed", "as")],
        "Applies the changed configuration file, or keeps the old one and says why.",
    ),
    read("GetConfig", Read::GetConfig, &[], &[("toml", "s")], "The settings in force, as TOML."),
    read(
        "Explain",
        Read::Explain,
        &[("id", "s")],
        &[("events", "aa{sv}"), ("truncated", "b")],
        "Every kept decision that touched a task or a reservation, with its inputs, whose \
         numbers are x, or d with a fraction; truncated when older ones are not kept any more.",
    ),
    read(
        "EvaluateJob",
        Read::EvaluateJob,
        &[("question", "a{sv}")],
        &[("advice", "a{sv}")],
        "The co-location test: does this job suit this node? Options: job, kind (s), \
         computing_rate, mean_computing_rate (d). Advice only.",
    ),
    read(
        "Events",
        Read::Events,
        &[("since", "t"), ("limit", "u")],
        &[("events", "aa{sv}"), ("lost", "t")],
        "Kept events from sequence number since on, oldest first: at most limit, and at most \
         1000, which 0 means too. lost counts those gone before the first one given. Numbers in \
         inputs are x, or d with a fraction.",
    ),
    read(
        "GetYarn",
        Read::GetYarn,
        &[],
        &[("yarn", "a{sv}")],
        "How this node stands with YARN: its managers, what is offered, its containers.",
    ),
];

pub(super) const TASK_METHODS: &[Method] = &[
    change(
        "Release",
        Change::Release,
        &[],
        &[],
        "Gives the task back to where it came from; its processes go on.",
    ),
    change(
        "SetPriority",
        Change::SetPriority,
        &[("priority", "i")],
        &[],
        "Gives the task another priority; higher runs sooner.",
    ),
    read(
        "Explain",
        Read::Explain,
        &[],
        &[("events", "aa{sv}"), ("truncated", "b")],
        "Every kept decision that touched the task, with its inputs; as Explain of the manager.",
    ),
];

/// What every signal about a task carries.
const ABOUT_TASK: &[Argument] = &[("id", "s"), ("task", "o"), ("seq", "t"), ("reason", "s")];

pub(super) const SIGNALS: &[Signal] = &[
    Signal {
        name: "TaskAdmitted",
        gives: ABOUT_TASK,
        doc: "A task is in its slot; its object is there.",
    },
    Signal { name: "TaskPromoted", gives: ABOUT_TASK, doc: "A passive task became active." },
    Signal { name: "TaskDemoted", gives: ABOUT_TASK, doc: "An active task became passive." },
    Signal {
        name: "TaskCompleted",
        gives: ABOUT_TASK,
        doc: "The last process of a task has ended; its object is gone.",
    },
    Signal {
        name: "TaskReleased",
        gives: ABOUT_TASK,
        doc: "A task was given back; its object is gone.",
    },
    Signal {
        name: "SlotsChanged",
        gives: &[
            ("active_capacity", "u"),
            ("active_free", "u"),
            ("passive_capacity", "u"),
            ("passive_free", "u"),
        ],
        doc: "What a scheduler may claim has changed.",
    },
];
