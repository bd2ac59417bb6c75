//! What systemd says of a unit, and its weights set.
//!
//! Two questions about one unit are two calls, and it may stop between them; whoever acts on
//! the answer finds out by the process, which is pinned.

use std::collections::HashMap;

use zbus::zvariant::{OwnedObjectPath, OwnedValue};

use super::manager::{Manager, ManagerError};
use super::private::SYSTEMD;
use super::unit::{NOT_SET, PROPERTIES, Setting, UnitName, UnitRecord, Weights, due};
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

/// systemd's errors for a process that is in no unit (org.freedesktop.systemd1(5)), or that has
/// just ended, which its pidfd tells. Any other error does not say.
const IN_NONE: [&str; 3] = [
    "org.freedesktop.systemd1.NoUnitForPID",
    "org.freedesktop.systemd1.NoSuchUnit",
    "org.freedesktop.systemd1.NoSuchProcess",
];

/// Why a unit cannot be a task now.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
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
    Never(String),
}

/// What systemd says of a unit (org.freedesktop.systemd1(5)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Its name, never an alias.
    pub id: String,
    /// "not-found" where there is none.
    pub load_state: String,
    /// "active", "deactivating", ...
    pub active_state: String,
    /// Its cgroup, from the root of systemd's hierarchy.
    pub control_group: String,
    /// Of a service, what it calls its main process.
    pub main: Option<Pid>,
    /// `Delegate=`: what is below its group is not systemd's.
    pub delegated: bool,
    /// What a stop of it ends (systemd.kill(5)).
    pub kill_mode: String,
    /// Its weights.
    pub weights: Weights,
    /// All its processes that this daemon can see.
    pub processes: Vec<Pid>,
}

impl Unit {
    async fn read(connection: &zbus::Connection, path: &OwnedObjectPath) -> zbus::Result<Unit> {
        // An empty name stands for all interfaces of the unit: its type has one of its own.
        let properties = Some("org.freedesktop.DBus.Properties");
        let reply = connection.call_method(Some(SYSTEMD), path, properties, "GetAll", &"").await?;
        let values: HashMap<String, OwnedValue> = reply.body().deserialize()?;
        let text = |name: &str| {
            let text = values.get(name).and_then(|value| <&str>::try_from(value).ok());
            text.unwrap_or_default().to_owned()
        };
        let number = |name: &str| {
            let value = values.get(name)?;
            u64::try_from(value).ok().or_else(|| u32::try_from(value).ok().map(u64::from))
        };
        let weight =
            |name: &str| Some((name.to_owned(), number(name).filter(|value| *value != NOT_SET)?));
        Ok(Unit {
            id: text("Id"),
            load_state: text("LoadState"),
            active_state: text("ActiveState"),
            control_group: text("ControlGroup"),
            // 0 is systemd's way of saying none.
            main: number("MainPID").and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::new),
            delegated: values
                .get("Delegate")
                .is_some_and(|value| bool::try_from(value) == Ok(true)),
            kill_mode: text("KillMode"),
            weights: PROPERTIES.into_iter().filter_map(weight).collect(),
            processes: Vec::new(),
        })
    }

    async fn with_processes(mut self, manager: &LookupProxy<'_>) -> zbus::Result<Unit> {
        if !self.control_group.is_empty() {
            let processes = manager.get_unit_processes(&self.id).await?;
            let pid = |(_, pid, _): &(String, u32, String)| Pid::new(i32::try_from(*pid).ok()?);
            self.processes = processes.iter().filter_map(pid).collect();
        }
        Ok(self)
    }

    /// What the record of a task has of it, if it can be one now.
    ///
    /// # Errors
    /// See [`Unfit`].
    pub fn fit(&self) -> Result<UnitRecord, Unfit> {
        if self.load_state == "not-found" {
            return Err(Unfit::Unknown(self.id.clone()));
        }
        // An alias may stand for a unit that must not be one.
        let name: UnitName = self.id.parse().map_err(|error| Unfit::Never(format!("{error}")))?;
        let runs = matches!(&*self.active_state, "active" | "activating" | "reloading");
        if !runs || self.control_group.is_empty() || self.processes.is_empty() {
            let without = if runs { " without a process" } else { "" };
            let state = format!("{}{without}", self.active_state);
            return Err(Unfit::NotRunning { unit: self.id.clone(), state });
        }
        if self.delegated {
            return Err(Unfit::Never(format!(
                "unit {name} cannot be a task: its cgroup is delegated (Delegate=), what is \
                 below is its own to shape; admit processes in it by pid"
            )));
        }
        let (control_group, found) = (self.control_group.clone(), self.weights.clone());
        Ok(UnitRecord { name, control_group, found })
    }
}

impl Manager {
    /// What systemd says of the unit `name`, whether there is one or not.
    ///
    /// # Errors
    /// systemd cannot be asked.
    pub fn unit(&self, name: &UnitName) -> Result<Unit, ManagerError> {
        self.call(&format!("LoadUnit({name})"), async |connection| {
            let manager = LookupProxy::new(connection).await?;
            let path = manager.load_unit(name.as_str()).await?;
            Unit::read(connection, &path).await?.with_processes(&manager).await
        })
    }

    /// The unit that `process` is in, if it is in one.
    ///
    /// # Errors
    /// systemd cannot be asked, or does not say.
    pub fn unit_of(&self, process: Pid) -> Result<Option<Unit>, ManagerError> {
        let pid = process.raw().unsigned_abs();
        let unit = self.call(&format!("GetUnitByPID({pid})"), async |connection| {
            let manager = LookupProxy::new(connection).await?;
            let path = manager.get_unit_by_pid(pid).await?;
            Unit::read(connection, &path).await?.with_processes(&manager).await
        });
        match unit {
            Err(error) if error.name().is_some_and(|name| IN_NONE.contains(&name)) => Ok(None),
            unit => unit.map(Some),
        }
    }

    /// The weights of `unit`; `None`: no such unit any more.
    ///
    /// # Errors
    /// systemd cannot be asked.
    pub fn weights(&self, unit: &UnitName) -> Result<Option<Weights>, ManagerError> {
        let unit = self.call(&format!("LoadUnit({unit})"), async |connection| {
            let path = LookupProxy::new(connection).await?.load_unit(unit.as_str()).await?;
            Unit::read(connection, &path).await
        })?;
        Ok((unit.load_state != "not-found").then_some(unit.weights))
    }

    /// Tells systemd those of `settings` that it does not have, and answers once it has written
    /// what follows from them. `false`: no such unit any more, and its settings went with it.
    ///
    /// # Errors
    /// systemd cannot be asked, or refused.
    pub fn set_weights(&self, unit: &UnitName, settings: &[Setting]) -> Result<bool, ManagerError> {
        let Some(now) = self.weights(unit)? else { return Ok(false) };
        let due = due(settings, &now);
        if due.is_empty() {
            return Ok(true);
        }
        match self.set_properties(unit.as_str(), &due) {
            // It answers before it writes, and writes before it takes the next call.
            Ok(()) => self.weights(unit).map(|weights| weights.is_some()),
            Err(error) if error.no_such_unit() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives a unit its weights back; fine when there is no such unit any more.
    ///
    /// # Errors
    /// As for [`Manager::set_weights`].
    pub fn give_back(&self, unit: &UnitRecord) -> Result<(), ManagerError> {
        self.set_weights(&unit.name, &unit.to_give_back()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Unit {
        Unit {
            id: "job.service".into(),
            load_state: "loaded".into(),
            active_state: "active".into(),
            control_group: "/system.slice/job.service".into(),
            processes: vec![Pid::new(7).unwrap()],
            ..Unit::default()
        }
    }

    fn refusal(unit: Unit) -> String {
        unit.fit().unwrap_err().to_string()
    }

    #[test]
    fn only_units_with_processes_of_their_own_can_be_tasks() {
        assert_eq!(running().fit().unwrap().name.as_str(), "job.service");
        assert!(Unit { active_state: "activating".into(), ..running() }.fit().is_ok());

        let unknown = Unit { load_state: "not-found".into(), ..running() };
        assert!(refusal(unknown).contains("there is no unit job.service"));
        let stopped = Unit { active_state: "inactive".into(), ..running() };
        assert!(refusal(stopped).contains("does not run, it is inactive;"));
        let ending = Unit { active_state: "deactivating".into(), ..running() };
        assert!(refusal(ending).contains("deactivating"));
        let empty = Unit { processes: Vec::new(), ..running() };
        assert!(refusal(empty).contains("active without a process"));
        assert!(refusal(Unit { delegated: true, ..running() }).contains("delegated"));
        assert!(refusal(Unit { id: "init.scope".into(), ..running() }).contains("systemd itself"));
    }
}
