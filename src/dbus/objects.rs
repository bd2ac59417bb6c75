//! What a path names, and how objects are shown.

use std::sync::Arc;

use zbus::zvariant::{Dict, ObjectPath, Signature, Value};

use super::contract::{INTROSPECTABLE, OBJECT_MANAGER, PEER, PROPERTIES};
use super::contract::{MANAGER, MANAGER_PATH, TASK, TASKS_PATH};
use super::error::CallError;
use super::properties::{self, Property};
use crate::command::{CommandError, ErrorKind};
use crate::core::model::TaskId;
use crate::proto;
use crate::publish::Snapshot;

/// What a path names.
#[derive(Clone, Debug)]
pub(super) enum Object {
    /// Only on the way to the others; the name of its child.
    Directory(&'static str),
    Manager,
    /// The parent of all tasks.
    Tasks,
    Task(Arc<proto::Task>),
}

impl Object {
    pub(super) fn at(path: &str, snapshot: &Snapshot) -> Option<Object> {
        match path {
            "/" => return Some(Object::Directory("org")),
            "/org" => return Some(Object::Directory("lrs")),
            "/org/lrs" => return Some(Object::Directory("Shaper1")),
            MANAGER_PATH => return Some(Object::Manager),
            TASKS_PATH => return Some(Object::Tasks),
            _ => {}
        }
        let name = path.strip_prefix(TASKS_PATH)?.strip_prefix('/')?;
        let id: TaskId = name.replace('_', "-").parse().ok()?;
        // One path for each task: what only reads like its name is none.
        let task = snapshot.tasks.get(&id).filter(|_| path == task_path(&id.to_string()))?;
        Some(Object::Task(Arc::clone(task)))
    }

    /// Whether calls of `interface` are answered.
    pub(super) fn serves(&self, interface: &str) -> bool {
        [PEER, INTROSPECTABLE].contains(&interface) || self.has(interface)
    }

    /// Interfaces beside Peer and Introspectable.
    fn has(&self, interface: &str) -> bool {
        match self {
            Object::Directory(_) | Object::Tasks => false,
            Object::Manager => [PROPERTIES, OBJECT_MANAGER, MANAGER].contains(&interface),
            Object::Task(_) => [PROPERTIES, TASK].contains(&interface),
        }
    }
}

/// The path of a task. Ids are `[a-z0-9-]`, paths have no `-`.
pub(super) fn task_path(id: &str) -> String {
    format!("{TASKS_PATH}/{}", id.replace('-', "_"))
}

/// Which table an interface's properties stand in.
pub(super) enum Table {
    Manager,
    Task(Arc<proto::Task>),
    /// A standard interface: it has none.
    Empty,
}

/// The properties of `interface`; "" is whichever the object has (D-Bus specification,
/// "org.freedesktop.DBus.Properties").
pub(super) fn of_interface(object: &Object, interface: &str) -> Result<Table, CallError> {
    match object {
        Object::Manager if ["", MANAGER].contains(&interface) => Ok(Table::Manager),
        Object::Task(task) if ["", TASK].contains(&interface) => Ok(Table::Task(Arc::clone(task))),
        _ if object.serves(interface) => Ok(Table::Empty),
        _ => Err(CallError::unknown_interface(format!(
            "the object has no properties of interface {}",
            shown(interface)
        ))),
    }
}

impl Table {
    /// Whether there is such a property.
    pub(super) fn check(&self, name: &str) -> Result<(), CallError> {
        let has = match self {
            Table::Manager => properties::MANAGER.iter().any(|property| property.name == name),
            Table::Task(_) => properties::TASK.iter().any(|property| property.name == name),
            Table::Empty => false,
        };
        if has { Ok(()) } else { Err(no_property(name)) }
    }
}

pub(super) fn get<T>(
    table: &[Property<T>],
    of: &T,
    name: &str,
) -> Result<Value<'static>, CallError> {
    let property =
        table.iter().find(|property| property.name == name).ok_or_else(|| no_property(name))?;
    (property.value)(of).ok_or_else(|| {
        CommandError::new(ErrorKind::FailedPrecondition, format!("{name} is not known")).into()
    })
}

pub(super) fn no_property(name: &str) -> CallError {
    CallError::unknown_property(format!(
        "no property {}; GetAll shows those there are",
        shown(name)
    ))
}

/// A name as a client wrote it, for an error.
fn shown(name: &str) -> String {
    format!("{:?}", super::value::excerpt(name))
}

/// Property values as `a{sv}`.
pub(super) fn dict(values: properties::Values) -> Value<'static> {
    let mut dict = Dict::new(&Signature::Str, &Signature::Variant);
    for (name, value) in values {
        let added = dict.append(Value::from(name), Value::Value(Box::new(value)));
        debug_assert!(added.is_ok(), "{name}: {added:?}");
    }
    Value::Dict(dict)
}

pub(super) fn object_path(id: &str) -> Result<Value<'static>, CallError> {
    let path = ObjectPath::try_from(task_path(id)).map_err(|error| {
        CommandError::new(ErrorKind::Internal, format!("task {id} has no object path: {error}"))
    })?;
    Ok(Value::ObjectPath(path))
}

/// The interfaces of a task with their properties, as `a{sa{sv}}`.
pub(super) fn interfaces(task: &proto::Task) -> Value<'static> {
    let properties = Signature::dict(Signature::Str, Signature::Variant);
    let mut interfaces = Dict::new(&Signature::Str, &properties);
    let all = dict(properties::all(properties::TASK, task));
    let added = interfaces.append(Value::from(TASK), all);
    debug_assert!(added.is_ok(), "{added:?}");
    Value::Dict(interfaces)
}

/// All tasks as `a{oa{sa{sv}}}`.
pub(super) fn managed(snapshot: &Snapshot) -> Value<'static> {
    let properties = Signature::dict(Signature::Str, Signature::Variant);
    let interface = Signature::dict(Signature::Str, properties);
    let mut objects = Dict::new(&Signature::ObjectPath, &interface);
    for task in snapshot.tasks.values() {
        if let Ok(path) = object_path(&task.id) {
            let added = objects.append(path, interfaces(task));
            debug_assert!(added.is_ok(), "{}: {added:?}", task.id);
        }
    }
    Value::Dict(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_one_task_and_nothing_else() {
        let id = TaskId { epoch: 1, number: 2 };
        let mut snapshot = Snapshot::default();
        snapshot.tasks.insert(id, Arc::default());
        let at = |path: &str| Object::at(path, &snapshot);
        let path = task_path(&id.to_string());
        assert!(matches!(at(&path), Some(Object::Task(_))), "{path}");
        assert!(matches!(at(MANAGER_PATH), Some(Object::Manager)));
        assert!(matches!(at(TASKS_PATH), Some(Object::Tasks)));
        for other in ["/org/lrs/Shaper1/task/t0000001_3", "/org/lrs/Shaper1/task/x", "/org/lrs/S"] {
            assert!(at(other).is_none(), "{other}");
        }
        assert!(at(&path.replace("t0000001", "t1")).is_none());
    }
}
