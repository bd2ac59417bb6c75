//! From a command line to a running daemon and back: settings, log, locks, recovery, servers,
//! signals, stop.
//!
//! The order is the promise: nothing is touched before the settings are known to be good,
//! nothing is recovered before the locks are held, no client is served before everything is
//! recovered. The loop has a thread of its own ([`crate::executor`]); the servers share one async
//! runtime on the main thread. `lrsctl demo` runs the same entry in a process of its own.
//!
//! Under systemd the service is ready when the sockets are served and the name is on the bus, which is
//! waited for 0.3 s at most (`daemon/front.rs`): a bus that is absent or hangs delays nothing. The
//! watchdog is fed by turns of the loop that have ended, and its wait is bounded so that an idle loop
//! turns in time (`src/systemd/notify.rs`).
//!
//! The order: settings, log, lock of the runtime directory, state, cgroup tree (with the lock of the
//! root), an admission on trial where there are no tasks, descriptor limit, sockets bound (not yet
//! accepting), recovery, loop, servers. Each step may refuse; none before recovery touches a task.
//! Stopping is the other way round: servers first (watchers get UNAVAILABLE, calls have a grace), then
//! the loop, which lets the workers finish the job at hand (those queued are the next daemon's to roll
//! back), stores what was measured and leaves every weight as it is. The finder is not waited for: it
//! only reads, and may hang in that. A reload replaces all settings that may change live, or none.

mod front;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory as _, Parser};
use lrs_host::spare::NoThread;
use tokio::sync::watch;

use self::front::Front;
use crate::access::{self, Access, CommandReceiver, CommandSender};
use crate::cgroup::{CgroupError, TierTree};
use crate::config::{Config, ConfigErrors, DEFAULT_FILE, Loaded, Mode};
use crate::discover::thread::Finder;
use crate::doctor::DoctorOptions;
use crate::history::History;
use crate::kernfs::files::raise_descriptor_limit;
use crate::log::{self, Log, last_words, say};
use crate::node::{LoopError, Parts, ReloadLog, StartError};
use crate::publish::{EventRing, LastTurn, Snapshot};
use crate::sample::{SampleError, Sampler, Settings};
use crate::schedule;
use crate::server::grpc::ServeError;
use crate::state::journal::EVENTS_KEPT;
use crate::state::lock::{LockError, RuntimeLock};
use crate::state::{Recovered, StateError, Store};
use crate::systemd::notify::Watchdog;

/// Local Resource Shaper: active and passive task slots for this node.
///
/// lrsd keeps a list of tasks, each a cgroup in an active or a passive slot, and changes the
/// weights of those cgroups. It stops and kills no task; when it ends they all go on.
///
/// It runs in the foreground and logs to stderr. SIGTERM and SIGINT stop it, SIGHUP makes it
/// read its configuration again.
#[derive(Debug, Parser)]
#[command(
    name = "lrsd",
    version,
    after_help = "Exit codes: 0 stopped by a signal, or done; 1 failure; 2 usage; 78 bad configuration."
)]
struct Arguments {
    /// Configuration file; without one the defaults hold.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    config: PathBuf,
    /// Check the configuration, say what is wrong with it or what it cannot do here, and exit.
    #[arg(long)]
    check_config: bool,
    /// Give every task its weights back and exit: for the removal of LRS.
    ///
    /// No daemon may run. Tasks in cgroups of LRS's own stay in them with neutral weights, and a
    /// daemon installed later takes them up again. Tasks admitted in place get the weights back
    /// that were found, services and scopes of systemd their properties too; those are then
    /// released. What fails is named, and the rest is done; to be run again. What YARN was offered
    /// is taken back by `lrs-yarn --give-back`, run as the user of lrs-yarn.service.
    #[arg(long, conflicts_with = "check_config")]
    give_back: bool,
    /// Serve a node that is pretended, for those who write a client.
    ///
    /// Needs no root, no cgroups and no systemd, and shapes nothing: processes are real, where they are and
    /// what they use is simulated, on four CPUs. Give it a configuration with a runtime directory and a
    /// socket of its own.
    #[arg(long, conflicts_with_all = ["check_config", "give_back"])]
    pretend: bool,
    /// Keep a scope of systemd alive (see crate::systemd::anchor); not for people.
    #[arg(long, hide = true)]
    anchor: bool,
}

/// Entry of `lrsd`.
pub fn lrsd() -> ExitCode {
    lrs_host::accounts::without_modules();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.exit_code() == 0 => error.exit(),
        Err(error) => {
            // Without colour: it has what was typed, which may be anything.
            say(&error.render().to_string());
            return ExitCode::from(2);
        }
    };
    if arguments.anchor {
        return crate::systemd::anchor::run();
    }
    if arguments.give_back {
        return crate::give_back::run(&arguments.config);
    }
    match (arguments.check_config, arguments.pretend) {
        (true, _) => check(&arguments.config),
        (false, true) => daemon(&arguments.config, Serves::Pretended),
        (false, false) => main(&arguments.config),
    }
}

/// What `lrsd` takes, for its manual page.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the daemon in the foreground with the configuration file `config`.
pub fn main(config: &Path) -> ExitCode {
    daemon(config, Serves::Node)
}

/// Which node is served.
enum Serves {
    Node,
    Pretended,
}

fn daemon(config: &Path, serves: Serves) -> ExitCode {
    let _flush = log::FlushAtEnd;
    match run(config, serves) {
        Ok(()) => ExitCode::SUCCESS,
        Err(DaemonError::Config(errors)) => {
            last_words(&errors.to_string());
            ExitCode::from(crate::config::BAD_CONFIG)
        }
        Err(error) => {
            last_words(&format!("lrsd: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn check(file: &Path) -> ExitCode {
    match Config::load_trusted(file) {
        Err(errors) => {
            last_words(&errors.to_string());
            ExitCode::from(crate::config::BAD_CONFIG)
        }
        Ok(loaded) => {
            let report = crate::doctor::examine(&loaded.config, DoctorOptions::of(&loaded, file));
            say(&report.render(80, false));
            ExitCode::SUCCESS
        }
    }
}

/// Why the daemon did not start, or stopped.
#[derive(Debug, thiserror::Error)]
enum DaemonError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error("daemon.log = {directives:?}: {reason}; write for example \"info\" or \"lrs=debug\"")]
    Log { directives: String, reason: String },
    #[error("cannot start {what}: {}", NoThread(source))]
    Thread { what: &'static str, source: std::io::Error },
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Sample(#[from] SampleError),
    #[error(transparent)]
    StillShaped(#[from] crate::give_back::StillShaped),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Loop(#[from] LoopError),
    #[error("cannot {what}: {source}")]
    System { what: &'static str, source: std::io::Error },
    #[error("the control loop panicked; the tasks keep running, a restart takes them up again")]
    LoopPanicked,
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> DaemonError {
    move |source| DaemonError::System { what, source }
}

/// A thread, or the runtime of one, that the kernel refused.
fn thread(what: &'static str) -> impl Fn(std::io::Error) -> DaemonError {
    move |source| DaemonError::Thread { what, source }
}

/// Leaves the directory that it was started in, so that its file system can be unmounted. What it was
/// given is read from `file` again at a reload.
fn leave_directory(file: &Path) -> PathBuf {
    // A directory that is gone has no files either.
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    if let Err(error) = std::env::set_current_dir("/") {
        tracing::debug!(%error, "cannot leave the directory it was started in: {error}");
    }
    file
}

fn run(file: &Path, serves: Serves) -> Result<(), DaemonError> {
    let Loaded { config, sources } = Config::load_trusted(file)?;
    let log = Log::start("lrsd", &config.daemon.log).map_err(|error| match error {
        log::StartError::Directives(reason) => {
            DaemonError::Log { directives: config.daemon.log.clone(), reason }
        }
        log::StartError::Thread(source) => DaemonError::Thread { what: "the log", source },
    })?;
    match sources.files.is_empty() {
        true => tracing::info!("there is no {}: the defaults hold", file.display()),
        false => tracing::info!("settings are from {sources}"),
    }
    let file = &leave_directory(file);
    let runtime_dir = config.daemon.runtime_dir.clone();
    lrs_host::files::make_dir(&runtime_dir)?;
    let _lock = RuntimeLock::take(&runtime_dir)?;
    // A record that is not read for want of a descriptor stops the start.
    raise_descriptor_limit().map_err(SampleError::from)?;
    if let Serves::Pretended = serves {
        return pretend(config, file, &log);
    }
    let state = Store::open(&runtime_dir, &crate::state::boot_id()?, crate::state::new_epoch())?;
    let settings = config.tree_settings();
    let tree = Arc::new(match config.daemon.mode {
        Mode::Enforce if state.1.has_tasks() => crate::cgroup::take_over(&settings)?,
        Mode::Enforce => crate::cgroup::open(&settings)?,
        Mode::Observe => crate::cgroup::observe(&settings),
    });
    for warning in tree.warnings() {
        tracing::warn!("{warning}");
    }
    let tried = tree.try_admission().map_err(DaemonError::from);
    let served = tried.and_then(|()| run_on(Arc::clone(&tree), state, config, file, &log));
    if served.is_err()
        && let Err(error) = tree.close()
    {
        tracing::warn!(%error, "the cgroup root stays: {error}");
    }
    served
}

/// Everything after the locks are held. On an error the caller leaves the tree in order.
fn run_on(
    tree: Arc<TierTree>,
    (store, mut recovered): (Store, Recovered),
    config: Config,
    file: &Path,
    log: &Log,
) -> Result<(), DaemonError> {
    let limit = raise_descriptor_limit().map_err(SampleError::from)?;
    if config.daemon.mode == Mode::Observe {
        crate::give_back::before_observing(&config, &store, &mut recovered)?;
    }
    let cpuset_dirs = tree.cpuset_dirs().unwrap_or_else(|error| {
        tracing::warn!(%error, "no cpuset counts, only the CPUs online: {error}");
        Vec::new()
    });
    let sampler = Sampler::new(Settings {
        quota_dirs: tree.quota_dirs(),
        memory_groups: tree.memory_groups(),
        cpuset_dirs,
        ..Settings::of_this_machine(limit.sampler_budget())
    })?;
    let events = Arc::new(EventRing::new(EVENTS_KEPT, recovered.events.iter().cloned()));
    let (sender, commands) = queue()?;
    let (snapshot, newest) = watch::channel(Arc::new(Snapshot::default()));
    let (hints, hinted) = crate::discover::hint_queue();
    let front = Front::open(&config)?;
    let history = match config.history.directory.as_str() {
        "" => None,
        dir => {
            let started = History::start(dir.into(), Arc::clone(&events), newest.clone());
            Some(started.map_err(thread("the history"))?)
        }
    };
    let access = Access {
        history: history.clone(),
        config_file: file.into(),
        ..Access::new(sender, newest, Arc::clone(&events))
    };
    let started_with = Arc::new(config.clone());
    let (mode, lrs_root) = (config.daemon.mode, tree.capabilities().root.clone());
    let parts = Parts {
        config,
        config_file: file.to_owned(),
        reload_log: reload_log(log),
        tree,
        store,
        recovered,
        sampler,
        commands,
        hints,
        snapshot,
        events,
    };
    let (daemon, remote) = crate::node::start(parts)?;
    let control =
        control(&access, |last_turn, watchdog| crate::node::run(daemon, last_turn, watchdog))?;
    let find = crate::discover::thread::Parts {
        config: started_with,
        access: access.clone(),
        lrs_root: (mode == Mode::Enforce).then_some(lrs_root),
        hints: hinted,
    };
    let finder = match Finder::start(find) {
        Ok(finder) => finder,
        Err(source) => {
            remote.stop();
            // How it ended does not matter beside this.
            let _ = control.join();
            return Err(DaemonError::Thread { what: "the thread that finds tasks", source });
        }
    };
    let served = front.serve(access, &remote, control, finder, &format!("mode {mode:?}"));
    history.inspect(History::end);
    served
}

/// The same of a node that is pretended.
fn pretend(config: Config, file: &Path, log: &Log) -> Result<(), DaemonError> {
    let (sender, commands) = queue()?;
    let front = Front::open(&config)?;
    let (node, remote) = crate::pretend::start(config, file.to_owned(), reload_log(log), commands)
        .map_err(system("pretend a node"))?;
    let machine = &node.machine;
    let access = Access {
        config_file: file.into(),
        ..Access::new(sender, machine.snapshot.clone(), Arc::clone(&machine.events))
    };
    let control = control(&access, |last_turn, watchdog| node.run(last_turn, watchdog))?;
    front.serve(access, &remote, control, None, "a pretended node")
}

fn queue() -> Result<(CommandSender, CommandReceiver), DaemonError> {
    let made = access::queue();
    made.map_err(|errno| system("make the command queue")(errno.into()))
}

fn reload_log(log: &Log) -> ReloadLog {
    let log = log.clone();
    Box::new(move |directives: &str| log.reload(directives))
}

/// The thread of the loop.
type Control = std::thread::JoinHandle<Result<(), LoopError>>;

/// Starts the loop.
fn control(
    access: &Access,
    run: impl FnOnce(&LastTurn, Option<Watchdog>) -> Result<(), LoopError> + Send + 'static,
) -> Result<Control, DaemonError> {
    let last_turn = Arc::clone(&access.last_turn);
    let watchdog = Watchdog::from_environment()
        .map_err(system("reach the service manager's watchdog ($NOTIFY_SOCKET)"))?;
    std::thread::Builder::new()
        .name("lrs-loop".into())
        .spawn(move || {
            schedule::favour_this_thread();
            run(&last_turn, watchdog)
        })
        .map_err(thread("the control loop"))
}
