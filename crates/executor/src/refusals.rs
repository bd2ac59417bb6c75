//! What the loop would not have: when it is proposed again, and whether that is worth a line.
//!
//! A reason may pass (a family too busy to be moved, a group without its controller), so it is
//! asked again; what does not pass soon mostly stays, so it is asked less and less often. Each
//! attempt costs moves there and back, which is why the longest pause is long.

use std::time::Duration;

use lrs_core::units::BootTime;

/// Longest pause before what was refused is proposed again.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Reasons remembered for one subject; further ones are not logged.
const REASONS: usize = 8;

/// The refusals of one process or group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusals {
    pause: Duration,
    again_at: BootTime,
    reasons: Vec<String>,
}

impl Refusals {
    /// None yet. `first`: the pause after the first one, doubled each time.
    pub fn new(first: Duration) -> Refusals {
        Refusals { pause: first, again_at: BootTime::default(), reasons: Vec::new() }
    }

    /// Refused once more. `true`: this reason was not logged yet.
    pub fn add(&mut self, reason: &str, now: BootTime) -> bool {
        self.put_off(now);
        let shape = shape(reason);
        let is_new = self.reasons.len() < REASONS && !self.reasons.contains(&shape);
        if is_new {
            self.reasons.push(shape);
        }
        is_new
    }

    /// Refused for a reason that is not logged.
    pub fn put_off(&mut self, now: BootTime) {
        self.again_at = now.after(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// When it is to be proposed again.
    pub fn again_at(&self) -> BootTime {
        self.again_at
    }
}

/// The same for reasons that differ in their numbers alone: how many were moved in time is another
/// count with each attempt.
fn shape(reason: &str) -> String {
    let mut shape = String::with_capacity(reason.len());
    for letter in reason.chars() {
        match letter.is_ascii_digit() {
            false => shape.push(letter),
            true if shape.ends_with('#') => {}
            true => shape.push('#'),
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(first: Duration, times: usize) -> Vec<u64> {
        let mut refusals = Refusals::new(first);
        let mut now = BootTime::default();
        let pause = |_| {
            refusals.put_off(now);
            let pause = refusals.again_at().since(now);
            now = refusals.again_at();
            pause.as_secs()
        };
        (0..times).map(pause).collect()
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        assert_eq!(pauses(Duration::from_secs(30), 6), [30, 60, 120, 240, 300, 300]);
        let from_a_second = pauses(Duration::from_secs(1), 12);
        assert_eq!(from_a_second, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    }

    #[test]
    fn each_reason_is_reported_once_whatever_its_numbers() {
        let mut refusals = Refusals::new(Duration::from_secs(1));
        let now = BootTime::default();
        assert!(refusals.add("12 were moved, 3 or more were still outside", now));
        assert!(!refusals.add("7 were moved, 111 or more were still outside", now));
        assert!(refusals.add("its group has no cpu.weight", now));
        let logged = (0..100).filter(|turn| refusals.add(&"x".repeat(turn + 1), now)).count();
        assert_eq!(logged, REASONS - 2);
    }
}
