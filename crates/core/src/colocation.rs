//! The co-location test (thesis 2.5, Fig. 2.5; spec 3): does a job suit a node, given what
//! runs there?
//!
//! ```text
//! newCR = (CR_j + sum of the CR of the running tasks) / (number of running tasks + 1)
//! the job suits the node if newCR < M + threshold
//! ```
//!
//! `M` is the mean rate of all running jobs of the scheduler. The divisor counts the newcomer, so
//! that newCR is the mean rate of what would run. The source's figure leaves it out: read so, a
//! node with two slots would refuse computing beside I/O, the reverse of the test's purpose. With
//! nothing running any job suits. A job without a rate is to
//! be sampled first (one of its tasks run and measured), whatever runs here.
//!
//! Ours, where the source is silent: a running task without a known rate counts as `M`, the rate
//! expected of a task one knows nothing about; so it stays in the divisor without pulling the
//! outcome either way. Without any `M` (no argument, no job with a rate)
//! the job asked about is the only one known, and `M` is its own rate.
//!
//! Advice only: nothing in LRS refuses a task because of it.

use crate::units::Share;

/// What the test is asked about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// CR_j; `None`: never measured.
    pub job_rate: Option<Share>,
    /// The tasks on this node.
    pub running: Running,
    /// M; `None`: not known.
    pub mean_rate: Option<Share>,
    /// Slack, `classify.colocation_threshold`.
    pub threshold: f64,
}

/// The running tasks, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Running {
    /// Tasks with a known rate.
    pub measured: u32,
    /// Sum of those rates.
    pub rate_sum: f64,
    /// Tasks without a known rate yet.
    pub unmeasured: u32,
}

impl Running {
    /// Tasks in all.
    pub fn count(self) -> u32 {
        self.measured.saturating_add(self.unmeasured)
    }
}

impl FromIterator<Option<Share>> for Running {
    fn from_iter<I: IntoIterator<Item = Option<Share>>>(rates: I) -> Running {
        let mut running = Running::default();
        for rate in rates {
            match rate {
                Some(rate) => {
                    running.measured = running.measured.saturating_add(1);
                    running.rate_sum += rate.value();
                }
                None => running.unmeasured = running.unmeasured.saturating_add(1),
            }
        }
        running
    }
}

/// The outcome, with the figures it rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Advice {
    /// The job suits the node.
    Suits {
        /// newCR; `None` with nothing running.
        new_rate: Option<f64>,
        /// M as used.
        mean_rate: f64,
    },
    /// The node would be bound by one resource.
    DoesNotSuit {
        /// newCR.
        new_rate: f64,
        /// M as used.
        mean_rate: f64,
    },
    /// The job has no rate.
    SampleFirst,
}

impl Advice {
    /// How far newCR is from M, to either side; of several jobs the one with the least brings the
    /// node nearest to the mean (thesis 2.5). With nothing running, none.
    pub fn score(&self) -> Option<f64> {
        match *self {
            Advice::Suits { new_rate, mean_rate } => Some((new_rate? - mean_rate).abs()),
            Advice::DoesNotSuit { new_rate, mean_rate } => Some((new_rate - mean_rate).abs()),
            Advice::SampleFirst => None,
        }
    }
}

/// Applies the test.
pub fn evaluate(question: &Question) -> Advice {
    let Some(job_rate) = question.job_rate else {
        return Advice::SampleFirst;
    };
    let mean_rate = question.mean_rate.unwrap_or(job_rate).value();
    let running = question.running;
    if running.count() == 0 {
        return Advice::Suits { new_rate: None, mean_rate };
    }
    let assumed = f64::from(running.unmeasured) * mean_rate;
    let rates = job_rate.value() + running.rate_sum + assumed;
    let new_rate = rates / (f64::from(running.count()) + 1.0);
    if new_rate < mean_rate + question.threshold {
        Advice::Suits { new_rate: Some(new_rate), mean_rate }
    } else {
        Advice::DoesNotSuit { new_rate, mean_rate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(job_rate: f64, running: &[Option<f64>], mean_rate: Option<f64>) -> Question {
        Question {
            job_rate: Some(Share::clamped(job_rate)),
            running: running.iter().map(|rate| rate.map(Share::clamped)).collect(),
            mean_rate: mean_rate.map(Share::clamped),
            threshold: 0.1,
        }
    }

    fn suits(advice: Advice) -> bool {
        matches!(advice, Advice::Suits { .. })
    }

    #[test]
    fn vectors_of_the_contract() {
        assert!(suits(evaluate(&question(1.0, &[Some(0.1); 4], Some(0.5)))));
        assert!(!suits(evaluate(&question(1.0, &[Some(1.0); 4], Some(0.5)))));
        assert!(suits(evaluate(&question(0.1, &[Some(1.0); 4], Some(0.9)))));
    }

    #[test]
    fn the_divisor_counts_the_newcomer() {
        let Advice::DoesNotSuit { new_rate, mean_rate } =
            evaluate(&question(1.0, &[Some(0.5); 3], Some(0.5)))
        else {
            panic!("0.625 is above 0.6");
        };
        assert_eq!((new_rate, mean_rate), (0.625, 0.5));
        let beside_io = question(1.0, &[Some(0.0)], Some(0.5));
        assert!(suits(evaluate(&beside_io)), "computing goes beside I/O");
    }

    #[test]
    fn the_limit_itself_does_not_suit() {
        // (0.5 + 1) / 2 = 0.5 + 0.25 exactly, in binary too
        let mut question = question(0.5, &[Some(1.0)], Some(0.5));
        question.threshold = 0.25;
        assert!(!suits(evaluate(&question)));
        question.threshold = 0.2500001;
        assert!(suits(evaluate(&question)));
    }

    #[test]
    fn an_empty_node_suits_and_an_unknown_job_is_sampled() {
        assert_eq!(
            evaluate(&question(1.0, &[], Some(0.0))),
            Advice::Suits { new_rate: None, mean_rate: 0.0 }
        );
        let mut unknown = question(1.0, &[], Some(0.5));
        unknown.job_rate = None;
        assert_eq!(evaluate(&unknown), Advice::SampleFirst);
    }

    #[test]
    fn a_task_without_a_rate_counts_as_the_mean() {
        let known = evaluate(&question(0.5, &[Some(0.25), Some(0.75)], Some(0.75)));
        let assumed = evaluate(&question(0.5, &[Some(0.25), None], Some(0.75)));
        assert_eq!(known, assumed);
    }

    #[test]
    fn without_a_mean_the_job_is_its_own_measure() {
        let Advice::DoesNotSuit { mean_rate, .. } = evaluate(&question(0.4, &[Some(1.0)], None))
        else {
            panic!("0.7 is above 0.5");
        };
        assert_eq!(mean_rate, 0.4);
    }
}
