//! `lrs-exporter`: serves what `lrsctl metrics` prints to Prometheus.
//!
//! A process of its own, without rights, because lrsd is root and opens no network socket. It is a
//! client of lrsd like any other: its settings (`[metrics]`) and its figures come by calls that every
//! user may make. It goes on while lrsd is away, and says so (`lrs_up` is 0), for that is what an
//! operator has to know; so it is started by its own unit, not with lrsd.
//!
//! | module | one line |
//! |---|---|
//! | [`link`], [`settings`] | lrsd: the connection, `[metrics]` |
//! | [`pages`] | one collection a second at most, for all who ask |
//! | [`server`] | HTTP, and what a connection may cost |
//!
//! The figures are [`lrs_metrics`]'s. Everything runs on one thread, beside that of the log.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory as _, Parser};
use lrs_api::client::{DEFAULT_ENDPOINT, Endpoint};
use lrs_host::log::{self, Log, last_words, say};
use lrs_host::spare;
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use link::Lrsd;
use pages::Pages;

pub mod link;
pub mod pages;
pub mod server;
pub mod settings;

/// How often the settings are read, and an address is tried again that was taken.
const SETTINGS_EVERY: Duration = Duration::from_secs(5);

/// How long lrsd may take for its settings.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Serves the metrics of lrsd to Prometheus: /metrics and /healthz.
///
/// lrs-exporter is a client of lrsd: the table metrics of lrs.toml says where it listens and what it
/// shows, and a change there takes effect within seconds of `lrsctl reload`. Where metrics.listen is empty it
/// serves nothing and waits. While lrsd is away it goes on with the address it has and serves lrs_up 0.
/// It needs no rights.
#[derive(Debug, Parser)]
#[command(
    name = "lrs-exporter",
    version,
    after_help = "Exit codes: 0 stopped by a signal; 1 failure; 2 usage."
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
    /// Serve here, whatever metrics.listen says; with port 0 on a free one, which the log names.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Print the page of the manual; for the packages.
    #[arg(long, hide = true)]
    man: bool,
}

/// A path, or as LRS_ENDPOINT has it: "unix:/path".
fn endpoint(text: &str) -> Result<Endpoint, String> {
    if text.starts_with('/') { Endpoint::unix(text.as_ref()) } else { text.parse() }
}

/// Why it does not run.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot {what}: {source}")]
    System { what: &'static str, source: std::io::Error },
    #[error("cannot begin the log: {0}")]
    Log(#[from] log::StartError),
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |source| Failure::System { what, source }
}

/// Entry of `lrs-exporter`.
pub fn main() -> ExitCode {
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
    let ended = if arguments.man { man() } else { run(&arguments) };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            last_words(&format!("lrs-exporter: {failure}"));
            ExitCode::FAILURE
        }
    }
}

fn man() -> Result<(), Failure> {
    let page = clap_mangen::Man::new(Arguments::command()).section("8");
    let page = page.manual("Local Resource Shaper");
    page.render(&mut std::io::stdout()).map_err(system("print the page"))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let log = Log::start("lrs-exporter", "info")?;
    spare::for_runtime().map_err(system("start the async runtime"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the async runtime"))?;
    runtime.block_on(serve(arguments, &log))
}

async fn serve(arguments: &Arguments, log: &Log) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(system("wait for SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("wait for SIGINT"))?;
    let mut reload = signal(SignalKind::hangup()).map_err(system("wait for SIGHUP"))?;
    let lrsd = Arc::new(Lrsd::new(arguments.socket.clone()));
    let mut servers = Servers::new(Arc::new(Pages::new(Arc::clone(&lrsd))));
    let mut follower = Follower { log, chosen: "info".to_owned(), logged: None };
    tracing::info!("lrs-exporter {} asks {}", env!("CARGO_PKG_VERSION"), arguments.socket);
    // By the last settings of lrsd; `None`: they are not known yet.
    let mut by_settings = None;
    if arguments.listen.is_some() {
        servers.listen(arguments.listen).await;
    }
    notify(NotifyState::Ready);
    loop {
        // A signal ends the wait for an lrsd that hangs, too.
        tokio::select! {
            wanted = follower.wanted(&lrsd) => {
                by_settings = wanted.or(by_settings);
                // Also while lrsd is away: an address may come up late.
                if let Some(wanted) = arguments.listen.map(Some).or(by_settings) {
                    servers.listen(wanted).await;
                }
            },
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
        notify(NotifyState::Watchdog);
        tokio::select! {
            () = tokio::time::sleep(SETTINGS_EVERY) => {}
            _ = reload.recv() => {}
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    notify(NotifyState::Stopping);
    tracing::info!("stopped");
    Ok(())
}

/// What it takes from the settings of lrsd.
struct Follower<'a> {
    log: &'a Log,
    chosen: String,
    /// The last error, so that it is logged once.
    logged: Option<String>,
}

impl Follower<'_> {
    /// Where to serve now; `None`: it is not known, as while lrsd is away, and stays as it is.
    async fn wanted(&mut self, lrsd: &Lrsd) -> Option<Option<SocketAddr>> {
        let read = tokio::time::timeout(ANSWER_WITHIN, lrsd.settings()).await;
        let read = read.unwrap_or_else(|_| Err("it does not answer".to_owned()));
        match read {
            Ok(settings) => {
                if self.logged.take().is_some() {
                    tracing::info!("lrsd answers again");
                }
                if settings.daemon.log != self.chosen {
                    if let Err(error) = self.log.reload(&settings.daemon.log) {
                        let wanted = &settings.daemon.log;
                        tracing::warn!(%error, "daemon.log = {wanted:?} is not taken over: {error}");
                    }
                    self.chosen.clone_from(&settings.daemon.log);
                }
                Some(settings.listen())
            }
            Err(error) => {
                if self.logged.as_ref() != Some(&error) {
                    tracing::warn!("lrsd cannot be asked, which is tried again: {error}");
                    self.logged = Some(error);
                }
                None
            }
        }
    }
}

/// The server, of which there is one at most.
struct Servers {
    pages: Arc<Pages<Lrsd>>,
    /// `None`: nothing was wanted yet.
    at: Option<Option<SocketAddr>>,
    running: JoinSet<()>,
    logged: Option<String>,
}

impl Servers {
    fn new(pages: Arc<Pages<Lrsd>>) -> Servers {
        Servers { pages, at: None, running: JoinSet::new(), logged: None }
    }

    /// Serves there and nowhere else; an address that cannot be had is tried again with the next call.
    async fn listen(&mut self, at: Option<SocketAddr>) {
        if self.at == Some(at) && (at.is_none() || !self.running.is_empty()) {
            return;
        }
        self.running.shutdown().await;
        self.at = Some(at);
        let Some(at) = at else {
            return tracing::info!("metrics.listen is empty: nothing is served");
        };
        match TcpListener::bind(at).await.and_then(|it| Ok((it.local_addr()?, it))) {
            Ok((at, listener)) => {
                self.logged = None;
                let pages = Arc::clone(&self.pages);
                tracing::info!("serves http://{at}/metrics");
                self.running.spawn(server::serve(listener, pages, server::Limits::default()));
            }
            Err(error) => {
                let error = format!("metrics.listen = \"{at}\" cannot be had: {error}");
                if self.logged.as_ref() != Some(&error) {
                    tracing::error!("{error}; it is tried again, or set another");
                    self.logged = Some(error);
                }
            }
        }
    }
}

/// Without a service manager there is no listener, which is no error.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the service manager gets no message: {error}");
    }
}
