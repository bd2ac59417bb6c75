//! Weighted fair sharing of something divisible: CPUs, or the channels of a disk.
//!
//! What the kernel's schedulers come to over a second, without their slices: each gets a part
//! by weight, none more than it can use, and what one cannot use the others divide (max-min
//! fairness, Demers, Keshav, Shenker 1989). The idle class gets what the others leave.
//!
//! Limits. Linux counts an idle group as a weight of 3 beside 1024; here it gets nothing at all
//! while the others can use everything.

/// One of those who share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Want {
    /// Its weight beside the others of its class; 0 counts as 1.
    pub weight: u64,
    /// Whether it is of the idle class.
    pub idle: bool,
    /// The most it can use, in units of the capacity.
    pub most: f64,
}

/// Divides `capacity`; the parts are in the order of `wants`.
pub fn divide(capacity: f64, wants: &[Want]) -> Vec<f64> {
    let mut given = vec![0.0; wants.len()];
    let mut left = capacity;
    for idle in [false, true] {
        let mut open: Vec<usize> =
            (0..wants.len()).filter(|&i| wants[i].idle == idle && wants[i].most > 0.0).collect();
        while !open.is_empty() && left > 0.0 {
            let weight = |i: usize| wants[i].weight.max(1) as f64;
            let level = left / open.iter().map(|&i| weight(i)).sum::<f64>();
            let before = open.len();
            open.retain(|&i| {
                let part = level * weight(i);
                let full = wants[i].most <= part;
                given[i] = if full { wants[i].most } else { part };
                if full {
                    left -= wants[i].most;
                }
                !full
            });
            if open.len() == before {
                left = 0.0;
            }
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(weight: u64, most: f64) -> Want {
        Want { weight, idle: false, most }
    }

    fn idle(most: f64) -> Want {
        Want { weight: 1, idle: true, most }
    }

    fn assert_parts(capacity: f64, wants: &[Want], expected: &[f64]) {
        let given = divide(capacity, wants);
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
        assert!(given.iter().zip(expected).all(near), "{given:?}, expected {expected:?}");
    }

    #[test]
    fn full_tiers_share_by_weight() {
        // One CPU, an active and a passive hog at 100:1.
        assert_parts(1.0, &[want(100, 1.0), want(1, 1.0)], &[100.0 / 101.0, 1.0 / 101.0]);
        assert_parts(6.0, &[want(1, 9.0), want(2, 9.0), want(3, 9.0)], &[1.0, 2.0, 3.0]);
    }

    #[test]
    fn what_one_cannot_use_the_others_divide() {
        assert_parts(4.0, &[want(100, 1.0), want(1, 9.0), want(2, 9.0)], &[1.0, 1.0, 2.0]);
        assert_parts(4.0, &[want(5, 1.0), want(1, 1.0)], &[1.0, 1.0]);
        // The second is full only once the first left something: two rounds.
        assert_parts(10.0, &[want(8, 1.0), want(1, 4.0), want(1, 9.0)], &[1.0, 4.0, 5.0]);
    }

    #[test]
    fn the_idle_class_gets_what_is_left() {
        assert_parts(2.0, &[want(1, 2.0), idle(1.0)], &[2.0, 0.0]);
        assert_parts(2.0, &[want(1, 1.5), idle(1.0), idle(1.0)], &[1.5, 0.25, 0.25]);
        assert_parts(1.0, &[idle(1.0)], &[1.0]);
        assert_parts(0.0, &[want(1, 1.0)], &[0.0]);
        assert_parts(1.0, &[], &[]);
    }
}
