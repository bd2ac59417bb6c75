//! `lrsctl man`: the manual.
//!
//! It is made from what the programs parse with: the clap definitions behind `--help`, and
//! the table of keys behind the configuration file. So it cannot tell of an option or a key
//! that is not there. The packages run this command when they are built
//! (`packaging/build`); by hand it serves an install without a package.

mod settings;

use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::args::Cli;
use super::failure::Failure;
use super::output::Output;
use crate::config::DEFAULT_FILE;

/// One page of the manual.
struct Page {
    /// Without section: `lrsctl-run`.
    name: String,
    /// 1: commands, 5: files, 8: daemons.
    section: &'static str,
    /// In man(7) macros.
    text: Vec<u8>,
}

impl Page {
    fn file_name(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }
}

/// Pages the reader of any of them may want next.
const SEE_ALSO: &[(&str, &str)] = &[("lrsctl", "1"), ("lrs.toml", "5"), ("lrsd", "8")];

/// `lrsctl man [PAGE] [--out DIR]`: one page to stdout, or all as files.
pub(super) fn man(
    page: Option<&str>,
    directory: Option<&Path>,
    out: &mut Output,
) -> Result<(), Failure> {
    let pages = pages();
    if let Some(directory) = directory {
        return write_all(&pages, directory);
    }
    let wanted = page.unwrap_or("lrsctl");
    let found = pages
        .iter()
        .find(|page| page.name == wanted || page.name.strip_prefix("lrsctl-") == Some(wanted))
        .ok_or_else(|| {
            let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
            Failure::usage(format!("no page {wanted:?}; there are {}", names.join(", ")))
        })?;
    out.text(String::from_utf8_lossy(&found.text))
}

fn write_all(pages: &[Page], directory: &Path) -> Result<(), Failure> {
    let failed = |action: &str, path: &Path, error: std::io::Error| {
        Failure::failed(format!("cannot {action} {}: {error}", path.display()))
    };
    std::fs::create_dir_all(directory).map_err(|error| failed("create", directory, error))?;
    for page in pages {
        let path = directory.join(page.file_name());
        std::fs::write(&path, &page.text).map_err(|error| failed("write", &path, error))?;
    }
    Ok(())
}

fn pages() -> Vec<Page> {
    let mut pages = Vec::new();
    // Without it the built command has a `help` subcommand, which would get a page.
    let mut lrsctl = Cli::command().disable_help_subcommand(true);
    lrsctl.build();
    add_commands(&mut pages, lrsctl);
    let mut lrsd = crate::daemon::command();
    lrsd.build();
    pages.push(Page { name: "lrsd".to_owned(), section: "8", text: command_page(lrsd, "8") });
    pages.push(Page { name: "lrs.toml".to_owned(), section: "5", text: settings::page() });
    pages
}

/// A page for `command` and for each visible command below it.
fn add_commands(pages: &mut Vec<Page>, command: Command) {
    let below: Vec<Command> =
        command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned().collect();
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    pages.push(Page { name, section: "1", text: command_page(command, "1") });
    for sub in below {
        add_commands(pages, sub);
    }
}

/// The page of a built command.
fn command_page(command: Command, section: &'static str) -> Vec<u8> {
    let has_options = command.get_arguments().any(|argument| !argument.is_hide_set());
    let has_commands = command.get_subcommands().any(|sub| !sub.is_hide_set());
    let exit_codes = command.get_after_help().map(ToString::to_string);
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let man = Man::new(command).section(section).source(source()).manual(MANUAL);
    let mut text = Vec::new();
    let rendered = (|| {
        man.render_title(&mut text)?;
        man.render_name_section(&mut text)?;
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        if has_options {
            man.render_options_section(&mut text)?;
        }
        if has_commands {
            man.render_subcommands_section(&mut text)?;
        }
        let mut end = Roff::new();
        if let Some(codes) = exit_codes {
            end.control("SH", ["EXIT STATUS"]).text([roman(codes.replace('\n', " "))]);
        }
        if name == "lrsctl-run" {
            cases(&mut end);
        }
        if section == "8" || !name.contains('-') {
            files(&mut end);
        }
        see_also(&mut end, &name);
        end.to_writer(&mut text)
    })();
    debug_assert!(rendered.is_ok(), "a Vec takes every write: {rendered:?}");
    text
}

const MANUAL: &str = "Local Resource Shaper";

fn source() -> String {
    format!("LRS {}", env!("CARGO_PKG_VERSION"))
}

/// What `lrsctl run` does in a unit of systemd's, as `core/leaving.rs` decides and
/// docs/operations.md explains.
const RUN_IN_A_UNIT: &[(&str, &str)] = &[
    (
        "a login's session, systemd-run --scope, without a limit",
        "Leaves the unit for a group of LRS's.",
    ),
    ("a service with KillMode=process or none (cron, atd), without a limit", "Leaves the unit."),
    ("no unit", "Moves to a group of LRS's; a member only if no limit is escaped."),
    (
        "a unit of which it is the only process, such as systemd-run lrsctl run or the service of a timer",
        "If something is lost by leaving, it stays and its own cgroup is managed in place; a warning \
         says among which groups the task then ranks. For a unit of the system that takes an admin; \
         one of a user's own manager needs CPUWeight=.",
    ),
    (
        "a delegated unit (Delegate=), a container, a job of another scheduler",
        "It stays in place if it is alone in its cgroup and that has a CPU weight; on cgroup v1 it is \
         moved in cpu, cpuacct and blkio alone if it is at the root of those; else refused. Only an \
         administrator's --leave-unit takes it out.",
    ),
    (
        "a service with a script that calls lrsctl run; a scope or session with a limit",
        "Refused. Make it the only process of a unit (exec), or give --leave-unit. A member may not \
         leave a limit that way.",
    ),
];

fn cases(roff: &mut Roff) {
    roff.control("SH", ["IN A UNIT OF SYSTEMD'S"]);
    roff.text([roman(
        "Lost by leaving would be a finite limit of memory, cpu, io or cpuset on the way up, or the \
         stop of a service with KillMode=control-group or mixed: systemctl stop would not end the \
         task. On cgroup v1 the limits of memory and cpuset are not left and do not count. Where \
         systemd does not say, KillMode=control-group is assumed. Started in",
    )]);
    for (place, what) in RUN_IN_A_UNIT {
        roff.control("TP", []).text([bold(*place)]).text([roman(*what)]);
    }
}

fn files(roff: &mut Roff) {
    roff.control("SH", ["FILES"]);
    for (path, what) in [
        (DEFAULT_FILE, "Settings of the daemon; without it the defaults hold."),
        ("/etc/lrs/lrs.toml.d/*.toml", "Drop-ins: settings that are read after it, by name."),
        ("/run/lrs/lrsd.sock", "Where the daemon listens."),
        ("/run/lrs/state/", "What the next daemon takes up: tasks, reservations, events."),
    ] {
        roff.control("TP", []).text([bold(path)]).text([roman(what)]);
    }
}

/// References to the other pages than `name`.
fn see_also(roff: &mut Roff, name: &str) {
    roff.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for (page, section) in SEE_ALSO.iter().filter(|(page, _)| *page != name) {
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(*page), roman(format!("({section})"))]);
    }
    roff.text(line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::{RULE, keys};

    fn text_of(name: &str) -> String {
        let pages = pages();
        let page = pages.iter().find(|page| page.name == name).unwrap();
        String::from_utf8(page.text.clone()).unwrap()
    }

    #[test]
    fn every_visible_command_has_a_page_and_no_hidden_one() {
        let names: Vec<String> = pages().iter().map(Page::file_name).collect();
        for name in ["lrsctl.1", "lrsctl-run.1", "lrsctl-config-check.1", "lrsd.8", "lrs.toml.5"] {
            assert!(names.iter().any(|found| found == name), "{name} is missing in {names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("__") || name.contains("help")));
    }

    #[test]
    fn the_file_page_has_every_key() {
        let text = text_of("lrs.toml");
        for key in keys() {
            let name = key.name();
            assert!(text.contains(&format!("\\fB{name}\\fR = ")), "no {} in:\n{text}", key.path);
        }
        for key in RULE {
            assert!(
                text.contains(&format!("\\fB{}\\fR\n", key.name())),
                "no {} in:\n{text}",
                key.path
            );
        }
    }

    #[test]
    fn the_page_of_run_has_the_cases() {
        let text = text_of("lrsctl-run");
        for word in ["UNIT OF SYSTEMD", "KillMode=process", "leave\\-unit", "Delegate="] {
            assert!(text.contains(word), "no {word} in:\n{text}");
        }
        assert!(!text_of("lrsctl-admit").contains("UNIT OF SYSTEMD"));
    }

    #[test]
    fn pages_name_each_other() {
        for page in pages() {
            let text = String::from_utf8(page.text.clone()).unwrap();
            for section in [".TH", "NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"] {
                assert!(text.contains(section), "{} lacks {section}", page.file_name());
            }
        }
    }
}
