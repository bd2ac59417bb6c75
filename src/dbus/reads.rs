//! Reading calls, answered from the newest snapshot and the kept events. They never wait; some
//! take long over many tasks ([`is_large`]).

use std::sync::Arc;

use zbus::message::Message;
use zbus::zvariant::Value;

use super::contract::Read;
use super::dispatch::Door;
use super::error::CallError;
use super::objects::{self, Object, Table};
use super::reply::Answer;
use super::value::{self, Given, Options};
use super::{arguments, from, introspect, properties};
use crate::command::{CommandError, ErrorKind};
use crate::publish::Snapshot;
use crate::{proto, query};

/// Most events in one answer.
const MAX_EVENTS: usize = 1000;

/// Whether the answer can hold every task, every job or very many events.
pub(super) fn is_large(read: Read, object: &Object) -> bool {
    match read {
        Read::GetManagedObjects
        | Read::ListTasks
        | Read::ListJobs
        | Read::Events
        | Read::GetYarn => true,
        Read::Introspect => matches!(object, Object::Tasks),
        Read::Ping
        | Read::GetMachineId
        | Read::Get
        | Read::GetAll
        | Read::Set
        | Read::GetStatus
        | Read::GetTask
        | Read::GetConfig
        | Read::Explain
        | Read::EvaluateJob => false,
    }
}

impl Door {
    /// Answers a reading call.
    pub(super) fn read(&self, read: Read, message: &Message, object: &Object) -> Answer {
        let snapshot = self.snapshot();
        match read {
            Read::Ping => Ok(Vec::new()),
            Read::GetMachineId => machine_id(),
            Read::Introspect => Ok(vec![Value::from(introspection(object, &snapshot))]),
            Read::Get => get(message, object, &snapshot),
            Read::GetAll => get_all(message, object, &snapshot),
            Read::Set => set(message, object),
            Read::GetManagedObjects => Ok(vec![objects::managed(&snapshot)]),
            Read::GetStatus => Ok(vec![value::message(&*snapshot.status)]),
            Read::GetTask => {
                let id: String = arguments(message)?;
                Ok(vec![value::message(&*query::task(&snapshot, &id)?)])
            }
            Read::ListTasks => {
                Ok(vec![value::messages(snapshot.tasks.values().map(|task| &**task))])
            }
            Read::ListJobs => Ok(vec![value::messages(snapshot.jobs.iter())]),
            Read::GetConfig => Ok(vec![Value::from(snapshot.config_toml.to_string())]),
            Read::Explain => match object {
                Object::Task(task) => self.explain(&task.id),
                _ => self.explain(&arguments::<String>(message)?),
            },
            Read::EvaluateJob => {
                let body = message.body();
                let question = evaluate_request(from(&body)?)?;
                Ok(vec![value::message(&query::evaluate(&snapshot, question)?)])
            }
            Read::Events => self.events(message),
            Read::GetYarn => Ok(vec![value::message(&query::yarn(&snapshot))]),
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.access.snapshot.borrow())
    }

    fn events(&self, message: &Message) -> Answer {
        let (since, limit): (u64, u32) = arguments(message)?;
        let limit = match limit as usize {
            0 => MAX_EVENTS,
            limit => limit.min(MAX_EVENTS),
        };
        let page = self.access.events.read(since, limit);
        let events: Vec<_> = page.events.iter().map(|event| query::event(event)).collect();
        Ok(vec![value::messages(&events), Value::from(page.lost)])
    }

    fn explain(&self, id: &str) -> Answer {
        let told = query::explain(&self.access, id)?;
        Ok(vec![value::messages(&told.events), Value::from(told.truncated)])
    }
}

fn introspection(object: &Object, snapshot: &Snapshot) -> String {
    match object {
        Object::Directory(child) => introspect::directory([(*child).to_owned()]),
        Object::Manager => introspect::manager(),
        Object::Tasks => {
            introspect::directory(snapshot.tasks.values().map(|task| task.id.replace('-', "_")))
        }
        Object::Task(_) => introspect::task(),
    }
}

fn get(message: &Message, object: &Object, snapshot: &Snapshot) -> Answer {
    let (interface, name): (String, String) = arguments(message)?;
    let value = match objects::of_interface(object, &interface)? {
        Table::Manager => objects::get(properties::MANAGER, &snapshot.status, &name),
        Table::Task(task) => objects::get(properties::TASK, &task, &name),
        Table::Empty => Err(objects::no_property(&name)),
    }?;
    Ok(vec![Value::Value(Box::new(value))])
}

fn get_all(message: &Message, object: &Object, snapshot: &Snapshot) -> Answer {
    let interface: String = arguments(message)?;
    Ok(vec![objects::dict(match objects::of_interface(object, &interface)? {
        Table::Manager => properties::all(properties::MANAGER, &snapshot.status),
        Table::Task(task) => properties::all(properties::TASK, &task),
        Table::Empty => properties::Values::new(),
    })])
}

/// What is wrong with the call comes first: a wrong name is not made right by another member.
fn set(message: &Message, object: &Object) -> Answer {
    let body = message.body();
    let (interface, name, _): (String, String, Value<'_>) = from(&body)?;
    objects::of_interface(object, &interface)?.check(&name)?;
    Err(CallError::read_only(
        "properties of lrsd are read only; methods change things (SetPriority, Drain ...)",
    ))
}

fn evaluate_request(options: Given<'_>) -> Result<proto::EvaluateJobRequest, CommandError> {
    let mut options = Options::new(options)?;
    let request = proto::EvaluateJobRequest {
        job: options.text("job")?,
        kind: options.text("kind")?,
        computing_rate: options.number("computing_rate")?,
        mean_computing_rate: options.number("mean_computing_rate")?,
    };
    options.finish()?;
    Ok(request)
}

/// As libdbus has it: machine-id(5), or the older file of D-Bus itself.
fn machine_id() -> Answer {
    let read = |path: &str| std::fs::read_to_string(path).map(|id| id.trim().to_owned());
    match read("/etc/machine-id").or_else(|_| read("/var/lib/dbus/machine-id")) {
        Ok(id) => Ok(vec![Value::from(id)]),
        Err(error) => Err(CommandError::new(
            ErrorKind::Unavailable,
            format!("cannot read /etc/machine-id: {error}"),
        )
        .into()),
    }
}
