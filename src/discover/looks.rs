//! When a look that the loop waits for is over.
//!
//! A process that asks for a slot may be in a task that was not found yet, so the loop has the
//! finders look first. What was there when it asked has been found once two passes saw it the same, and
//! is a task or refused once the loop has answered all questions asked by then. What comes later
//! belongs to later looks: where tasks come all the time there is no moment without something new.

use std::collections::{BTreeSet, VecDeque};

/// The looks under way. The loop counts them: the number of each is above that of the one before.
#[derive(Debug, Default)]
pub struct Looks {
    /// The last one that the loop asked for.
    wanted: u64,
    /// Those asked for when the last pass began, and when the one before it did.
    begun: u64,
    before: u64,
    /// What was there for these looks has been found.
    found: u64,
    /// The number of the next question to the loop, and those without an answer.
    question: u64,
    open: BTreeSet<u64>,
    /// Looks that are over once all questions below a number are answered.
    ends: VecDeque<(u64, u64)>,
}

impl Looks {
    /// The loop asks for a look.
    pub fn want(&mut self, look: u64) {
        self.wanted = look;
    }

    /// Whether another pass is needed.
    pub fn wants_pass(&self) -> bool {
        self.found < self.wanted
    }

    /// A pass begins.
    pub fn begin_pass(&mut self) {
        (self.before, self.begun) = (self.begun, self.wanted);
    }

    /// A question to the loop: its number.
    pub fn ask(&mut self) -> u64 {
        self.question += 1;
        self.open.insert(self.question);
        self.question
    }

    /// The loop's answer came.
    pub fn answered(&mut self, question: u64) {
        self.open.remove(&question);
    }

    /// The pass has ended and all it found was asked; `steady`: it saw nothing for the first time.
    pub fn end_pass(&mut self, steady: bool) {
        let found = if steady { self.begun } else { self.before };
        if found > self.found {
            self.found = found;
            self.ends.push_back((found, self.question));
        }
    }

    /// The last look that is over; `None`: none has ended since the last call.
    pub fn over(&mut self) -> Option<u64> {
        let first = self.open.first().copied().unwrap_or(u64::MAX);
        let mut over = None;
        while let Some(&(look, last)) = self.ends.front()
            && last < first
        {
            self.ends.pop_front();
            over = Some(look);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(looks: &mut Looks, steady: bool) {
        looks.begin_pass();
        looks.end_pass(steady);
    }

    #[test]
    fn a_pass_that_sees_nothing_new_is_enough() {
        let mut looks = Looks::default();
        pass(&mut looks, true);
        assert_eq!(looks.over(), None);
        looks.want(1);
        assert!(looks.wants_pass());
        pass(&mut looks, true);
        assert!(!looks.wants_pass());
        assert_eq!(looks.over(), Some(1));
        assert_eq!(looks.over(), None, "once");
    }

    #[test]
    fn what_comes_all_the_time_keeps_no_look_from_its_end() {
        let mut looks = Looks::default();
        looks.want(1);
        pass(&mut looks, false);
        assert_eq!(looks.over(), None, "what was there was seen once");
        for look in 2..100 {
            looks.want(look);
            let question = looks.ask();
            pass(&mut looks, false);
            looks.answered(question);
            assert_eq!(looks.over(), Some(look - 1));
        }
    }

    #[test]
    fn a_look_ends_with_the_answers_to_what_was_asked_by_then() {
        let mut looks = Looks::default();
        let earlier = looks.ask();
        looks.want(1);
        looks.begin_pass();
        let own = looks.ask();
        looks.end_pass(true);
        let later = looks.ask();
        looks.answered(own);
        assert_eq!(looks.over(), None);
        looks.answered(earlier);
        assert_eq!(looks.over(), Some(1));
        looks.answered(later);
        assert_eq!(looks.over(), None);
    }

    #[test]
    fn a_look_asked_for_during_a_pass_is_none_of_it() {
        let mut looks = Looks::default();
        looks.want(1);
        looks.begin_pass();
        looks.want(2);
        looks.end_pass(true);
        assert_eq!(looks.over(), Some(1));
        assert!(looks.wants_pass());
        pass(&mut looks, true);
        assert_eq!(looks.over(), Some(2));
    }
}
