//! A figure over several seeds: its median, and the interval in which the median is likely to be.
//!
//! The interval is by order statistics: of `n` values in order, those between the `r`-th from below and
//! the `r`-th from above hold the true median with a probability that depends on `n` and `r` alone,
//! whatever the distribution is (each value is below the median with probability 1/2, so the number below
//! it is binomial). `r` is the largest with at least 95 %; of 20 seeds these are the sixth and the
//! fifteenth (95.9 %). A bootstrap would need random numbers of its own and promises less for so few
//! values; a mean with its standard error would assume a distribution that makespans do not have.
//!
//! Limits: below six seeds no such interval exists, and there is none. The seeds are independent as
//! far as their random numbers are; what all of them have in common, the scenario, is in no interval.

use std::ops::RangeInclusive;

use serde::Serialize;

/// How sure the interval is, at least.
const SURE: f64 = 0.95;

/// A figure over several seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// Lower end of the interval; none with too few seeds.
    pub low: Option<f64>,
    /// Upper end of it.
    pub high: Option<f64>,
    /// From how many seeds.
    pub seeds: usize,
}

impl Spread {
    /// Of these values; none of no values, or where one is no number.
    pub fn of(values: &[f64]) -> Option<Spread> {
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (count, middle) = (sorted.len(), sorted.len() / 2);
        let median = match count % 2 {
            1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        };
        let rank = rank(count);
        let low = rank.map(|rank| sorted[rank - 1]);
        let high = rank.map(|rank| sorted[count - rank]);
        Some(Spread { median, low, high, seeds: count })
    }

    /// The interval, where there is one.
    pub fn interval(&self) -> Option<RangeInclusive<f64>> {
        Some(self.low?..=self.high?)
    }
}

/// The largest `r` such that the `r`-th value from below and the `r`-th from above hold the median
/// between them as surely as [`SURE`] says; none where not even the smallest and the largest do.
fn rank(count: usize) -> Option<usize> {
    let mut outside = 0.0;
    let mut rank = None;
    // The logarithm of C(count, below) / 2^count.
    let mut log = -(count as f64) * std::f64::consts::LN_2;
    for below in 0..count.div_ceil(2) {
        // Fewer than `below + 1` values are below the median, or as few above it.
        outside += 2.0 * log.exp();
        if outside > 1.0 - SURE {
            break;
        }
        rank = Some(below + 1);
        log += ((count - below) as f64).ln() - ((below + 1) as f64).ln();
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn the_ranks_are_those_of_the_tables() {
        // Conover, Practical Nonparametric Statistics, and any table of the sign test
        let published = [(5, None), (6, Some(1)), (8, Some(1)), (9, Some(2)), (12, Some(3))];
        let more = [(15, Some(4)), (20, Some(6)), (25, Some(8)), (30, Some(10)), (100, Some(40))];
        for (count, wanted) in published.into_iter().chain(more) {
            assert_eq!(rank(count), wanted, "{count}");
        }
        assert_eq!((rank(0), rank(1)), (None, None));
        // beyond what 2^-n can be written in
        assert!(rank(5000).is_some_and(|rank| (2400..2450).contains(&rank)), "{:?}", rank(5000));
    }

    #[test]
    fn median_and_interval_do_not_depend_on_the_order() {
        let values: Vec<f64> = (1..=20).map(|value| f64::from(value * 11 % 21)).collect();
        let spread = Spread::of(&values).unwrap();
        assert_eq!((spread.median, spread.interval(), spread.seeds), (10.5, Some(6.0..=15.0), 20));
        let odd = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.interval()), (2.0, None));
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
        let same = Spread::of(&[4.0; 6]).unwrap();
        assert_eq!(same.interval(), Some(4.0..=4.0));
    }

    #[test]
    fn the_interval_holds_the_median_as_often_as_it_says() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        let inside = (0..4000)
            .filter(|_| {
                // skewed; the median of a square of a uniform number is 1/4
                let values: Vec<f64> = (0..20).map(|_| rng.random::<f64>().powi(2)).collect();
                Spread::of(&values).unwrap().interval().unwrap().contains(&0.25)
            })
            .count();
        assert!((3770..3900).contains(&inside), "{inside} of 4000, 95.9 % are expected");
    }
}
