//! The processes of a cluster: its daemons, and whatever they leave behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::Signal;

use crate::harness::signal;

/// One daemon, or a client that runs a job.
pub struct Process {
    child: Child,
    pub log: PathBuf,
}

impl Process {
    /// Starts `words`, in the cgroup `group` if there is one, its output appended to `log`.
    pub fn start(words: &[String], java_home: &Path, group: Option<&Path>, log: &Path) -> Process {
        let file = fs::File::options().create(true).append(true).open(log).expect("a log");
        let mut command = match group {
            Some(group) => {
                let mut command = Command::new("sh");
                command.args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#]).arg(group);
                command.args(words);
                command
            }
            None => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                command
            }
        };
        let child = command
            .env("JAVA_HOME", java_home)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("the log twice"))
            .stderr(file)
            .spawn()
            .expect("the process starts");
        Process { child, log: log.to_owned() }
    }

    /// `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("wait")
    }

    /// SIGKILL, and gone when this returns.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    /// SIGTERM, and gone when this returns.
    pub fn stop(&mut self) {
        signal(i32::try_from(self.child.id()).expect("a pid"), Signal::TERM);
        self.child.wait().expect("wait");
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// Whether it has ended, unreaped.
    pub fn is_over(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
    }

    /// The end of what it has written.
    pub fn last_words(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        let end = lines.len().saturating_sub(30);
        format!("{}:\n{}", self.log.display(), lines[end..].join("\n"))
    }

    /// All it has written.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

/// Kills every process that names `dir` in its command line or environment: the containers of a
/// NodeManager outlive it, and carry its directories.
pub fn sweep(dir: &Path) {
    let needle = dir.as_os_str().as_encoded_bytes();
    // What is just being forked is met the next time.
    for _ in 0..20 {
        let found = naming(needle);
        if found.is_empty() {
            return;
        }
        for pid in found {
            signal(pid, Signal::KILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

pub fn naming(needle: &[u8]) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).expect("a pid");
    let holds = |pid: i32, file: &str| {
        let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        text.windows(needle.len()).any(|part| part == needle)
    };
    let pids = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| pid != own && (holds(pid, "cmdline") || holds(pid, "environ"))).collect()
}

/// A container as its NodeManager's own files and the kernel show it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Container {
    pub id: String,
    /// The process in its pid file, which leads its session.
    pub leader: i32,
}

/// The containers that run, from the pid files below these local directories.
pub fn containers(local_dirs: &[PathBuf]) -> Vec<Container> {
    let mut found = Vec::new();
    for dir in local_dirs {
        for application in children(&dir.join("nmPrivate")) {
            for container in children(&application) {
                let Some(id) = container.file_name().and_then(|name| name.to_str()) else {
                    continue;
                };
                // A container's files come and go while we read.
                let text = fs::read_to_string(container.join(format!("{id}.pid")));
                let Some(leader) = text.ok().and_then(|text| text.trim().parse().ok()) else {
                    continue;
                };
                if runs(leader, id) {
                    found.push(Container { id: id.to_owned(), leader });
                }
            }
        }
    }
    found.sort();
    found
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Whether the process is this container's and past its shell scripts with their short programs.
fn runs(pid: i32, id: &str) -> bool {
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let wanted = format!("CONTAINER_ID={id}");
    environ.split(|&byte| byte == 0).any(|entry| entry == wanted.as_bytes())
}
