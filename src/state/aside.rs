//! Files that were set aside because they could not be read: `<name>.damaged`, until an operator who has
//! looked at them removes them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How many are known by name.
const NAMED: usize = 16;

/// What the name of such a file ends with.
const END: &str = ".damaged";

/// Sets the file at `path` aside. One that was before, under the same name, makes way for it.
pub(super) fn set(path: &Path) -> io::Result<PathBuf> {
    let mut name = OsString::from(path);
    name.push(END);
    let aside = PathBuf::from(name);
    fs::rename(path, &aside).map(|()| aside)
}

/// The files of a directory that were set aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAside {
    dir: PathBuf,
    /// The first of them.
    named: Vec<PathBuf>,
    /// How many others there were when it was looked last.
    more: usize,
}

impl SetAside {
    /// Those in `dir`, as far as it can be listed.
    pub(super) fn in_dir(dir: &Path) -> SetAside {
        let mut found = SetAside { dir: dir.to_owned(), ..SetAside::default() };
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if !entry.file_name().to_string_lossy().ends_with(END) {
                continue;
            }
            if found.named.len() < NAMED {
                found.named.push(entry.path());
            } else {
                found.more += 1;
            }
        }
        found.named.sort_unstable();
        found
    }

    /// Looks which of them are there still; answers whether that changes the warning. The directory
    /// is listed anew only when all that are known by name have gone.
    pub fn look_again(&mut self) -> bool {
        let before = self.named.len();
        self.named.retain(|path| path.symlink_metadata().is_ok());
        if self.named.is_empty() && self.more > 0 {
            *self = SetAside::in_dir(&self.dir);
            return true;
        }
        self.named.len() != before
    }

    /// What `status` says of them.
    pub fn warning(&self) -> Option<String> {
        let first = self.named.first()?;
        let others = match self.named.len() - 1 + self.more {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        Some(format!(
            "a state file was damaged or not lrsd's and is kept as {}{others}: what only it knew is \
             lost, its task, if it was one's, goes on with what its cgroup tells; `lrsctl events` says \
             what was wrong with it; look at it, then remove it, which ends this warning",
            first.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_aside_is_warned_of_until_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        for name in ["task-a.json", "journal-1.jsonl", "note"] {
            fs::write(file(name), name).unwrap();
        }
        assert_eq!(SetAside::in_dir(dir.path()).warning(), None);
        let first = set(&file("journal-1.jsonl")).unwrap();
        assert_eq!(first, file("journal-1.jsonl.damaged"));
        let second = set(&file("task-a.json")).unwrap();
        let mut aside = SetAside::in_dir(dir.path());
        let sentence = aside.warning().unwrap();
        assert!(sentence.contains(&format!("{} and 1 more", first.display())), "{sentence}");
        assert!(!aside.look_again());
        fs::remove_file(&first).unwrap();
        assert!(aside.look_again());
        let sentence = aside.warning().unwrap();
        assert!(
            sentence.contains(&second.display().to_string()) && !sentence.contains("more"),
            "{sentence}"
        );
        fs::remove_file(&second).unwrap();
        assert!(aside.look_again() && aside.warning().is_none());
    }

    #[test]
    fn of_many_the_first_are_known_by_name_and_the_others_are_found_later() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..NAMED + 3 {
            fs::write(dir.path().join(format!("task-{number}.json.damaged")), "").unwrap();
        }
        let mut aside = SetAside::in_dir(dir.path());
        assert!(aside.warning().unwrap().contains(&format!("and {} more", NAMED + 2)));
        for path in aside.named.clone() {
            fs::remove_file(path).unwrap();
        }
        assert!(aside.look_again());
        assert!(aside.warning().unwrap().contains("and 2 more"));
    }
}
