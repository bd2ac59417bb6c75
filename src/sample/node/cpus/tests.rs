use std::time::Duration;

use super::super::tests::Fixture;
use super::*;

/// The CPUs, the ticks in use on them, and the problems.
fn read(reader: &mut CpuReader) -> (String, u128, Vec<String>) {
    let mut problems = Vec::new();
    let reading = reader.read(&Descriptors::new(100), &mut Vec::new(), &mut problems);
    let used = reading.times.map_or(0, |times| times.user.as_millis() / 10);
    (reading.cpus.map(|cpus| cpus.to_string()).unwrap_or_default(), used, problems)
}

/// The same where there is no problem.
fn cpus(reader: &mut CpuReader) -> (String, u128) {
    let (cpus, used, problems) = read(reader);
    assert_eq!(problems, Vec::<String>::new());
    (cpus, used)
}

const ONLINE: &str = "sys/devices/system/cpu/online";
const ISOLATED: &str = "sys/devices/system/cpu/isolated";

#[test]
fn cpus_online_count_and_neither_possible_ones_nor_lrsds_affinity() {
    let fixture = Fixture::new();
    fixture.put("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0\n");
    fixture.put("sys/devices/system/cpu/possible", "0-31\n");
    let mut reader = CpuReader::new(&fixture.settings());
    assert_eq!(cpus(&mut reader), ("0-3".into(), 15));
    // One goes, and comes back.
    fixture.put(ONLINE, "0,2-3\n");
    assert_eq!(cpus(&mut reader), ("0,2-3".into(), 13));
    fixture.put(ONLINE, "0-3\n");
    assert_eq!(cpus(&mut reader), ("0-3".into(), 15));
    // One went between the two files.
    fixture.put("proc/stat", "cpu  1 0\ncpu0 1 0 0 10\ncpu2 4 0 0 10\nintr 7\ncpu3 1\n");
    assert_eq!(cpus(&mut reader), ("0,2".into(), 5));
}

#[test]
fn isolated_cpus_do_not_count() {
    let fixture = Fixture::new();
    fixture.put(ISOLATED, "\n");
    let mut reader = CpuReader::new(&fixture.settings());
    assert_eq!(cpus(&mut reader), ("0-3".into(), 15));
    fixture.put(ISOLATED, "2-3\n");
    assert_eq!(cpus(&mut reader), ("0-1".into(), 3));
}

#[test]
fn the_cpuset_of_the_nearest_group_counts_on_v2() {
    let fixture = Fixture::new();
    let mut settings = fixture.settings();
    settings.cpuset_dirs =
        ["top/lrs.slice/x", "top/lrs.slice", "top"].map(|dir| fixture.path(dir)).into();
    let mut reader = CpuReader::new(&settings);
    assert_eq!(cpus(&mut reader).0, "0-3", "no controller of cpuset");
    fixture.put("top/cpuset.cpus.effective", "0-3\n");
    assert_eq!(cpus(&mut reader).0, "0-3");
    // AllowedCPUs= of lrs.slice enables the controller there.
    fixture.put("top/lrs.slice/cpuset.cpus.effective", "0\n");
    assert_eq!(cpus(&mut reader), ("0".into(), 1));
    fixture.put("top/lrs.slice/x/cpuset.cpus.effective", "0-1,9\n");
    assert_eq!(cpus(&mut reader), ("0-1".into(), 3));
}

#[test]
fn the_cpuset_of_lrsds_group_counts_on_v1_and_an_empty_one_is_none() {
    let fixture = Fixture::new();
    let mut settings = fixture.settings();
    settings.cpuset_dirs = vec![fixture.path("set/batch"), fixture.path("set")];
    let mut reader = CpuReader::new(&settings);
    fixture.put("set/cpuset.effective_cpus", "0-2\n");
    fixture.put("set/batch/cpuset.effective_cpus", "\n");
    assert_eq!(cpus(&mut reader).0, "0-2");
    fixture.put("set/batch/cpuset.effective_cpus", "2\n");
    assert_eq!(cpus(&mut reader), ("2".into(), 4));
}

#[test]
fn what_leaves_no_cpu_or_cannot_be_read_is_reported_and_does_not_count() {
    let fixture = Fixture::new();
    let mut settings = fixture.settings();
    settings.cpuset_dirs = vec![fixture.path("set")];
    let one_problem = |name: &str, reader: &mut CpuReader| {
        let (cpus, used, problems) = read(reader);
        assert!(problems.len() == 1 && problems[0].contains(name), "{problems:?}");
        (cpus, used)
    };
    let mut reader = CpuReader::new(&settings);
    fixture.put("set/cpuset.cpus.effective", "7\n");
    assert_eq!(one_problem("set/cpuset.cpus", &mut reader), ("0-3".into(), 15));
    fixture.put("set/cpuset.cpus.effective", "some\n");
    assert_eq!(one_problem("set/cpuset.cpus", &mut reader), ("0-3".into(), 15));
    // Tasks were put onto isolated CPUs on purpose.
    fixture.put("set/cpuset.cpus.effective", "3\n");
    fixture.put(ISOLATED, "3\n");
    assert_eq!(one_problem("isolated", &mut reader), ("3".into(), 8));
    fixture.put("set/cpuset.cpus.effective", "0-1\n");
    fixture.put(ONLINE, "all\n");
    assert_eq!(one_problem("cpu/online", &mut reader), ("0-1".into(), 3));
    std::fs::remove_file(fixture.path(ONLINE)).unwrap();
    assert_eq!(one_problem("cpu/online", &mut CpuReader::new(&settings)), ("0-1".into(), 3));
    // Without counters the CPUs are known, and nothing of their time.
    fixture.put(ONLINE, "0-3\n");
    fixture.put("proc/stat", "intr 5\n");
    assert_eq!(one_problem("proc/stat", &mut CpuReader::new(&settings)), ("0-1".into(), 0));
    std::fs::remove_file(fixture.path(ONLINE)).unwrap();
    let (none, _, problems) = read(&mut CpuReader::new(&settings));
    assert_eq!((none.as_str(), problems.len()), ("", 2), "{problems:?}");
}

#[test]
fn quotas_are_read_with_their_use_and_anew_each_cycle() {
    let fixture = Fixture::new();
    let mut settings = fixture.settings();
    let dirs = |quota: &str, usage: &str| QuotaDirs {
        quota: fixture.path(quota),
        usage: fixture.path(usage),
    };
    settings.quota_dirs = vec![dirs("cpu/lrs", "acct/lrs"), dirs("cpu", "acct")];
    let mut reader = CpuReader::new(&settings);
    let mut quotas = || {
        let mut problems = Vec::new();
        let reading = reader.read(&Descriptors::new(100), &mut Vec::new(), &mut problems);
        let quotas = reading.quotas.into_iter().map(|quota| (quota.cpus, quota.used));
        (quotas.collect::<Vec<_>>(), problems.len())
    };
    let ms = |ms| Some(Duration::from_millis(ms));
    fixture.put("cpu/cpu.max", "max 100000\n");
    assert_eq!(quotas(), (vec![], 0));
    fixture.put("cpu/lrs/cpu.max", "190000 100000\n");
    assert_eq!(quotas(), (vec![(1.9, None)], 1), "what is used is not known, and reported");
    fixture.put("acct/lrs/cpu.stat", "usage_usec 2000\nuser_usec 1\n");
    fixture.put("cpu/cpu.max", "50000 100000\n");
    fixture.put("acct/cpu.stat", "usage_usec 3000\n");
    assert_eq!(quotas(), (vec![(1.9, ms(2)), (0.5, ms(3))], 0));

    // v1.
    fixture.put("cpu/cpu.max", "max 100000\n");
    fixture.put("cpu/lrs/cpu.max", "max 100000\n");
    fixture.put("cpu/lrs/cpu.cfs_quota_us", "250000\n");
    fixture.put("cpu/lrs/cpu.cfs_period_us", "100000\n");
    fixture.put("acct/lrs/cpuacct.usage", "4000000\n");
    assert_eq!(quotas(), (vec![(2.5, ms(4))], 0));
    fixture.put("cpu/lrs/cpu.cfs_quota_us", "-1\n");
    assert_eq!(quotas(), (vec![], 0));
}
