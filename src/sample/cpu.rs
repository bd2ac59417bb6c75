//! CPU time of a group.

use std::path::PathBuf;
use std::time::Duration;

use super::group::{form_problem, read_problem};
use crate::cgroup::GroupDirs;
use crate::kernfs::files::{Descriptors, KeptFile, is_gone};
use crate::kernfs::parse;

/// The file with the CPU time of a group.
#[derive(Debug)]
pub(super) struct CpuFile {
    file: KeptFile,
    form: CpuForm,
}

#[derive(Clone, Copy, Debug)]
enum CpuForm {
    /// cpuacct.usage
    V1,
    /// cpu.stat
    V2,
}

impl CpuFile {
    /// `None`: the group has none.
    pub(super) fn of(dirs: &GroupDirs) -> Option<CpuFile> {
        let (path, form) = candidates(dirs).find(|(path, _)| path.exists())?;
        Some(CpuFile { file: KeptFile::new(path), form })
    }

    /// Whether it counts by v1.
    pub(super) fn is_v1(&self) -> bool {
        matches!(self.form, CpuForm::V1)
    }

    /// The time; `Ok(None)`: the group is gone.
    ///
    /// # Errors
    /// A sentence for the log.
    pub(super) fn read(
        &mut self,
        descriptors: &Descriptors,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Duration>, String> {
        let text = match self.file.read(descriptors, buffer) {
            Ok(text) => text,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(read_problem(self.file.path(), &error)),
        };
        let time = match self.form {
            CpuForm::V1 => parse::cpuacct_usage(text),
            CpuForm::V2 => parse::cpu_stat_usage(text),
        };
        time.map(Some).ok_or_else(|| form_problem(self.file.path()))
    }
}

/// The files that may have it: the first that exists has.
fn candidates(dirs: &GroupDirs) -> impl Iterator<Item = (PathBuf, CpuForm)> {
    let file = |dir: &Option<PathBuf>, name, form| Some((dir.as_ref()?.join(name), form));
    [
        file(&dirs.cpuacct, "cpuacct.usage", CpuForm::V1),
        file(&dirs.cpuacct, "cpu.stat", CpuForm::V2),
        file(&dirs.unified, "cpu.stat", CpuForm::V2),
    ]
    .into_iter()
    .flatten()
}

/// The same for readings ten times a second: it stays open from the first one until it is dropped, if
/// [`Descriptors`] has room for it.
#[derive(Debug, Default)]
pub struct KeptCpuFile(Option<CpuFile>);

impl KeptCpuFile {
    /// CPU time now; `None` within: it cannot be read, and the next reading of the task reports why.
    /// Answers `None` when the group is gone. `dirs` are always those of the same group.
    pub fn read(
        &mut self,
        dirs: &GroupDirs,
        descriptors: &Descriptors,
        buffer: &mut Vec<u8>,
    ) -> Option<Option<Duration>> {
        if self.0.is_none() {
            self.0 = CpuFile::of(dirs);
        }
        match &mut self.0 {
            Some(file) => match file.read(descriptors, buffer) {
                Ok(time) => time.map(Some),
                Err(_) => Some(None),
            },
            // Of a group without such a file not even that is known, unless the group is gone.
            None => dirs.cpuacct.as_ref().is_none_or(|dir| dir.exists()).then_some(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_stays_open_and_a_group_that_is_gone_has_no_time() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("group");
        std::fs::create_dir(&group).unwrap();
        let dirs = GroupDirs { cpuacct: Some(group.clone()), ..GroupDirs::default() };
        let (descriptors, mut buffer) = (Descriptors::new(1), Vec::new());
        let mut kept = KeptCpuFile::default();
        let mut read = |file: &mut KeptCpuFile| file.read(&dirs, &descriptors, &mut buffer);
        assert_eq!(read(&mut kept), Some(None), "it counts none");
        std::fs::write(group.join("cpuacct.usage"), "1000\n").unwrap();
        assert_eq!(read(&mut kept), Some(Some(Duration::from_micros(1))));
        assert_eq!(descriptors.kept(), 1);
        std::fs::write(group.join("cpuacct.usage"), "?\n").unwrap();
        assert_eq!(read(&mut kept), Some(None));
        drop(kept);
        assert_eq!(descriptors.kept(), 0);
        std::fs::remove_dir_all(&group).unwrap();
        assert_eq!(read(&mut KeptCpuFile::default()), None);
    }
}
