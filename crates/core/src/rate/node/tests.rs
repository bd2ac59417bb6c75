use proptest::prelude::*;

use super::*;
use crate::cpus::CpuSet;
use crate::measured::Measured;

fn at(seconds: f64) -> BootTime {
    BootTime(time(seconds))
}

fn time(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// The CPUs of `set` with so much time in use, idle and waiting for a disk.
fn node(set: &[u32], used: f64, idle: f64, iowait: f64) -> NodeSample {
    NodeSample {
        cpus: Some(set.iter().copied().collect()),
        cpu: Some(CpuTimes {
            user: time(used),
            idle: time(idle),
            iowait: time(iowait),
            ..CpuTimes::default()
        }),
        ..NodeSample::default()
    }
}

fn under(quota: f64, used: Option<f64>, node: NodeSample) -> NodeSample {
    let quota = CpuQuota { group: "/lrs.slice".into(), cpus: quota, used: used.map(time) };
    NodeSample { quotas: vec![quota], ..node }
}

/// E, W and idle over three seconds.
fn shares(old: &NodeSample, new: &NodeSample) -> Option<[f64; 3]> {
    let rates = NodeRates::between((at(10.0), old), (at(13.0), new));
    let shares = [rates.effective?, rates.iowait?, rates.idle?].map(Share::value);
    Some(shares.map(|share| (share * 1e6).round() / 1e6))
}

#[test]
fn a_cpu_that_goes_or_comes_back_gives_no_cpu_figures_for_that_cycle() {
    let both = node(&[0, 1], 20.0, 100.0, 0.0);
    let one = node(&[0], 15.0, 50.0, 0.0);
    assert_eq!(shares(&both, &one), None);
    assert_eq!(shares(&one, &node(&[0], 18.0, 50.0, 0.0)), Some([1.0, 0.0, 0.0]));
    // It brings the idle time of its whole life: E would be 0.1 on a node that is full.
    let back = node(&[0, 1], 28.0, 150.0, 0.0);
    assert_eq!(shares(&one, &back), None);
    assert_eq!(
        Measured::of(&NodeRates::between((at(10.0), &one), (at(13.0), &back)), &back).cpu,
        None
    );
    // As many CPUs, but others.
    assert_eq!(shares(&both, &node(&[0, 2], 26.0, 100.0, 0.0)), None);
    assert_eq!(shares(&both, &node(&[0, 1], 26.0, 100.0, 0.0)), Some([1.0, 0.0, 0.0]));
}

#[test]
fn a_counter_that_jumps_gives_no_cpu_figures() {
    let old = node(&[0, 1], 20.0, 100.0, 0.0);
    assert_eq!(shares(&old, &node(&[0, 1], 26.0, 104.0, 0.0)), None, "10 s of 2 CPUs in 3 s");
    assert_eq!(shares(&old, &node(&[0, 1], 23.0, 103.2, 0.0)).map(|s| s[0] < 0.5), Some(true));
}

#[test]
fn a_quota_bounds_what_is_spare_and_is_what_shares_are_of() {
    let read = |quota: f64, used_before: f64, used: f64, cpu: [f64; 3]| {
        let old = under(quota, Some(used_before), node(&[0, 1], 20.0, 100.0, 30.0));
        let [user, idle, iowait] = cpu;
        let new = node(&[0, 1], 20.0 + user, 100.0 + idle, 30.0 + iowait);
        shares(&old, &under(quota, Some(used_before + used), new))
    };
    // Throttled hogs: the idle CPU is none that they may use.
    assert_eq!(read(1.0, 5.0, 3.0, [3.0, 3.0, 0.0]), Some([1.0, 0.0, 0.0]));
    assert_eq!(read(1.0, 5.0, 3.1, [3.0, 3.0, 0.0]), Some([1.0, 0.0, 0.0]), "a burst");
    // Half the quota is used, and the CPUs have the rest.
    assert_eq!(read(1.0, 5.0, 1.5, [1.5, 4.5, 0.0]), Some([0.5, 0.0, 0.5]));
    assert_eq!(read(1.0, 5.0, 1.5, [1.5, 3.0, 1.5]), Some([0.5, 0.166667, 0.333333]));
    // Others use what the quota would allow.
    assert_eq!(read(1.0, 5.0, 0.6, [5.4, 0.6, 0.0]), Some([0.8, 0.0, 0.2]));
    // It allows more than the CPUs are, but its group uses it elsewhere.
    assert_eq!(read(3.0, 5.0, 9.0, [3.0, 3.0, 0.0]), Some([1.0, 0.0, 0.0]));
    assert_eq!(read(3.0, 5.0, 3.0, [3.0, 3.0, 0.0]), Some([0.5, 0.0, 0.5]));
}

#[test]
fn a_quota_that_changes_or_has_no_known_use_gives_no_cpu_figures() {
    let free = node(&[0, 1], 20.0, 100.0, 0.0);
    let old = under(1.0, Some(5.0), free.clone());
    let later = node(&[0, 1], 23.0, 103.0, 0.0);
    assert_eq!(shares(&free, &under(1.0, Some(8.0), later.clone())), None, "new");
    assert_eq!(shares(&old, &later), None, "gone");
    assert_eq!(shares(&old, &under(2.0, Some(8.0), later.clone())), None, "raised");
    assert_eq!(shares(&old, &under(1.0, None, later.clone())), None, "unread");
    assert_eq!(shares(&old, &under(1.0, Some(1.0), later)), None, "another group of that name");
}

proptest! {
    /// Whatever CPUs and quotas come and go: shares are shares of one total, and what is spare is
    /// no more than the CPUs' idle time and than any quota leaves.
    #[test]
    fn what_is_spare_is_there_and_allowed(
        old_set in proptest::collection::btree_set(0u32..4, 1..4),
        new_set in proptest::collection::btree_set(0u32..4, 1..4),
        grown in proptest::array::uniform3(0.0f64..20.0),
        quotas in proptest::collection::vec((0.01f64..6.0, 0.0f64..20.0), 0..3),
        elapsed in 0.0f64..5.0,
    ) {
        let set = |set: &std::collections::BTreeSet<u32>| set.iter().copied().collect::<Vec<_>>();
        let mut old = node(&set(&old_set), 20.0, 100.0, 30.0);
        let [user, idle, iowait] = grown;
        let mut new = node(&set(&new_set), 20.0 + user, 100.0 + idle, 30.0 + iowait);
        for (cpus, used) in &quotas {
            let quota = |used| CpuQuota { group: "/a".into(), cpus: *cpus, used: Some(time(used)) };
            old.quotas.push(quota(7.0));
            new.quotas.push(quota(7.0 + used));
        }
        let rates = NodeRates::between((at(10.0), &old), (at(10.0 + elapsed), &new));
        let Some(idle_share) = rates.idle else { return Ok(()) };
        prop_assert_eq!(&old_set, &new_set);
        let [e, w, s, i] = [rates.effective.unwrap(), rates.iowait.unwrap(), rates.steal.unwrap(), idle_share]
            .map(Share::value);
        prop_assert!((e + w + s + i - 1.0).abs() < 1e-6);
        let least = quotas.iter().map(|(cpus, _)| cpus * elapsed).fold(f64::INFINITY, f64::min);
        let total = (user + idle + iowait).min(least);
        let spare = (w + i) * total;
        prop_assert!(spare <= idle + iowait + 1e-6);
        for (cpus, used) in &quotas {
            prop_assert!(spare <= (cpus * elapsed - used).max(0.0) + 1e-6);
        }
        let usable = new.usable_cpus().unwrap();
        prop_assert!(f64::from(usable.slots()) <= usable.total().max(1.0));
        prop_assert_eq!(usable.spread(), new.cpus.as_ref().map_or(0, CpuSet::len));
    }
}
