//! What is stored of tasks and reservations comes back as it was, and no object has a key twice.

use std::fmt;
use std::time::Duration;

use proptest::prelude::*;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::json;

use crate::counts::Counts;
use crate::exit::Exit;
use crate::hint::Hint;
use crate::model::{Label, Labels, Order, Priority, ReservationId, Standing, TaskId, Tier};
use crate::rate::RateMeter;
use crate::sample::{TaskPressure, TaskSample, ThreadCounters};
use crate::slots::Seat;
use crate::state::Reservation;
use crate::task::{
    Attaching, Attachment, Booked, Finder, FoundRecord, GroupRecord, Hold, Kin, Life, Origin, Task,
    Who,
};
use crate::unit::UnitRecord;
use crate::units::{BootTime, Bytes, Moment, Pid, ProcessRef, Share, WallTime};

/// JSON of which no object has a key twice; else reading it is an error.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Unique;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, Unique)) = map.next_entry::<String, Unique>()? {
                    if keys.contains(&key) {
                        return Err(serde::de::Error::custom(format!("key {key} is there twice")));
                    }
                    keys.push(key);
                }
                Ok(Unique)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Unique, A::Error> {
                while let Some(Unique) = seq.next_element()? {}
                Ok(Unique)
            }

            fn visit_unit<E>(self) -> Result<Unique, E> {
                Ok(Unique)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
                Ok(Unique)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Unique, E> {
                Ok(Unique)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
                Ok(Unique)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Unique, E> {
                Ok(Unique)
            }

            fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
                Ok(Unique)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

fn label() -> impl Strategy<Value = Label> {
    "[a-z\"\\\\{}: é]{1,12}".prop_map(|text| Label::new(&text).unwrap())
}

fn some<S: Strategy>(values: S) -> impl Strategy<Value = Option<S::Value>>
where
    S::Value: Clone,
{
    proptest::option::of(values)
}

fn labels() -> impl Strategy<Value = Labels> {
    let texts = (some(label()), some(label()), some(label()), some(label()), some(label()));
    let hint = (0.0..=1.0, any::<bool>()).prop_map(|(rate, by_member)| {
        let hint = Some(Hint::new(Share::clamped(rate)));
        Labels { hint, ..Labels::default() }.hinted_by(by_member).hint
    });
    (texts, hint).prop_map(|((name, job, kind, group, command), hint)| Labels {
        name,
        job,
        kind,
        group,
        command,
        hint,
    })
}

fn boot() -> impl Strategy<Value = BootTime> {
    (0..u64::from(u32::MAX)).prop_map(|micros| BootTime(Duration::from_micros(micros)))
}

fn wall() -> impl Strategy<Value = WallTime> {
    any::<u32>().prop_map(|micros| WallTime::from_unix_micros(i64::from(micros) * 1_000_003))
}

fn seconds() -> impl Strategy<Value = Duration> {
    any::<u32>().prop_map(|micros| Duration::from_micros(micros.into()))
}

fn origin() -> impl Strategy<Value = Origin> {
    proptest::collection::vec(("[a-z]{1,6}", "/[a-z/é]{0,9}"), 0..3).prop_map(Origin::from)
}

fn unit() -> impl Strategy<Value = UnitRecord> {
    ("[a-z]{1,6}\\.service", "/[a-z/]{0,9}", any::<u64>()).prop_map(
        |(name, control_group, weight)| {
            let found = [("CPUWeight".to_owned(), weight)].into();
            UnitRecord { name: name.parse().unwrap(), control_group, found }
        },
    )
}

fn found() -> impl Strategy<Value = FoundRecord> {
    let by = prop_oneof![Just(Finder::Yarn), label().prop_map(Finder::Rule)];
    let standing = prop_oneof![Just(Standing::Slotless), Just(Standing::Opportunistic)];
    let kin = prop_oneof![Just(Kin::Session), Just(Kin::Descendants)];
    (by, some(any::<i32>().prop_map(Priority)), some(standing), kin)
        .prop_map(|(by, priority, standing, kin)| FoundRecord { by, priority, standing, kin })
}

fn who() -> impl Strategy<Value = Who> {
    let process = (1..i32::MAX, any::<u64>())
        .prop_map(|(pid, start_ticks)| ProcessRef { pid: Pid::new(pid).unwrap(), start_ticks });
    let by = (some(any::<u32>()), any::<bool>(), some(found()), some(unit()));
    (some(process), by, some(".{0,9}"), some(".{0,9}"), origin()).prop_map(
        |(process, (admitted_by, as_admin, found, unit), stays_because, lost_by_move, origin)| {
            Who { process, admitted_by, as_admin, found, unit, stays_because, lost_by_move, origin }
        },
    )
}

fn group() -> impl Strategy<Value = GroupRecord> {
    let attachment =
        prop_oneof![Just(Attachment::Own), Just(Attachment::InPlace), Just(Attachment::None)];
    let found = proptest::collection::vec(("[a-z.]{1,9}", ".{0,9}"), 0..3);
    let elsewhere = proptest::collection::vec("[a-z]{1,6}", 0..2);
    (attachment, "/.{0,9}", any::<u64>(), origin(), found, elsewhere, any::<bool>()).prop_map(
        |(attachment, path, inode, origin, found, elsewhere, for_member)| GroupRecord {
            attachment,
            path,
            inode,
            origin,
            found,
            elsewhere,
            for_member,
        },
    )
}

fn sample() -> impl Strategy<Value = TaskSample> {
    let bytes = || some(any::<u64>().prop_map(Bytes));
    let pressure =
        (seconds(), seconds()).prop_map(|(cpu_some, io_some)| TaskPressure { cpu_some, io_some });
    let thread = (seconds(), seconds(), any::<u64>(), any::<u64>()).prop_map(
        |(ran, waited, voluntary, involuntary)| ThreadCounters {
            ran,
            waited,
            voluntary,
            involuntary,
        },
    );
    let looks = (some(any::<bool>()), some(any::<bool>()), some(thread), some(any::<u64>()));
    (some(seconds()), [bytes().boxed(), bytes().boxed()], bytes(), bytes(), some(pressure), looks)
        .prop_map(|(cpu, [read, written], resident, memory_peak, pressure, looks)| {
            let (asleep, disk_wait, thread, oom_kills) = looks;
            TaskSample {
                cpu,
                read,
                written,
                resident,
                memory_peak,
                oom_kills,
                pressure,
                asleep,
                disk_wait,
                thread,
            }
        })
}

/// Its figures are its own; eighths come back from a text as they were.
fn meter() -> impl Strategy<Value = RateMeter> {
    (any::<u32>(), any::<u32>(), any::<u64>(), some(any::<bool>())).prop_map(
        |(elapsed, cpu, looks, ambiguous)| {
            serde_json::from_value(json!({
                "elapsed": f64::from(elapsed) / 8.0,
                "cpu": f64::from(cpu) / 8.0,
                "known": {"asleep": f64::from(cpu) / 8.0, "disk": 0.0, "preempted": 0.5},
                "looks": {"all": looks, "disk": 1, "asleep": looks / 2},
                "recent": {"all": 0, "disk": 0, "asleep": 0},
                "ambiguous": ambiguous,
            }))
            .unwrap()
        },
    )
}

fn counts() -> impl Strategy<Value = Counts> {
    let opened = some((boot(), sample()));
    let peak = some(any::<u64>().prop_map(Bytes));
    (meter(), opened, some(sample()), seconds(), peak).prop_map(
        |(meter, opened, baseline, cpu_before, peak_resident)| Counts {
            meter,
            opened,
            baseline,
            cpu_before,
            peak_resident,
            ..Counts::default()
        },
    )
}

fn reservation() -> impl Strategy<Value = Reservation> {
    let tier = prop_oneof![Just(Tier::Active), Just(Tier::Passive)];
    let numbers = (any::<u32>(), any::<i32>(), any::<u64>());
    let times = (wall(), boot(), boot());
    (labels(), numbers, tier, times, any::<bool>()).prop_map(
        |(labels, (uid, priority, order), tier, times, by_member)| Reservation {
            labels,
            uid,
            priority: Priority(priority),
            order: Order(order),
            tier,
            created_at: times.0,
            expires: times.1,
            yields_from: times.2,
            by_member,
        },
    )
}

fn life() -> impl Strategy<Value = Life> {
    let id =
        (any::<u32>(), any::<u64>()).prop_map(|(epoch, number)| ReservationId { epoch, number });
    let booked = (group(), some(sample()), any::<bool>())
        .prop_map(|(group, baseline, followed)| Box::new(Booked { group, baseline, followed }));
    let attaching = (".{0,9}", some((id, reservation()).prop_map(Box::new)), some(booked))
        .prop_map(|(reason, used, booked)| {
            Life::Attaching(Attaching { reason, used, booked, ..Attaching::default() })
        });
    let held = [Life::Placed(Hold::Kept), Life::Releasing(Hold::Kept)];
    prop_oneof![attaching, proptest::sample::select(held.to_vec())]
}

prop_compose! {
    fn task()(
        id in (any::<u32>(), any::<u64>()),
        parts in (labels(), who(), counts(), life()),
        place in (some(any::<u32>()), any::<i32>(), any::<bool>(), any::<u64>()),
        seat in proptest::sample::select(
            vec![Seat::Active, Seat::Passive, Seat::Overflow, Seat::Slotless, Seat::Arriving]
        ),
        times in (boot(), wall(), some(wall())),
        group in some(group()),
        rest in (any::<bool>(), any::<u64>(), any::<bool>()),
        exit in some(prop_oneof![
            any::<u8>().prop_map(Exit::Status),
            (any::<u8>(), any::<bool>()).prop_map(|(number, core)| Exit::Signal { number, core }),
        ]),
    ) -> Task {
        let (labels, who, counts, life) = parts;
        let (uid, priority, opportunistic, order) = place;
        let (frozen, repaired, lost) = rest;
        // Every field by its name: a new one is stored, or is listed here as not stored.
        Task {
            id: TaskId { epoch: id.0, number: id.1 },
            labels,
            who,
            uid,
            priority: Priority(priority),
            opportunistic,
            order: Order(order),
            seat,
            life,
            admitted_at: Moment { boot: times.0, wall: times.1 },
            promoted_at: times.2,
            group,
            counts,
            frozen,
            halted: None,
            repaired,
            repairs: Default::default(),
            main_exited: false,
            left_for: None,
            exit,
            lost,
        }
    }
}

proptest! {
    #[test]
    fn a_task_comes_back_as_it_was(task in task()) {
        let text = serde_json::to_string(&task).unwrap();
        let unique = serde_json::from_str::<Unique>(&text);
        prop_assert!(unique.is_ok(), "{}: {text}", unique.err().unwrap());
        prop_assert_eq!(serde_json::from_str::<Task>(&text).unwrap(), task);
    }

    #[test]
    fn a_reservation_comes_back_as_it_was(reservation in reservation()) {
        let text = serde_json::to_string(&reservation).unwrap();
        prop_assert!(serde_json::from_str::<Unique>(&text).is_ok(), "{text}");
        prop_assert_eq!(serde_json::from_str::<Reservation>(&text).unwrap(), reservation);
    }
}

#[test]
fn a_key_that_is_there_twice_is_found_at_any_depth() {
    assert!(serde_json::from_str::<Unique>(r#"{"a":[{"b":1,"c":{"b":null}}],"b":"a"}"#).is_ok());
    let error = serde_json::from_str::<Unique>(r#"{"a":[{"b":1,"b":2}]}"#).err().unwrap();
    assert!(error.to_string().contains("key b is there twice"), "{error}");
}
