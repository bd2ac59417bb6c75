//! Limits of memory above the tasks, and what their groups use.
//!
//! What counts as cache that the kernel takes back: the pages of files on its lists of reclaim
//! (`inactive_file`, `active_file`; what is locked or in tmpfs is on others) and `slab_reclaimable`, mostly
//! dentries and inodes (cgroup-v2.rst, "memory.stat"; memory.rst of v1, which has no slab there). It is what
//! MemAvailable is made of, less the reserves of zones, which a group does not have. Dirty pages are among
//! them: they can be had once they are written. Swap is no room, for tasks that live in it are no use.
//!
//! `memory.high` is a limit too: above it the kernel slows the tasks down until they do with less.
//!
//! A file that is missing or odd costs its limit and nothing else: without the use of a group it is
//! unknown what is free in it, and 0 would close all slots.

use std::sync::Arc;

use super::{Descriptors, KeptFile, read_as, read_where_present};
use crate::cgroup::{MemoryGroups, Version};
use crate::core::sample::MemoryLimit;
use crate::kernfs::parse;
use crate::units::Bytes;

/// Names of the files of a group.
struct Names {
    limits: &'static [&'static str],
    used: &'static str,
    /// Keys of memory.stat; the first is in every kernel.
    reclaimable: &'static [&'static [u8]],
}

const V2: Names = Names {
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    reclaimable: &[b"inactive_file", b"active_file", b"slab_reclaimable"],
};

/// `total_`: of the group and all below it, as its limit is.
const V1: Names = Names {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    reclaimable: &[b"total_inactive_file", b"total_active_file"],
};

/// Reads [`MemoryLimit`]s.
#[derive(Debug, Default)]
pub(crate) struct LimitReader {
    groups: Vec<Limited>,
    reclaimable: &'static [&'static [u8]],
}

#[derive(Debug)]
struct Limited {
    limits: Vec<(KeptFile, Arc<str>)>,
    used: KeptFile,
    stat: KeptFile,
}

impl LimitReader {
    pub(crate) fn new(groups: Option<&MemoryGroups>) -> LimitReader {
        let Some(groups) = groups else { return LimitReader::default() };
        let names = match groups.version {
            Version::V2 => V2,
            Version::V1 => V1,
        };
        let group = |dir: &std::path::PathBuf| Limited {
            limits: (names.limits.iter().map(|name| dir.join(name)))
                .map(|path| (KeptFile::new(path.clone()), path.display().to_string().into()))
                .collect(),
            used: KeptFile::new(dir.join(names.used)),
            stat: KeptFile::new(dir.join("memory.stat")),
        };
        LimitReader {
            groups: groups.dirs.iter().map(group).collect(),
            reclaimable: names.reclaimable,
        }
    }

    /// The limits in force, the nearest first.
    pub(crate) fn read(
        &mut self,
        descriptors: &Descriptors,
        buffer: &mut Vec<u8>,
        problems: &mut Vec<String>,
    ) -> Vec<MemoryLimit> {
        let mut found = Vec::new();
        for group in &mut self.groups {
            let mut limits = Vec::new();
            for (file, name) in &mut group.limits {
                let parse = parse::memory_limit;
                let limit = read_where_present(file, descriptors, buffer, problems, parse);
                limits.extend(limit.flatten().map(|limit| (name.clone(), limit)));
            }
            if limits.is_empty() {
                continue;
            }
            let used = read_as(&mut group.used, descriptors, buffer, problems, parse::number);
            let reclaimable = read_as(&mut group.stat, descriptors, buffer, problems, |text| {
                parse::sum_of(text, self.reclaimable)
            });
            if let (Some(used), Some(reclaimable)) = (used.map(Bytes), reclaimable) {
                let limit = |(file, limit)| MemoryLimit { file, limit, used, reclaimable };
                found.extend(limits.into_iter().map(limit));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const STAT: &str = "anon 100\nfile 70\ninactive_file 40\nactive_file 20\nunevictable 5\n\
                        slab_reclaimable 7\nslab_unreclaimable 9\n";

    fn put(dir: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(dir).unwrap();
        for (name, text) in files {
            std::fs::write(dir.join(name), text).unwrap();
        }
    }

    fn read(reader: &mut LimitReader) -> (Vec<(String, [u64; 3])>, Vec<String>) {
        let mut problems = Vec::new();
        let found = reader.read(&Descriptors::new(10), &mut Vec::new(), &mut problems);
        let figures = |it: MemoryLimit| {
            let name = it.file.rsplit('/').take(2).collect::<Vec<_>>();
            (name.join(" of "), [it.limit.0, it.used.0, it.reclaimable.0])
        };
        (found.into_iter().map(figures).collect(), problems)
    }

    #[test]
    fn v2_limits_are_read_from_the_nearest_group_that_has_them_upwards() {
        let mount = tempfile::tempdir().unwrap();
        let slice = mount.path().join("lrs.slice");
        // The scope has no memory controller, and the mount's own group is the real root.
        put(&slice.join("lrs-tasks.scope"), &[("cgroup.procs", "")]);
        let quiet = [("memory.max", "max\n"), ("memory.high", "max\n")];
        put(&slice, &quiet);
        let groups = MemoryGroups::v2(mount.path(), "/lrs.slice/lrs-tasks.scope");
        let mut reader = LimitReader::new(Some(&groups));
        assert_eq!(
            read(&mut reader),
            (vec![], vec![]),
            "no limit, and no file without it is missed"
        );
        put(&slice, &[("memory.max", "400\n"), ("memory.current", "250\n"), ("memory.stat", STAT)]);
        let max = ("memory.max of lrs.slice".to_owned(), [400, 250, 67]);
        assert_eq!(read(&mut reader), (vec![max.clone()], vec![]));
        put(&slice, &[("memory.high", "300\n")]);
        put(
            mount.path(),
            &[("memory.max", "0\n"), ("memory.current", "0\n"), ("memory.stat", STAT)],
        );
        let (found, problems) = read(&mut reader);
        assert_eq!(found[..2], [max, ("memory.high of lrs.slice".to_owned(), [300, 250, 67])]);
        assert_eq!((found.len(), problems.len()), (3, 0));
    }

    #[test]
    fn v1_has_one_limit_a_group_and_no_limit_is_a_large_number() {
        let dir = tempfile::tempdir().unwrap();
        let groups = MemoryGroups { version: Version::V1, dirs: vec![dir.path().to_owned()] };
        let mut reader = LimitReader::new(Some(&groups));
        let stat = "inactive_file 1\ntotal_inactive_file 30\ntotal_active_file 12\n";
        let rest = [("memory.usage_in_bytes", "90\n"), ("memory.stat", stat)];
        put(dir.path(), &rest);
        put(dir.path(), &[("memory.limit_in_bytes", "9223372036854771712\n")]);
        assert_eq!(read(&mut reader), (vec![], vec![]));
        put(dir.path(), &[("memory.limit_in_bytes", "100\n")]);
        let (found, problems) = read(&mut reader);
        assert_eq!((found[0].1, problems.len()), ([100, 90, 42], 0));
    }

    #[test]
    fn an_odd_file_costs_its_limit_and_is_named_and_gives_no_zero() {
        let dir = tempfile::tempdir().unwrap();
        let (low, high) = (dir.path().join("a"), dir.path().to_owned());
        let groups = MemoryGroups { version: Version::V2, dirs: vec![low.clone(), high.clone()] };
        let good = [("memory.max", "500\n"), ("memory.current", "1\n"), ("memory.stat", STAT)];
        for (odd, text) in [
            ("memory.max", "-7\n"),
            ("memory.max", ""),
            ("memory.current", "lots\n"),
            ("memory.stat", "anon 1\n"),
            ("memory.stat", "inactive_file x\n"),
        ] {
            put(&low, &good);
            put(&high, &good);
            put(&low, &[(odd, text)]);
            let (found, problems) = read(&mut LimitReader::new(Some(&groups)));
            assert_eq!(found.len(), 1, "{odd}: {found:?}");
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains("/a/") && problems[0].contains(odd), "{problems:?}");
        }
        put(&low, &good);
        std::fs::remove_file(low.join("memory.current")).unwrap();
        let (found, problems) = read(&mut LimitReader::new(Some(&groups)));
        assert_eq!((found.len(), problems.len()), (1, 1), "{problems:?}");
    }
}
