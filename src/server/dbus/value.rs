//! Between JSON, as `lrsctl --json` prints it, and the variants of D-Bus.
//!
//! Answers are made from the JSON shape of the contract's messages, so that they cannot differ
//! from what the other transports show: an object is `a{sv}`, null is an absent key, an integer
//! is `x` (`t` above its range), a number with a fraction `d`, a list of objects `aa{sv}`, of
//! texts `as` (as an empty list is), any other list `av`.
//!
//! Options of a call are read by serde. An integer may have any type that holds it; a key that
//! the call does not know, or that is given twice, is an error.

use std::collections::HashMap;

use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value as Json};
use zbus::zvariant::{Signature, Type, Value};

use crate::command::CommandError;
use crate::server::request::invalid;

/// `a{sv}`.
pub(super) type Dict = HashMap<String, Value<'static>>;

/// A message of the contract.
pub(super) fn message<T: serde::Serialize>(message: &T) -> Dict {
    // The messages are maps of texts to plain values, on which serde_json cannot fail.
    dict(serde_json::to_value(message).unwrap_or_default())
}

/// An object; anything else is an empty one.
pub(super) fn dict(json: Json) -> Dict {
    let Json::Object(object) = json else { return Dict::new() };
    object.into_iter().filter_map(|(name, value)| Some((name, variant(value)?))).collect()
}

fn variant(json: Json) -> Option<Value<'static>> {
    Some(match json {
        Json::Null => return None,
        Json::Bool(value) => value.into(),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => value.into(),
            (None, Some(value)) => value.into(),
            (None, None) => number.as_f64()?.into(),
        },
        Json::String(text) => text.into(),
        Json::Array(items) if items.iter().all(Json::is_string) => {
            let text = |item: Json| item.as_str().map(str::to_owned);
            items.into_iter().filter_map(text).collect::<Vec<_>>().into()
        }
        Json::Array(items) if items.iter().all(Json::is_object) => {
            items.into_iter().map(dict).collect::<Vec<_>>().into()
        }
        Json::Array(items) => items.into_iter().filter_map(variant).collect::<Vec<_>>().into(),
        Json::Object(_) => dict(json).into(),
    })
}

/// Options of a call, `a{sv}`.
#[derive(Debug, Default)]
pub(super) struct Options {
    given: Map<String, Json>,
    /// D-Bus lets a key stand there twice; a map would keep the last without a word.
    twice: Option<String>,
}

impl Options {
    /// # Errors
    /// InvalidArgument that names the option.
    pub(super) fn read<T: DeserializeOwned>(self) -> Result<T, CommandError> {
        if let Some(name) = self.twice {
            return Err(invalid(format!("option {name:?} is given twice; leave one out")));
        }
        // serde does not say which key a fault is in. Every option may be absent, so each can be
        // read alone.
        for (name, value) in &self.given {
            let alone = Json::Object([(name.clone(), value.clone())].into_iter().collect());
            serde_json::from_value::<T>(alone)
                .map_err(|error| invalid(format!("option {name:?}: {error}")))?;
        }
        serde_json::from_value(Json::Object(self.given)).map_err(|e| invalid(e.to_string()))
    }
}

impl Type for Options {
    const SIGNATURE: &'static Signature = Dict::SIGNATURE;
}

impl<'m> serde::Deserialize<'m> for Options {
    fn deserialize<D: Deserializer<'m>>(deserializer: D) -> Result<Options, D::Error> {
        struct Entries;
        impl<'m> Visitor<'m> for Entries {
            type Value = Options;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("options (a{sv})")
            }

            fn visit_map<A: MapAccess<'m>>(self, mut map: A) -> Result<Options, A::Error> {
                let mut options = Options::default();
                while let Some((name, value)) = map.next_entry::<String, Value<'m>>()? {
                    if options.given.insert(name.clone(), json(&value)).is_some() {
                        options.twice = Some(name);
                    }
                }
                Ok(options)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// What no option is (a list, a path, a descriptor) becomes a list, which serde refuses.
fn json(value: &Value<'_>) -> Json {
    match value {
        Value::Value(inner) => json(inner),
        Value::Bool(value) => (*value).into(),
        Value::U8(number) => (*number).into(),
        Value::I16(number) => (*number).into(),
        Value::U16(number) => (*number).into(),
        Value::I32(number) => (*number).into(),
        Value::U32(number) => (*number).into(),
        Value::I64(number) => (*number).into(),
        Value::U64(number) => (*number).into(),
        Value::F64(number) => (*number).into(),
        Value::Str(text) => text.as_str().into(),
        other => Json::Array(vec![other.value_signature().to_string().into()]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::command::ErrorKind;

    #[test]
    fn json_becomes_variants() {
        let signature = |json: Json| variant(json).map(|value| value.value_signature().to_string());
        for (json, expected) in [
            (json!(null), None),
            (json!(true), Some("b")),
            (json!(-3), Some("x")),
            (json!(u64::MAX), Some("t")),
            (json!(0.5), Some("d")),
            (json!("a"), Some("s")),
            (json!(["a", "b"]), Some("as")),
            (json!([]), Some("as")),
            (json!([{"a": 1}, {}]), Some("aa{sv}")),
            (json!([1, "a", null]), Some("av")),
            (json!({"a": null, "b": {"c": 1}}), Some("a{sv}")),
        ] {
            assert_eq!(signature(json.clone()).as_deref(), expected, "{json}");
        }
        assert_eq!(dict(json!({"a": null, "b": 1})).len(), 1, "null is absent");
    }

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Known {
        n: Option<i32>,
        big: u64,
        name: Option<String>,
        flag: bool,
        rate: Option<f64>,
    }

    fn read(name: &str, value: impl Into<Value<'static>>) -> Result<Known, CommandError> {
        let given = [(name.to_owned(), json(&value.into()))].into_iter().collect();
        Options { given, twice: None }.read()
    }

    #[test]
    fn an_option_given_twice_is_refused() {
        use zbus::zvariant::{Endian, serialized::Context, to_bytes};
        // A list of entries has the encoding of a dictionary and may repeat a key.
        let entries = |keys: &[&'static str]| {
            let pairs: Vec<(&str, Value<'_>)> =
                keys.iter().map(|key| (*key, Value::from(1u32))).collect();
            to_bytes(Context::new_dbus(Endian::Little, 0), &pairs).unwrap()
        };
        let (once, twice) = (entries(&["n", "big"]), entries(&["n", "big", "n"]));
        let given = |bytes: &zbus::zvariant::serialized::Data<'_, '_>| {
            bytes.deserialize::<Options>().unwrap().0
        };
        assert_eq!(given(&once).read::<Known>().unwrap().n, Some(1));
        let error = given(&twice).read::<Known>().unwrap_err();
        assert!(error.message.contains("option \"n\" is given twice"), "{error}");
    }

    #[test]
    fn integers_of_any_width_are_taken_if_in_range() {
        for value in [
            Value::from(5u8),
            Value::from(5i16),
            Value::from(5u16),
            Value::from(5i32),
            Value::from(5u32),
            Value::from(5i64),
            Value::from(5u64),
            Value::Value(Box::new(Value::from(5u32))),
        ] {
            assert_eq!(read("n", value).unwrap().n, Some(5));
        }
        assert_eq!(read("rate", 1u32).unwrap().rate, Some(1.0));
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (error, words) in [
            (read("name", 1u32), "option \"name\": invalid type: integer `1`"),
            (read("flag", "yes"), "option \"flag\": invalid type: string \"yes\""),
            (read("n", "1"), "option \"n\": invalid type"),
            (read("n", u64::MAX), "option \"n\": invalid value"),
            (read("big", -1i32), "option \"big\": invalid value: integer `-1`"),
            (read("rate", "1"), "option \"rate\": invalid type"),
            (read("name", vec![1u32]), "option \"name\": invalid type"),
            (read("nam", "x"), "unknown field `nam`, expected one of `n`, `big`"),
        ] {
            let error = error.unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidArgument);
            assert!(error.message.contains(words), "{error}");
        }
    }
}
