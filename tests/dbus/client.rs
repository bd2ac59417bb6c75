//! A client of the server, as a stranger to the crate would write it.

use std::collections::HashMap;

use serde_json::{Value as Json, json};
use tokio_stream::StreamExt as _;
use zbus::message::{Message, Type};
use zbus::zvariant::{DynamicType, OwnedValue, Value};
use zbus::{Connection, MessageStream};

pub const NAME: &str = "org.lrs.Shaper1";
pub const PATH: &str = "/org/lrs/Shaper1";
pub const MANAGER: &str = "org.lrs.Shaper1.Manager";
pub const TASK: &str = "org.lrs.Shaper1.Task";
pub const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
pub const ERROR: &str = "org.lrs.Shaper1.Error.";

pub use crate::played::soon;

/// A call of any member; the reply, or name and message of the error (AlreadyExists with the id
/// of the task behind its name).
pub async fn call<B: serde::Serialize + DynamicType>(
    bus: &Connection,
    path: &str,
    interface: &str,
    member: &str,
    body: &B,
) -> Result<Message, (String, String)> {
    match soon(bus.call_method(Some(NAME), path, Some(interface), member, body)).await {
        Ok(reply) => Ok(reply),
        Err(zbus::Error::MethodError(name, message, reply)) => {
            let message = message.unwrap_or_default();
            if name.as_str() == format!("{ERROR}AlreadyExists") {
                let (_, task): (String, String) = reply.body().deserialize().unwrap();
                return Err((format!("{name} {task}"), message));
            }
            assert_eq!(reply.body().signature().to_string_no_parens(), "s", "{name}");
            Err((name.to_string(), message))
        }
        Err(error) => panic!("{member}: {error}"),
    }
}

/// A method of the manager.
pub async fn manager<B: serde::Serialize + DynamicType>(
    bus: &Connection,
    member: &str,
    body: &B,
) -> Result<Message, (String, String)> {
    call(bus, PATH, MANAGER, member, body).await
}

/// One property.
pub async fn get(bus: &Connection, path: &str, interface: &str, name: &str) -> Json {
    let reply = call(bus, path, PROPERTIES, "Get", &(interface, name)).await.unwrap();
    plain(&reply.body().deserialize::<OwnedValue>().unwrap())
}

/// All properties of an interface as JSON.
pub async fn all(bus: &Connection, path: &str, interface: &str) -> Json {
    let reply = call(bus, path, PROPERTIES, "GetAll", &(interface,)).await.unwrap();
    map(&reply)
}

/// The only argument of a reply, `a{sv}`, as JSON.
pub fn map(reply: &Message) -> Json {
    let body = reply.body();
    let map: HashMap<String, Value<'_>> = body.deserialize().unwrap();
    Json::Object(map.into_iter().map(|(key, value)| (key, plain(&value))).collect())
}

/// A list of `a{sv}` as JSON.
pub fn maps(list: &[HashMap<String, Value<'_>>]) -> Json {
    let object = |map: &HashMap<String, Value<'_>>| {
        Json::Object(map.iter().map(|(key, value)| (key.clone(), plain(value))).collect())
    };
    list.iter().map(object).collect()
}

/// A variant as JSON.
pub fn plain(value: &Value<'_>) -> Json {
    match value {
        Value::Value(inner) => plain(inner),
        Value::Bool(value) => json!(value),
        Value::I32(value) => json!(value),
        Value::U32(value) => json!(value),
        Value::I64(value) => json!(value),
        Value::U64(value) => json!(value),
        Value::F64(value) => json!(value),
        Value::Str(value) => json!(value.as_str()),
        Value::ObjectPath(value) => json!(value.as_str()),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Dict(dict) => {
            let text = |key: &Value<'_>| plain(key).as_str().unwrap().to_owned();
            Json::Object(dict.iter().map(|(key, value)| (text(key), plain(value))).collect())
        }
        other => panic!("no type of this interface: {other:?}"),
    }
}

/// No options.
pub fn none() -> HashMap<&'static str, Value<'static>> {
    HashMap::new()
}

/// Options.
pub fn with<const N: usize>(
    options: [(&'static str, Value<'static>); N],
) -> HashMap<&'static str, Value<'static>> {
    HashMap::from(options)
}

/// The introspection document of an object.
pub async fn introspect(bus: &Connection, path: &str) -> String {
    let interface = "org.freedesktop.DBus.Introspectable";
    let reply = call(bus, path, interface, "Introspect", &()).await.unwrap();
    reply.body().deserialize().unwrap()
}

/// The types of a signal, or of a method's reply, as an introspection document has them.
pub fn described(xml: &str, interface: &str, kind: &str, member: &str) -> String {
    let after = |text: &str, start: String| {
        text.split_once(&start).unwrap_or_else(|| panic!("no {start} in {xml}")).1.to_owned()
    };
    let inside = after(xml, format!("<interface name=\"{interface}\">"));
    let inside = inside.split_once("</interface>").unwrap().0;
    let inside = after(inside, format!("<{kind} name=\"{member}\""));
    if inside.starts_with("/>") {
        return String::new();
    }
    let inside = inside.split_once(&format!("</{kind}>")).unwrap().0;
    let arguments =
        inside.split("<arg ").skip(1).map(|argument| argument.split_once('>').unwrap().0);
    arguments
        .filter(|argument| !argument.contains("direction=\"in\""))
        .map(|argument| after(argument, "type=\"".into()).split_once('"').unwrap().0.to_owned())
        .collect()
}

/// Everything lrsd tells, in order.
pub struct Signals {
    stream: MessageStream,
    /// The manager's introspection: every signal has the types described there.
    xml: String,
}

/// A signal: member, path, arguments as JSON.
#[derive(Clone, Debug)]
pub struct Signal {
    pub member: String,
    pub path: String,
    pub body: Json,
}

impl Signals {
    pub async fn listen(bus: &Connection) -> Signals {
        let stream = MessageStream::from(bus);
        let rule = format!("type='signal',sender='{NAME}'");
        bus.call_method(
            Some("org.freedesktop.DBus"),
            "/org/freedesktop/DBus",
            Some("org.freedesktop.DBus"),
            "AddMatch",
            &(rule,),
        )
        .await
        .unwrap();
        Signals { stream, xml: introspect(bus, PATH).await }
    }

    pub async fn next(&mut self) -> Signal {
        loop {
            let message = soon(self.stream.next()).await.unwrap().unwrap();
            let header = message.header();
            let path = header.path().map(|path| path.to_string()).unwrap_or_default();
            if message.message_type() != Type::Signal || !path.starts_with(PATH) {
                continue;
            }
            let member = header.member().unwrap().to_string();
            let body = message.body();
            let types = body.signature().to_string_no_parens();
            let interface = header.interface().unwrap().as_str();
            assert_eq!(types, described(&self.xml, interface, "signal", &member), "{member}");
            let fields: zbus::zvariant::Structure<'_> = body.deserialize().unwrap();
            let body = fields.fields().iter().map(plain).collect();
            return Signal { member, path, body };
        }
    }

    /// Reads on until one with this name.
    pub async fn until(&mut self, member: &str) -> Signal {
        loop {
            let signal = self.next().await;
            if signal.member == member {
                return signal;
            }
        }
    }
}
