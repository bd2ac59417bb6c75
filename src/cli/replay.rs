//! `lrsctl replay`: plays a recording again, as it was or by other settings.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use lrs_recording::figures::Figures;
use lrs_recording::replay::{Difference, Report, replay};
use lrs_recording::{Bad, Reader};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::args::ReplayArgs;
use super::failure::Failure;
use super::output::{Output, printable, wrap};
use super::record::deciding;
use super::show::when::Times;
use crate::config::{Absent, Config};
use crate::core::recording::Entry;
use crate::core::state::Policy;
use crate::executor::settings::policy;

/// The most memory of a replay, in bytes: several times what the core of 20,000 tasks takes.
const MOST_MEMORY: u64 = 2 << 30;

/// What a comparison of settings cannot say.
const UNKNOWN: &str = "What cannot be known: up to the first difference the inputs are what really happened. \
    Behind it they are those of the node as it was: tasks would have ended at other times, used other CPU and \
    memory, and other ones would have come. So the figures below say what these settings decide of the same \
    inputs, and not how the node would have fared; of tasks that only they admit nothing is known.";

/// `lrsctl replay FILE`
pub(super) fn play(args: &ReplayArgs, times: &Times, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        return Err(Failure::usage("replay has no JSON")
            .hint("the recording itself is zstd and MessagePack, which many tools read"));
    }
    // A small file can unpack to values that take a hundred times its bytes, and no reader of them has a
    // limit: the kernel ends a replay that wants more, with "memory allocation failed" from Rust.
    let most = Rlimit { current: Some(MOST_MEMORY), maximum: getrlimit(Resource::As).maximum };
    setrlimit(Resource::As, most).map_err(|error| {
        Failure::failed(format!("setrlimit(RLIMIT_AS) to {MOST_MEMORY} bytes failed: {error}"))
            .hint("a lower limit is set (`ulimit -v`): raise it to 2 GiB")
    })?;
    let other = other_settings(args)?;
    let report = replay(open(&args.file)?, other).map_err(|error| bad(&args.file, &error))?;
    let is_compared = !args.set.is_empty() || args.config.is_some();
    write(&report, is_compared, times, out)?;
    let is_whole = report.end.as_ref().is_none_or(|why| !why.starts_with("it is"));
    match report.rules {
        Some(_) => Err(Failure::failed("the rules of this version decide otherwise").hint(
            "a rule has changed since; a change that is meant is accepted by its tests (tests/recordings)",
        )),
        None if !is_whole => Err(Failure::failed("the recording was played only in part")),
        None => Ok(()),
    }
}

fn open(file: &Path) -> Result<BufReader<File>, Failure> {
    let opened = File::open(file).map(BufReader::new);
    opened.map_err(|error| bad(file, &Bad::Io(error)))
}

fn bad(file: &Path, error: &Bad) -> Failure {
    Failure::failed(printable(&format!("{} {error}", file.display())).into_owned())
}

/// Those of `--set` and `--config`; `None`: neither is there.
fn other_settings(args: &ReplayArgs) -> Result<Option<Policy>, Failure> {
    let mut text = match &args.config {
        Some(file) => {
            let config = Config::load(file, Absent::IsError);
            deciding(&config.map_err(|errors| Failure::usage(errors.to_string()))?.config)
        }
        None if args.set.is_empty() => return Ok(None),
        None => recorded_settings(&args.file)?,
    };
    for (key, value) in &args.set {
        text = set(&text, key, value);
    }
    let config = Config::from_toml(&text, "the settings of the replay".as_ref());
    Ok(Some(policy(&config.map_err(|errors| Failure::usage(errors.to_string()))?)))
}

/// One `key = value` a line.
fn recorded_settings(file: &Path) -> Result<String, Failure> {
    let mut reader = Reader::new(open(file)?);
    reader.header().map_err(|error| bad(file, &error))?;
    match reader.entry() {
        Ok(Some(Entry::Settings(settings))) => Ok(settings),
        Ok(_) => Err(Failure::failed("the recording does not say what its settings were")
            .hint("give all of them: --config FILE")),
        Err(error) => Err(bad(file, &error)),
    }
}

/// [`deciding`] with another value of a key: as it is given, or else as a text in quotes.
fn set(text: &str, key: &str, value: &str) -> String {
    let others = text.lines().filter(|line| line.split(" = ").next() != Some(key));
    let others: String = others.map(|line| format!("{line}\n")).collect();
    let is_value = crate::config::toml_to_json(&format!("it = {value}")).is_some();
    let quoted = serde_json::Value::from(value).to_string();
    format!("{others}{key} = {}\n", if is_value { value } else { &quoted })
}

fn write(report: &Report, compared: bool, times: &Times, out: &mut Output) -> Result<(), Failure> {
    let Report { version, time, inputs, daemons, .. } = report;
    let time = time.map_or_else(String::new, |(first, last)| {
        format!(", {} to {}", times.clock(first.wall), times.clock(last.wall))
    });
    let daemons = if *daemons == 1 { "1 daemon".to_owned() } else { format!("{daemons} daemons") };
    let version = printable(version);
    out.line(format!("recorded by LRS {version}{time}: {inputs} inputs, {daemons}"))?;
    if let Some(why) = &report.end {
        out.line(format!("it ends there: {}", printable(why)))?;
    }
    match &report.rules {
        None => out.line("this version decides the same, bit for bit")?,
        Some(it) => {
            out.line("\nThis version decides otherwise, here for the first time:")?;
            difference(it, ["decided then", "decided now"], times, out)?;
        }
    }
    if !compared {
        return Ok(());
    }
    if report.reloads > 0 {
        let times = if report.reloads == 1 { "once" } else { "more than once" };
        let text = format!(
            "The settings were changed {times} in this time. The others hold from the first input to the last all \
             the same, so what differs below may come of that alone: record a time without a reload."
        );
        out.line(format!("\n{}", wrap("", 0, &text, out.width())))?;
    }
    match &report.settings {
        None => out.line("with the other settings too: no decision differs")?,
        Some(it) => {
            out.line("\nThe other settings decide otherwise, here for the first time:")?;
            difference(it, ["as it was", "with the others"], times, out)?;
            out.line(format!("\n{}", wrap("", 0, UNKNOWN, out.width())))?;
        }
    }
    let (was, other) = (&report.figures.0, &report.figures.1);
    out.line(format!("\n{:30}{:>14}{:>18}", "", "as it was", "with the others"))?;
    rows(was, other).into_iter().try_for_each(|row| out.line(row))
}

fn rows(was: &Figures, other: &Figures) -> Vec<String> {
    let both = was.rows().into_iter().zip(other.rows());
    both.map(|((name, was), (_, other))| format!("{name:30}{was:>14}{other:>18}")).collect()
}

fn difference(
    it: &Difference,
    names: [&str; 2],
    times: &Times,
    out: &mut Output,
) -> Result<(), Failure> {
    let Difference { number, at, input, then, now } = it;
    out.line(format!("input {number}, {}: {}", times.clock(at.wall), printable(input)))?;
    for (name, lines) in names.into_iter().zip([then, now]) {
        out.line(format!("  {name}:"))?;
        if lines.is_empty() {
            out.line("    nothing that the other does not")?;
        }
        for line in lines {
            out.line(format!("    {}", printable(line)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_set_with_quotes_or_without() {
        let text = deciding(&Config::default());
        let text = set(&set(&text, "slots.formula", "lrs"), "slots.passive_max", "4");
        let text = set(&text, "slots.formula", "\"probe\"");
        let read = Config::from_toml(&text, "test".as_ref()).unwrap();
        assert_eq!(read.show("slots.formula"), "\"probe\"");
        assert_eq!(read.show("slots.passive_max"), "4");
        let hostile = set("", "slots.formula", "x\"\n[grpc]\nadmins = [1]");
        assert!(Config::from_toml(&hostile, "test".as_ref()).is_err());
    }
}
