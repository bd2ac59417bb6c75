//! From a command line to a running daemon and back: settings, log, locks, recovery, servers,
//! signals, stop.
//!
//! The order is the promise: nothing is touched before the settings are known to be good,
//! nothing is recovered before the locks are held, no client is served before everything is
//! recovered. The loop has a thread of its own ([`crate::executor`]); the servers share one async
//! runtime on the main thread. `lrsctl demo` runs the same entry in a process of its own.
//!
//! Under systemd the service is ready when the sockets are served and the name is on the bus, which is
//! waited for 0.3 s at most: a bus that is absent or hangs delays nothing. The watchdog is fed by turns of the
//! loop that have ended, and its wait is bounded so that an idle loop turns in time
//! (`src/systemd/notify.rs`).
//!
//! `daemon.rs`: settings, log, lock of the runtime directory, state, cgroup tree (with the lock of the
//! root), an admission on trial where there are no tasks, descriptor limit, sockets bound (not yet accepting), recovery, loop, servers. Each
//! step may refuse; none before recovery touches a task. Stopping is the other way round: servers
//! first (watchers get UNAVAILABLE, calls have a grace), then the loop, which lets the workers
//! finish the job at hand (those queued are the next daemon's to roll back), stores what was measured
//! and leaves every weight as it is. The finder is not waited for: it only reads, and may hang in that. A
//! reload replaces all settings that may change live, or none.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory as _, Parser};
use lrs_host::spare::NoThread;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

use crate::access::{self, Access, CommandReceiver, CommandSender};
use crate::cgroup::{CgroupError, TierTree};
use crate::command::Command;
use crate::config::{Bus, Config, ConfigErrors, DEFAULT_FILE, Loaded, Mode};
use crate::discover::thread::Finder;
use crate::doctor::DoctorOptions;
use crate::history::History;
use crate::kernfs::files::raise_descriptor_limit;
use crate::log::{self, Log, last_words, say};
use crate::node::{LoopError, Parts, ReloadLog, Remote, StartError};
use crate::publish::{EventRing, LastTurn, Snapshot};
use crate::sample::{SampleError, Sampler, Settings};
use crate::schedule;
use crate::server::grpc::{self, BoundSocket, Health, ServeError};
use crate::server::{dbus, query};
use crate::state::journal::EVENTS_KEPT;
use crate::state::lock::{LockError, RuntimeLock};
use crate::state::{Recovered, StateError, Store};
use crate::systemd::notify::{self, StatusLine, Watchdog};
use crate::trim::Trim;

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

/// Two seconds are promised from the signal to the exit; the servers get half of them.
const STOP_SERVERS_WITHIN: Duration = Duration::from_secs(1);

/// How long the service manager waits for the name on the bus, so that `systemctl start lrsd &&
/// busctl call org.lrs.Shaper1` works. That takes milliseconds; a bus that hangs must not delay the
/// start of the node.
const READY_WITHIN: Duration = Duration::from_millis(300);

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

/// What clients reach, before anything is served.
struct Front {
    sockets: Vec<BoundSocket>,
    runtime: tokio::runtime::Runtime,
    /// With the runtime of its thread, and what ends that; `None`: there is no bus.
    bus: Option<(Bus, (Handle, oneshot::Sender<()>))>,
}

impl Front {
    fn open(config: &Config) -> Result<Front, DaemonError> {
        let sockets = config.grpc.listen.iter().map(|path| grpc::bind(path));
        let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
        let runtime = crate::runtime::on_this_thread().map_err(thread("the async runtime"))?;
        let bus = match &config.dbus.bus {
            Bus::Off => None,
            bus => {
                let made = crate::runtime::on_thread("lrs-bus");
                Some((bus.clone(), made.map_err(thread("the thread for D-Bus"))?))
            }
        };
        Ok(Front { sockets, runtime, bus })
    }

    /// Serves until a signal, or until the loop has ended; then ends that. `what`: is served, in words.
    fn serve(
        self,
        access: Access,
        remote: &Remote,
        control: Control,
        mut finder: Option<Finder>,
        what: &str,
    ) -> Result<(), DaemonError> {
        let Front { sockets, runtime, bus } = self;
        // The servers get no more of the CPU than other programs (clients could spend it), but at once.
        let nice = rustix::process::getpriority_process(None).unwrap_or(0);
        if let Err(error) = schedule::shorten_slice(nice) {
            tracing::debug!(%error, "the servers keep the default scheduling: {error}");
        }
        let paths: Vec<_> = sockets.iter().map(|socket| socket.path().to_string_lossy()).collect();
        let paths = paths.join(" ");
        let ready = || {
            tracing::info!(
                version = env!("CARGO_PKG_VERSION"),
                what,
                sockets = paths,
                "lrsd {} is ready, {what}, on {paths}",
                env!("CARGO_PKG_VERSION"),
            );
            notify::ready();
        };
        let served = runtime.block_on(serve(Serving {
            sockets,
            bus,
            access,
            remote: remote.clone(),
            ready,
            loop_ended: || control.is_finished(),
            finder: finder.as_mut(),
        }));
        // The loop goes last: it answers calls under way until the servers have ended.
        remote.stop();
        let looped = control.join().map_err(|_| DaemonError::LoopPanicked)?;
        runtime.shutdown_timeout(Duration::from_millis(100));
        served?;
        looped?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// What [`serve`] needs.
struct Serving<'f, Ready, Ended> {
    sockets: Vec<BoundSocket>,
    /// With the runtime of its thread, and what ends that; `None`: there is no bus.
    bus: Option<(Bus, (Handle, oneshot::Sender<()>))>,
    access: Access,
    remote: Remote,
    /// Says that everything is served.
    ready: Ready,
    loop_ended: Ended,
    finder: Option<&'f mut Finder>,
}

/// Runs the servers until a signal, or until the loop has ended by itself.
async fn serve<Ready: Fn(), Ended: Fn() -> bool>(
    parts: Serving<'_, Ready, Ended>,
) -> Result<(), DaemonError> {
    let Serving { sockets, bus, access, remote, ready, loop_ended, mut finder } = parts;
    let mut terminate = signal(SignalKind::terminate()).map_err(system("wait for SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("wait for SIGINT"))?;
    let mut hangup = signal(SignalKind::hangup()).map_err(system("wait for SIGHUP"))?;
    let health = Health::new();
    let (stop, stopping) = watch::channel(false);
    let mut servers = tokio::task::JoinSet::new();
    let shutdown = || {
        let mut stopping = stopping.clone();
        async move {
            // An error means the sender is gone, which is a stop too.
            let _ = stopping.wait_for(|stop| *stop).await;
        }
    };
    for socket in sockets {
        servers.spawn(grpc::serve(socket, access.clone(), health.clone(), shutdown()));
    }
    let (tried, bus_tried) = oneshot::channel();
    // Ends with this function.
    let mut _bus_thread = None;
    if let Some((bus, (runtime, ends))) = bus {
        _bus_thread = Some(ends);
        let served = runtime.spawn(dbus::serve(bus, access.clone(), tried, shutdown()));
        servers.spawn(async move {
            match served.await {
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                _ => Ok(()),
            }
        });
    } else {
        drop(tried);
    }
    if let Some(history) = access.history.clone() {
        tokio::spawn(history.follow(access.snapshot.clone()));
    }
    // After its first turn each server has what it needs, or has ended for want of it.
    tokio::task::yield_now().await;
    // The sockets were bound before recovery: connections made meanwhile are served. The name on
    // the bus comes a moment later, and whoever is ordered after lrsd.service may call at once.
    let mut bus_tried = std::pin::pin!(tokio::time::timeout(READY_WITHIN, bus_tried));
    let mut is_ready = false;
    let mut hangs = false;
    let mut status_line = StatusLine::from_environment();
    let mut heartbeat = tokio::time::interval(Duration::from_secs(1));
    let mut trim = Trim::default();
    let mut failed = None;
    loop {
        tokio::select! {
            biased;
            _ = terminate.recv() => break tracing::info!("SIGTERM: stopping"),
            _ = interrupt.recv() => break tracing::info!("SIGINT: stopping"),
            _ = hangup.recv() => remote.reload(),
            Some(ended) = servers.join_next() => {
                failed = Some(ended);
                break;
            }
            // Tried, too slow, or off: ready in any case, gRPC is.
            _ = &mut bus_tried, if !is_ready => {
                ready();
                is_ready = true;
            }
            _ = heartbeat.tick() => {
                if loop_ended() {
                    break;
                }
                trim.turn(crate::clock::boot_time());
                let news = finder.as_mut().and_then(|it| it.news(crate::clock::boot_time()));
                if let Some(trouble) = news {
                    let commands = access.commands.clone();
                    // Not awaited here: a loop that is busy must not keep signals waiting.
                    tokio::spawn(async move {
                        // A daemon that stops has no client left to warn.
                        let _ = commands.send(Command::FinderTrouble(trouble)).await;
                    });
                }
                let hanging = query::hanging(&access, crate::clock::boot_time());
                if hangs != hanging.is_some() {
                    hangs = !hangs;
                    health.set_serving(!hangs).await;
                    match hanging {
                        Some(age) => tracing::error!("the control loop hangs: it has not turned for {age:.0?}"),
                        None => tracing::warn!("the control loop turns again"),
                    }
                }
                let status = Arc::clone(&access.snapshot.borrow().status);
                status_line.show(if hangs { "the control loop hangs".to_owned() } else { summary(&status) });
            }
        }
    }
    notify::stopping();
    stop.send_replace(true);
    let close = async {
        while let Some(ended) = servers.join_next().await {
            failed.get_or_insert(ended);
        }
    };
    if tokio::time::timeout(STOP_SERVERS_WITHIN, close).await.is_err() {
        tracing::warn!("clients were cut off: they did not close them within a second");
    }
    match failed {
        Some(Ok(Err(error))) => Err(error.into()),
        Some(Err(error)) if error.is_panic() => {
            Err(system("serve clients")(std::io::Error::other(error)))
        }
        _ => Ok(()),
    }
}

/// One line for `systemctl status`.
fn summary(status: &crate::proto::Status) -> String {
    let slots = status.slots.unwrap_or_default();
    let (active, passive) = (slots.active.unwrap_or_default(), slots.passive.unwrap_or_default());
    let mut line = format!(
        "{}: {} of {} active, {} of {} passive slots used",
        crate::wire::node_state_word(status.state).unwrap_or("starting"),
        active.used,
        active.capacity,
        passive.used,
        passive.capacity
    );
    if status.waiting > 0 {
        line.push_str(&format!(", {} waiting", status.waiting));
    }
    line
}
