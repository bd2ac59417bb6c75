//! Signals: what happened and what changed.
//!
//! One snapshot is compared with the one announced last; what differs is one PropertiesChanged
//! for each object, InterfacesAdded and InterfacesRemoved. Events come from the ring, and only up
//! to the one the snapshot shows: a task's object is there before TaskAdmitted, shows its new
//! tier before TaskPromoted and is gone before TaskCompleted reaches anybody.
//!
//! What changes with every reading is in `Measured` and is never announced: a client that
//! wants it asks, at its own pace.
//!
//! Limits: a bus that is slow makes this skip snapshots and, once the ring has moved on, lose
//! events, which is logged. The loop never waits for it. A task that came and went between two
//! snapshots has its signals and never had an object.

use std::sync::Arc;

use zbus::object_server::{Interface, SignalEmitter};
use zbus::zvariant::ObjectPath;

use super::connection::Bus;
use super::manager::Manager;
use super::object::{ObjectManager, Properties, shown_task};
use super::path::{MANAGER_PATH, task_path};
use super::task::{Task, same};
use crate::access::Access;
use crate::core::event::{Event, EventKind};
use crate::core::model::TaskId;
use crate::proto;
use crate::publish::Snapshot;

/// Events read off the ring at once.
const BATCH: usize = 64;

/// What was announced on one connection.
pub(super) struct Announcer {
    bus: Arc<Bus>,
    manager: SignalEmitter<'static>,
    access: Access,
    last: Arc<Snapshot>,
}

/// Why signals end: the connection is of no use any more, or a signal could not be made.
type Ended = Box<dyn std::error::Error + Send + Sync>;

impl Announcer {
    /// Begins with what is there now: a client that comes asks for that.
    ///
    /// # Errors
    /// zbus does not take the manager's path.
    pub(super) fn new(bus: Arc<Bus>, mut access: Access) -> zbus::Result<Announcer> {
        let last = Arc::clone(&access.snapshot.borrow_and_update());
        let manager = SignalEmitter::new(&bus.connection, MANAGER_PATH)?.into_owned();
        Ok(Announcer { bus, manager, access, last })
    }

    /// Announces until the loop has ended.
    pub(super) async fn run(mut self) -> Result<(), Ended> {
        while self.access.snapshot.changed().await.is_ok() {
            let new = Arc::clone(&self.access.snapshot.borrow_and_update());
            self.announce(&new).await?;
            self.last = new;
        }
        Ok(())
    }

    async fn announce(&self, new: &Snapshot) -> Result<(), Ended> {
        let old = &self.last;
        for (_, task) in new.tasks.iter().filter(|(id, _)| !old.tasks.contains_key(id)) {
            let path = ObjectPath::try_from(task_path(&task.id))?;
            let interfaces = shown_task(&self.bus, task).await?;
            ObjectManager::interfaces_added(&self.manager, path, interfaces).await?;
        }
        for (_, task) in old.tasks.iter().filter(|(id, _)| !new.tasks.contains_key(id)) {
            let path = ObjectPath::try_from(task_path(&task.id))?;
            ObjectManager::interfaces_removed(&self.manager, path, vec![Task::name()]).await?;
        }
        for (id, task) in &new.tasks {
            let Some(old) = old.tasks.get(id) else { continue };
            if !Arc::ptr_eq(old, task) && !same(old, task) {
                let emitter = SignalEmitter::new(&self.bus.connection, task_path(&task.id))?;
                let [old, new] =
                    [old, task].map(|task| Task { task: Arc::clone(task), call: None });
                self.changed(&emitter, &old, &new).await?;
            }
        }
        self.events(old.last_event, new.last_event).await?;
        if !Arc::ptr_eq(&old.status, &new.status) {
            let statuses = [&old.status, &new.status];
            let [then, now] =
                statuses.map(|status| Manager { status: Arc::clone(status), call: None });
            self.changed(&self.manager, &then, &now).await?;
            let [then, now] = statuses.map(|status| offered(status));
            if then != now {
                let (active, active_free, passive, passive_free) = now;
                let manager = &self.manager;
                Manager::slots_changed(manager, active, active_free, passive, passive_free).await?;
            }
        }
        Ok(())
    }

    /// Announces the properties that differ: the new values, and the names of those that are not
    /// known any more.
    async fn changed<I: Interface>(
        &self,
        emitter: &SignalEmitter<'_>,
        old: &I,
        new: &I,
    ) -> Result<(), Ended> {
        let mut old = self.bus.properties(old).await?;
        let mut new = self.bus.properties(new).await?;
        old.remove("Measured");
        new.remove("Measured");
        let unknown: Vec<_> = old.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
        new.retain(|name, value| old.get(name) != Some(value));
        if !new.is_empty() || !unknown.is_empty() {
            Properties::properties_changed(emitter, I::name(), new, unknown).await?;
        }
        Ok(())
    }

    /// Events after `last` up to `newest`, in order.
    async fn events(&self, last: u64, newest: u64) -> zbus::Result<()> {
        let mut next = last.saturating_add(1);
        while next <= newest {
            let page = self.access.events.read(next, BATCH);
            if page.lost > 0 {
                tracing::warn!(
                    lost = page.lost,
                    "the bus is too slow: signals of {} events were not sent",
                    page.lost
                );
            }
            let Some(last) = page.events.last() else { return Ok(()) };
            next = last.seq.saturating_add(1);
            for event in page.events.iter().filter(|event| event.seq <= newest) {
                self.happened(event).await?;
            }
        }
        Ok(())
    }

    async fn happened(&self, event: &Event) -> zbus::Result<()> {
        // Reservations move between tiers too; they are no objects.
        let is_task = |id: &&str| id.parse::<TaskId>().is_ok();
        let Some(id) = event.task.as_deref().filter(is_task) else { return Ok(()) };
        let path = ObjectPath::try_from(task_path(id))?;
        let (manager, seq) = (&self.manager, event.seq);
        let reason = event.reason.as_deref().unwrap_or_default();
        match event.kind {
            EventKind::Admitted => Manager::task_admitted(manager, id, path, seq, reason).await,
            EventKind::Promoted => Manager::task_promoted(manager, id, path, seq, reason).await,
            EventKind::Demoted => Manager::task_demoted(manager, id, path, seq, reason).await,
            EventKind::Completed | EventKind::Left => {
                Manager::task_completed(manager, id, path, seq, reason).await
            }
            EventKind::Released => Manager::task_released(manager, id, path, seq, reason).await,
            _ => Ok(()),
        }
    }
}

/// Capacity and free slots, active and passive.
fn offered(status: &proto::Status) -> (u32, u32, u32, u32) {
    let slots = status.slots.unwrap_or_default();
    let (active, passive) = (slots.active.unwrap_or_default(), slots.passive.unwrap_or_default());
    (active.capacity, active.free, passive.capacity, passive.free)
}
