//! Which CPUs the tasks of LRS may use, and the quotas above them: the one reading that capacity,
//! shares, what is spare and `lrsctl doctor` go by.
//!
//! The CPUs are those that are online, have a line in /proc/stat and are in the cpuset of where tasks
//! live, less the ones isolated at boot (`isolcpus=`), on which the scheduler puts nothing by itself.
//! lrsd's own affinity does not count: a task has that of whoever started it.
//!
//! The cpuset is that of the nearest group that has the file: on v2 from the LRS root upwards, on v1
//! from the group in which lrsd was started, since LRS puts no task into a group of cpuset there
//! (kernel: cgroup-v2.rst, "cpuset.cpus.effective"; cpusets.rst, "cpuset.effective_cpus").
//!
//! What cannot be read is logged and left out: without the list of CPUs online those of /proc/stat
//! count, without a cpuset all of them. A file that leaves no CPU at all is left out the same way,
//! for some CPU the tasks do use.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{read_as, read_where_present, unreadable};
use crate::core::cpus::CpuSet;
use crate::core::sample::{CpuQuota, CpuTimes};
use crate::kernfs::files::{Descriptors, KeptFile, is_gone};
use crate::kernfs::parse::{self, Odd};
use crate::sample::{ReportedFiles, Settings};

/// A group that may have a CPU quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaDirs {
    /// Its directory with `cpu.max`, or with `cpu.cfs_quota_us`.
    pub quota: PathBuf,
    /// Its directory with `cpu.stat` (v2) or `cpuacct.usage` (v1).
    pub usage: PathBuf,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuReading {
    /// CPUs that the tasks may be spread over. `None`: not known.
    pub cpus: Option<CpuSet>,
    /// Their time, summed.
    pub times: Option<CpuTimes>,
    /// Quotas of the groups that have one, nearest first.
    pub quotas: Vec<CpuQuota>,
    /// CPU time of the nearest of those groups, the LRS root, whether or not it has a quota.
    pub root: Option<Duration>,
}

/// Reads [`CpuReading`].
#[derive(Debug)]
pub struct CpuReader {
    online: KeptFile,
    isolated: KeptFile,
    cpusets: Vec<KeptFile>,
    quotas: Vec<Quota>,
    stat: KeptFile,
    ticks_per_second: u64,
    /// The files with odd rows that were reported.
    pub(super) reported: ReportedFiles,
}

/// The files of a group that may have a quota; a root group has none.
#[derive(Debug)]
struct Quota {
    group: String,
    v2: KeptFile,
    v2_usage: KeptFile,
    v1: KeptFile,
    v1_period: KeptFile,
    v1_usage: KeptFile,
}

impl CpuReader {
    /// Files are opened at the first reading.
    pub fn new(settings: &Settings) -> CpuReader {
        let cpu = settings.sys.join("devices/system/cpu");
        let quota = |dirs: &QuotaDirs| Quota {
            group: dirs.quota.display().to_string(),
            v2: KeptFile::new(dirs.quota.join("cpu.max")),
            v2_usage: KeptFile::new(dirs.usage.join("cpu.stat")),
            v1: KeptFile::new(dirs.quota.join("cpu.cfs_quota_us")),
            v1_period: KeptFile::new(dirs.quota.join("cpu.cfs_period_us")),
            v1_usage: KeptFile::new(dirs.usage.join("cpuacct.usage")),
        };
        let cpuset = |dir: &PathBuf| {
            ["cpuset.cpus.effective", "cpuset.effective_cpus"]
                .map(|name| KeptFile::new(dir.join(name)))
        };
        CpuReader {
            online: KeptFile::new(cpu.join("online")),
            isolated: KeptFile::new(cpu.join("isolated")),
            cpusets: settings.cpuset_dirs.iter().flat_map(cpuset).collect(),
            quotas: settings.quota_dirs.iter().map(quota).collect(),
            stat: KeptFile::new(settings.proc.join("stat")),
            ticks_per_second: settings.ticks_per_second,
            reported: ReportedFiles::default(),
        }
    }

    /// One reading; what fails is `None` and a sentence in `problems`.
    pub fn read(
        &mut self,
        descriptors: &Descriptors,
        buffer: &mut Vec<u8>,
        problems: &mut Vec<String>,
    ) -> CpuReading {
        let online = read_as(&mut self.online, descriptors, buffer, problems, parse::cpu_list);
        let cpuset = self.cpuset(descriptors, buffer, problems);
        let isolated =
            read_where_present(&mut self.isolated, descriptors, buffer, problems, parse::cpu_list);
        let quotas = self.read_quotas(descriptors, buffer, problems);
        // Right before the counters that it is compared with.
        let root = self.quotas.first_mut();
        let root = root.and_then(|root| root.usage(descriptors, buffer, problems));
        let text = match self.stat.read(descriptors, buffer) {
            Ok(text) if parse::stat_cpus(text).is_empty() => {
                problems.push(unreadable(self.stat.path()));
                None
            }
            Ok(text) => Some(text),
            Err(error) => {
                problems.push(format!("cannot read {}: {error}", self.stat.path().display()));
                None
            }
        };
        let counted = text.map(parse::stat_cpus);
        let Some(mut cpus) = counted.or_else(|| online.clone()).filter(|cpus| !cpus.is_empty())
        else {
            return CpuReading { quotas, root, ..CpuReading::default() };
        };
        if let Some(online) = online {
            keep(&mut cpus, &online, self.online.path(), problems);
        }
        if let Some((file, cpuset)) = cpuset {
            keep(&mut cpus, &cpuset, &file, problems);
        }
        if let Some(isolated) = isolated {
            let others = cpus.without(&isolated);
            keep(&mut cpus, &others, self.isolated.path(), problems);
        }
        let times = text.and_then(|text| {
            let mut odd = Odd::default();
            let times = parse::proc_stat(text, &cpus, self.ticks_per_second, &mut odd);
            self.reported.left_out(self.stat.path(), &odd);
            if times.is_none() {
                problems.push(unreadable(self.stat.path()));
            }
            times
        });
        CpuReading { cpus: Some(cpus), times, quotas, root }
    }

    /// The cpuset of the nearest group that has one, and its file.
    fn cpuset(
        &mut self,
        descriptors: &Descriptors,
        buffer: &mut Vec<u8>,
        problems: &mut Vec<String>,
    ) -> Option<(PathBuf, CpuSet)> {
        for file in &mut self.cpusets {
            // Opened again, the file may be that of a group made anew.
            let mut gone = || file.read(descriptors, buffer).is_err_and(|error| is_gone(&error));
            if gone() && gone() {
                continue;
            }
            let set = read_as(file, descriptors, buffer, problems, parse::cpu_list)?;
            // An empty one was never set: v1 gives it to new groups.
            if !set.is_empty() {
                return Some((file.path().to_owned(), set));
            }
        }
        None
    }

    fn read_quotas(
        &mut self,
        descriptors: &Descriptors,
        buffer: &mut Vec<u8>,
        problems: &mut Vec<String>,
    ) -> Vec<CpuQuota> {
        let quotas = self.quotas.iter_mut();
        quotas.filter_map(|quota| quota.read(descriptors, buffer, problems)).collect()
    }
}

impl Quota {
    fn read(
        &mut self,
        descriptors: &Descriptors,
        buffer: &mut Vec<u8>,
        problems: &mut Vec<String>,
    ) -> Option<CpuQuota> {
        let mut value = |file: &mut KeptFile, parse: fn(&[u8]) -> Option<Option<f64>>| {
            read_where_present(file, descriptors, buffer, problems, parse).flatten()
        };
        type Parse = fn(&[u8]) -> Option<Duration>;
        let (cpus, usage, parse): (f64, &mut KeptFile, Parse) =
            if let Some(cpus) = value(&mut self.v2, parse::cpu_max) {
                (cpus, &mut self.v2_usage, parse::cpu_stat_usage)
            } else {
                let quota = value(&mut self.v1, v1_quota)?;
                let period = value(&mut self.v1_period, v1_quota).filter(|us| *us > 0.0)?;
                (quota / period, &mut self.v1_usage, parse::cpuacct_usage)
            };
        // With a quota of unknown use it is open what is spare, so that is reported.
        let used = read_as(usage, descriptors, buffer, problems, parse);
        Some(CpuQuota { group: self.group.clone(), cpus, used })
    }

    /// CPU time of the group; `None`: nothing counts it, as on v1 without cpuacct.
    fn usage(
        &mut self,
        descriptors: &Descriptors,
        buffer: &mut Vec<u8>,
        problems: &mut Vec<String>,
    ) -> Option<Duration> {
        let v1 = &mut self.v1_usage;
        let counted = read_where_present(v1, descriptors, buffer, problems, parse::cpuacct_usage);
        // v1 has a file of this name, which says nothing of usage.
        let v2 = |text: &[u8]| Some(parse::cpu_stat_usage(text));
        counted.or_else(|| {
            read_where_present(&mut self.v2_usage, descriptors, buffer, problems, v2).flatten()
        })
    }
}

/// Takes the CPUs away that are not in `only`, which `file` says, unless none would be left.
fn keep(cpus: &mut CpuSet, only: &CpuSet, file: &Path, problems: &mut Vec<String>) {
    let left = cpus.intersection(only);
    if left.is_empty() {
        problems.push(format!(
            "{} leaves LRS's tasks none of the CPUs {cpus}, so it does not count",
            file.display()
        ));
    } else {
        *cpus = left;
    }
}

/// Microseconds; `Some(None)`: no quota (-1).
fn v1_quota(text: &[u8]) -> Option<Option<f64>> {
    if text.trim_ascii() == b"-1" {
        Some(None)
    } else {
        parse::number(text).map(|quota| Some(quota as f64))
    }
}

#[cfg(test)]
mod tests;
