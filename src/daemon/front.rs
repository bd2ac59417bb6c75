//! What clients reach: the sockets and the bus, from before recovery to the stop.
//!
//! The servers share the async runtime of the main thread; the bus has a thread of its own, since one that
//! hangs must not keep the others. Sockets are bound before recovery and served after it, so a
//! client that comes in between waits and is not refused. The same loop hears signals, feeds the status line
//! and says when the control loop hangs.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

use super::{Control, DaemonError, system, thread};
use crate::access::Access;
use crate::command::Command;
use crate::config::{Bus, Config};
use crate::discover::thread::Finder;
use crate::node::Remote;
use crate::schedule;
use crate::server::grpc::{self, BoundSocket, Health};
use crate::server::{dbus, query};
use crate::systemd::notify::{self, StatusLine};
use crate::trim::Trim;

/// Two seconds are promised from the signal to the exit; the servers get half of them.
const STOP_SERVERS_WITHIN: Duration = Duration::from_secs(1);

/// How long the service manager waits for the name on the bus, so that `systemctl start lrsd &&
/// busctl call org.lrs.Shaper1` works. That takes milliseconds; a bus that hangs must not delay the
/// start of the node.
const READY_WITHIN: Duration = Duration::from_millis(300);

/// What clients reach, before anything is served.
pub(super) struct Front {
    sockets: Vec<BoundSocket>,
    runtime: tokio::runtime::Runtime,
    bus: Option<BusThread>,
}

/// The bus, and the thread that serves it.
struct BusThread {
    bus: Bus,
    runtime: Handle,
    /// Dropped, it ends the thread.
    ends: oneshot::Sender<()>,
}

impl Front {
    pub(super) fn open(config: &Config) -> Result<Front, DaemonError> {
        let sockets = config.grpc.listen.iter().map(|path| grpc::bind(path));
        let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
        let runtime = crate::runtime::on_this_thread().map_err(thread("the async runtime"))?;
        let bus = match &config.dbus.bus {
            Bus::Off => None,
            bus => {
                let made = crate::runtime::on_thread("lrs-bus");
                let (runtime, ends) = made.map_err(thread("the thread for D-Bus"))?;
                Some(BusThread { bus: bus.clone(), runtime, ends })
            }
        };
        Ok(Front { sockets, runtime, bus })
    }

    /// Serves until a signal, or until the loop has ended; then ends that. `what`: is served, in words.
    pub(super) fn serve(
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
    bus: Option<BusThread>,
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
    if let Some(BusThread { bus, runtime, ends }) = bus {
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
