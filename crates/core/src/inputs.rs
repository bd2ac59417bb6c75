//! The order in which inputs are decided.
//!
//! While a step is carried out nothing is decided, so what is noticed on the way waits. It comes before
//! what waited already, in the order in which it was noticed: the answers of a step's jobs before what
//! happened after them. So nothing that moves a task comes between an [`Input::Ended`] and its
//! [`Input::Figures`].

use std::collections::VecDeque;

use super::step::Input;

/// What the core has yet to decide on.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    waiting: VecDeque<Input>,
    noticed: Vec<Input>,
}

impl Inputs {
    /// Something was noticed.
    pub fn push(&mut self, input: Input) {
        self.noticed.push(input);
    }

    /// The next one. Its step is carried out before the next call.
    pub fn next_input(&mut self) -> Option<Input> {
        for input in self.noticed.drain(..).rev() {
            self.waiting.push_front(input);
        }
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TaskId;

    fn input(number: u64) -> Input {
        Input::Removed(TaskId { epoch: 1, number })
    }

    #[test]
    fn what_a_step_brings_comes_before_what_waited() {
        let mut inputs = Inputs::default();
        let mut decided = Vec::new();
        inputs.push(input(1));
        inputs.push(input(5));
        while let Some(next) = inputs.next_input() {
            if next == input(1) {
                inputs.push(input(2));
                inputs.push(input(4));
            }
            if next == input(2) {
                inputs.push(input(3));
            }
            decided.push(next);
        }
        assert_eq!(decided, (1..=5).map(input).collect::<Vec<_>>());
    }
}
