//! The arguments of single commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::cli::kill;
use crate::cli::show::history;
use crate::cli::show::table::fields;
use crate::cli::values::{
    Patience, Since, class_rate, delay, duration, event_type, label, rate, recorded, setting,
    some_time, user,
};
use crate::cli::window::When;

#[derive(Args, Debug)]
pub(in crate::cli) struct TasksArgs {
    /// Columns, by the names of the fields in the JSON
    #[arg(long, short, value_name = "FIELD", value_delimiter = ',', value_parser = field())]
    pub(in crate::cli) output: Vec<String>,
    /// Sort by a field; with `-` in front the greatest first
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true, value_parser = sort_key)]
    pub(in crate::cli) sort: Option<String>,
    /// Only tasks of this user
    #[arg(long)]
    pub(in crate::cli) mine: bool,
    /// Only tasks of this job
    #[arg(long, value_parser = label)]
    pub(in crate::cli) job: Option<String>,
    /// Only tasks of this group
    #[arg(long, value_parser = label)]
    pub(in crate::cli) group: Option<String>,
    /// Without the line of column names
    #[arg(long)]
    pub(in crate::cli) no_header: bool,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct TopArgs {
    /// Time between two readings, 500ms at least
    #[arg(long, short, value_name = "DUR", default_value = "2s", value_parser = delay)]
    pub(in crate::cli) delay: Duration,
    /// Begin with this filter: words of name, id or user, job:NAME, user:NAME, tier:active
    #[arg(long, short, value_name = "WORDS", default_value = "", hide_default_value = true)]
    pub(in crate::cli) filter: String,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct QueueArgs {
    /// Only those of this user
    #[arg(long)]
    pub(in crate::cli) mine: bool,
    /// Only those of this job
    #[arg(long, value_parser = label)]
    pub(in crate::cli) job: Option<String>,
    /// Without the line of column names
    #[arg(long)]
    pub(in crate::cli) no_header: bool,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct HistoryArgs {
    /// Only tasks of this job
    #[arg(long, value_parser = label)]
    pub(in crate::cli) job: Option<String>,
    /// Only tasks of this user: a name or a uid
    #[arg(long, value_name = "USER", value_parser = user)]
    pub(in crate::cli) user: Option<u32>,
    /// Only what ended, or was, since then: how long ago (10m, 2h, 3d), a time (02:00), a day
    /// (yesterday, 2026-01-31), or both (2026-01-31T02:00)
    #[arg(long, value_name = "WHEN")]
    pub(in crate::cli) since: Option<When>,
    /// Only what was before then; a time of day is the first after --since
    #[arg(long, value_name = "WHEN")]
    pub(in crate::cli) until: Option<When>,
    /// What the node did: slots, CPU, queue, pressure, guard; each cycle of the last hour, each
    /// minute before [since: 1h]
    #[arg(long, conflicts_with_all = ["job", "user", "failed", "last", "output"])]
    pub(in crate::cli) node: bool,
    /// Only tasks with a main process that ended otherwise than with status 0
    #[arg(long)]
    pub(in crate::cli) failed: bool,
    /// Only the last N of them
    #[arg(long, short = 'n', value_name = "N")]
    pub(in crate::cli) last: Option<usize>,
    /// Columns, by the names of the fields in the JSON
    #[arg(
        long,
        short,
        value_name = "FIELD",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(history::fields())
    )]
    pub(in crate::cli) output: Vec<String>,
    /// Without the line of column names
    #[arg(long)]
    pub(in crate::cli) no_header: bool,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct PlotArgs {
    /// The file to write; `-` is standard output
    #[arg(long, short, value_name = "FILE")]
    pub(in crate::cli) output: PathBuf,
    /// From when on: how long ago (10m, 2h, 3d), a time (02:00), a day (yesterday, 2026-01-31), or both
    /// (2026-01-31T02:00)
    #[arg(long, value_name = "WHEN", default_value = "1d")]
    pub(in crate::cli) since: When,
    /// Until when; a time of day is the first after --since
    #[arg(long, value_name = "WHEN")]
    pub(in crate::cli) until: Option<When>,
}

fn field() -> PossibleValuesParser {
    PossibleValuesParser::new(fields())
}

fn sort_key(text: &str) -> Result<String, String> {
    let name = text.strip_prefix('-').unwrap_or(text);
    if fields().any(|field| field == name) {
        return Ok(text.to_owned());
    }
    Err(format!("no such field; there are {}", fields().collect::<Vec<_>>().join(", ")))
}

#[derive(Args, Debug, Default)]
pub(in crate::cli) struct EventsArgs {
    /// Begin with this event, or this long ago (10m); without it only new events
    #[arg(long, value_name = "SEQ|DUR")]
    pub(in crate::cli) since: Option<Since>,
    /// Only the last N past events
    #[arg(short = 'n', long = "last", value_name = "N")]
    pub(in crate::cli) last: Option<usize>,
    /// End once past events are printed (all that are kept, or from --since)
    #[arg(long)]
    pub(in crate::cli) no_follow: bool,
    /// Only of this task: its id, its number or its name
    #[arg(long)]
    pub(in crate::cli) task: Option<String>,
    /// Only of tasks of this job
    #[arg(long)]
    pub(in crate::cli) job: Option<String>,
    /// Only of these types: admitted, promoted, demoted, completed ...
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = event_type)]
    pub(in crate::cli) types: Vec<String>,
}

/// What a task is and which slot it wants.
#[derive(Args, Debug)]
pub(in crate::cli) struct SlotArgs {
    /// Name for people
    #[arg(long, value_parser = label)]
    pub(in crate::cli) name: Option<String>,
    /// Job the task belongs to
    #[arg(long, value_parser = label)]
    pub(in crate::cli) job: Option<String>,
    /// Kind of task within the job: map, reduce, any word
    #[arg(long, value_parser = label)]
    pub(in crate::cli) kind: Option<String>,
    /// Pool or queue of a scheduler, for the scheduler to read; LRS decides nothing by it
    #[arg(long, value_parser = label)]
    pub(in crate::cli) group: Option<String>,
    /// Higher runs sooner [default: the reservation's, or 0]
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    pub(in crate::cli) priority: Option<i32>,
    /// Use this reservation
    #[arg(long, value_name = "RID")]
    pub(in crate::cli) reservation: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) hint: HintArgs,
    /// Queue for a slot, at most DUR (10s, 5m) or without limit; rides through a restart of
    /// the daemon
    #[arg(
        long,
        value_name = "DUR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "forever"
    )]
    pub(in crate::cli) wait: Option<Patience>,
}

impl SlotArgs {
    /// The options of a `lrsctl run` for such a slot, which waits in any case; its task has this name.
    pub(in crate::cli) fn options(&self, name: Option<String>) -> Vec<String> {
        let mut options = vec![match self.wait {
            Some(Patience::For(most)) => format!("--wait={}ms", most.as_millis()),
            Some(Patience::Forever) | None => "--wait".to_owned(),
        }];
        let mut option = |option: &str, value: Option<String>| {
            options.extend(value.map(|value| format!("--{option}={value}")));
        };
        option("name", name);
        option("job", self.job.clone());
        option("kind", self.kind.clone());
        option("group", self.group.clone());
        option("reservation", self.reservation.clone());
        option("rate", self.hint.rate().map(|rate| rate.to_string()));
        option("priority", self.priority.map(|priority| priority.to_string()));
        options
    }
}

/// What is expected of a task before anything of it is measured.
#[derive(Args, Debug)]
pub(in crate::cli) struct HintArgs {
    /// What the task is expected to be, until it or its job is measured: io, moderate or cpu, for a
    /// rate of 0.1, 0.5 or 0.9
    #[arg(long, value_parser = class_rate(), conflicts_with = "rate")]
    class: Option<f64>,
    /// The same as a computing rate, 0 to 1. An admin's opens slots, a member's orders own requests
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
}

impl HintArgs {
    pub(in crate::cli) fn rate(&self) -> Option<f64> {
        self.rate.or(self.class)
    }
}

#[derive(Args, Debug)]
#[command(override_usage = "lrsctl run [OPTIONS] -- CMD...")]
pub(in crate::cli) struct RunArgs {
    #[command(flatten)]
    pub(in crate::cli) slot: SlotArgs,
    /// Do not send the command to lrsd, which keeps its first 80 bytes for its user and admins: for
    /// commands with a secret in them
    #[arg(long)]
    pub(in crate::cli) no_command: bool,
    /// Leave the systemd unit that this runs in, whatever its limits and its stop; an
    /// administrator's also leaves the group of another manager (a container, a scheduler's job)
    #[arg(long)]
    pub(in crate::cli) leave_unit: bool,
    /// Do nothing, with status 0, if a task or a request of this user's is called NAME, which is also the name of
    /// this one unless --name is given: for cron. Two that start at the same moment do not see each other
    #[arg(long, value_name = "NAME", value_parser = label)]
    pub(in crate::cli) unless_queued: Option<String>,
    /// A task for each ARG, or for each line of standard input: `{}` in CMD stands for it and `{#}` for its
    /// number, or else it comes last. Waits for slots as --wait does. A task is called `NAME[7]`, after --name,
    /// else --job, else CMD
    #[arg(long, value_name = "ARG", num_args = 0.., conflicts_with_all = ["reservation", "parent"])]
    pub(in crate::cli) each: Option<Vec<OsString>>,
    /// With --each: go on after a task has failed
    #[arg(long, requires = "each")]
    pub(in crate::cli) keep_going: bool,
    /// With --each: Ctrl-C ends requests that wait for a slot and leaves running tasks alone
    #[arg(long, requires = "each")]
    pub(in crate::cli) leave: bool,
    /// With --each: attempt a task that fails up to N times in all
    #[arg(long, requires = "each", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cli) retries: u32,
    /// With --each: end a task that runs longer than this (10s, 5m), by timeout(1): SIGTERM, SIGKILL 5 s later,
    /// and status 124. The time in which it waits for a slot does not count
    #[arg(long, requires = "each", value_name = "DUR", value_parser = some_time)]
    pub(in crate::cli) time_limit: Option<Duration>,
    /// With --each: a line for each task that ended, in the columns of GNU parallel's --joblog
    #[arg(long, requires = "each", value_name = "FILE")]
    pub(in crate::cli) joblog: Option<PathBuf>,
    /// With --joblog: leave out what ended with status 0 according to FILE, and go on writing it
    #[arg(long, requires = "joblog")]
    pub(in crate::cli) resume: bool,
    /// A socket: gives up waiting when it is closed, and reports there which slot it has
    #[arg(long, hide = true, value_name = "FD")]
    pub(in crate::cli) parent: Option<i32>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(in crate::cli) command: Vec<OsString>,
}

#[derive(Args, Debug)]
#[command(override_usage = "lrsctl submit [OPTIONS] -- CMD...")]
pub(in crate::cli) struct SubmitArgs {
    #[command(flatten)]
    pub(in crate::cli) slot: SlotArgs,
    /// Do not send the command to lrsd, which keeps its first 80 bytes for its user and admins: for
    /// commands with a secret in them
    #[arg(long)]
    pub(in crate::cli) no_command: bool,
    /// Append output and errors to this file, not to the journal
    #[arg(long, short, value_name = "FILE")]
    pub(in crate::cli) output: Option<PathBuf>,
    /// A variable for the command, with its present value or this one; every user of the node can
    /// read it
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(in crate::cli) env: Vec<OsString>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(in crate::cli) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct LogArgs {
    /// Name of the task, its id or its number; also of one that waits or has ended
    #[arg(value_name = "TASK")]
    pub(in crate::cli) task: String,
    /// Print new output as it comes
    #[arg(long, short)]
    pub(in crate::cli) follow: bool,
    /// Only the last N lines
    #[arg(long, short = 'n', value_name = "N")]
    pub(in crate::cli) lines: Option<usize>,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct AdmitArgs {
    #[command(flatten)]
    pub(in crate::cli) slot: SlotArgs,
    /// Manage each process's present cgroup as it is: weights only, nothing is moved. A caller who
    /// is no admin must own all processes in it, also later ones, and on cgroup v2 its cgroup.procs
    #[arg(long)]
    pub(in crate::cli) in_place: bool,
    /// Move it out of its systemd unit, and for an administrator out of the group of another
    /// manager (a container, a scheduler's job), whatever is lost
    #[arg(long, conflicts_with = "in_place")]
    pub(in crate::cli) leave_unit: bool,
    /// A running service or scope of systemd's, in place: all its processes are one task [sshd is
    /// sshd.service]; needs an admin; may be given several times
    #[arg(long = "unit", value_name = "NAME", conflicts_with = "pids")]
    pub(in crate::cli) units: Vec<String>,
    /// Processes; each one is a task with its descendants. A caller who is no admin must own them
    /// all, by all four uids
    #[arg(required_unless_present = "units", value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(in crate::cli) pids: Vec<i32>,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct WaitArgs {
    /// Id of a task, its number (the end of the id) or its name; or a job
    #[arg(value_name = "TASK", required = true)]
    pub(in crate::cli) tasks: Vec<String>,
    /// How long at most (10s, 5m)
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(in crate::cli) within: Option<Duration>,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct KillArgs {
    /// Id of the task, its number (the end of the id) or its name
    #[arg(value_name = "TASK", required = true)]
    pub(in crate::cli) tasks: Vec<String>,
    /// A name or a number
    #[arg(long, short, value_name = "SIGNAL", default_value = "TERM", value_parser = kill::parse)]
    pub(in crate::cli) signal: rustix::process::Signal,
}

#[derive(Args, Debug)]
#[command(allow_missing_positional = true)]
pub(in crate::cli) struct PriorityArgs {
    /// Id of the task, its number (the end of the id) or its name
    #[arg(
        value_name = "TASK",
        required_unless_present = "job",
        conflicts_with_all = ["job", "user"],
        allow_negative_numbers = true
    )]
    pub(in crate::cli) id: Option<String>,
    /// Higher runs sooner
    #[arg(allow_negative_numbers = true)]
    pub(in crate::cli) priority: i32,
    /// All of this job
    #[arg(long, value_parser = label)]
    pub(in crate::cli) job: Option<String>,
    /// With --job: only this user's, by name or uid [default: the caller's; for an admin all]
    #[arg(long, value_name = "USER", value_parser = user, requires = "job")]
    pub(in crate::cli) user: Option<u32>,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct ReserveArgs {
    /// Job the slot is for
    #[arg(long, value_parser = label)]
    pub(in crate::cli) job: Option<String>,
    /// Kind of task within the job
    #[arg(long, value_parser = label)]
    pub(in crate::cli) kind: Option<String>,
    /// Pool or queue of a scheduler, for it to read
    #[arg(long, value_parser = label)]
    pub(in crate::cli) group: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) hint: HintArgs,
    /// Higher runs sooner
    #[arg(long, allow_negative_numbers = true, default_value_t = 0, value_name = "N")]
    pub(in crate::cli) priority: i32,
    /// How long the reservation holds, from the grant on [default: slots.reservation_ttl of the
    /// node]; members: at most slots.reservation_ttl_max, and it may be withdrawn while others wait
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(in crate::cli) ttl: Option<Duration>,
    /// Queue for a slot, at most DUR (10s, 5m) or without limit
    #[arg(
        long,
        value_name = "DUR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "forever"
    )]
    pub(in crate::cli) wait: Option<Patience>,
    /// An active slot or none; passive tasks get those that come free, so --wait is refused
    #[arg(long, conflicts_with = "wait")]
    pub(in crate::cli) active: bool,
    /// This many slots, or those of them that are free; one id a line
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(in crate::cli) count: u32,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct RecordArgs {
    /// A file that is not there yet
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(in crate::cli) file: PathBuf,
    /// For how long (10m, 8h), 24h at most
    #[arg(long = "for", value_name = "DUR", default_value = "24h", value_parser = recorded)]
    pub(in crate::cli) time: Duration,
    /// Replace each name, cgroup and sentence by a number; users' and processes' numbers stay
    #[arg(long)]
    pub(in crate::cli) anonymous: bool,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct ReplayArgs {
    /// A recording
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(in crate::cli) file: PathBuf,
    /// By another value of a key of the sections slots, tiers or guard, beside what was; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(in crate::cli) set: Vec<(String, String)>,
    /// By the settings of this file, beside what was
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(in crate::cli) config: Option<PathBuf>,
}
