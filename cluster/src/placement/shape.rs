//! The shape of the file of [`crate::placement::input`]: which fields there are, and of which kind.
//!
//! The form is that of `cluster/input.schema.json`, which is in the program, so that what others check a
//! file with is what is checked here. All faults are found at once, each with its place; what belongs
//! there is the schema's own description. A field that is not in the schema is a warning and not a fault:
//! a file of a later program with the same `version` is read by an earlier one.
//!
//! Of the schema's words those are read that it uses: `$ref`, `anyOf` with null, `type`, `enum`,
//! `properties`, `required`, `items`, and `format` for what a whole number can be. Other bounds are for
//! readers of the schema: [`crate::placement::check`] has them, with all else that is about more than one
//! field. The whole file is in memory twice for a moment. A field that is written twice is a fault, and
//! ends the reading.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

use crate::placement::fault::{Collected, Fault, Faults, MOST};
use crate::placement::input::{ClusterInput, VERSION};

/// Most numbers, texts, lists and objects of a file: each takes up to 100 bytes of memory. A cluster of
/// 10,000 nodes and 100,000 tasks has a million.
const MOST_VALUES: usize = 5_000_000;

/// The JSON Schema of the input, as text.
pub const SCHEMA: &str = include_str!("../../input.schema.json");

static FORM: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(SCHEMA).unwrap_or(Value::Null));

/// Reads a file, and says which of its fields are not known.
///
/// # Errors
/// With everything in it that has another shape.
pub fn read(json: &[u8]) -> Result<(ClusterInput, Vec<String>), Faults> {
    let whole = |what: String| Faults(vec![Fault { at: "the file".into(), what }]);
    let mut json = serde_json::Deserializer::from_slice(json);
    let room = Cell::new(MOST_VALUES);
    let parsed = Once(&room).deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    let mut value = parsed.map_err(|error| whole(no_json(&error)))?;
    if let Some(version) = value.get("version").filter(|version| **version != VERSION) {
        let what = format!(
            "{}; this program reads version {VERSION}, other programs write other versions",
            found(version)
        );
        return Err(Faults(vec![Fault { at: "version".into(), what }]));
    }
    let mut walk = Walk::default();
    walk.visit(&mut String::new(), &mut value, &FORM);
    walk.faults.result()?;
    let input = ClusterInput::deserialize(value).map_err(|error| whole(error.to_string()))?;
    let unknown = walk.unknown.into_iter().map(|(field, (first, count))| {
        let more =
            if count > 1 { format!(", {count} times, first at {first}") } else { String::new() };
        format!("{field}: there is no such field in version {VERSION}, it is ignored{more}")
    });
    let more = (walk.more_unknown > 0)
        .then(|| format!("{} more fields are not known, they are ignored", walk.more_unknown));
    Ok((input, unknown.chain(more).collect()))
}

/// What is wrong with a text that is no JSON.
fn no_json(error: &serde_json::Error) -> String {
    let at = format!(" at line {} column {}", error.line(), error.column());
    let detail = error.to_string();
    let detail = detail.strip_suffix(&at).unwrap_or(&detail);
    match error.classify() {
        Category::Eof if error.line() == 1 && error.column() == 0 => {
            "is empty; write an object with nodes and jobs".to_owned()
        }
        Category::Eof => format!("ends{at}, before its JSON does; look for a missing bracket"),
        Category::Data => format!("{detail}{at}"),
        _ => format!("is no JSON{at}: {detail}"),
    }
}

#[derive(Default)]
struct Walk {
    faults: Collected,
    /// By the place without numbers: the first place, and how many there are.
    unknown: BTreeMap<String, (String, usize)>,
    /// How many beyond [`MOST`] of these.
    more_unknown: usize,
}

impl Walk {
    fn fault(&mut self, at: &str, what: impl fmt::Display) {
        self.faults.push(if at.is_empty() { "the file" } else { at }, what);
    }

    /// Looks at a value, takes what is not known out of it, and writes whole numbers as such.
    fn visit(&mut self, at: &mut String, value: &mut Value, form: &Value) {
        let (form, may_be_null) = resolve(form);
        if value.is_null() && may_be_null {
            return;
        }
        if !fits(value, form) {
            let or = if may_be_null { " or null" } else { "" };
            let what = format_args!("{}; {}{or} is wanted", found(value), wanted(form));
            return self.fault(at, what);
        }
        let before = at.len();
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    at.push_str(&format!("[{index}]"));
                    self.visit(at, item, &form["items"]);
                    at.truncate(before);
                }
            }
            Value::Object(fields) => self.object(at, fields, form),
            Value::Number(number) if form["type"] == "integer" => {
                if let Some(whole) = number.as_f64().filter(|_| number.is_f64()) {
                    *value =
                        if whole < 0.0 { (whole as i64).into() } else { (whole as u64).into() };
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, at: &mut String, fields: &mut Map<String, Value>, form: &Value) {
        let before = at.len();
        let dot = if before == 0 { "" } else { "." };
        for name in form["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                let what = form["properties"][name]["description"].as_str().unwrap_or("it");
                self.fault(&format!("{at}{dot}{name}"), format!("missing; write {what}"));
            }
        }
        fields.retain(|name, value| {
            at.push_str(&format!("{dot}{name}"));
            let known = form["properties"].get(name);
            match known {
                Some(form) => self.visit(at, value, form),
                None => self.ignore(at),
            }
            at.truncate(before);
            known.is_some()
        });
    }

    fn ignore(&mut self, at: &str) {
        let without = at.split('[').enumerate().map(|(index, part)| match index {
            0 => part.to_owned(),
            _ => format!("[{}", part.trim_start_matches(|c: char| c.is_ascii_digit())),
        });
        let without: String = without.collect();
        if self.unknown.len() >= MOST && !self.unknown.contains_key(&without) {
            self.more_unknown += 1;
            return;
        }
        self.unknown.entry(without).or_insert_with(|| (at.to_owned(), 0)).1 += 1;
    }
}

/// A part of the schema without references, and whether null is as good.
fn resolve(form: &Value) -> (&Value, bool) {
    let first = form["anyOf"].get(0).unwrap_or(form);
    let path = first["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
    let resolved = path.and_then(|path| FORM.pointer(path)).unwrap_or(first);
    let null = |types: &Value| types.as_array().is_some_and(|types| types.contains(&"null".into()));
    (resolved, form.get("anyOf").is_some() || null(&resolved["type"]))
}

/// The kind that a value is to have, without null.
fn kind(form: &Value) -> &str {
    form["type"].as_str().or_else(|| form["type"][0].as_str()).unwrap_or("")
}

fn fits(value: &Value, form: &Value) -> bool {
    if let Some(words) = form["enum"].as_array() {
        return words.contains(value);
    }
    match kind(form) {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => {
            let (least, most) = bounds(form);
            let whole = value.as_f64().filter(|number| number.fract() == 0.0);
            whole.is_some_and(|number| (least..=most).contains(&number))
                // A double as large as 2^64 is not below it.
                && (value.is_i64() || value.is_u64() || value.as_f64() < Some(most) || most < 1e18)
        }
        _ => true,
    }
}

fn bounds(form: &Value) -> (f64, f64) {
    match form["format"].as_str() {
        Some("int32") => (f64::from(i32::MIN), f64::from(i32::MAX)),
        Some("uint32") => (0.0, f64::from(u32::MAX)),
        _ => (0.0, u64::MAX as f64),
    }
}

fn wanted(form: &Value) -> String {
    if let Some(words) = form["enum"].as_array() {
        let words: Vec<String> = words.iter().map(Value::to_string).collect();
        return words.join(" or ");
    }
    match kind(form) {
        "object" => "an object {...}".to_owned(),
        "array" => "a list [...]".to_owned(),
        "string" => "text in quotes".to_owned(),
        "integer" => {
            let (least, most) = bounds(form);
            format!("a whole number from {least} to {most}")
        }
        _ => "a number".to_owned(),
    }
}

/// What is there, in few words.
fn found(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) if text.chars().count() > 40 => {
            format!("the text {:?}...", text.chars().take(40).collect::<String>())
        }
        Value::String(text) => format!("the text {text:?}"),
        other => other.to_string(),
    }
}

/// Reads JSON in which no field of an object is there twice: serde_json would take the last. So many values
/// may come.
#[derive(Clone, Copy)]
struct Once<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for Once<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let Some(room) = self.0.get().checked_sub(1) else {
            return Err(D::Error::custom(format_args!("has more than {MOST_VALUES} values,")));
        };
        self.0.set(room);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(self)?;
            if all.contains_key(&name) {
                return Err(A::Error::custom(format_args!(
                    "has the field {name:?} twice in one object,"
                )));
            }
            all.insert(name, value);
        }
        Ok(all.into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const EXAMPLE: &[u8] = include_bytes!("../../examples/two-racks.json");

    fn faults(json: &str) -> Vec<String> {
        read(json.as_bytes()).unwrap_err().0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_fault_of_shape_is_a_sentence_with_its_place() {
        let mut found = faults(
            r#"{"nodes": [["a", "r", [1, 0], null], {"rack": 1, "slots": {"active": "two", "passive": 1.5}}],
                "network": {"within_rack_bytes_per_sec": null, "pairs": {}},
                "groups": [{"name": "g", "weight": 1, "order": "random"}],
                "jobs": [{"name": null, "priority": 3e9, "tasks": [7, {"name": "t", "bytes": 1e20, "running": {}}]}]}"#,
        );
        let whole = "a whole number from 0 to 4294967295 is wanted";
        let expected = [
            "groups[0].order: the text \"random\"; \"fair\" or \"fifo\" is wanted".to_owned(),
            "jobs[0].name: null; text in quotes is wanted".into(),
            "jobs[0].priority: 3000000000.0; a whole number from -2147483648 to 2147483647 is wanted".into(),
            "jobs[0].tasks[0]: 7; an object {...} is wanted".into(),
            "jobs[0].tasks[1].bytes: 1e+20; a whole number from 0 to 18446744073709552000 is wanted".into(),
            "jobs[0].tasks[1].running.node: missing; write the name of the node".into(),
            "network.between_racks_bytes_per_sec: missing; write the bandwidth between nodes of two racks".into(),
            "network.pairs: an object; a list [...] is wanted".into(),
            "network.within_rack_bytes_per_sec: null; a number is wanted".into(),
            "nodes[0]: a list; an object {...} is wanted".into(),
            "nodes[1].name: missing; write the node's name".into(),
            "nodes[1].rack: 1; text in quotes is wanted".into(),
            format!("nodes[1].slots.active: the text \"two\"; {whole}"),
            format!("nodes[1].slots.passive: 1.5; {whole}"),
        ];
        // Whether fields are in the order of the file is a setting of serde_json.
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_json_is_named_with_line_and_column() {
        assert_eq!(faults(""), ["the file: is empty; write an object with nodes and jobs"]);
        assert_eq!(
            faults("{\"nodes\": ["),
            [
                "the file: ends at line 1 column 11, before its JSON does; look for a missing bracket"
            ]
        );
        assert_eq!(faults("[]]"), ["the file: is no JSON at line 1 column 3: trailing characters"]);
        assert_eq!(faults("[]"), ["the file: a list; an object {...} is wanted"]);
        let twice = faults("{\"nodes\": [],\n\"nodes\": []}");
        assert!(
            twice[0]
                .starts_with("the file: has the field \"nodes\" twice in one object, at line 2"),
            "{twice:?}"
        );
        assert_eq!(faults(&"[".repeat(200_000)).len(), 1);
    }

    #[test]
    fn another_version_is_the_only_fault() {
        let found = faults(r#"{"version": 2, "nodes": 3}"#);
        assert_eq!(
            found,
            ["version: 2; this program reads version 1, other programs write other versions"]
        );
        assert_eq!(faults(r#"{"version": "1", "nodes": 3}"#).len(), 1);
        assert!(read(br#"{"version": 1, "nodes": []}"#).is_ok());
    }

    #[test]
    fn a_field_that_is_not_known_is_a_warning_for_all_of_its_places() {
        let nodes = r#"{"nodes": [{"name": "a", "slots": {}, "gpus": 1}, {"name": "b", "slots": {}, "gpus": 2}], "x": {"y": 1}}"#;
        let (input, unknown) = read(nodes.as_bytes()).unwrap();
        assert_eq!(input.nodes.len(), 2);
        assert_eq!(
            unknown,
            [
                "nodes[].gpus: there is no such field in version 1, it is ignored, 2 times, first at nodes[0].gpus",
                "x: there is no such field in version 1, it is ignored",
            ]
        );
    }

    /// The fields of the schema below a place, and of the type as it is written.
    fn compare(at: &str, value: &Value, form: &Value) {
        let (form, _) = resolve(form);
        match value {
            Value::Object(fields) => {
                let known: BTreeSet<&String> =
                    form["properties"].as_object().unwrap().keys().collect();
                assert_eq!(fields.keys().collect::<BTreeSet<_>>(), known, "{at}");
                for (name, value) in fields {
                    compare(&format!("{at}.{name}"), value, &form["properties"][name]);
                }
            }
            Value::Array(items) => compare(&format!("{at}[]"), &items[0], &form["items"]),
            _ => assert!(fits(value, form), "{at}: {value}"),
        }
    }

    #[test]
    fn the_schema_has_the_fields_of_the_input_and_no_others() {
        let full = r#"{"nodes": [{"name": "a", "slots": {}, "capacity": {}}],
            "network": {"within_rack_bytes_per_sec": 1, "between_racks_bytes_per_sec": 1,
                "pairs": [{"from": "a", "to": "a", "bytes_per_sec": 1}]},
            "groups": [{"name": "g", "weight": 1, "parent": "h"}],
            "jobs": [{"name": "j", "group": "g", "computing_rate": 1, "tasks": [{"name": "t", "replicas": ["a"],
                "running": {"node": "a", "remaining_seconds": 1}}]}]}"#;
        let (input, unknown) = read(full.as_bytes()).unwrap();
        assert!(unknown.is_empty());
        compare("", &serde_json::to_value(&input).unwrap(), &FORM);
    }

    /// Every path to an object of the example, with the names that it needs not to have.
    fn objects(value: &Value, form: &Value, at: String, all: &mut Vec<(String, String, bool)>) {
        let (form, _) = resolve(form);
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let required = form["required"].as_array();
                    let required =
                        required.is_some_and(|names| names.contains(&name.as_str().into()));
                    all.push((at.clone(), name.clone(), required));
                    objects(value, &form["properties"][name], format!("{at}/{name}"), all);
                }
            }
            Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| {
                objects(item, &form["items"], format!("{at}/{index}"), all);
            }),
            _ => {}
        }
    }

    #[test]
    fn what_the_schema_requires_cannot_be_left_out_and_all_else_can() {
        let example: Value = serde_json::from_slice(EXAMPLE).unwrap();
        let mut all = Vec::new();
        objects(&example, &FORM, String::new(), &mut all);
        assert!(all.iter().any(|(.., required)| *required) && all.len() > 50);
        for (at, name, required) in all {
            let mut changed = example.clone();
            changed.pointer_mut(&at).unwrap().as_object_mut().unwrap().remove(&name);
            let read = read(changed.to_string().as_bytes());
            assert_eq!(read.is_err(), required, "{at}/{name}");
        }
    }

    #[test]
    fn the_example_has_no_fault_and_no_warning() {
        let (input, unknown) = read(EXAMPLE).unwrap();
        assert!(unknown.is_empty() && input.version == VERSION);
        let again = serde_json::to_vec(&input).unwrap();
        assert_eq!(read(&again).unwrap().0, input, "what is written is read");
    }
}
