//! Percentiles, and ratios with an interval that says what they are worth.

use std::time::Duration;

/// Sorted readings.
#[derive(Clone, Debug)]
pub struct Spread(Vec<f64>);

impl Spread {
    pub fn new(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        Spread(values)
    }

    pub fn millis(values: &[Duration]) -> Spread {
        Spread::new(values.iter().map(|value| value.as_secs_f64() * 1e3).collect())
    }

    /// The smallest reading that at least `share` of all do not exceed; NaN without readings.
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil().max(1.0) as usize;
        self.0.get(rank - 1).copied().unwrap_or(f64::NAN)
    }

    pub fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        match (self.0.len() % 2, self.0.get(middle)) {
            (_, None) => f64::NAN,
            (0, Some(upper)) => (self.0[middle - 1] + upper) / 2.0,
            (_, Some(value)) => *value,
        }
    }

    pub fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    pub fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Median of `values` and the 95 % interval of it by the percentile bootstrap.
pub fn median_with_interval(values: &[f64]) -> (f64, f64, f64) {
    const RESAMPLES: usize = 10_000;
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        // xorshift64: good enough to draw indices, and the same on every run.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize % values.len().max(1)
    };
    let medians = (0..RESAMPLES)
        .map(|_| Spread::new(values.iter().map(|_| values[next()]).collect()).median())
        .collect();
    let medians = Spread::new(medians);
    (Spread::new(values.to_vec()).median(), medians.quantile(0.025), medians.quantile(0.975))
}
