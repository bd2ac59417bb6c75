//! JSON spelling of the protobuf messages: what `lrsctl --json` prints is the message with
//! these functions for enums, times and free-form objects (see `generate`).

use serde::Serializer;
use serde::ser::{Serialize, SerializeMap};

use crate::proto;
use lrs_core::units::WallTime;

/// RFC 3339 with microseconds, or null.
pub fn timestamp<S: Serializer>(
    value: &Option<prost_types::Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(timestamp) => serializer.collect_str(&wall_time(timestamp)),
        None => serializer.serialize_none(),
    }
}

/// From the protobuf shape; nanoseconds are cut to microseconds.
pub fn wall_time(timestamp: &prost_types::Timestamp) -> WallTime {
    WallTime::from_unix_micros(
        timestamp
            .seconds
            .saturating_mul(1_000_000)
            .saturating_add(i64::from(timestamp.nanos) / 1_000),
    )
}

/// Into the protobuf shape.
pub fn proto_time(time: WallTime) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: time.unix_micros().div_euclid(1_000_000),
        // below 1e9, so it fits
        nanos: (time.unix_micros().rem_euclid(1_000_000) * 1_000) as i32,
    }
}

/// `active`, `passive`, or null.
pub fn tier<S: Serializer>(value: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    word(serializer, tier_word(*value))
}

/// The word for a tier number.
pub fn tier_word(value: i32) -> Option<&'static str> {
    match proto::Tier::try_from(value) {
        Ok(proto::Tier::Active) => Some("active"),
        Ok(proto::Tier::Passive) => Some("passive"),
        Ok(proto::Tier::Unspecified) | Err(_) => None,
    }
}

/// `cpu`, `moderate`, `io`, `unknown`.
pub fn class<S: Serializer>(value: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    word(serializer, Some(class_word(*value)))
}

/// The word for a class number.
pub fn class_word(value: i32) -> &'static str {
    match proto::Class::try_from(value) {
        Ok(proto::Class::Cpu) => "cpu",
        Ok(proto::Class::Moderate) => "moderate",
        Ok(proto::Class::Io) => "io",
        Ok(proto::Class::Idle) => "idle",
        Ok(proto::Class::Unknown | proto::Class::Unspecified) | Err(_) => "unknown",
    }
}

/// `own`, `in_place`, `none`.
pub fn attachment<S: Serializer>(value: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    word(serializer, attachment_word(*value))
}

/// The word for an attachment number.
pub fn attachment_word(value: i32) -> Option<&'static str> {
    match proto::Attachment::try_from(value) {
        Ok(proto::Attachment::Own) => Some("own"),
        Ok(proto::Attachment::InPlace) => Some("in_place"),
        Ok(proto::Attachment::None) => Some("none"),
        Ok(proto::Attachment::Unspecified) | Err(_) => None,
    }
}

/// `accepting`, `holding`, `draining`.
pub fn node_state<S: Serializer>(value: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    word(serializer, node_state_word(*value))
}

/// The word for a node state number.
pub fn node_state_word(value: i32) -> Option<&'static str> {
    match proto::NodeState::try_from(value) {
        Ok(proto::NodeState::Accepting) => Some("accepting"),
        Ok(proto::NodeState::Holding) => Some("holding"),
        Ok(proto::NodeState::Draining) => Some("draining"),
        Ok(proto::NodeState::Unspecified) | Err(_) => None,
    }
}

/// `off`, `max`, `memory`, `active_tier`, `throughput`, `compute`, or null.
pub fn bound<S: Serializer>(value: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    word(serializer, bound_word(*value))
}

/// The word for the number of a bound.
pub fn bound_word(value: i32) -> Option<&'static str> {
    match proto::Bound::try_from(value) {
        Ok(proto::Bound::Off) => Some("off"),
        Ok(proto::Bound::Max) => Some("max"),
        Ok(proto::Bound::Memory) => Some("memory"),
        Ok(proto::Bound::ActiveTier) => Some("active_tier"),
        Ok(proto::Bound::Throughput) => Some("throughput"),
        Ok(proto::Bound::Compute) => Some("compute"),
        Ok(proto::Bound::Unspecified) | Err(_) => None,
    }
}

/// `enforce`, `observe`.
pub fn mode<S: Serializer>(value: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    word(serializer, mode_word(*value))
}

/// The word for a mode number.
pub fn mode_word(value: i32) -> Option<&'static str> {
    match proto::Mode::try_from(value) {
        Ok(proto::Mode::Enforce) => Some("enforce"),
        Ok(proto::Mode::Observe) => Some("observe"),
        Ok(proto::Mode::Unspecified) | Err(_) => None,
    }
}

/// `suits`, `does_not_suit`, `sample_first`.
pub fn advice<S: Serializer>(value: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    use proto::evaluate_job_response::Advice;
    word(
        serializer,
        match Advice::try_from(*value) {
            Ok(Advice::Suits) => Some("suits"),
            Ok(Advice::DoesNotSuit) => Some("does_not_suit"),
            Ok(Advice::SampleFirst) => Some("sample_first"),
            Ok(Advice::Unspecified) | Err(_) => None,
        },
    )
}

fn word<S: Serializer>(serializer: S, word: Option<&str>) -> Result<S::Ok, S::Error> {
    match word {
        Some(word) => serializer.serialize_str(word),
        None => serializer.serialize_none(),
    }
}

/// A `google.protobuf.Struct` as a JSON object; absent is `{}`.
pub fn object<S: Serializer>(
    value: &Option<prost_types::Struct>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (key, value) in value.iter().flat_map(|object| &object.fields) {
        map.serialize_entry(key, &JsonValue(value))?;
    }
    map.end()
}

struct JsonValue<'a>(&'a prost_types::Value);

impl Serialize for JsonValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use prost_types::value::Kind;
        match &self.0.kind {
            None | Some(Kind::NullValue(_)) => serializer.serialize_none(),
            Some(Kind::BoolValue(value)) => serializer.serialize_bool(*value),
            // Counters reach JSON as whole numbers although Struct only has doubles.
            Some(Kind::NumberValue(value))
                if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 =>
            {
                serializer.serialize_i64(*value as i64)
            }
            Some(Kind::NumberValue(value)) => serializer.serialize_f64(*value),
            Some(Kind::StringValue(value)) => serializer.serialize_str(value),
            Some(Kind::ListValue(list)) => {
                serializer.collect_seq(list.values.iter().map(JsonValue))
            }
            Some(Kind::StructValue(value)) => {
                serializer.collect_map(value.fields.iter().map(|(k, v)| (k, JsonValue(v))))
            }
        }
    }
}

/// A JSON object into the protobuf shape.
pub fn proto_object(map: &serde_json::Map<String, serde_json::Value>) -> prost_types::Struct {
    prost_types::Struct {
        fields: map.iter().map(|(key, value)| (key.clone(), proto_value(value))).collect(),
    }
}

/// The other way round. What protobuf leaves out is null.
pub fn json_object(object: prost_types::Struct) -> serde_json::Map<String, serde_json::Value> {
    object.fields.into_iter().map(|(key, value)| (key, json_value(value))).collect()
}

fn json_value(value: prost_types::Value) -> serde_json::Value {
    use prost_types::value::Kind;
    match value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(value)) => value.into(),
        Some(Kind::NumberValue(number)) => json_number(number),
        Some(Kind::StringValue(text)) => text.into(),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(json_value).collect(),
        Some(Kind::StructValue(object)) => json_object(object).into(),
    }
}

/// Counts stay counts: protobuf has one kind of number.
fn json_number(number: f64) -> serde_json::Value {
    const EXACT: f64 = (1_u64 << 53) as f64;
    match number.fract() == 0.0 && number.abs() < EXACT {
        true => (number as i64).into(),
        false => number.into(),
    }
}

fn proto_value(value: &serde_json::Value) -> prost_types::Value {
    use prost_types::value::Kind;
    let kind = match value {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(value) => Kind::BoolValue(*value),
        serde_json::Value::Number(number) => match number.as_f64() {
            Some(number) => Kind::NumberValue(number),
            None => Kind::StringValue(number.to_string()),
        },
        serde_json::Value::String(text) => Kind::StringValue(text.clone()),
        serde_json::Value::Array(values) => Kind::ListValue(prost_types::ListValue {
            values: values.iter().map(proto_value).collect(),
        }),
        serde_json::Value::Object(map) => Kind::StructValue(proto_object(map)),
    };
    prost_types::Value { kind: Some(kind) }
}
