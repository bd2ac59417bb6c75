//! Arguments that do not parse: clap's message, and a tip where people expect another command line.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::builder::Styles;
use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory as _, Error, FromArgMatches as _};

use super::args::Cli;
use super::failure::Exit;
use super::groups;
use super::output::{say, say_lines};

/// What is asked about a whole cluster.
const CLUSTER: &str = "`lrs-place plan` and `lrs-place classify` are a program for schedulers: docs/placement.md says how to get it";

/// Words that people of other tools type first, and what serves here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("list", "`lrsctl tasks` lists the tasks"),
    ("ls", "`lrsctl tasks` lists the tasks"),
    ("ps", "`lrsctl tasks` lists the tasks"),
    ("htop", "`lrsctl top` shows node, slots and tasks as they change"),
    (
        "logs",
        "`lrsctl log TASK` has what a task of `lrsctl submit` wrote, `lrsctl events` the decisions, `journalctl -u lrsd` the log of lrsd",
    ),
    ("sacct", "`lrsctl history` has the tasks that ended"),
    ("sbatch", "`lrsctl submit -- CMD...` runs a command in the background"),
    ("exec", "`lrsctl run -- CMD...` runs a command in a slot"),
    ("stop", "`lrsctl kill TASK` ends a task; `lrsctl drain` takes no new ones"),
    ("attach", "`lrsctl admit PID` makes a running process a task"),
    ("detach", "`lrsctl release ID` gives a task back to where it came from"),
    ("plan", CLUSTER),
    ("classify", CLUSTER),
];

/// Prints the error and says how the command ends: 2, or 125 for `run`, which leaves the low
/// exit codes to its command.
pub(super) fn report(error: Error) -> ExitCode {
    if error.exit_code() == 0 {
        // Help on a closed pipe is as good as help that was read.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    // Without clap's own colours: what is left of escape sequences was typed, and is shown as that.
    let plain = groups::grouped(Cli::command().styles(Styles::plain())).try_get_matches();
    let plain = plain.and_then(|matches| Cli::from_arg_matches(&matches));
    let mut error = plain.err().unwrap_or(error);
    let run =
        command(std::env::args_os().skip(1)).is_some_and(|word| word == "run" || word == "submit");
    let tip = tip(&error, run);
    if tip.is_some() {
        // Of two tips the one that knows other tools is better than the one that counts letters.
        error.remove(ContextKind::SuggestedSubcommand);
    }
    say_lines(&error.render().ansi().to_string());
    if let Some(tip) = tip {
        say(format_args!("  tip: {tip}"));
    }
    if run { Exit::Usage.of_run() } else { Exit::Usage }.into()
}

/// The command among arguments that do not parse: the first word that is neither an option nor the
/// value of one.
fn command(mut words: impl Iterator<Item = OsString>) -> Option<OsString> {
    loop {
        let word = words.next()?;
        if word == "--endpoint" || word == "--timeout" {
            words.next();
        } else if !word.as_encoded_bytes().starts_with(b"-") {
            return Some(word);
        }
    }
}

fn tip(error: &Error, run: bool) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let typed = error.get(ContextKind::InvalidSubcommand)?.to_string();
            ELSEWHERE.iter().find(|(word, _)| *word == typed).map(|(_, tip)| *tip)
        }
        ErrorKind::UnknownArgument if run && !is_option(error) => Some(
            "the command stands after `--` and a time after `=`: lrsctl run --wait=10s -- CMD...",
        ),
        _ => None,
    }
}

/// Whether what is not known begins as options do.
fn is_option(error: &Error) -> bool {
    let word = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    word.is_none_or(|word| word.starts_with('-'))
}
