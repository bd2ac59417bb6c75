//! Signals: what happened and what changed, told to whoever listens on the bus.
//!
//! One snapshot is compared with the one told last; what differs is one PropertiesChanged for
//! each object, InterfacesAdded and InterfacesRemoved. Events come from the ring, and only up
//! to the one the snapshot shows: a task's object is there before TaskAdmitted, shows its new
//! tier before TaskPromoted and is gone before TaskCompleted reaches anybody.
//!
//! Limits: a bus that is slow makes this skip snapshots and, once the ring has moved on, lose
//! events, which is logged. The loop never waits for it. A task that came and went between two
//! snapshots has its signals and never had an object.

use std::sync::Arc;

use serde::Serialize;
use zbus::Connection;
use zbus::zvariant::{DynamicType, ObjectPath, StructureBuilder};

use super::contract::{MANAGER, MANAGER_PATH, OBJECT_MANAGER, PROPERTIES, TASK};
use super::objects::{interfaces, task_path};
use super::properties::{self, Property};
use crate::core::event::{Event, EventKind};
use crate::proto;
use crate::publish::{Access, Snapshot};

/// Events read off the ring at once.
const BATCH: usize = 64;

/// What has been told on one connection.
pub(super) struct Announcer {
    bus: Connection,
    access: Access,
    told: Arc<Snapshot>,
}

impl Announcer {
    /// Begins with what is there now: whoever comes asks for that.
    pub(super) fn new(bus: Connection, mut access: Access) -> Announcer {
        let told = Arc::clone(&access.snapshot.borrow_and_update());
        Announcer { bus, access, told }
    }

    /// Tells until the loop has ended.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) async fn run(mut self) -> zbus::Result<()> {
        while self.access.snapshot.changed().await.is_ok() {
            let new = Arc::clone(&self.access.snapshot.borrow_and_update());
            self.tell(&new).await?;
            self.told = new;
        }
        Ok(())
    }

    async fn tell(&self, new: &Snapshot) -> zbus::Result<()> {
        let old = Arc::clone(&self.told);
        for (_, task) in new.tasks.iter().filter(|(id, _)| !old.tasks.contains_key(id)) {
            self.added(task).await?;
        }
        for (_, task) in old.tasks.iter().filter(|(id, _)| !new.tasks.contains_key(id)) {
            self.removed(task).await?;
        }
        for (id, task) in &new.tasks {
            let Some(old) = old.tasks.get(id) else { continue };
            if !Arc::ptr_eq(old, task) && !properties::same_task(old, task) {
                let path = task_path(&task.id);
                self.changed(&path, TASK, properties::TASK, &**old, &**task).await?;
            }
        }
        self.events(old.last_event, new.last_event).await?;
        if !Arc::ptr_eq(&old.status, &new.status) {
            let (old, new) = (&*old.status, &*new.status);
            self.changed(MANAGER_PATH, MANAGER, properties::MANAGER, old, new).await?;
            if offered(old) != offered(new) {
                self.signal(MANAGER_PATH, MANAGER, "SlotsChanged", &offered(new)).await?;
            }
        }
        Ok(())
    }

    async fn added(&self, task: &proto::Task) -> zbus::Result<()> {
        let path = ObjectPath::try_from(task_path(&task.id))?;
        // A tuple would send the dictionary as a variant.
        let body = StructureBuilder::new()
            .append_field(path.into())
            .append_field(interfaces(task))
            .build()?;
        self.signal(MANAGER_PATH, OBJECT_MANAGER, "InterfacesAdded", &body).await
    }

    async fn removed(&self, task: &proto::Task) -> zbus::Result<()> {
        let body = (ObjectPath::try_from(task_path(&task.id))?, [TASK].as_slice());
        self.signal(MANAGER_PATH, OBJECT_MANAGER, "InterfacesRemoved", &body).await
    }

    async fn changed<T>(
        &self,
        path: &str,
        interface: &str,
        table: &[Property<T>],
        old: &T,
        new: &T,
    ) -> zbus::Result<()> {
        let Some((values, unknown)) = properties::changed(table, old, new) else { return Ok(()) };
        self.signal(path, PROPERTIES, "PropertiesChanged", &(interface, values, unknown)).await
    }

    /// Events after `told` up to `newest`, in order.
    async fn events(&self, told: u64, newest: u64) -> zbus::Result<()> {
        let mut next = told.saturating_add(1);
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
        let name = match event.kind {
            EventKind::Admitted => "TaskAdmitted",
            EventKind::Promoted => "TaskPromoted",
            EventKind::Demoted => "TaskDemoted",
            EventKind::Completed => "TaskCompleted",
            EventKind::Released => "TaskReleased",
            _ => return Ok(()),
        };
        // Reservations move between tiers too; they are no objects.
        let Some(id) = event.task.as_deref().filter(|id| is_task(id)) else { return Ok(()) };
        let path = ObjectPath::try_from(task_path(id))?;
        let reason = event.reason.as_deref().unwrap_or_default();
        self.signal(MANAGER_PATH, MANAGER, name, &(id, path, event.seq, reason)).await
    }

    async fn signal<B: Serialize + DynamicType>(
        &self,
        path: &str,
        interface: &str,
        name: &str,
        body: &B,
    ) -> zbus::Result<()> {
        self.bus.emit_signal(None::<&str>, path, interface, name, body).await
    }
}

fn is_task(id: &str) -> bool {
    id.parse::<crate::core::model::TaskId>().is_ok()
}

/// Capacity and free slots, active and passive.
fn offered(status: &proto::Status) -> (u32, u32, u32, u32) {
    let slots = status.slots.unwrap_or_default();
    let (active, passive) = (slots.active.unwrap_or_default(), slots.passive.unwrap_or_default());
    (active.capacity, active.free, passive.capacity, passive.free)
}
