//! `lrs-place classify`: what the bytecode of map and reduce classes says about them.

use std::path::PathBuf;

use clap::Args;
use lrs_place::bytecode::{Limits, Predicted, Predicts, Program, jar};
use lrs_term::{Column, Columns, Failure, Output, printable, say, wrap};
use serde::Serialize;

#[derive(Args, Debug)]
pub(super) struct ClassifyArgs {
    /// The jar of the job
    #[arg(value_hint = clap::ValueHint::FilePath)]
    jar: PathBuf,
    /// Only this class: its name, or the end of it
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// Jars with classes that the job calls or extends, separated by ':'
    #[arg(long, value_name = "JAR[:JAR]", value_delimiter = ':')]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    class_path: Vec<PathBuf>,
    /// The version of Java that runs the job: which files of a multi-release jar count
    #[arg(long, value_name = "VERSION", default_value_t = 17)]
    java: u32,
    /// Print the rate of the one class as an option of `lrsctl run`, or nothing where none is predicted:
    /// lrsctl run $(lrs-place classify app.jar --class Words --job-hint) -- CMD
    #[arg(long, conflicts_with = "json")]
    job_hint: bool,
    /// Print data as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What stands where nothing is known.
const UNKNOWN: &str = "-";

/// Class files that were left out are named up to this many.
const NAMED: usize = 10;

/// The JSON.
#[derive(Serialize)]
struct Classified<'a> {
    jar: String,
    programs: &'a [Predicted],
    /// Class files that were left out, each with the reason.
    skipped: &'a [String],
}

/// `lrs-place classify JAR`: a row for each map and reduce class.
pub(super) fn classify(args: &ClassifyArgs, out: &mut Output) -> Result<(), Failure> {
    let jar = args.jar.display();
    let failed = |fault: jar::Fault| Failure::failed(format!("{jar} {fault}"));
    let limits = Limits { java: args.java, ..Limits::default() };
    let job = jar::read(&args.jar, &limits).map_err(failed)?;
    let mut libraries = Vec::with_capacity(args.class_path.len());
    for path in &args.class_path {
        let failed = |fault| Failure::failed(format!("{} {fault}", path.display()));
        libraries.push(jar::read(path, &limits).map_err(failed)?);
    }
    let program = Program::new(job, libraries);
    let programs = program.predict(args.class.as_deref()).map_err(failed)?;
    if args.job_hint && !programs.is_empty() {
        return job_hint(&programs, out);
    }
    if out.is_json() {
        let jar = args.jar.to_string_lossy().into_owned();
        out.json(&Classified { jar, programs: &programs, skipped: &program.skipped })?;
    } else {
        show(&programs, out)?;
    }
    for reason in program.skipped.iter().take(NAMED).filter(|_| !out.is_json()) {
        say(format_args!("lrs-place: left out {}", printable(reason)));
    }
    if let Some(more) = program.skipped.len().checked_sub(NAMED + 1).filter(|_| !out.is_json()) {
        say(format_args!("lrs-place: left out {} more; --json names them", more + 1));
    }
    if !programs.is_empty() {
        return Ok(());
    }
    let class = args.class.as_deref();
    let failure = match class {
        Some(name) if program.has(name) => format!("{name} in {jar} is no map or reduce class"),
        Some(name) => {
            return Err(Failure::failed(format!("{jar} has no class {name}"))
                .hint("`lrs-place classify` without --class lists those of map and reduce"));
        }
        None => format!("{jar} has no map or reduce class"),
    };
    Err(match program.orphans(class).first() {
        Some((name, ancestor)) => Failure::failed(format!(
            "{failure} as far as is known: {name} extends {ancestor}, which is in no jar"
        ))
        .hint("--class-path names the jar that has it"),
        None => Failure::failed(failure),
    })
}

fn job_hint(programs: &[Predicted], out: &mut Output) -> Result<(), Failure> {
    let [program] = programs else {
        let count = programs.len();
        return Err(Failure::failed(format!("{count} classes are map or reduce classes"))
            .hint("a hint is of one: --class names it"));
    };
    match program.assumed_computing_rate {
        Some(rate) => out.line(format_args!("--rate={rate}")),
        None => {
            let note = program.note.as_deref().unwrap_or("too little is known");
            say(format_args!("lrs-place: no hint of {}: {note}", program.class));
            Ok(())
        }
    }
}

fn show(programs: &[Predicted], out: &mut Output) -> Result<(), Failure> {
    let mut table = Columns::new(&[
        ("CLASS", Column::Elastic(20)),
        ("KIND", Column::Text),
        ("PATH", Column::Figure),
        ("LIMIT", Column::Figure),
        ("LOOPS", Column::Figure),
        ("PREDICTED", Column::Text),
        ("RATE", Column::Figure),
    ]);
    for program in programs {
        table.row(vec![
            program.class.clone(),
            program.kind.name().to_owned(),
            program.longest_path.map_or_else(|| UNKNOWN.to_owned(), |path| path.to_string()),
            program.threshold.to_string(),
            program.loops.map_or_else(|| UNKNOWN.to_owned(), |loops| loops.to_string()),
            program.predicted.map_or(UNKNOWN, Predicts::name).to_owned(),
            program.assumed_computing_rate.map_or_else(|| UNKNOWN.to_owned(), |r| r.to_string()),
        ]);
    }
    if !programs.is_empty() {
        out.table(&table)?;
    }
    for program in programs {
        if let Some(note) = &program.note {
            let lines = wrap("note", 6, &format!("{}: {note}", program.class), out.width());
            out.line(lines)?;
        }
    }
    Ok(())
}
