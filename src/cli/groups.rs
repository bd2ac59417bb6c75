//! The commands of `lrsctl --help` by what they are for: clap lists them in one row.

use clap::Command;

use super::output::Output;

/// Headings, and the commands below each.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "What goes on",
        &["status", "top", "tasks", "task", "queue", "jobs", "history", "plot", "events", "why"],
    ),
    ("Run tasks", &["run", "submit", "log", "admit", "wait", "kill", "release", "priority"]),
    ("Slots for schedulers", &["reserve", "cancel"]),
    (
        "Operate a node",
        &["doctor", "config", "reload", "drain", "resume", "metrics", "record", "replay", "yarn"],
    ),
    ("Measure", &["demo", "bench"]),
    ("Help", &["help", "man", "completions"]),
];

/// Columns of the names.
const NAMES: usize = 14;

/// `command` with a help text that lists its subcommands in groups.
pub(super) fn grouped(mut command: Command) -> Command {
    command.build();
    let width = Output::stdout(false).width().min(100);
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (heading, names) in GROUPS {
        text.push_str(&format!("\n{heading}:\n"));
        for sub in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            let line = format!("  {:<NAMES$}", sub.get_name());
            text.push_str(&lrs_term::wrap(&line, NAMES + 2, &about, width));
            text.push('\n');
        }
    }
    text.push_str("\nOptions:\n{options}{after-help}");
    command.help_template(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::args::Cli;

    #[test]
    fn every_command_is_in_one_group() {
        let listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for sub in Cli::command().get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let times = listed.iter().filter(|name| **name == sub.get_name()).count();
            assert_eq!(times, 1, "{}", sub.get_name());
        }
        let help = grouped(Cli::command()).render_help().to_string();
        assert!(help.contains("\nRun tasks:\n  run "), "{help}");
        assert!(!help.contains("__daemon"), "{help}");
    }
}
