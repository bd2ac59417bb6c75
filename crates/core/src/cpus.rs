//! The CPUs that the tasks of LRS may use: which, how many slots they are, and what a quota above
//! the tasks leaves of them.
//!
//! Everything that is a share of the node's CPUs is one of [`UsableCpus::total`]: of those CPUs, or
//! of the quota where that is less. Spare is the least of the idle time of those CPUs and of what
//! the quota leaves, for nothing else can be used by one more task.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A set of CPU numbers. Its text is the kernel's: "0-3,5" (cpuset(7), "List format").
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CpuSet {
    bits: Vec<bool>,
}

impl CpuSet {
    /// Adds one.
    pub fn insert(&mut self, cpu: u32) {
        let index = cpu as usize;
        if self.bits.len() <= index {
            self.bits.resize(index + 1, false);
        }
        self.bits[index] = true;
    }

    /// Whether `cpu` is in it.
    pub fn contains(&self, cpu: u32) -> bool {
        self.bits.get(cpu as usize).copied().unwrap_or(false)
    }

    /// How many are in it.
    pub fn len(&self) -> u32 {
        self.iter().count() as u32
    }

    /// Whether none is in it.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Those in both.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        self.iter().filter(|cpu| other.contains(*cpu)).collect()
    }

    /// Those that are not in `other`.
    pub fn without(&self, other: &CpuSet) -> CpuSet {
        self.iter().filter(|cpu| !other.contains(*cpu)).collect()
    }

    /// Those that are in it, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.bits.iter().zip(0u32..).filter_map(|(bit, cpu)| bit.then_some(cpu))
    }
}

impl PartialEq for CpuSet {
    fn eq(&self, other: &CpuSet) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for CpuSet {}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::default();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for first in self.iter().filter(|cpu| *cpu == 0 || !self.contains(cpu - 1)) {
            let last = (first..).take_while(|cpu| self.contains(*cpu)).last().unwrap_or(first);
            match last == first {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

/// How many CPUs the tasks of LRS may use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsableCpus {
    /// CPUs that they may be spread over, at least 1.
    spread: u32,
    /// The least CPU quota of the LRS root and the groups above it, in CPUs.
    quota: Option<f64>,
}

impl UsableCpus {
    /// `quota` in CPUs; one that is no positive number is none.
    pub fn new(spread: u32, quota: Option<f64>) -> UsableCpus {
        UsableCpus { spread: spread.max(1), quota: quota.filter(|cpus| *cpus > 0.0) }
    }

    /// CPUs that tasks may be spread over, quota aside.
    pub fn spread(self) -> u32 {
        self.spread
    }

    /// The quota, in CPUs, where it allows less than those CPUs are.
    pub fn binding_quota(self) -> Option<f64> {
        self.quota.filter(|cpus| *cpus < f64::from(self.spread))
    }

    /// What every share is of, in CPUs.
    pub fn total(self) -> f64 {
        self.binding_quota().unwrap_or(f64::from(self.spread))
    }

    /// A, where the settings leave it to the node: a quota rounded down, at least 1 (spec 3).
    pub fn slots(self) -> u32 {
        // A cast of a float saturates.
        (self.total() as u32).max(1)
    }

    /// What became other since `before`, in words.
    pub(crate) fn change_since(self, before: UsableCpus) -> String {
        let mut changes = Vec::new();
        if self.spread != before.spread {
            changes.push(format!(
                "LRS's tasks may run on {} CPUs, {} before",
                self.spread, before.spread
            ));
        }
        match (before.binding_quota(), self.binding_quota()) {
            (old, Some(new)) if old != Some(new) => {
                changes.push(format!("a CPU quota above LRS's tasks allows {new:.2} CPUs"));
            }
            (Some(old), None) => {
                changes.push(format!("the CPU quota of {old:.2} CPUs does not bind any more"));
            }
            _ => {}
        }
        changes.join("; ")
    }
}

impl From<u32> for UsableCpus {
    fn from(cpus: u32) -> UsableCpus {
        UsableCpus::new(cpus, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_below_one_cpu_leaves_one_slot() {
        let slots = |spread, quota| UsableCpus::new(spread, quota).slots();
        assert_eq!(slots(8, Some(0.3)), 1);
        assert_eq!(slots(8, Some(2.999)), 2);
        assert_eq!(slots(8, None), 8);
        assert_eq!(slots(0, None), 1);
        assert_eq!(slots(8, Some(1e30)), 8);
        assert_eq!(slots(8, Some(f64::NAN)), 8);
        assert_eq!(UsableCpus::new(2, Some(1.5)).total(), 1.5);
        assert_eq!(UsableCpus::new(2, Some(2.0)).binding_quota(), None);
    }

    #[test]
    fn a_set_is_shown_as_the_kernel_writes_it() {
        let set = |cpus: &[u32]| cpus.iter().copied().collect::<CpuSet>();
        assert_eq!(set(&[0, 1, 2, 3, 5, 8, 9]).to_string(), "0-3,5,8-9");
        assert_eq!(set(&[]).to_string(), "");
        assert_eq!(set(&[0, 1, 5]).without(&set(&[1])), set(&[0, 5]));
        // Equal is who is in it, not how large it has been.
        assert_eq!(set(&[0, 9]).without(&set(&[9])), set(&[0]));
    }

    #[test]
    fn a_change_says_what_changed() {
        let (two, one) = (UsableCpus::from(2), UsableCpus::from(1));
        let quota = UsableCpus::new(2, Some(1.0));
        assert_eq!(one.change_since(two), "LRS's tasks may run on 1 CPUs, 2 before");
        assert_eq!(quota.change_since(two), "a CPU quota above LRS's tasks allows 1.00 CPUs");
        assert_eq!(two.change_since(quota), "the CPU quota of 1.00 CPUs does not bind any more");
    }
}
