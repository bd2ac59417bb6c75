//! Between JSON, as `lrsctl --json` prints it, and the variants of D-Bus; and the reading of
//! options.
//!
//! Answers are made from the JSON shape of the contract's messages, so that they cannot drift
//! from what every other door shows: an object is `a{sv}`, null is an absent key, an integer
//! is `x` (`t` above its range), a number with a fraction `d`, a list of objects `aa{sv}`, of
//! texts `as` (as an empty list is), any other list `av`.
//!
//! Options are read leniently in width (any integer type that holds the value) and strictly
//! in everything else: a key nobody knows is an error, for it is a wish that would go unheard.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::Value as Json;
use zbus::zvariant::{Array, Dict, Signature, Value};

use crate::command::CommandError;
use crate::request::invalid;
use crate::units::WallTime;

/// The signature `a{sv}`.
fn dict_signature() -> Signature {
    Signature::dict(Signature::Str, Signature::Variant)
}

/// A message of the contract as `a{sv}`.
pub(super) fn message<T: serde::Serialize>(message: &T) -> Value<'static> {
    // The messages are maps of texts to plain values, which serde_json cannot fail on.
    dict(&serde_json::to_value(message).unwrap_or_default())
}

/// Messages of the contract as `aa{sv}`.
pub(super) fn messages<'a, T: serde::Serialize + 'a>(
    items: impl IntoIterator<Item = &'a T>,
) -> Value<'static> {
    list(&dict_signature(), items.into_iter().map(message))
}

/// An object as `a{sv}`; anything else as an empty one.
pub(super) fn dict(json: &Json) -> Value<'static> {
    let mut dict = Dict::new(&Signature::Str, &Signature::Variant);
    for (key, value) in json.as_object().into_iter().flatten() {
        if let Some(value) = variant(value) {
            let added = dict.append(Value::from(key.clone()), Value::Value(Box::new(value)));
            debug_assert!(added.is_ok(), "{key}: {added:?}");
        }
    }
    Value::Dict(dict)
}

fn list(element: &Signature, items: impl IntoIterator<Item = Value<'static>>) -> Value<'static> {
    let mut array = Array::new(element);
    for item in items {
        let added = array.append(item);
        debug_assert!(added.is_ok(), "{added:?}");
    }
    Value::Array(array)
}

fn variant(json: &Json) -> Option<Value<'static>> {
    Some(match json {
        Json::Null => return None,
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), _, _) => Value::from(value),
            (None, Some(value), _) => Value::from(value),
            (None, None, value) => Value::from(value?),
        },
        Json::String(text) => Value::from(text.clone()),
        Json::Array(items) if items.iter().all(Json::is_string) => {
            list(&Signature::Str, items.iter().filter_map(variant))
        }
        Json::Array(items) if items.iter().all(Json::is_object) => {
            list(&dict_signature(), items.iter().map(dict))
        }
        Json::Array(items) => {
            let boxed = items.iter().filter_map(variant).map(|item| Value::Value(Box::new(item)));
            list(&Signature::Variant, boxed)
        }
        Json::Object(_) => dict(json),
    })
}

/// `a{sv}` as a client sent it. The bus lets a key stand there twice, of which a map would
/// quietly take the last.
pub(super) struct Given<'m> {
    values: HashMap<String, Value<'m>>,
    twice: Option<String>,
}

impl zbus::zvariant::Type for Given<'_> {
    const SIGNATURE: &'static Signature = <HashMap<&str, Value<'_>>>::SIGNATURE;
}

impl<'m> serde::Deserialize<'m> for Given<'m> {
    fn deserialize<D: serde::Deserializer<'m>>(deserializer: D) -> Result<Given<'m>, D::Error> {
        struct Entries;
        impl<'m> serde::de::Visitor<'m> for Entries {
            type Value = Given<'m>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("options (a{sv})")
            }

            fn visit_map<A: serde::de::MapAccess<'m>>(
                self,
                mut map: A,
            ) -> Result<Given<'m>, A::Error> {
                let mut given = Given { values: HashMap::new(), twice: None };
                while let Some((name, value)) = map.next_entry::<String, Value<'m>>()? {
                    match given.values.entry(name) {
                        Entry::Vacant(place) => {
                            place.insert(value);
                        }
                        Entry::Occupied(first) => given.twice = Some(first.key().clone()),
                    }
                }
                Ok(given)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Options of one call, taken one by one; [`Options::finish`] refuses what is left.
pub(super) struct Options<'m> {
    given: HashMap<String, Value<'m>>,
    known: Vec<&'static str>,
}

impl<'m> Options<'m> {
    /// # Errors
    /// InvalidArgument when one is given twice.
    pub(super) fn new(given: Given<'m>) -> Result<Options<'m>, CommandError> {
        match given.twice {
            None => Ok(Options { given: given.values, known: Vec::new() }),
            Some(name) => {
                Err(invalid(format!("option {:?} is given twice; leave one out", excerpt(&name))))
            }
        }
    }

    fn take(&mut self, name: &'static str) -> Option<Value<'m>> {
        self.known.push(name);
        match self.given.remove(name)? {
            Value::Value(inner) => Some(*inner),
            value => Some(value),
        }
    }

    /// A text (`s`).
    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<String>, CommandError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Str(text)) => Ok(Some(text.as_str().to_owned())),
            Some(other) => Err(wrong_type(name, &other, "a text (s)")),
        }
    }

    /// A truth value (`b`); absent is false.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<bool, CommandError> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(wrong_type(name, &other, "true or false (b)")),
        }
    }

    /// A whole number of any width that fits `T`; `natural` names T's own type.
    pub(super) fn integer<T: TryFrom<i128>>(
        &mut self,
        name: &'static str,
        natural: &str,
    ) -> Result<Option<T>, CommandError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let Some(number) = whole(&value) else {
            return Err(wrong_type(name, &value, &format!("a whole number ({natural})")));
        };
        match T::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(invalid(format!(
                "option {name} is {number}, which is out of the range of its type {natural}"
            ))),
        }
    }

    /// A number, with or without a fraction.
    pub(super) fn number(&mut self, name: &'static str) -> Result<Option<f64>, CommandError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::F64(number)) => Ok(Some(number)),
            Some(value) => match whole(&value) {
                Some(number) => Ok(Some(number as f64)),
                None => Err(wrong_type(name, &value, "a number (d)")),
            },
        }
    }

    /// A time as RFC 3339 (`s`).
    pub(super) fn time(&mut self, name: &'static str) -> Result<Option<WallTime>, CommandError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        // What the parser says repeats the text, whatever its length.
        text.parse().map(Some).map_err(|_| {
            invalid(format!(
                "option {name} is {:?}, no RFC 3339 time; write it as \
                 2026-01-02T03:04:05Z",
                excerpt(&text)
            ))
        })
    }

    /// Refuses what nobody asked for.
    pub(super) fn finish(self) -> Result<(), CommandError> {
        let mut unknown: Vec<&String> = self.given.keys().collect();
        unknown.sort();
        match unknown.first() {
            None => Ok(()),
            Some(name) => Err(invalid(format!(
                "unknown option {:?}; this call takes {}",
                excerpt(name),
                self.known.join(", ")
            ))),
        }
    }
}

/// Enough of a client's text to know it again; a message may hold 64 KiB of it.
pub(super) fn excerpt(text: &str) -> &str {
    text.char_indices().nth(64).map_or(text, |(end, _)| &text[..end])
}

fn whole(value: &Value<'_>) -> Option<i128> {
    Some(match value {
        Value::U8(number) => i128::from(*number),
        Value::I16(number) => i128::from(*number),
        Value::U16(number) => i128::from(*number),
        Value::I32(number) => i128::from(*number),
        Value::U32(number) => i128::from(*number),
        Value::I64(number) => i128::from(*number),
        Value::U64(number) => i128::from(*number),
        _ => return None,
    })
}

fn wrong_type(name: &str, found: &Value<'_>, wanted: &str) -> CommandError {
    invalid(format!("option {name} has the type {}; it must be {wanted}", found.value_signature()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::command::ErrorKind;

    #[test]
    fn json_becomes_variants() {
        let signature =
            |json: Json| variant(&json).map(|value| value.value_signature().to_string());
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
        let Value::Dict(dict) = dict(&json!({"a": null, "b": 1})) else { panic!("no dict") };
        assert_eq!(dict.iter().count(), 1, "null is absent");
    }

    fn options(name: &str, value: impl Into<Value<'static>>) -> Options<'static> {
        let values = HashMap::from([(name.to_owned(), value.into())]);
        Options { given: values, known: Vec::new() }
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
        let (once, twice) = (entries(&["a", "b"]), entries(&["a", "b", "a"]));
        assert!(Options::new(once.deserialize().unwrap().0).is_ok());
        let error = Options::new(twice.deserialize().unwrap().0).err().unwrap();
        assert!(error.message.contains("option \"a\" is given twice"), "{error}");
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
            assert_eq!(options("n", value).integer::<i32>("n", "i").unwrap(), Some(5));
        }
        let error = options("n", u64::MAX).integer::<i32>("n", "i").unwrap_err();
        assert!(error.message.contains("out of the range of its type i"), "{error}");
        assert!(options("n", -1i32).integer::<u64>("n", "t").is_err());
    }

    #[test]
    fn a_wrong_type_or_key_is_named() {
        for (error, words) in [
            (options("name", 1u32).text("name").unwrap_err(), "option name has the type u"),
            (options("in_place", "yes").flag("in_place").unwrap_err(), "true or false (b)"),
            (options("n", "1").integer::<i32>("n", "i").unwrap_err(), "a whole number (i)"),
            (options("r", "1").number("r").unwrap_err(), "a number (d)"),
            (options("at", "noon").time("at").unwrap_err(), "RFC 3339"),
            (options("nam", "x").finish().unwrap_err(), "unknown option \"nam\""),
        ] {
            assert_eq!(error.kind, ErrorKind::InvalidArgument);
            assert!(error.message.contains(words), "{error}");
        }
    }
}
