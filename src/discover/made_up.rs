//! Trees like /proc, rules, and a log that is kept, for tests.

use std::path::{Path, PathBuf};

use super::processes::Proc;
use crate::config::rule::{Means, Pattern, Rule, Template};
use crate::core::model::{Label, Priority, Standing};

/// A rule without any pattern, which moves what it finds.
pub fn rule(name: &str) -> Rule {
    Rule {
        name: Label::new(name).unwrap(),
        command: None,
        environment: Vec::new(),
        cgroup: None,
        except: None,
        users: Vec::new(),
        id: None,
        job: None,
        kind: None,
        attach: Means::Own,
        standing: Standing::Slot,
        priority: Priority(0),
    }
}

pub fn anywhere(text: &str) -> Option<Pattern> {
    Some(Pattern::anywhere(text).unwrap())
}

pub fn whole(text: &str) -> Option<Pattern> {
    Some(Pattern::whole(text).unwrap())
}

pub fn template(text: &str) -> Option<Template> {
    Some(Template::new(text).unwrap())
}

/// A directory with processes; goes with its value.
pub struct Tree(tempfile::TempDir);

impl Tree {
    pub fn new() -> Tree {
        Tree(tempfile::tempdir().unwrap())
    }

    pub fn proc(&self) -> Proc {
        Proc { root: self.0.path().to_owned(), ..Proc::default() }
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A process: child of 1, in the root group, of root, without arguments and environment. One
    /// that is there already stays as it is.
    pub fn process(&self, pid: i32, start_ticks: u64) -> MadeUp {
        let made = MadeUp { dir: self.0.path().join(pid.to_string()), pid, start_ticks };
        if made.dir.exists() {
            return made;
        }
        std::fs::create_dir(&made.dir).unwrap();
        made.command(&[]).environment(&[]).user(0).cgroup("/").parent(1)
    }

    pub fn raw(&self, name: &str, content: &[u8]) {
        std::fs::write(self.0.path().join(name), content).unwrap();
    }

    pub fn remove(&self, pid: i32) {
        std::fs::remove_dir_all(self.0.path().join(pid.to_string())).unwrap();
    }
}

/// A process of a [`Tree`].
pub struct MadeUp {
    dir: PathBuf,
    pid: i32,
    start_ticks: u64,
}

impl MadeUp {
    pub fn raw(self, file: &str, content: &[u8]) -> MadeUp {
        std::fs::write(self.dir.join(file), content).unwrap();
        self
    }

    pub fn command(self, arguments: &[&str]) -> MadeUp {
        self.terminated("cmdline", arguments)
    }

    pub fn environment(self, entries: &[&str]) -> MadeUp {
        self.terminated("environ", entries)
    }

    fn terminated(self, file: &str, strings: &[&str]) -> MadeUp {
        let text: String = strings.iter().map(|string| format!("{string}\0")).collect();
        self.raw(file, text.as_bytes())
    }

    pub fn user(self, uid: u32) -> MadeUp {
        self.raw("status", format!("Name:\tx\nUid:\t9\t{uid}\t9\t9\n").as_bytes())
    }

    /// A whole file, or the path on cgroup v2.
    pub fn cgroup(self, text: &str) -> MadeUp {
        let text = if text.starts_with('/') { format!("0::{text}\n") } else { text.to_owned() };
        self.raw("cgroup", text.as_bytes())
    }

    pub fn parent(self, parent: i32) -> MadeUp {
        self.stat(parent, "S", 0)
    }

    pub fn kernel(self) -> MadeUp {
        self.stat(2, "I", 0x0020_0000)
    }

    pub fn ended(self) -> MadeUp {
        self.stat(1, "Z", 0)
    }

    fn stat(self, parent: i32, state: &str, flags: u64) -> MadeUp {
        let (pid, start) = (self.pid, self.start_ticks);
        let text = format!(
            "{pid} (x) {state} {parent} {pid} {pid} 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0\n"
        );
        self.raw("stat", text.as_bytes())
    }
}
