//! Looking a unit up: whether it can be a task now, by its name or by one of its processes.
//!
//! Two questions about one unit are two calls, and it may stop between them; whoever acts on
//! the answer finds out by the process, which is pinned.

use std::collections::{BTreeMap, HashMap};

use zbus::names::InterfaceName;
use zbus::zvariant::{OwnedObjectPath, OwnedValue};

use super::manager::{Manager, ManagerError};
use super::unit::{NOT_SET, PROPERTIES, Setting, UnitName, UnitRecord};
use crate::units::Pid;

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1",
    gen_blocking = false
)]
trait Lookup {
    fn load_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;

    #[zbus(name = "GetUnitByPID")]
    fn get_unit_by_pid(&self, pid: u32) -> zbus::Result<OwnedObjectPath>;

    fn get_unit_processes(&self, name: &str) -> zbus::Result<Vec<(String, u32, String)>>;
}

/// A unit that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningUnit {
    /// For the task's record.
    pub record: UnitRecord,
    /// Of a service, what it calls its main process.
    pub main: Option<Pid>,
    /// All its processes that this daemon can see.
    pub processes: Vec<Pid>,
    /// What a stop of it ends: its `KillMode=` (systemd.kill(5)).
    pub kill_mode: String,
}

/// The unit a process is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// None.
    None,
    /// One that can be a task.
    Fit(RunningUnit),
    /// One that cannot.
    Unfit {
        /// Its cgroup, from the root of systemd's hierarchy.
        control_group: String,
        /// What a stop of it ends: its `KillMode=` (systemd.kill(5)).
        kill_mode: String,
    },
}

/// systemd's errors for a process that is in no unit (org.freedesktop.systemd1(5)), or that has
/// just ended, which its pidfd tells. Any other error does not say.
const IN_NONE: [&str; 3] = [
    "org.freedesktop.systemd1.NoUnitForPID",
    "org.freedesktop.systemd1.NoSuchUnit",
    "org.freedesktop.systemd1.NoSuchProcess",
];

/// Why a unit cannot be a task now.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// No file and no running unit has this name.
    #[error("there is no unit {0}; systemctl list-units shows those there are")]
    Unknown(String),
    /// Nothing of it runs.
    #[error("unit {unit} does not run, it is {state}; start it first")]
    NotRunning {
        /// Which.
        unit: String,
        /// Its ActiveState.
        state: String,
    },
    /// It runs and must not be a task.
    #[error("{0}")]
    Unfit(String),
    /// systemd does not answer.
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

/// What systemd says of a unit.
#[derive(Clone, Debug, Default)]
struct Facts {
    id: String,
    load_state: String,
    active_state: String,
    control_group: String,
    main: Option<Pid>,
    delegated: bool,
    kill_mode: String,
    weights: BTreeMap<String, u64>,
}

impl Facts {
    fn read(unit: &Properties, own: &Properties) -> Facts {
        let weight = |name: &&str| {
            let value = own.number(name).filter(|value| *value != NOT_SET)?;
            Some(((*name).to_owned(), value))
        };
        Facts {
            id: unit.text("Id"),
            load_state: unit.text("LoadState"),
            active_state: unit.text("ActiveState"),
            control_group: own.text("ControlGroup"),
            // 0 is systemd's way of saying none.
            main: own.number("MainPID").and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::new),
            delegated: own.flag("Delegate"),
            kill_mode: own.text("KillMode"),
            weights: PROPERTIES.iter().filter_map(weight).collect(),
        }
    }

    /// Whether it can be a task; `processes` are those it has.
    fn judge(self, processes: Vec<Pid>) -> Result<RunningUnit, LookupError> {
        if self.load_state == "not-found" {
            return Err(LookupError::Unknown(self.id));
        }
        // An alias may stand for a unit that must not be one.
        let name: UnitName =
            self.id.parse().map_err(|error| LookupError::Unfit(format!("{error}")))?;
        let runs = matches!(&*self.active_state, "active" | "activating" | "reloading");
        if !runs || self.control_group.is_empty() || processes.is_empty() {
            let state = match (runs, &*self.active_state) {
                (true, state) => format!("{state} without a process"),
                (false, state) => state.to_owned(),
            };
            return Err(LookupError::NotRunning { unit: self.id, state });
        }
        if self.delegated {
            return Err(LookupError::Unfit(format!(
                "unit {name} cannot be a task: its cgroup is delegated (Delegate=), what is \
                 below is its own to shape; admit processes in it by pid"
            )));
        }
        let record = UnitRecord {
            name,
            control_group: self.control_group,
            found: self.weights,
            given: Vec::new(),
            adopted: false,
        };
        Ok(RunningUnit { record, main: self.main, processes, kill_mode: self.kill_mode })
    }
}

/// The answer to `GetAll`.
struct Properties(HashMap<String, OwnedValue>);

impl Properties {
    fn text(&self, name: &str) -> String {
        let text = self.0.get(name).and_then(|value| <&str>::try_from(value).ok());
        text.unwrap_or_default().to_owned()
    }

    fn number(&self, name: &str) -> Option<u64> {
        let value = self.0.get(name)?;
        u64::try_from(value).ok().or_else(|| u32::try_from(value).ok().map(u64::from))
    }

    fn flag(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| bool::try_from(value) == Ok(true))
    }

    async fn of(
        connection: &zbus::Connection,
        path: &OwnedObjectPath,
        interface: &'static str,
    ) -> zbus::Result<Properties> {
        let proxy = zbus::fdo::PropertiesProxy::builder(connection)
            .destination("org.freedesktop.systemd1")?
            .path(path)?
            .cache_properties(zbus::proxy::CacheProperties::No)
            .build()
            .await?;
        let interface = InterfaceName::from_static_str(interface)?;
        Ok(Properties(proxy.get_all(interface).await?))
    }
}

impl Manager {
    /// The unit `name`, if it can be a task now.
    ///
    /// # Errors
    /// See [`LookupError`].
    pub fn running_unit(&self, name: &UnitName) -> Result<RunningUnit, LookupError> {
        let (facts, processes) = self.call(&format!("LoadUnit({name})"), async |connection| {
            let manager = LookupProxy::new(connection).await?;
            let path = manager.load_unit(name.as_str()).await?;
            look(connection, &manager, &path).await
        })?;
        facts.judge(processes)
    }

    /// The unit `process` is in, and whether it can be a task.
    ///
    /// # Errors
    /// systemd cannot be asked, or does not say.
    pub fn unit_of(&self, process: Pid) -> Result<Membership, ManagerError> {
        let pid = process.raw().unsigned_abs();
        let looked = self.call(&format!("GetUnitByPID({pid})"), async |connection| {
            let manager = LookupProxy::new(connection).await?;
            let path = manager.get_unit_by_pid(pid).await?;
            look(connection, &manager, &path).await
        });
        match looked {
            Ok((facts, processes)) => {
                let (control_group, kill_mode) =
                    (facts.control_group.clone(), facts.kill_mode.clone());
                Ok(match facts.judge(processes) {
                    Ok(unit) => Membership::Fit(unit),
                    Err(_) => Membership::Unfit { control_group, kill_mode },
                })
            }
            Err(error) if error.name().is_some_and(|name| IN_NONE.contains(&name)) => {
                Ok(Membership::None)
            }
            Err(error) => Err(error),
        }
    }

    /// What systemd has for each of [`PROPERTIES`] of `unit`; one that is not set is left out.
    /// `None`: no such unit any more.
    ///
    /// # Errors
    /// systemd cannot be asked.
    pub fn weights(&self, unit: &UnitName) -> Result<Option<BTreeMap<String, u64>>, ManagerError> {
        let facts = self.call(&format!("LoadUnit({unit})"), async |connection| {
            let path = LookupProxy::new(connection).await?.load_unit(unit.as_str()).await?;
            facts(connection, &path).await
        })?;
        Ok((facts.load_state != "not-found").then_some(facts.weights))
    }

    /// Gives a unit's properties back as they were; fine when there is no such unit any more.
    ///
    /// # Errors
    /// systemd cannot be asked, or refused.
    pub fn give_back(&self, unit: &UnitRecord) -> Result<(), ManagerError> {
        let Some(now) = self.weights(&unit.name)? else { return Ok(()) };
        let back = unit.to_give_back(&now);
        if back.is_empty() {
            return Ok(());
        }
        match self.set_properties(unit.name.as_str(), &back) {
            // Its runtime settings went with it.
            Err(error) if error.no_such_unit() => Ok(()),
            result => result,
        }
    }

    /// Tells systemd those of `settings` that it does not have; answers once it has written
    /// what follows from them. `false`: no such unit any more.
    ///
    /// # Errors
    /// systemd cannot be asked, or refused.
    pub fn settle(&self, unit: &UnitName, settings: &[Setting]) -> Result<bool, ManagerError> {
        let Some(now) = self.weights(unit)? else { return Ok(false) };
        let differs =
            |(name, value): &&Setting| now.get(*name).copied().unwrap_or(NOT_SET) != *value;
        let due: Vec<Setting> = settings.iter().filter(differs).copied().collect();
        if due.is_empty() {
            return Ok(true);
        }
        match self.set_properties(unit.as_str(), &due) {
            Ok(()) => {}
            Err(error) if error.no_such_unit() => return Ok(false),
            Err(error) => return Err(error),
        }
        // It answers before it writes, and writes before it takes the next call.
        self.weights(unit).map(|weights| weights.is_some())
    }
}

async fn look(
    connection: &zbus::Connection,
    manager: &LookupProxy<'_>,
    path: &OwnedObjectPath,
) -> zbus::Result<(Facts, Vec<Pid>)> {
    let facts = facts(connection, path).await?;
    let processes = if facts.control_group.is_empty() {
        Vec::new()
    } else {
        manager.get_unit_processes(&facts.id).await?
    };
    let pid = |(_, pid, _): &(String, u32, String)| i32::try_from(*pid).ok().and_then(Pid::new);
    Ok((facts, processes.iter().filter_map(pid).collect()))
}

async fn facts(connection: &zbus::Connection, path: &OwnedObjectPath) -> zbus::Result<Facts> {
    let unit = Properties::of(connection, path, "org.freedesktop.systemd1.Unit").await?;
    let interface = match unit.text("Id").rsplit_once('.') {
        Some((_, "service")) => "org.freedesktop.systemd1.Service",
        Some((_, "scope")) => "org.freedesktop.systemd1.Scope",
        // It has no processes to admit; what is not there is unknown.
        _ => return Ok(Facts::read(&unit, &Properties(HashMap::new()))),
    };
    let own = Properties::of(connection, path, interface).await?;
    Ok(Facts::read(&unit, &own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Facts {
        Facts {
            id: "job.service".into(),
            load_state: "loaded".into(),
            active_state: "active".into(),
            control_group: "/system.slice/job.service".into(),
            main: Pid::new(7),
            ..Facts::default()
        }
    }

    fn refusal(facts: Facts, pids: &[i32]) -> String {
        let processes = pids.iter().filter_map(|pid| Pid::new(*pid)).collect();
        facts.judge(processes).unwrap_err().to_string()
    }

    #[test]
    fn only_units_with_processes_of_their_own_can_be_tasks() {
        let unit = running().judge(vec![Pid::new(7).unwrap()]).unwrap();
        assert_eq!(unit.record.name.as_str(), "job.service");
        assert_eq!(unit.main, Pid::new(7));
        let oneshot = Facts { active_state: "activating".into(), ..running() };
        assert!(oneshot.judge(vec![Pid::new(7).unwrap()]).is_ok());

        let unknown = Facts { load_state: "not-found".into(), ..running() };
        assert!(refusal(unknown, &[]).contains("there is no unit job.service"));
        let stopped = Facts { active_state: "inactive".into(), ..running() };
        assert!(refusal(stopped, &[]).contains("does not run, it is inactive"));
        let ending = Facts { active_state: "deactivating".into(), ..running() };
        assert!(refusal(ending, &[7]).contains("deactivating"));
        assert!(refusal(running(), &[]).contains("active without a process"));
        let delegated = Facts { delegated: true, ..running() };
        assert!(refusal(delegated, &[7]).contains("delegated"));
        let alias = Facts { id: "init.scope".into(), ..running() };
        assert!(refusal(alias, &[7]).contains("systemd itself"));
    }
}
