//! The objects: the interfaces of what a path names, and the standard interfaces of all of them.
//!
//! A task's object is made when its path is called; none is registered with zbus (see
//! [`super::dispatch`]).

use std::collections::HashMap;
use std::sync::Arc;

use zbus::fdo;
use zbus::names::InterfaceName;
use zbus::object_server::{Interface, SignalEmitter};
use zbus::zvariant::{ObjectPath, OwnedObjectPath, OwnedValue, Value};

use super::call::Call;
use super::connection::Bus;
use super::error::CallError;
use super::limited;
use super::manager::Manager;
use super::path::{Object, task_path};
use super::task::Task;
use crate::command::{CommandError, ErrorKind};
use crate::proto;

/// An interface and its name.
pub(super) type Named = (InterfaceName<'static>, Box<dyn Interface>);

fn named<I: Interface>(interface: I) -> Named {
    (I::name(), Box::new(interface))
}

/// The interfaces of the object that is called. One of its own comes first.
pub(super) fn interfaces(call: &Call) -> Vec<Named> {
    let standard = [named(Introspectable(call.clone())), named(Peer)];
    let mut all = match &call.object {
        Object::Directory(_) | Object::Tasks => Vec::new(),
        Object::Manager => {
            let status = call.server.service.status();
            let manager = Manager { status, call: Some(call.clone()) };
            vec![
                named(manager),
                named(Properties(call.clone())),
                named(ObjectManager(call.clone())),
            ]
        }
        Object::Task(task) => {
            let task = Task { task: Arc::clone(task), call: Some(call.clone()) };
            vec![named(task), named(Properties(call.clone()))]
        }
    };
    all.extend(standard);
    all
}

struct Peer;

#[zbus::interface(name = "org.freedesktop.DBus.Peer", introspection_docs = false)]
impl Peer {
    fn ping(&self) {}

    /// As libdbus has it: machine-id(5), or the older file of D-Bus itself.
    #[zbus(out_args("machine_uuid"))]
    fn get_machine_id(&self) -> Result<String, CallError> {
        let read = |path: &str| std::fs::read_to_string(path).map(|id| id.trim().to_owned());
        let id = read("/etc/machine-id").or_else(|_| read("/var/lib/dbus/machine-id"));
        id.map_err(|error| {
            let message = format!("cannot read /etc/machine-id: {error}");
            CommandError::new(ErrorKind::Unavailable, message).into()
        })
    }
}

struct Introspectable(Call);

#[zbus::interface(name = "org.freedesktop.DBus.Introspectable", introspection_docs = false)]
impl Introspectable {
    #[zbus(out_args("xml_data"))]
    fn introspect(&self) -> String {
        let mut xml = String::from(
            "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection 1.0//EN\"\n \
             \"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">\n<node>\n",
        );
        for (_, interface) in interfaces(&self.0) {
            interface.introspect_to_writer(&mut xml, 2);
        }
        let mut child = |name: &str| xml.push_str(&format!("  <node name=\"{name}\"/>\n"));
        match &self.0.object {
            Object::Directory(name) => child(name),
            Object::Manager => child("task"),
            Object::Tasks => {
                let tasks = &self.0.snapshot().tasks;
                tasks.values().for_each(|task| child(&task.id.replace('-', "_")));
            }
            Object::Task(_) => {}
        }
        xml.push_str("</node>\n");
        xml
    }
}

pub(super) struct Properties(Call);

impl Properties {
    /// The interface with properties that `name` means, "" that of the object (D-Bus
    /// specification, "org.freedesktop.DBus.Properties"); `None`: a standard one, which has none.
    fn of(&self, name: &str) -> Result<Option<Box<dyn Interface>>, CallError> {
        let mut all = interfaces(&self.0);
        match all.iter().position(|(known, _)| name.is_empty() || *known == name) {
            Some(0) => Ok(Some(all.swap_remove(0).1)),
            Some(_) => Ok(None),
            None => Err(CallError::unknown_interface(format!(
                "the object has no properties of interface {}",
                shown(name)
            ))),
        }
    }

    async fn find(
        &self,
        interface: &str,
        property: &str,
    ) -> Result<fdo::Result<OwnedValue>, CallError> {
        let found = match self.of(interface)? {
            Some(interface) => self.0.server.bus.property(&*interface, property).await?,
            None => None,
        };
        found.ok_or_else(|| {
            CallError::unknown_property(format!(
                "no property {}; GetAll shows those there are",
                shown(property)
            ))
        })
    }
}

#[zbus::interface(name = "org.freedesktop.DBus.Properties", introspection_docs = false)]
impl Properties {
    #[zbus(out_args("value"))]
    async fn get(
        &self,
        interface_name: &str,
        property_name: &str,
    ) -> Result<OwnedValue, CallError> {
        self.find(interface_name, property_name).await?.map_err(|_| {
            let message = format!("{property_name} is not known");
            CommandError::new(ErrorKind::FailedPrecondition, message).into()
        })
    }

    #[zbus(out_args("props"))]
    async fn get_all(
        &self,
        interface_name: &str,
    ) -> Result<HashMap<String, OwnedValue>, CallError> {
        match self.of(interface_name)? {
            Some(interface) => self.0.server.bus.properties(&*interface).await,
            None => Ok(HashMap::new()),
        }
    }

    /// Wrong names come first: another member does not make them right.
    async fn set(
        &self,
        interface_name: &str,
        property_name: &str,
        value: Value<'_>,
    ) -> Result<(), CallError> {
        drop((self.find(interface_name, property_name).await?, value));
        Err(CallError::read_only(
            "properties of lrsd are read only; methods change things (SetPriority, Drain ...)",
        ))
    }

    #[zbus(signal)]
    pub async fn properties_changed(
        emitter: &SignalEmitter<'_>,
        interface_name: InterfaceName<'_>,
        changed_properties: HashMap<String, OwnedValue>,
        invalidated_properties: Vec<String>,
    ) -> zbus::Result<()>;
}

pub(super) struct ObjectManager(Call);

/// Interfaces and their properties.
pub(super) type Shown = HashMap<InterfaceName<'static>, HashMap<String, OwnedValue>>;

#[zbus::interface(name = "org.freedesktop.DBus.ObjectManager", introspection_docs = false)]
impl ObjectManager {
    #[zbus(out_args("objects"))]
    async fn get_managed_objects(&self) -> Result<HashMap<OwnedObjectPath, Shown>, CallError> {
        let mut objects = HashMap::new();
        for task in self.0.snapshot().tasks.values() {
            let path = ObjectPath::try_from(task_path(&task.id)).map_err(CallError::internal)?;
            objects.insert(path.into(), shown_task(&self.0.server.bus, task).await?);
            tokio::task::consume_budget().await;
        }
        limited(objects)
    }

    #[zbus(signal)]
    pub async fn interfaces_added(
        emitter: &SignalEmitter<'_>,
        object: ObjectPath<'_>,
        interfaces: Shown,
    ) -> zbus::Result<()>;

    #[zbus(signal)]
    pub async fn interfaces_removed(
        emitter: &SignalEmitter<'_>,
        object: ObjectPath<'_>,
        interfaces: Vec<InterfaceName<'_>>,
    ) -> zbus::Result<()>;
}

/// A task with its properties, as ObjectManager shows it.
pub(super) async fn shown_task(bus: &Bus, task: &Arc<proto::Task>) -> Result<Shown, CallError> {
    let task = Task { task: Arc::clone(task), call: None };
    Ok(HashMap::from([(Task::name(), bus.properties(&task).await?)]))
}

/// A name as a client wrote it, for an error: enough to know it again.
fn shown(name: &str) -> String {
    format!("{:?}", name.char_indices().nth(64).map_or(name, |(end, _)| &name[..end]))
}
