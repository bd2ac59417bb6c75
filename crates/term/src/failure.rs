//! How a command ends when it does not end well: an exit code, a message, and where it
//! helps a hint.

use std::process::ExitCode;

use crate::output::{say, say_lines};

/// Exit codes of `lrsctl` (spec 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Refused or failed.
    Failed = 1,
    /// Wrong arguments.
    Usage = 2,
    /// The daemon does not answer.
    Unreachable = 3,
    /// No slot was free, or none came free in the time given.
    NoFreeSlot = 4,
    /// `run` had no slot, or none within `--wait=DUR`; `wait` ran out of time (as timeout(1)).
    RunWithoutSlot = 124,
    /// `run` itself failed: refused, wrong arguments, no daemon (as docker-run(1) and env(1)).
    RunFailed = 125,
    /// The command of `run` is there but cannot be executed.
    NotExecutable = 126,
    /// The command of `run` is not there.
    NotFound = 127,
}

impl Exit {
    /// What it is as the end of `run`.
    pub fn of_run(self) -> Exit {
        match self {
            Exit::NoFreeSlot => Exit::RunWithoutSlot,
            Exit::Failed | Exit::Usage | Exit::Unreachable => Exit::RunFailed,
            other => other,
        }
    }
}

/// The end of a command that did not do all it was asked.
#[derive(Debug)]
pub enum Failure {
    /// To be reported, with its exit code.
    Message {
        /// Exit code.
        exit: Exit,
        /// Lower case, no final stop.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// It was reported already; only the code is left.
    Ended(ExitCode),
    /// stdout could not be written.
    Output(std::io::Error),
}

impl Failure {
    /// With this exit code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure::Message { exit, message: message.into(), hint: None }
    }

    /// Refused or failed.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Failed, message)
    }

    /// Wrong arguments that only show after parsing.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// The daemon does not answer.
    pub fn unreachable(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Unreachable, message)
    }

    /// The command of `run` is not there.
    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure::new(Exit::NotFound, message)
    }

    /// The command of `run` cannot be executed.
    pub fn not_executable(message: impl Into<String>) -> Failure {
        Failure::new(Exit::NotExecutable, message)
    }

    /// The same as the end of `run`, which leaves the low exit codes to its command.
    pub fn of_run(mut self) -> Failure {
        if let Failure::Message { exit, .. } = &mut self {
            *exit = exit.of_run();
        }
        self
    }

    /// It was reported already.
    pub fn ended(code: ExitCode) -> Failure {
        Failure::Ended(code)
    }

    /// The same with a line that says what to do.
    pub fn hint(mut self, text: impl Into<String>) -> Failure {
        if let Failure::Message { hint, .. } = &mut self {
            *hint = Some(text.into());
        }
        self
    }

    /// The exit code.
    pub fn exit(&self) -> ExitCode {
        match self {
            Failure::Message { exit, .. } => ExitCode::from(*exit as u8),
            Failure::Ended(code) => *code,
            Failure::Output(error) if is_closed_pipe(error) => ExitCode::SUCCESS,
            Failure::Output(_) => ExitCode::from(Exit::Failed as u8),
        }
    }

    /// Whether this is the end `exit`.
    pub fn is(&self, wanted: Exit) -> bool {
        matches!(self, Failure::Message { exit, .. } if *exit == wanted)
    }

    /// Prints it on stderr as a word of `program`.
    pub fn report(&self, program: &str) {
        match self {
            Failure::Message { message, hint, .. } => {
                say_lines(&format!("{program}: {message}"));
                if let Some(hint) = hint {
                    say_lines(&format!("  hint: {hint}"));
                }
            }
            Failure::Output(error) if !is_closed_pipe(error) => {
                say(format_args!("{program}: cannot write to standard output: {error}"));
            }
            Failure::Output(_) | Failure::Ended(_) => {}
        }
    }
}

impl std::fmt::Display for Failure {
    /// The message alone.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Message { message, .. } => f.write_str(message),
            Failure::Ended(_) => f.write_str("it was reported already"),
            Failure::Output(error) => error.fmt(f),
        }
    }
}

impl From<std::io::Error> for Failure {
    /// The only I/O that reaches `?` bare is writing stdout; all other I/O names its file.
    fn from(error: std::io::Error) -> Failure {
        Failure::Output(error)
    }
}

/// The reader has seen enough; that is no failure of ours.
fn is_closed_pipe(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::BrokenPipe
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
