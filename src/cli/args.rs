//! The command table of `lrsctl`. A command that is not built yet does not exist.

mod options;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use lrs_api::client::{DEFAULT_ENDPOINT, Endpoint};
use lrs_bench::{DemoArgs, InnerArgs};

use super::values::some_time;
use super::window::When;
pub(super) use options::*;

/// Control and watch the Local Resource Shaper on this node.
#[derive(Debug, Parser)]
#[command(
    name = "lrsctl",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 ok; 1 refused or failed; 2 usage; 3 daemon unreachable; \
                  4 no free slot.\n`run` exits with the command's own status; its own failures: \
                  124 no slot (within --wait=DUR), 125 refused, failed, usage or unreachable, \
                  126 not executable, 127 not found."
)]
pub(super) struct Cli {
    /// Where lrsd listens: unix:/path
    #[arg(long, global = true, env = "LRS_ENDPOINT", default_value = DEFAULT_ENDPOINT)]
    pub(super) endpoint: Endpoint,
    /// Print data as JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// How long an answer of lrsd may take (500ms, 5s); waiting for a slot has --wait [default: 30s]
    #[arg(long, global = true, value_name = "DUR", value_parser = some_time)]
    pub(super) timeout: Option<Duration>,
    /// Times in UTC with microseconds, not local and short
    #[arg(long, global = true)]
    pub(super) utc: bool,
    /// Say more on stderr
    #[arg(long, short, global = true)]
    pub(super) verbose: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Node and slots at a glance
    Status,
    /// Node, slots, tasks and queue, live on the whole terminal
    ///
    /// Keys as in htop: arrows, F1 or ? (all keys), / or F3 (filter), F6 (sort), Enter (a task with what was
    /// decided about it), Left and Right (what was there before), F10 or q (end). F7, F8, F9, r and c act on the
    /// selected task or request after a question. A bar is # tasks, + others, ~ iowait. TREND is the CPU of the last
    /// eight readings against one CPU; the other columns are those of `lrsctl tasks`. NO_COLOR is respected.
    #[command(after_help = "Examples:\n  \
        lrsctl top\n  \
        lrsctl top --delay 5s --filter 'job:nightly tier:passive'")]
    Top(TopArgs),
    /// Running tasks: tier, class, rates
    ///
    /// Columns: PRI higher runs sooner; CLASS cpu, moderate or io by the computing rate, idle if it uses
    /// neither CPU nor disk; RATE the computing rate, the share of its time in which it computes or
    /// waits for a CPU (1 always, 0 never); CPU the share of the whole node's CPUs in the last cycle;
    /// WRITE/s
    /// bytes written to disk; AGE since admission; NAME job/kind name, with flags in front: starves
    /// (passive, wants the CPU and gets less than a tenth of one), overflow, slotless,
    /// opportunistic, capped, frozen, stopped (by a signal), contested, main exited.
    #[command(after_help = "Examples:\n  \
        lrsctl tasks --mine --sort -cpu_share\n  \
        lrsctl tasks --job nightly -o id,tier,name --no-header")]
    Tasks(TasksArgs),
    /// Everything about one task, also of one that has ended
    Task {
        /// Id of the task, its number (the end of the id, while it runs) or its name; or an id of
        /// `lrsctl queue`
        #[arg(value_name = "TASK")]
        id: String,
    },
    /// Requests that wait for a slot, in the order of service, and reservations
    ///
    /// Columns: PLACE 1 is next, a dash for a reservation; SINCE the age of the request; START when a
    /// slot is expected, by the mean times of jobs; REASON full (every slot is taken), holding (the
    /// guard holds passive slots back), draining, starting (lrsd has just started), order (others are
    /// before it), parked (its process is in the cgroup of its task already), or reserved, and where;
    /// LIMIT when the request gives up, or the reservation ends.
    #[command(after_help = "Examples:\n  \
        lrsctl queue --mine\n  \
        lrsctl queue --json | jq -r '.[0].reason'")]
    Queue(QueueArgs),
    /// Jobs, their computing rates and failures
    ///
    /// Columns: WAITING requests that wait for a slot; RATE the mean computing rate of finished tasks,
    /// SPREAD its standard deviation; TIME their mean time from admission to the end, FAILED tasks apart:
    /// those with a main process that ended otherwise than with status 0, as far as that is known. `--json`
    /// has more.
    Jobs {
        /// Ask which of them suits this node best: jobs without a rate first (run one task as a
        /// sample), then by how near each brings the mean rate of what runs here to that of all jobs
        #[arg(long)]
        suits: bool,
        /// Only jobs with tasks that ended since then, and of those only these tasks: how long ago (2h,
        /// 3d), a time (02:00), a day (yesterday, 2026-01-31)
        #[arg(long, value_name = "WHEN", conflicts_with = "suits")]
        since: Option<When>,
    },
    /// Tasks that ended: how, after how long, what they used; or what the node did (--node)
    ///
    /// The latest last, and their number, failures and times on stderr; as far as `history.directory` goes back
    /// (some 50,000 tasks). Without one the last 4096: where there are more, the oldest go first of the user who has
    /// most.
    /// Columns: ENDED when, "away" while lrsd did not run; TIER the tier it ended in; EXIT the main process's
    /// exit status, or the signal that killed it ("+core": with a core), a dash where that is not known; TIME
    /// from admission to the end; CPU-S seconds of CPU; MEMORY the peak, with ~ in front where it is the
    /// greatest sample; READ and WRITE bytes from and to disks; COMMAND its beginning, of one's own tasks and for
    /// admins.
    #[command(after_help = "Examples:\n  \
        lrsctl history --last 20\n  \
        lrsctl history --since yesterday --failed\n  \
        lrsctl history --node --since 02:00 --until 03:00\n  \
        lrsctl history --job nightly -o id,exit,elapsed_seconds --no-header")]
    History(HistoryArgs),
    /// A picture of what the node did: CPU and slots over time, as SVG
    ///
    /// CPU: green tasks, grey others, red waits for a disk. Slots: blue active, yellow passive; dashed what there is,
    /// whole what is used. A gap: lrsd did not run.
    #[command(after_help = "Example:\n  \
        lrsctl plot -o night.svg --since 22:00 --until 06:00")]
    Plot(PlotArgs),
    /// Run a command in a slot
    ///
    /// lrsctl asks for a slot for itself and then becomes the command: signals and exit status are
    /// the command's own. Inside a task the command runs in the outer slot. A command in a systemd
    /// unit leaves the unit only if it escapes no limit and no stop by that; else it stays, or is
    /// refused. The manual page has the cases (lrsctl man lrsctl-run).
    #[command(after_help = "Examples:\n  \
        lrsctl run -- sort big -o big.sorted\n  \
        lrsctl run --wait=10m --job nightly --kind map -- ./task\n  \
        lrsctl run --each *.log -- gzip -k {}\n  \
        find in -name '*.csv' | lrsctl run --job load --keep-going --each -- ./load {}")]
    Run(RunArgs),
    /// Run a command in the background, as a service of systemd's; prints its name
    ///
    /// The name is that of the task: `lrsctl log`, `wait` and `kill` take it. The command waits for a slot as
    /// with `run --wait`. It gets the present working directory and umask, the variables PATH, HOME, USER,
    /// LOGNAME, SHELL, LANG, LC_*, TZ, TMPDIR and LRS_ENDPOINT, and those that --env names; its input is empty,
    /// and its limits (ulimit) are those of a service. `systemctl stop lrs-submit-NAME` ends all of it. Root's
    /// is a service of the system, a user's one of the user's own manager, which ends after the last logout
    /// unless `loginctl enable-linger` was called.
    #[command(after_help = "Examples:\n  \
        lrsctl submit --job nightly -- ./task --all\n  \
        name=$(lrsctl submit -- make check) && lrsctl log -f \"$name\"")]
    Submit(SubmitArgs),
    /// Print what a command of `lrsctl submit` has written, also after its end
    ///
    /// Reads the journal of systemd, as far as the caller may see it, and shows all tasks that had the
    /// name; with `submit --output` the output is in that file instead. Executes journalctl: with --follow
    /// it goes on after the end of the task, since another may have the name; to wait for the end, use
    /// `lrsctl wait`.
    #[command(after_help = "Examples:\n  \
        lrsctl log make-qwert\n  \
        lrsctl log -f -n 20 t13fipz1-4")]
    Log(LogArgs),
    /// Make running processes or systemd units tasks; prints one id a line
    #[command(after_help = "Examples:\n  \
        lrsctl admit --name backup 4711\n  \
        lrsctl admit --unit backup.service")]
    Admit(AdmitArgs),
    /// Give a task back to where it came from; its processes go on
    Release {
        /// Id of the task, its number (the end of the id) or its name
        #[arg(value_name = "TASK")]
        id: String,
    },
    /// Wait until tasks have ended; exits with their status
    ///
    /// The greatest status of several tasks; 128 + N where signal N ended the main process, and 0 where its end
    /// is not known. Of a job: all of its tasks that run or wait for a slot now. wait's own failures: 124 not
    /// ended within --within=DUR, 125 anything else.
    #[command(after_help = "Examples:\n  \
        lrsctl wait nightly && echo done\n  \
        lrsctl wait --within 10m t13fipz1-4")]
    Wait(WaitArgs),
    /// Send a signal to every process of a task
    ///
    /// lrsctl sends it, with the rights of its caller; lrsd ends no task. A task ends when its last
    /// process has, so one that catches the signal goes on.
    #[command(after_help = "Examples:\n  \
        lrsctl kill nightly-17\n  \
        lrsctl kill --signal KILL t13fipz1-4")]
    Kill(KillArgs),
    /// Change the priority of a task, or of a whole job
    ///
    /// Of a job: of all its tasks that run and all its requests that wait, at once. Later tasks bring
    /// their own priority.
    #[command(after_help = "Examples:\n  \
        lrsctl priority nightly-17 5\n  \
        lrsctl priority --job nightly -1")]
    Priority(PriorityArgs),
    /// Reserve a slot for a task that does not exist yet; prints the reservation's id
    #[command(after_help = "Examples:\n  \
        rid=$(lrsctl reserve --ttl 30s) && lrsctl run --reservation \"$rid\" -- ./task")]
    Reserve(ReserveArgs),
    /// Give a reservation back, or end the wait of a request
    ///
    /// A reservation belongs to the user who made it, a wait to the owner of the process; root may
    /// end any. A cancelled `lrsctl run --wait` does not run its command and exits with status 125.
    Cancel {
        /// Id of the reservation or of the request (`lrsctl queue`), its number (the end of the id), or
        /// the name of the request
        #[arg(value_name = "QUEUED")]
        id: String,
    },
    /// Decisions and changes as they happen
    #[command(after_help = "Examples:\n  \
        lrsctl events --since 10m --job nightly\n  \
        lrsctl events -n 20 --no-follow --type promoted,demoted")]
    Events(EventsArgs),
    /// Every decision that touched a task or reservation, with its inputs; without TASK, what changed
    /// in the last ten minutes
    #[command(after_help = "Examples:\n  \
        lrsctl why nightly-17\n  \
        lrsctl why slots\n  \
        lrsctl why")]
    Why {
        /// Id of the task, its number (the end of the id) or its name; or id of a reservation; or a job;
        /// or "slots": how many there are; "guard": what it held, and why
        #[arg(value_name = "TASK")]
        id: Option<String>,
    },
    /// Take no new tasks; running ones go on
    ///
    /// Requests with `--wait` are queued meanwhile and served after `lrsctl resume`; the rest is
    /// refused.
    #[command(after_help = "Example, before a reboot:\n  \
        lrsctl drain && watch lrsctl tasks")]
    Drain,
    /// Offer slots again after a drain
    Resume,
    /// Apply a changed configuration file
    Reload,
    /// Check what LRS can do on this node, and what to change; needs no daemon
    ///
    /// With --endpoint (or LRS_ENDPOINT) it is checked with the settings of the daemon there. The exit code
    /// is 1 if LRS cannot work here, else 0, also where a part of its promise does not hold.
    #[command(after_help = "Examples:\n  \
        lrsctl doctor --config /etc/lrs/lrs.toml\n  \
        lrsctl doctor --json | jq\n  \
        lrsctl doctor --quiet            # for cron: all output is a reason to act\n  \
        lrsctl doctor --verify")]
    Doctor {
        /// Configuration file to check with; its socket is used, whatever --endpoint says
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print only what is warn or fail, and nothing where all is well
        #[arg(short, long)]
        quiet: bool,
        /// Leave out checks by their names, such as group,disk.sda: what you know of and accept
        #[arg(long, value_name = "CHECK", value_delimiter = ',')]
        except: Vec<String>,
        /// Have lrsd test first whether the kernel heeds the CPU weights of the tiers, which takes a second
        /// and a half on one CPU; admins only
        #[arg(long, conflicts_with = "config")]
        verify: bool,
    },
    /// Validate a configuration file, or show the settings in force
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// What Prometheus wants to know of this node, as text
    ///
    /// For the textfile collector of node_exporter; lrs-exporter(8) serves the same. An lrsd that does not answer
    /// is the metric lrs_up with the value 0 and exit code 3. docs/monitoring.md has the names.
    #[command(after_help = "Example, once a minute:\n  \
        lrsctl metrics >lrs.prom.new; mv lrs.prom.new lrs.prom")]
    Metrics {
        /// Write OpenMetrics, not the text format of Prometheus
        #[arg(long)]
        openmetrics: bool,
    },
    /// Record what lrsd decides, for `lrsctl replay` and for a report of a fault; admins only
    ///
    /// The file has the state of lrsd and then each thing that happened with what was decided: names, users,
    /// beginnings of commands, cgroups, times and figures of all tasks, and the settings of the sections slots,
    /// tiers and guard; no environment, nothing of the tasks' data. It ends with Ctrl-C, with its time or at
    /// 256 MiB, and goes on where lrsd starts again meanwhile.
    #[command(after_help = "Examples:
  \
        lrsctl record night.lrsrec --for 8h\n  \
        lrsctl record --anonymous fault.lrsrec --for 10m")]
    Record(RecordArgs),
    /// Play a recording again, as it was or by other settings; needs no daemon
    ///
    /// By the version that recorded every decision is the same. Another version that decides otherwise says
    /// where it does for the first time, and ends with status 1. With --set or --config the recording is played by
    /// both settings side by side.
    #[command(after_help = "Examples:\n  \
        lrsctl replay night.lrsrec\n  \
        lrsctl replay night.lrsrec --set slots.passive_max=4\n  \
        lrsctl replay night.lrsrec --config other.toml")]
    Replay(ReplayArgs),
    /// This node as a YARN node: its managers, its containers, its settings
    Yarn {
        #[command(subcommand)]
        command: YarnCommand,
    },
    /// Static slots against LRS on this node, with the tasks of a suite: executes lrs-bench
    ///
    /// `lrsctl bench --help` and lrs-bench(1) have the options.
    #[command(disable_help_flag = true)]
    Bench {
        /// Arguments of lrs-bench, such as config/bench/smoke.toml
        #[arg(
            value_name = "ARGS",
            required = true,
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_hint = clap::ValueHint::FilePath
        )]
        args: Vec<OsString>,
    },
    /// LRS against static slots on this machine in under two minutes: a private daemon and real tasks;
    /// leaves a directory with a page of pictures and its data
    Demo(DemoArgs),
    /// Completions for a shell, on stdout
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The manual: a page on stdout for `man -l -`, or all pages as files
    Man {
        /// Name of the page: lrsctl, lrsctl-run, lrsd, lrs.toml ... [default: lrsctl]
        page: Option<String>,
        /// Write every page into this directory
        #[arg(long, value_name = "DIR", conflicts_with = "page")]
        out: Option<PathBuf>,
    },
    #[command(name = "__stop", hide = true)]
    Stop {
        /// Main process of a unit of `submit`
        pid: Option<i32>,
    },
    #[command(name = "__bench", hide = true)]
    DemoInner(InnerArgs),
    #[command(name = "__daemon", hide = true)]
    Daemon {
        #[arg(long)]
        config: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Report every fault of a configuration file and of its drop-ins, *.toml in FILE.d/
    Check {
        /// The file
        file: PathBuf,
    },
    /// The settings in force, as TOML (or JSON)
    Show,
    /// What the configuration files change, and which file each value is from
    ///
    /// Without --running it needs no daemon. With it the files are those that lrsd reads at a reload, and
    /// what differs is what a reload or a restart would change.
    #[command(after_help = "Examples:\n  \
        lrsctl config diff\n  \
        lrsctl config diff --running && lrsctl reload")]
    Diff {
        /// The file, read with its drop-ins [default: /etc/lrs/lrs.toml, or the one that lrsd reads]
        file: Option<PathBuf>,
        /// Against what lrsd has in force, not against the defaults
        #[arg(long)]
        running: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum YarnCommand {
    /// NodeManager, ResourceManager, containers; advertised against configured; the last error
    Status,
    /// Node attributes, for the NodeManager's script: valid lines and status 0 within
    /// a second, also with the daemon down
    NodeAttributes,
    /// A ready fragment of yarn-site.xml, with the reasons
    Site,
}
