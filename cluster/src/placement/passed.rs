//! How a job was passed over for want of a slot near its input, and how that is saved.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::placement::ids::Locality;

/// How a job was passed over for want of a slot near its input, since it last started a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PassedOver {
    /// Time since it was first passed over.
    #[serde(rename = "waited_seconds", serialize_with = "in_seconds")]
    pub waited: Duration,
    /// Free slots that it let pass.
    pub offers: u64,
    /// How far from its input it may start without waiting anew.
    pub level: Locality,
}

fn in_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// To the nanosecond; in a plan these are seconds.
pub(crate) fn serialize<S: Serializer>(of: &PassedOver, serializer: S) -> Result<S::Ok, S::Error> {
    (of.waited, of.offers, of.level).serialize(serializer)
}

/// See [`serialize`].
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<PassedOver, D::Error> {
    let (waited, offers, level) = <(Duration, u64, Locality)>::deserialize(deserializer)?;
    Ok(PassedOver { waited, offers, level })
}
