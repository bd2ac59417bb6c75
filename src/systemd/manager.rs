//! A blocking client of systemd's manager, `org.freedesktop.systemd1` (org.freedesktop.systemd1(5)).
//!
//! Over the system bus or, where that is not to be had, over the manager's own socket, which
//! root may use and systemctl does: shaping must not depend on a message broker. A connection
//! that broke is made anew once for each call; every call is bounded ([`Manager::patience`]).
//!
//! The calls are blocking because their callers are threads that do one thing after the other
//! (start-up, `lrs-place`); the runtime inside turns only while a call is under way.

use std::time::Duration;

use tokio_stream::StreamExt as _;
use zbus::zvariant::{OwnedObjectPath, Value};

use crate::units::Pid;

/// Longest time for one call with all it waits for, unless told otherwise. systemd answers in
/// milliseconds, in seconds while it reloads many units.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How long the bus may take to greet; one that hangs is gone round.
const BUS_PATIENCE: Duration = Duration::from_secs(1);

/// systemd's socket for root; no broker in between.
const PRIVATE_SOCKET: &str = "unix:path=/run/systemd/private";

/// Why systemd did not do it.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// Neither the bus nor systemd's own socket answers.
    #[error("systemd cannot be reached: {bus}; {direct}")]
    Unreachable {
        /// What the system bus said.
        bus: Box<zbus::Error>,
        /// What systemd's own socket said.
        direct: Box<zbus::Error>,
    },
    /// systemd refused.
    #[error("systemd refused {what}: {source}")]
    Refused {
        /// The call.
        what: String,
        /// Its answer.
        source: Box<zbus::Error>,
    },
    /// The job it began for us ended badly.
    #[error("the job of systemd for {unit} ended as \"{result}\"; see systemctl status {unit}")]
    Job {
        /// The unit.
        unit: String,
        /// "failed", "timeout", "canceled", ... (JobRemoved).
        result: String,
    },
    /// No answer.
    #[error("systemd did not finish {what} within {patience:?}")]
    Timeout {
        /// The call.
        what: String,
        /// How long it was waited for.
        patience: Duration,
    },
    /// The runtime for the call.
    #[error("cannot prepare the call to systemd: {0}")]
    Runtime(#[from] std::io::Error),
}

impl ManagerError {
    /// The D-Bus error name, when systemd gave one.
    pub fn name(&self) -> Option<&str> {
        let ManagerError::Refused { source, .. } = self else { return None };
        match &**source {
            zbus::Error::MethodError(name, ..) => Some(name.as_str()),
            _ => None,
        }
    }

    /// There is a unit of that name already.
    pub fn unit_exists(&self) -> bool {
        self.name() == Some("org.freedesktop.systemd1.UnitExists")
    }

    /// No unit of that name is loaded.
    pub fn no_such_unit(&self) -> bool {
        self.name() == Some(NO_SUCH_UNIT)
    }
}

const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1",
    gen_blocking = false
)]
trait Manager {
    fn get_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;

    fn set_unit_properties(
        &self,
        name: &str,
        runtime: bool,
        properties: &[(&str, Value<'_>)],
    ) -> zbus::Result<()>;

    fn start_transient_unit(
        &self,
        name: &str,
        mode: &str,
        properties: &[(&str, Value<'_>)],
        aux: &[(&str, Vec<(&str, Value<'_>)>)],
    ) -> zbus::Result<OwnedObjectPath>;

    #[zbus(signal)]
    fn job_removed(
        &self,
        id: u32,
        job: OwnedObjectPath,
        unit: String,
        result: String,
    ) -> zbus::Result<()>;
}

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Unit",
    default_service = "org.freedesktop.systemd1",
    gen_blocking = false
)]
trait Unit {
    #[zbus(property(emits_changed_signal = "false"))]
    fn active_state(&self) -> zbus::Result<String>;
}

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Slice",
    default_service = "org.freedesktop.systemd1",
    gen_blocking = false
)]
trait Slice {
    #[zbus(property(emits_changed_signal = "false"), name = "CPUWeight")]
    fn cpu_weight(&self) -> zbus::Result<u64>;
}

/// What a scope to be started is.
#[derive(Clone, Copy, Debug)]
pub struct NewScope<'a> {
    /// With ".scope".
    pub name: &'a str,
    /// The slice it is in.
    pub slice: &'a str,
    /// One line for people.
    pub description: &'a str,
    /// Whether what is below it is not systemd's (`Delegate=`, systemd.resource-control(5)).
    pub delegated: bool,
    /// Controllers delegated beside those of cgroup v2, which alone are meant by `Delegate=yes`.
    pub also_delegated: &'a [&'a str],
}

/// A connection to systemd, made when it is first needed.
#[derive(Debug)]
pub struct Manager {
    runtime: tokio::runtime::Runtime,
    connection: Option<zbus::Connection>,
    /// Longest time for one call with all it waits for.
    pub patience: Duration,
}

impl Manager {
    /// Connects with the first call.
    ///
    /// # Errors
    /// `Runtime` when the kernel has no descriptors left.
    pub fn new() -> Result<Manager, ManagerError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Manager { runtime, connection: None, patience: PATIENCE })
    }

    /// The `ActiveState` of a loaded unit ("active", "deactivating", ...); `None` when no unit
    /// of that name is loaded.
    ///
    /// # Errors
    /// systemd cannot be asked.
    pub fn active_state(&mut self, unit: &str) -> Result<Option<String>, ManagerError> {
        let asked = self.call(&format!("GetUnit({unit})"), async |connection| {
            let path = ManagerProxy::new(connection).await?.get_unit(unit).await?;
            UnitProxy::new(connection, path).await?.active_state().await
        });
        match asked {
            Ok(state) => Ok(Some(state)),
            Err(error) if error.no_such_unit() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Starts a scope with `processes` in it, and waits until it is there (systemd.scope(5)).
    ///
    /// # Errors
    /// [`ManagerError::unit_exists`] when there is one of that name.
    pub fn start_scope(
        &mut self,
        scope: &NewScope<'_>,
        processes: &[Pid],
    ) -> Result<(), ManagerError> {
        let NewScope { name: scope, slice, description, delegated, also_delegated } = *scope;
        let what = format!("StartTransientUnit({scope})");
        let pids: Vec<u32> = processes.iter().map(|pid| pid.raw().unsigned_abs()).collect();
        let result = self.call(&what, async |connection| {
            let manager = ManagerProxy::new(connection).await?;
            let mut removed = manager.receive_job_removed().await?;
            let mut properties = vec![
                ("Description", Value::from(description)),
                ("Slice", Value::from(slice)),
                ("PIDs", Value::from(pids.clone())),
                ("Delegate", Value::from(delegated)),
                ("TasksMax", Value::from(u64::MAX)),
                // A scope whose last task was killed must not stay behind as "failed".
                ("CollectMode", Value::from("inactive-or-failed")),
            ];
            if !also_delegated.is_empty() {
                properties.push(("DelegateControllers", Value::from(also_delegated)));
            }
            let job = manager.start_transient_unit(scope, "fail", &properties, &[]).await?;
            ended(&mut removed, &job).await
        })?;
        done(scope, result)
    }

    /// Sets the `CPUWeight` of a slice as [`Manager::set_properties`] does, unless it has it: each
    /// change makes systemd write a drop-in. Both calls together are waited for as long as one.
    ///
    /// # Errors
    /// As for [`Manager::set_properties`].
    pub fn set_slice_weight(&mut self, slice: &str, weight: u64) -> Result<(), ManagerError> {
        self.call(&format!("SetUnitProperties({slice}, CPUWeight={weight})"), async |connection| {
            let manager = ManagerProxy::new(connection).await?;
            let has = match manager.get_unit(slice).await {
                Ok(path) => Some(SliceProxy::new(connection, path).await?.cpu_weight().await?),
                Err(zbus::Error::MethodError(name, ..)) if name == NO_SUCH_UNIT => None,
                Err(error) => return Err(error),
            };
            if has == Some(weight) {
                return Ok(());
            }
            manager.set_unit_properties(slice, true, &[("CPUWeight", Value::from(weight))]).await
        })
    }

    /// Sets numbers such as `CPUWeight` on a unit until the next boot; systemd writes them at
    /// once and whenever it applies the unit's settings again. `u64::MAX` is "not set".
    ///
    /// # Errors
    /// [`ManagerError::no_such_unit`], or what systemd found wrong.
    pub fn set_properties(
        &mut self,
        unit: &str,
        properties: &[(&str, u64)],
    ) -> Result<(), ManagerError> {
        self.call(&format!("SetUnitProperties({unit}, {properties:?})"), async |connection| {
            let values: Vec<(&str, Value<'_>)> =
                properties.iter().map(|(name, value)| (*name, Value::from(*value))).collect();
            ManagerProxy::new(connection).await?.set_unit_properties(unit, true, &values).await
        })
    }

    /// Runs one exchange in time, on a new connection if the old one broke.
    pub(super) fn call<T>(
        &mut self,
        what: &str,
        exchange: impl AsyncFn(&zbus::Connection) -> zbus::Result<T>,
    ) -> Result<T, ManagerError> {
        let Manager { runtime, connection, patience } = self;
        let patience = *patience;
        let attempt = async {
            if let Some(known) = connection.as_ref() {
                match exchange(known).await {
                    Err(error) if is_broken(&error) => {}
                    answer => return answer.map_err(|source| refused(what, source)),
                }
            }
            *connection = None;
            let fresh = connect().await?;
            let answer = exchange(&fresh).await.map_err(|source| refused(what, source));
            *connection = Some(fresh);
            answer
        };
        let answer = runtime.block_on(async { tokio::time::timeout(patience, attempt).await });
        answer.unwrap_or_else(|_| {
            // Whatever hangs, the next call tries afresh.
            self.connection = None;
            Err(ManagerError::Timeout { what: what.to_owned(), patience })
        })
    }
}

fn refused(what: &str, source: zbus::Error) -> ManagerError {
    ManagerError::Refused { what: what.to_owned(), source: Box::new(source) }
}

/// The connection is of no more use: a broker that was restarted, or its end of it closed.
fn is_broken(error: &zbus::Error) -> bool {
    matches!(error, zbus::Error::InputOutput(_) | zbus::Error::Handshake(_))
}

async fn connect() -> Result<zbus::Connection, ManagerError> {
    let over_bus = async { zbus::connection::Builder::system()?.build().await };
    let bus = match tokio::time::timeout(BUS_PATIENCE, over_bus).await {
        Ok(Ok(connection)) => return Ok(connection),
        Ok(Err(error)) => Box::new(error),
        Err(_) => {
            let silent = format!("the bus did not greet within {BUS_PATIENCE:?}");
            Box::new(zbus::Error::Failure(silent))
        }
    };
    let directly =
        async { zbus::connection::Builder::address(PRIVATE_SOCKET)?.p2p().build().await };
    directly.await.map_err(|direct| ManagerError::Unreachable { bus, direct: Box::new(direct) })
}

/// Waits for the end of `job`; systemd tells whoever began it. Answers its result.
async fn ended(removed: &mut JobRemovedStream, job: &OwnedObjectPath) -> zbus::Result<String> {
    while let Some(signal) = removed.next().await {
        let signal = signal.args()?;
        if signal.job == *job {
            return Ok(signal.result);
        }
    }
    let gone = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "systemd hung up");
    Err(zbus::Error::InputOutput(gone.into()))
}

fn done(unit: &str, result: String) -> Result<(), ManagerError> {
    match result.as_str() {
        "done" | "skipped" => Ok(()),
        _ => Err(ManagerError::Job { unit: unit.to_owned(), result }),
    }
}
