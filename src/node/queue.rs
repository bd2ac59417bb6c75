//! The jobs that a thread beside the loop has to do, in their order.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

/// The jobs of a thread, those that come after all others apart. The rest stay in order: the loop
/// sends none for a task before the answer to its attach or look-up, the only ones that let others
/// go first.
pub(super) struct Queue<'a, T> {
    jobs: &'a Receiver<T>,
    comes_last: fn(&T) -> bool,
    first: VecDeque<T>,
    last: VecDeque<T>,
}

impl<T> Queue<'_, T> {
    pub(super) fn new(jobs: &Receiver<T>, comes_last: fn(&T) -> bool) -> Queue<'_, T> {
        Queue { jobs, comes_last, first: VecDeque::new(), last: VecDeque::new() }
    }

    /// Waits for the next job; `None` once the loop has dropped its end and nothing is left.
    pub(super) fn next(&mut self) -> Option<T> {
        if self.first.is_empty() && self.last.is_empty() {
            let job = self.jobs.recv().ok()?;
            self.sort(job);
        }
        while let Ok(job) = self.jobs.try_recv() {
            self.sort(job);
        }
        self.first.pop_front().or_else(|| self.last.pop_front())
    }

    fn sort(&mut self, job: T) {
        if (self.comes_last)(&job) {
            self.last.push_back(job);
        } else {
            self.first.push_back(job);
        }
    }
}
