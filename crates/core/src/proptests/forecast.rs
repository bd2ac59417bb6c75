//! What tasks are expected to have soon.

use super::*;

const MIB: u64 = 1 << 20;

/// What a task of which nothing is known is expected to have, in MiB, after these readings: milliseconds since its
/// admission, and MiB.
fn expected(readings: &[(u64, u64)]) -> u64 {
    let mut shaper = shaper(2);
    let id = admit(&mut shaper, 0, at(0));
    let mut now = at(0);
    for (millis, mib) in readings {
        let resident = Some(Bytes(mib * MIB));
        now.boot = BootTime(Duration::from_millis(*millis));
        let sample = TaskSample { resident, ..TaskSample::default() };
        shaper.read(now.boot, Reading { task: id, due: false, sample });
    }
    shaper.will_have(shaper.task(id).unwrap(), now.boot).unwrap().0 / MIB
}

#[test]
fn one_that_grows_steadily_goes_on_until_it_is_ten_seconds_old() {
    assert_eq!(expected(&[(1000, 25)]), 250);
    assert_eq!(expected(&[(2000, 50), (5000, 125)]), 250);
    assert_eq!(expected(&[(2000, 50), (5000, 50)]), 50, "it stopped");
    assert_eq!(expected(&[(8000, 80), (11_000, 110)]), 110, "it is old");
}

#[test]
fn one_that_begins_late_goes_on_as_it_did_last() {
    assert_eq!(expected(&[(4500, 10), (7500, 610)]), 610 + 500);
}

#[test]
fn one_that_took_all_at_once_counts_four_times_at_the_most() {
    assert_eq!(expected(&[(3000, 1), (3100, 101)]), 404);
}

#[test]
fn what_a_task_has_in_its_first_second_says_nothing_of_the_rest() {
    let mut shaper = shaper(2);
    let now = Moment { boot: BootTime(Duration::from_millis(500)), ..at(0) };
    let id = admit(&mut shaper, 0, at(0));
    let sample = TaskSample { resident: Some(Bytes(MIB)), ..TaskSample::default() };
    shaper.read(now.boot, Reading { task: id, due: false, sample });
    assert_eq!(shaper.will_have(shaper.task(id).unwrap(), now.boot), Some(Bytes(MIB)));
    // So it is the memory of the node that says how it goes on, 2 MiB a second.
    let (each, all) = shaper.unread_growth(Some(2.0 * MIB as f64), now.boot);
    assert_eq!((each, all), (Bytes(19 * MIB), Bytes(19 * MIB)));
}
