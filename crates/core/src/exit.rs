//! How the main process of a task ended.
//!
//! The kernel has it as the status that the parent gets (wait(2)). lrsd is not the parent: where it
//! finds the status is the executor's matter, and what cannot be found stays unknown. A task goes on
//! while others of its processes do, so that this says nothing of when it is over.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Of a process that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// It exited, with this status.
    Status(u8),
    /// A signal killed it.
    Signal {
        /// Its number.
        number: u8,
        /// Whether a core was dumped.
        core: bool,
    },
}

impl Exit {
    /// From the status of wait(2), which is also field 52 of /proc/PID/stat and `exit_code` of
    /// `struct pidfd_info`. `None`: of a process that has not ended.
    pub fn from_wait(status: i32) -> Option<Exit> {
        let byte = |at: u32| (status >> at & 0xff) as u8;
        match (byte(0) & 0x7f, byte(0) & 0x80 != 0) {
            (0, false) => Some(Exit::Status(byte(8))),
            // Stopped; the rest are no signals.
            (0 | 0x7f, _) => None,
            (number, core) => Some(Exit::Signal { number, core }),
        }
    }

    /// Whether it is anything but status 0.
    pub fn failed(self) -> bool {
        self != Exit::Status(0)
    }

    /// Writes it into the inputs of an event.
    pub fn note(self, inputs: &mut Map<String, Value>) {
        match self {
            Exit::Status(status) => {
                inputs.insert("exit_status".into(), json!(status));
            }
            Exit::Signal { number, core } => {
                inputs.insert("exit_signal".into(), json!(number));
                inputs.insert("core_dumped".into(), json!(core));
            }
        }
    }

    /// Reads what [`Exit::note`] wrote.
    pub fn noted(inputs: &Map<String, Value>) -> Option<Exit> {
        let number = |key: &str| inputs.get(key)?.as_u64()?.try_into().ok();
        let signal = |number| {
            let core = inputs.get("core_dumped").and_then(Value::as_bool).unwrap_or(false);
            Exit::Signal { number, core }
        };
        number("exit_status").map(Exit::Status).or_else(|| number("exit_signal").map(signal))
    }
}

/// `exited with status 3`, `was killed by signal 11 (SIGSEGV), core dumped`.
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Exit::Status(status) => write!(f, "exited with status {status}"),
            Exit::Signal { number, core } => {
                write!(f, "was killed by signal {number}")?;
                if let Some(name) = signal_name(number) {
                    write!(f, " ({name})")?;
                }
                f.write_str(if core { ", core dumped" } else { "" })
            }
        }
    }
}

/// `SIGKILL` of 9, as x86, ARM, RISC-V, POWER and s390x number them (signal(7)). `None`: a real-time
/// signal, or none.
pub fn signal_name(number: u8) -> Option<&'static str> {
    #[rustfmt::skip]
    const NAMES: [&str; 31] = [
        "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL",
        "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD",
        "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ",
        "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
    ];
    NAMES.get(usize::from(number).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_is_a_status_or_a_signal() {
        let signal = |number, core| Some(Exit::Signal { number, core });
        for (status, exit, text) in [
            (0, Some(Exit::Status(0)), "exited with status 0"),
            (0x300, Some(Exit::Status(3)), "exited with status 3"),
            (0xff00, Some(Exit::Status(255)), "exited with status 255"),
            (15, signal(15, false), "was killed by signal 15 (SIGTERM)"),
            (0x86, signal(6, true), "was killed by signal 6 (SIGABRT), core dumped"),
            (34, signal(34, false), "was killed by signal 34"),
            (0x137f, None, ""),
            (0x80, None, ""),
            (0xffff, None, ""),
        ] {
            let found = Exit::from_wait(status);
            assert_eq!(found, exit, "{status:#x}");
            assert_eq!(found.map(|exit| exit.to_string()).unwrap_or_default(), text);
            let Some(exit) = found else { continue };
            assert_eq!(exit.failed(), status != 0);
            let mut inputs = Map::new();
            exit.note(&mut inputs);
            assert_eq!(Exit::noted(&inputs), found);
        }
        assert_eq!(Exit::noted(&Map::new()), None);
    }
}
