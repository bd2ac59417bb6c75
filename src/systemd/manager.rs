//! A blocking client of systemd's manager, `org.freedesktop.systemd1` (org.freedesktop.systemd1(5)).
//!
//! Over the manager's own socket, which root may use and systemctl does, and over the system bus
//! only where that socket is not to be had: shaping must not depend on a message broker, least of
//! all on one that hangs. Each call has a connection of its own, because systemd sends all its
//! signals to everybody who is connected to that socket. Every call is bounded
//! ([`Manager::within`]).
//!
//! The calls are blocking because their callers are threads that do one thing after the other
//! (start-up, `lrs-attach`, `lrs-units`); a runtime turns only while a call is under way.
//!
//! cgroups-rs has a client of these calls too (`cgroups_rs::systemd` 0.5). It cannot serve here: it
//! knows the system bus alone, sets no time limit, answers Ok for a unit that is not there or cannot
//! be asked about, and does not wait for the job that makes a scope.
//!
//! Limits: only root may use that socket. Another user's lrsd needs a bus that answers.

use std::path::Path;
use std::time::Duration;

use lrs_host::spare::NoThread;
use tokio_stream::StreamExt as _;
use zbus::zvariant::{OwnedObjectPath, Value};

use super::private::{self, SYSTEMD};
use crate::units::Pid;

/// Longest time for one call with all it waits for, by default. systemd answers in
/// milliseconds, in seconds while it reloads many units.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How long the bus may take to greet.
const BUS_PATIENCE: Duration = Duration::from_secs(1);

/// Why systemd did not do it.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// Neither systemd's own socket nor the bus answers.
    #[error("systemd cannot be reached: {}: {direct}; on the system bus: {bus}", private::SOCKET)]
    Unreachable {
        /// The error of systemd's own socket.
        direct: Box<zbus::Error>,
        /// The error of the system bus.
        bus: Box<zbus::Error>,
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
    #[error("cannot prepare the call to systemd: {}", NoThread(.0))]
    Runtime(#[from] std::io::Error),
}

impl ManagerError {
    /// systemd has a job queued that this contradicts: to stop the slice that a unit is to be in, say.
    pub fn contradicts_a_job(&self) -> bool {
        self.name() == Some("org.freedesktop.systemd1.TransactionIsDestructive")
    }

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

/// The way to systemd.
#[derive(Clone, Copy, Debug)]
pub struct Manager {
    /// Longest time for one call with all it waits for.
    patience: Duration,
}

impl Default for Manager {
    fn default() -> Manager {
        Manager::within(PATIENCE)
    }
}

impl Manager {
    /// Waits for each call at most `patience`, with all that it waits for.
    pub fn within(patience: Duration) -> Manager {
        Manager { patience }
    }

    /// The `ActiveState` of a loaded unit ("active", "deactivating", ...); `None` when no unit
    /// of that name is loaded.
    ///
    /// # Errors
    /// systemd cannot be asked.
    pub fn active_state(&self, unit: &str) -> Result<Option<String>, ManagerError> {
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
    pub fn start_scope(&self, scope: &NewScope<'_>, processes: &[Pid]) -> Result<(), ManagerError> {
        let NewScope { name: scope, slice, description, delegated, also_delegated } = *scope;
        let what = format!("StartTransientUnit({scope})");
        let pids: Vec<u32> = processes.iter().map(|pid| pid.raw().unsigned_abs()).collect();
        let result = self.call(&what, async |connection| {
            let manager = ManagerProxy::new(connection).await?;
            let mut removed = jobs_removed(connection).await?;
            let mut properties = vec![
                ("Description", Value::from(description)),
                ("Slice", Value::from(slice)),
                ("PIDs", Value::from(pids.clone())),
                ("Delegate", Value::from(delegated)),
                ("TasksMax", Value::from(u64::MAX)),
                // A scope must not, after its last task was killed, stay behind as "failed".
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
    pub fn set_slice_weight(&self, slice: &str, weight: u64) -> Result<(), ManagerError> {
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
        &self,
        unit: &str,
        properties: &[(&str, u64)],
    ) -> Result<(), ManagerError> {
        self.call(&format!("SetUnitProperties({unit}, {properties:?})"), async |connection| {
            let values: Vec<(&str, Value<'_>)> =
                properties.iter().map(|(name, value)| (*name, Value::from(*value))).collect();
            ManagerProxy::new(connection).await?.set_unit_properties(unit, true, &values).await
        })
    }

    /// Runs one exchange in time, on a connection of its own.
    pub(super) fn call<T>(
        &self,
        what: &str,
        exchange: impl AsyncFn(&zbus::Connection) -> zbus::Result<T>,
    ) -> Result<T, ManagerError> {
        let runtime = crate::runtime::on_this_thread()?;
        // zbus starts one, and tokio panics where it cannot.
        lrs_host::spare::thread()?;
        let attempt = async {
            let connection = connect().await?;
            exchange(&connection).await.map_err(|source| ManagerError::Refused {
                what: what.to_owned(),
                source: Box::new(source),
            })
        };
        let timed = runtime.block_on(async { tokio::time::timeout(self.patience, attempt).await });
        // The connection ends with its reader, whatever hangs.
        runtime.shutdown_background();
        timed.unwrap_or_else(|_| {
            Err(ManagerError::Timeout { what: what.to_owned(), patience: self.patience })
        })
    }
}

async fn connect() -> Result<zbus::Connection, ManagerError> {
    let direct = match private::connect(Path::new(private::SOCKET)).await {
        Ok(connection) => return Ok(connection),
        Err(error) => Box::new(error),
    };
    let over_bus = async { zbus::connection::Builder::system()?.build().await };
    let bus = match tokio::time::timeout(BUS_PATIENCE, over_bus).await {
        Ok(Ok(connection)) => return Ok(connection),
        Ok(Err(error)) => error,
        Err(_) => zbus::Error::Failure(format!("no greeting within {BUS_PATIENCE:?}")),
    };
    Err(ManagerError::Unreachable { direct, bus: Box::new(bus) })
}

/// systemd tells whoever began a job of its end.
async fn jobs_removed(connection: &zbus::Connection) -> zbus::Result<zbus::MessageStream> {
    let rule = zbus::MatchRule::builder()
        .msg_type(zbus::message::Type::Signal)
        .sender(SYSTEMD)?
        .interface("org.freedesktop.systemd1.Manager")?
        .member("JobRemoved")?
        .build();
    zbus::MessageStream::for_match_rule(rule, connection, Some(JOBS)).await
}

/// Ends of other jobs that may come before the answer to the call that begins ours.
const JOBS: usize = 1024;

/// Waits for the end of `job`; answers its result.
async fn ended(removed: &mut zbus::MessageStream, job: &OwnedObjectPath) -> zbus::Result<String> {
    while let Some(signal) = removed.next().await {
        let signal = signal?;
        let body = signal.body();
        let (_, ended, _, result): (u32, OwnedObjectPath, &str, String) = body.deserialize()?;
        if ended == *job {
            return Ok(result);
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
