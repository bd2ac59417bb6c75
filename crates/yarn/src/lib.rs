//! `lrs-yarn`: reports slots that opened on this node to YARN's scheduler, and what the scheduler
//! knows of the containers to lrsd.
//!
//! A process of its own, without rights, because it opens network sockets and starts a Java machine,
//! which a root daemon should not. It is a client of lrsd like any other: status and settings come by
//! WatchStatus and GetConfig, hints and reports go by Hint and ReportIntegration. lrsd finds the
//! containers and weighs them whether or not this process runs.
//!
//! | module | one line |
//! |---|---|
//! | [`link`], [`settings`] | lrsd: its state, the reports to it |
//! | [`offer`], [`ledger`] | how much to offer; which of the figures the ResourceManager shows are ours |
//! | [`agent`] | what to do next about the offer |
//! | [`http`], [`shapes`], [`client`], [`rmadmin`], [`hints`] | the calls |
//! | [`run`] | one after the other: look at lrsd, pass, report, tell hints, wait |
//! | [`mod@give_back`] | the end of an offer |
//!
//! `offer`, `ledger` and `agent` decide and touch nothing but the ledger's file. Calls block: nothing
//! waits for this process. A second thread follows lrsd and hears signals.
//!
//! lrsd away for 15 s, which is longer than a restart takes, takes the offer back; it stands again
//! once lrsd is back. After a crash or a kill the next lrs-yarn goes on from the ledger.
//!
//! `lrs-yarn --give-back` needs no lrsd: the ledger names the node and its own figure, and the
//! settings that lrsd had are kept beside it (`settings.toml`). Where those are gone the operator gets
//! the command.
//!
//! What is deliberately absent: an over-commit timeout other than -1 (any other makes YARN kill
//! containers), a Kerberos ticket (see `yarn.offer_by = "rmadmin"`), and any call that changes an
//! application.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser};
use lrs_api::client::{DEFAULT_ENDPOINT, Endpoint};
use lrs_core::units::Bytes;
use lrs_hadoop_conf::{NodeId, Site, SiteError, Trust};
use lrs_host::files::StateError;
use lrs_host::lock::{LockError, RuntimeLock};
use lrs_host::log::{self, Log, last_words, say};
use lrs_host::spare;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use link::{Link, LrsdState};
use settings::{Lasting, Settings};

pub mod agent;
pub mod client;
pub mod give_back;
mod here;
pub mod hints;
pub mod http;
pub mod ledger;
pub mod link;
mod notify;
pub mod offer;
mod report;
pub mod rmadmin;
pub mod run;
pub mod settings;
pub mod shapes;

#[cfg(test)]
mod played;
#[cfg(test)]
mod test_server;

/// What a node has for containers, in the ResourceManager's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resource {
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual cores: what one counts for is the site's convention.
    pub vcores: u32,
}

impl Resource {
    /// Whether it is more than `other` in either.
    pub fn exceeds(self, other: Resource) -> bool {
        self.memory_mib > other.memory_mib || self.vcores > other.vcores
    }

    /// Whether it is less than `other` in one and not more in the other.
    pub fn is_below(self, other: Resource) -> bool {
        other.exceeds(self) && !self.exceeds(other)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB, {} vcores", self.memory_mib, self.vcores)
    }
}

/// Where to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Web addresses of all ResourceManagers, without a path: `http://rm1:8088`.
    pub resource_managers: Vec<String>,
    /// Web address of this node's NodeManager.
    pub node_manager: Option<String>,
    /// The node's id, where it was set; else the NodeManager is asked.
    pub node_id: Option<NodeId>,
    /// `yarn.nodemanager.resource.memory-mb` and `.cpu-vcores` where yarn-site.xml has both as
    /// numbers; `None`: the NodeManager works them out itself.
    pub configured: Option<Resource>,
    /// Where `configured` was read, to be read again: an operator may edit it. And which files
    /// there count.
    pub conf: Option<(PathBuf, Trust)>,
    /// What of Hadoop's files cannot be used, and why. No manager is asked and nothing is offered.
    pub fault: Option<String>,
}

impl Endpoints {
    /// By Hadoop's files with the settings over them. A value there that cannot be used ends up in
    /// [`Endpoints::fault`].
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn read(settings: &Lasting) -> Result<Endpoints, SiteError> {
        let trust = Trust::of(&settings.user);
        let site = Site::read(&settings.conf_dir, &trust)?;
        let mut endpoints = Endpoints {
            resource_managers: settings.resource_managers.clone().unwrap_or_default(),
            node_manager: settings.node_manager.clone(),
            node_id: settings.node_id.clone(),
            conf: Some((settings.conf_dir.clone(), trust)),
            ..Endpoints::default()
        };
        if let Err(error) = endpoints.complete(settings, &site) {
            endpoints.fault = Some(error.to_string());
        }
        Ok(endpoints)
    }

    /// Whether the same managers are called, or the same fault keeps all from being called.
    fn calls_the_same(&self, other: &Endpoints) -> bool {
        let called = |all: &Endpoints| {
            (all.resource_managers.clone(), all.node_manager.clone(), all.fault.clone())
        };
        called(self) == called(other)
    }

    /// Puts what yarn-site.xml says where nothing is set; nothing if one of its values is of no use.
    fn complete(&mut self, settings: &Lasting, site: &Site) -> Result<(), SiteError> {
        let resource_managers = match &settings.resource_managers {
            Some(urls) => urls.clone(),
            None => site.resource_managers()?.into_iter().map(|one| one.url).collect(),
        };
        let node_manager = match &settings.node_manager {
            Some(url) => Some(url.clone()),
            None => site.node_manager()?,
        };
        self.configured = configured(site)?;
        (self.resource_managers, self.node_manager) = (resource_managers, node_manager);
        Ok(())
    }
}

/// What the node begins with; `None`: only the NodeManager knows.
///
/// # Errors
/// A value that Hadoop would not take either.
pub fn configured(site: &Site) -> Result<Option<Resource>, SiteError> {
    let memory = known(site.memory())?.map(|Bytes(bytes)| bytes >> 20);
    let resource = |(memory_mib, vcores)| Resource { memory_mib, vcores };
    Ok(memory.zip(known(site.vcores())?).map(resource))
}

fn known<T>(answer: Result<Option<T>, SiteError>) -> Result<Option<T>, SiteError> {
    match answer {
        Err(SiteError::Unknown { .. }) => Ok(None),
        answer => answer,
    }
}

/// Tells a YARN ResourceManager of the slots that LRS opens on this node.
///
/// lrs-yarn is a client of lrsd: it takes its settings (the table yarn of lrs.toml) and the open slots
/// from it, and tells it what YARN knows of the containers. It needs no rights but those of an account
/// in grpc.integrations, and ends where yarn.enabled is false.
#[derive(Debug, Parser)]
#[command(
    name = "lrs-yarn",
    version,
    after_help = "Exit codes: 0 stopped by a signal, nothing to do, or done; 1 failure; 2 usage."
)]
struct Arguments {
    /// The socket of lrsd.
    #[arg(
        long,
        value_name = "PATH",
        env = "LRS_ENDPOINT",
        default_value = DEFAULT_ENDPOINT,
        value_parser = endpoint
    )]
    socket: Endpoint,
    /// Directory of the ledger, in which each offer is written down before it is sent.
    #[arg(long, value_name = "DIR", env = "RUNTIME_DIRECTORY", default_value = "/run/lrs-yarn")]
    state_dir: PathBuf,
    /// Give every offer in the ledger back and exit: for the removal of LRS.
    ///
    /// To be run as the user of lrs-yarn.service, who owns the directory: root runs no command that
    /// lies there. No lrs-yarn may run with this directory; lrsd need not run. It takes half a
    /// minute at most. What cannot be given back is named with the command that does it by hand; to
    /// be run again.
    #[arg(long)]
    give_back: bool,
    /// Print the page of the manual; for the packages.
    #[arg(long, hide = true)]
    man: bool,
}

/// A path, or as LRS_ENDPOINT has it: "unix:/path".
fn endpoint(text: &str) -> Result<Endpoint, String> {
    if text.starts_with('/') { Endpoint::unix(text.as_ref()) } else { text.parse() }
}

/// What a stop may need beside giving the offer back.
const STOP_SLACK: Duration = Duration::from_millis(500);

/// Why it does not run.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot {what}: {source}")]
    System { what: &'static str, source: std::io::Error },
    #[error(
        "another lrs-yarn (pid {pid}) uses {}; stop it, or give this one another --state-dir",
        dir.display()
    )]
    Held { pid: String, dir: PathBuf },
    #[error(
        "{} belongs to uid {owner}, and root runs no command that lies there; run this as that \
         user: setsid -w runuser -u USER -- lrs-yarn", dir.display()
    )]
    NotRoots { dir: PathBuf, owner: u32 },
    #[error(transparent)]
    State(#[from] StateError),
    #[error("cannot begin the log: {0}")]
    Log(#[from] log::StartError),
    #[error(transparent)]
    NotGivenBack(#[from] give_back::NotGivenBack),
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |source| Failure::System { what, source }
}

/// Entry of `lrs-yarn`.
pub fn main() -> ExitCode {
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
    let _flush = log::FlushAtEnd;
    let ended = match &arguments {
        Arguments { man: true, .. } => man(),
        Arguments { give_back: true, .. } => give_back(&arguments),
        _ => serve(&arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            last_words(&format!("lrs-yarn: {failure}"));
            ExitCode::FAILURE
        }
    }
}

fn man() -> Result<(), Failure> {
    let page = clap_mangen::Man::new(Arguments::command()).section("8");
    let page = page.manual("Local Resource Shaper");
    page.render(&mut std::io::stdout()).map_err(system("print the page"))
}

/// Makes the directory and keeps it for this process.
fn lock(arguments: &Arguments) -> Result<RuntimeLock, Failure> {
    let dir = &arguments.state_dir;
    std::fs::create_dir_all(dir).map_err(system("make the directory of the ledger"))?;
    let owner = std::fs::metadata(dir).map_err(system("read who owns the directory"))?.uid();
    if owner != 0 && rustix::process::geteuid().is_root() {
        return Err(Failure::NotRoots { dir: dir.clone(), owner });
    }
    RuntimeLock::take(dir).map_err(|error| match error {
        LockError::Held { pid, dir } => Failure::Held { pid, dir },
        LockError::State(error) => error.into(),
    })
}

/// See [`give_back::at_removal`].
fn give_back(arguments: &Arguments) -> Result<(), Failure> {
    if !arguments.state_dir.is_dir() {
        return Ok(());
    }
    let _lock = lock(arguments)?;
    if let Some(node) = give_back::at_removal(&arguments.state_dir)? {
        say(&format!("YARN: {node} has its configured resource back"));
    }
    Ok(())
}

fn serve(arguments: &Arguments) -> Result<(), Failure> {
    let log = Log::start("lrs-yarn", "info")?;
    let dir = arguments.state_dir.clone();
    let _lock = lock(arguments)?;
    let kept = Settings::kept(&dir).unwrap_or_else(|error| {
        tracing::warn!(%error, "the settings of the time before are not known: {error}");
        None
    });
    let kept = kept.filter(|settings| settings.yarn.enabled);
    // The calls block this thread; lrsd and signals are heard by another.
    spare::for_runtime()
        .and_then(|()| spare::thread())
        .map_err(system("start the async runtime"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(system("start the async runtime"))?;
    let (publish, seen) = watch::channel(LrsdState::nothing(kept));
    let (stop, stopping) = watch::channel(false);
    let parts = run::Parts {
        link: Link { runtime: runtime.handle().clone(), seen: seen.clone() },
        state_dir: dir.clone(),
        stopping,
    };
    let signals = {
        let _inside = runtime.enter();
        // lrsd reloads at SIGHUP; here settings come by themselves. By default it would end the process,
        // and systemd takes that for an end in order, after which no offer is given back.
        let _ = signal(SignalKind::hangup()).map_err(system("ignore SIGHUP"))?;
        let signal = |kind, what| signal(kind).map_err(system(what));
        (
            signal(SignalKind::terminate(), "wait for SIGTERM")?,
            signal(SignalKind::interrupt(), "wait for SIGINT")?,
        )
    };
    runtime.spawn(stop_at_signal(signals, stop, parts.clone()));
    runtime.spawn(follow_log(log, seen));
    let socket = arguments.socket.clone();
    runtime.spawn(async move { link::follow(socket, &dir, &publish).await });
    tracing::info!("lrs-yarn {} asks {}", env!("CARGO_PKG_VERSION"), arguments.socket);
    notify::ready();
    run::until_stopped(parts);
    notify::stopping();
    runtime.shutdown_timeout(Duration::from_millis(100));
    tracing::info!("stopped");
    Ok(())
}

/// Begins the stop, and ends the process if a call or a run of the command hangs then: what stands is
/// in the ledger.
async fn stop_at_signal(
    (mut terminate, mut interrupt): (Signal, Signal),
    stop: watch::Sender<bool>,
    parts: run::Parts,
) {
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
    }
    stop.send_replace(true);
    tokio::time::sleep(give_back::AT_STOP + STOP_SLACK).await;
    let why = "a call or a run of the command hangs, and a stop waits no longer for it";
    if let Err(left) = parts.witness().check(why) {
        tracing::warn!("{left}");
    }
    log::flush();
    std::process::exit(0);
}

/// Logs what `daemon.log` chooses.
async fn follow_log(log: Log, mut seen: watch::Receiver<LrsdState>) {
    let mut chosen = String::from("info");
    while seen.changed().await.is_ok() {
        let wanted = seen.borrow().settings.as_ref().map(|settings| settings.daemon.log.clone());
        let Some(wanted) = wanted.filter(|wanted| *wanted != chosen) else { continue };
        if let Err(error) = log.reload(&wanted) {
            tracing::warn!(%error, "daemon.log = {wanted:?} is not taken over: {error}");
        }
        chosen = wanted;
    }
}
