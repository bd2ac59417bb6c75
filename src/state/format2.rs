//! Records of tasks in format 2 and of reservations in format 1, which daemons up to 0.1.0 wrote, as
//! the objects that today's types read. Kept for one release, so that a node upgrades under its
//! running tasks.
//!
//! They had no checksum, and the parts of a task were flattened into one object. Its labels and the
//! task both have a key `group`, so that this key is there twice: a text is the label, an object the
//! cgroup. Whoever reads such an object as a map loses the first.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

/// An object as it is written: in order, and with the keys that are there twice.
#[derive(Debug)]
pub(super) struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// The keys that the labels of a task or of a reservation had.
const LABELS: [&str; 4] = ["name", "job", "kind", "group"];

/// The keys of where a task came from.
const WHO: [&str; 8] = [
    "process",
    "admitted_by",
    "as_admin",
    "found",
    "unit",
    "stays_because",
    "lost_by_move",
    "origin",
];

/// The keys of what was measured of a task.
const COUNTS: [&str; 5] = ["meter", "measured", "baseline", "cpu_before", "peak_resident"];

/// A task.
pub(super) fn task(record: Pairs) -> Value {
    let (mut task, mut labels, mut who, mut counts) =
        (Map::new(), Map::new(), Map::new(), Map::new());
    for (key, value) in record.0 {
        let key_of = |keys: &[&str]| keys.contains(&key.as_str());
        let part = match () {
            () if key == "group" && !value.is_string() => &mut task,
            () if key_of(&LABELS) => &mut labels,
            () if key_of(&WHO) => &mut who,
            () if key_of(&COUNTS) => &mut counts,
            () => &mut task,
        };
        part.insert(key, value);
    }
    for (key, part) in [("labels", labels), ("who", who), ("counts", counts)] {
        task.insert(key.to_owned(), part.into());
    }
    let used = task.get_mut("life").and_then(|life| life.pointer_mut("/attaching/used/1"));
    if let Some(Value::Object(used)) = used {
        *used = promise(std::mem::take(used));
    }
    task.into()
}

/// The record of a reservation.
pub(super) fn reservation(record: Pairs) -> Value {
    let mut reservation: Map<String, Value> = record.0.into_iter().collect();
    let id = reservation.shift_remove("id").unwrap_or_default();
    serde_json::json!({ "id": id, "reservation": promise(reservation) })
}

/// A reservation without its id.
fn promise(mut reservation: Map<String, Value>) -> Map<String, Value> {
    let mut labels = Map::new();
    for key in LABELS {
        labels.extend(reservation.shift_remove(key).map(|label| (key.to_owned(), label)));
    }
    reservation.insert("labels".to_owned(), labels.into());
    reservation
}

#[cfg(test)]
mod tests {
    use super::super::record::{self, ReservationRecord};
    use crate::core::task::{Attachment, Life, Task};

    /// Written by lrsd 0.1.0 of format 2: `lrsctl run --group gg --job j --name n`.
    const TASK: &str = include_str!("format2/task.json");
    /// `lrsctl reserve --group gg`, of format 1.
    const RESERVATION: &str = include_str!("format2/reservation.json");

    #[test]
    fn the_group_of_a_task_and_its_cgroup_had_one_key() {
        assert_eq!(TASK.matches("\"group\":").count(), 2);
        let read = record::read::<Task>(TASK.as_bytes()).unwrap();
        assert_eq!(read.unknown, [""; 0]);
        let task = read.record;
        assert_eq!(task.labels.group.as_ref().unwrap().as_str(), "gg");
        assert_eq!(task.labels.job.as_ref().unwrap().as_str(), "j");
        assert_eq!(task.attachment(), Attachment::Own);
        assert!(task.who.process.is_some() && task.who.admitted_by == Some(0));
        assert!(task.is_placed() && task.counts.opened.is_some());
    }

    #[test]
    fn a_reservation_had_its_labels_beside_the_rest() {
        let read = record::read::<ReservationRecord>(RESERVATION.as_bytes()).unwrap();
        assert_eq!(read.unknown, [""; 0]);
        let reservation = read.record.reservation;
        assert_eq!(reservation.labels.group.unwrap().as_str(), "gg");
        // The admission that uses one has it in its own record.
        let promise = RESERVATION.split("\"record\":").nth(1).unwrap().trim_end();
        let promise = promise.strip_suffix('}').unwrap();
        let used = format!("\"life\":{{\"attaching\":{{\"reason\":\"r\",\"used\":[{promise}]}}}}");
        let id = format!("\"{}\"", read.record.id);
        let used = used.replace("\"used\":[", &format!("\"used\":[{id},"));
        let text = TASK.replace("\"life\":\"placed\"", &used);
        let task = record::read::<Task>(text.as_bytes()).unwrap().record;
        let Life::Attaching(attaching) = task.life else { panic!("{:?}", task.life) };
        assert_eq!(attaching.used.unwrap().1.labels.group.unwrap().as_str(), "gg");
    }

    #[test]
    fn a_key_that_is_not_known_is_named_at_every_depth() {
        let text = TASK
            .replace("\"process\":", "\"probess\":")
            .replace("\"meter\":{", "\"meter\":{\"x\":1,");
        let read = record::read::<Task>(text.as_bytes()).unwrap();
        assert_eq!(read.unknown, ["record.probess", "record.counts.meter.x"]);
    }
}
