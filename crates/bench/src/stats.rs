//! Medians, spread, and ratios with an interval that says what they are worth.
//!
//! Medians instead of means: one run that the machine disturbed must not move a figure. Ratios
//! are taken in pairs that ran near each other in time, so that what drifts hits both sides.
//! The bootstrap is seeded: a report computed anew from the same runs has the same figures.
//!
//! Limits: a percentile bootstrap of a median of few values is coarse, and below
//! [`LEAST_FOR_INTERVAL`] values there is no 95 % interval at all, as even the span of all
//! values holds the true median less often than that (1 - 2 / 2^n).

use std::time::Duration;

use serde::Serialize;

/// Values from which on a 95 % interval of their median can exist.
pub const LEAST_FOR_INTERVAL: usize = 6;

const RESAMPLES: usize = 10_000;

/// Sorted readings, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread(Vec<f64>);

impl Spread {
    /// None without readings, and if one of them is not finite.
    pub fn new(mut values: Vec<f64>) -> Option<Spread> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        values.sort_by(f64::total_cmp);
        Some(Spread(values))
    }

    /// The readings in milliseconds.
    pub fn millis(values: &[Duration]) -> Option<Spread> {
        Spread::new(values.iter().map(|value| value.as_secs_f64() * 1e3).collect())
    }

    /// The smallest reading that at least `share` of all do not exceed (nearest rank): always
    /// a value that was seen. Of fewer than 20 readings the 0.95 quantile is the largest.
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil().max(1.0) as usize;
        self.at(rank - 1)
    }

    /// The middle reading, or half-way between the two in the middle.
    pub fn median(&self) -> f64 {
        self.between(0.5)
    }

    /// Lower and upper quartile, half-way values by linear interpolation (Hyndman and Fan's
    /// definition 7, as in R and NumPy), so that they lie alike on both sides of the median.
    pub fn quartiles(&self) -> [f64; 2] {
        [self.between(0.25), self.between(0.75)]
    }

    /// The smallest reading.
    pub fn min(&self) -> f64 {
        self.at(0)
    }

    /// The largest reading.
    pub fn max(&self) -> f64 {
        self.at(self.0.len() - 1)
    }

    /// Arithmetic mean.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// Number of readings.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn between(&self, share: f64) -> f64 {
        let place = share * (self.0.len() - 1) as f64;
        let (low, high) = (self.at(place.floor() as usize), self.at(place.ceil() as usize));
        low + (high - low) * place.fract()
    }

    /// The reading of this rank, the largest beyond the end.
    fn at(&self, rank: usize) -> f64 {
        // `new` lets no empty list pass, and `min` keeps to it.
        self.0[rank.min(self.0.len() - 1)]
    }
}

/// Where a value lies with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// From resampled values: their 2.5th and 97.5th percentile.
    fn of(resampled: Vec<f64>) -> Option<Interval> {
        let spread = Spread::new(resampled)?;
        Some(Interval { low: spread.quantile(0.025), high: spread.quantile(0.975) })
    }

    /// Whether `value` lies within, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Draws with replacement, the same ones in every process.
struct Draw(u64);

impl Draw {
    fn new() -> Draw {
        Draw(0x9E37_79B9_7F4A_7C15)
    }

    /// xorshift64: good enough to draw indices.
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % count.max(1)
    }

    /// Medians of [`RESAMPLES`] resamples.
    fn medians(&mut self, values: &Spread) -> Vec<f64> {
        let mut sample = values.clone();
        let medians = (0..RESAMPLES).map(|_| {
            sample.0.fill_with(|| values.at(self.below(values.count())));
            sample.0.sort_unstable_by(f64::total_cmp);
            sample.median()
        });
        medians.collect()
    }
}

/// The 95 % interval of the median of `values` by the percentile bootstrap, 10,000 resamples.
/// What it is worth with fewer than [`LEAST_FOR_INTERVAL`] values is for the caller to say.
pub fn median_interval(values: &Spread) -> Interval {
    Interval::of(Draw::new().medians(values))
        .unwrap_or(Interval { low: values.min(), high: values.max() })
}

/// Geometric mean; None of nothing, and if one value is not above 0.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let usable = !values.is_empty() && values.iter().all(|value| *value > 0.0);
    usable.then(|| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// The 95 % interval of the geometric mean of the medians of `groups`, each resampled by
/// itself. None if a group has fewer than [`LEAST_FOR_INTERVAL`] values.
pub fn geometric_mean_interval(groups: &[Spread]) -> Option<Interval> {
    if groups.iter().any(|group| group.count() < LEAST_FOR_INTERVAL) {
        return None;
    }
    let mut draw = Draw::new();
    let medians: Vec<Vec<f64>> = groups.iter().map(|group| draw.medians(group)).collect();
    let means = (0..RESAMPLES).map(|nth| {
        let row: Vec<f64> = medians.iter().filter_map(|group| group.get(nth).copied()).collect();
        geometric_mean(&row)
    });
    Interval::of(means.collect::<Option<_>>()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spread(values: &[f64]) -> Spread {
        Spread::new(values.to_vec()).unwrap()
    }

    #[test]
    fn known_answers() {
        let four = spread(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(four.median(), 2.5);
        assert_eq!(four.quartiles(), [1.75, 3.25]);
        assert_eq!((four.min(), four.max(), four.mean(), four.count()), (1.0, 4.0, 2.5, 4));
        let twenty = spread(&(1..=20).map(f64::from).collect::<Vec<_>>());
        assert_eq!(twenty.quantile(0.95), 19.0);
        assert_eq!(spread(&[7.0, 9.0]).quantile(0.95), 9.0);
        assert_eq!(spread(&[7.0]).quartiles(), [7.0, 7.0]);
        assert_eq!(Spread::new(vec![]), None);
        assert_eq!(Spread::new(vec![1.0, f64::NAN]), None);
    }

    #[test]
    fn geometric_means_need_values_above_zero() {
        assert!((geometric_mean(&[0.5, 2.0, 1.0]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(geometric_mean_interval(&[spread(&[1.0; 5])]), None);
        let same = geometric_mean_interval(&[spread(&[1.0; 6]), spread(&[1.0; 9])]);
        assert_eq!(same, Some(Interval { low: 1.0, high: 1.0 }));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_interval_holds_the_median_and_is_the_same_again(
            values in prop::collection::vec(0.1..10.0f64, 1..30),
        ) {
            let values = spread(&values);
            let interval = median_interval(&values);
            prop_assert!(interval.contains(values.median()), "{:?} {interval:?}", values);
            prop_assert!(interval.low >= values.min() && interval.high <= values.max());
            prop_assert_eq!(interval, median_interval(&values));
        }

        #[test]
        fn quantiles_keep_their_order(values in prop::collection::vec(-1e6..1e6f64, 1..60)) {
            let values = spread(&values);
            let [low, high] = values.quartiles();
            prop_assert!(values.min() <= low && low <= values.median());
            prop_assert!(values.median() <= high && high <= values.max());
        }

        #[test]
        fn a_mean_of_one_group_is_its_median(
            values in prop::collection::vec(0.1..10.0f64, 6..20),
        ) {
            let group = spread(&values);
            let (mean, median) =
                (geometric_mean_interval(std::slice::from_ref(&group)).unwrap(), median_interval(&group));
            prop_assert!((mean.low - median.low).abs() < 1e-9);
            prop_assert!((mean.high - median.high).abs() < 1e-9);
        }
    }
}
