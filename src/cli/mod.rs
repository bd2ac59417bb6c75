//! `lrsctl`: a client like any other, and the parts of it that work without a daemon.
//!
//! Data goes to stdout, talk to stderr. With `--json` the data is the protobuf message itself
//! in the spelling of [`crate::wire`], so the contract has one source. A reader that closes
//! the pipe ends the command with status 0 and without a word. How a command ends is a
//! [`failure::Failure`], and that alone decides the exit code.
//!
//! Everything runs on one thread: `run` replaces this process by the command, and an exec
//! with other threads alive would leave it to luck what they were doing.

mod admit;
mod args;
mod client;
mod complete;
mod diff;
mod each;
mod events;
mod exec;
mod failure;
mod groups;
mod handle;
mod inherited;
mod kill;
mod local;
mod manage;
mod metrics;
mod output;
mod pages;
mod past;
mod plot;
#[cfg(test)]
mod promised;
mod queue;
mod read;
mod record;
mod replay;
mod show;
mod submit;
mod top;
mod usage;
mod values;
mod wait;
mod why;
mod window;
mod yarn;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};

use client::Lrsd;
use failure::{Exit, Failure};
use output::Output;

use args::{Cli, Command, ConfigCommand, RunArgs};

/// Parses the arguments, carries the command out and says how it ended.
pub fn main() -> ExitCode {
    lrs_host::accounts::without_modules();
    complete::answer();
    // Only help needs the groups, and writing them takes longer than parsing a command.
    let matches = Cli::command().try_get_matches().or_else(|error| match error.kind() {
        ErrorKind::DisplayHelp => groups::grouped(Cli::command()).try_get_matches(),
        _ => Err(error),
    });
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        // clap says so in place of its help where LRS_ENDPOINT is set.
        Err(error) if error.kind() == ErrorKind::MissingSubcommand => {
            output::say(format_args!("{}", groups::grouped(Cli::command()).render_help()));
            return Exit::Usage.into();
        }
        Err(error) => return usage::report(error),
    };
    let mut out = Output::stdout(cli.json);
    let ended = execute(cli, &mut out).and_then(|()| Ok(out.flush()?));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report("lrsctl");
            failure.exit()
        }
    }
}

/// Carries out one parsed command.
fn execute(cli: Cli, out: &mut Output) -> Result<(), Failure> {
    let lrsd = &Lrsd { endpoint: cli.endpoint, timeout: cli.timeout };
    // Reads the time zones of the node, so `run` does without.
    let times = || show::when::Times::new(cli.utc);
    let talk = output::Talk { verbose: cli.verbose };
    let mut command = cli.command;
    if let Command::Run(RunArgs { unless_queued: Some(name), slot, .. }) = &mut command {
        slot.name.get_or_insert_with(|| name.clone());
    }
    match command {
        Command::Status => read::status(lrsd, talk, out),
        Command::Top(args) => top::top(lrsd, &args, &times(), out),
        Command::Tasks(args) => read::tasks(lrsd, &args, out),
        Command::Queue(args) => queue::queue(lrsd, &args, out),
        Command::Task { id } if handle::is_queued(&id) => queue::one(lrsd, id, out),
        Command::Task { id } => read::task(lrsd, id, &times(), out),
        Command::Jobs { suits: true, .. } => read::suits(lrsd, out),
        Command::Jobs { since: None, .. } => read::jobs(lrsd, out),
        Command::Jobs { since: Some(since), .. } => past::jobs(lrsd, &since, &times(), out),
        Command::History(args) => past::history(lrsd, &args, &times(), out),
        Command::Plot(args) => plot::plot(lrsd, &args, &times(), out),
        Command::Events(args) => events::events(lrsd, &args, &times(), out),
        Command::Why { id } => why::why(lrsd, id, &times(), out),
        Command::Run(RunArgs { unless_queued: Some(name), .. })
            if manage::is_under_way(lrsd, &name).map_err(Failure::of_run)? =>
        {
            let name = output::printable(&name);
            output::say(format_args!("lrsctl: {name} runs or waits already; nothing is started"));
            Ok(())
        }
        Command::Run(args) if args.each.is_some() => {
            each::each(lrsd, &args).map_err(Failure::of_run)
        }
        Command::Run(args) => match admit::run(lrsd, args, talk).map_err(Failure::of_run)? {},
        Command::Submit(args) => submit::submit(lrsd, args, out).map_err(Failure::of_run),
        Command::Log(args) => match submit::log(lrsd, args)? {},
        Command::Stop { pid } => submit::stop(pid),
        Command::Admit(args) => admit::admit(lrsd, &args, talk, out),
        Command::Release { id } => manage::release(lrsd, id),
        Command::Wait(args) => wait::wait(lrsd, &args, talk, out),
        Command::Kill(args) => kill::kill(lrsd, args, talk),
        Command::Priority(args) => manage::priority(lrsd, args, out),
        Command::Reserve(args) => manage::reserve(lrsd, args, out),
        Command::Cancel { id } => manage::cancel(lrsd, id),
        Command::Drain => manage::drain(lrsd),
        Command::Resume => manage::resume(lrsd),
        Command::Reload => manage::reload(lrsd, out),
        Command::Doctor { config, quiet, verify, except } => {
            local::doctor(lrsd, config.as_deref(), local::Doctor { quiet, verify, except }, out)
        }
        Command::Config { command: ConfigCommand::Check { file } } => local::check(&file, out),
        Command::Config { command: ConfigCommand::Show } => read::config(lrsd, out),
        Command::Config { command: ConfigCommand::Diff { file, running } } => {
            diff::diff(lrsd, file.as_deref(), running, out)
        }
        Command::Completions { shell } => complete::script(shell, out),
        Command::Man { page, out: directory } => {
            pages::man(page.as_deref(), directory.as_deref(), out)
        }
        Command::Metrics { openmetrics } => metrics::metrics(lrsd, openmetrics, out),
        Command::Record(args) => record::record(lrsd, &args),
        Command::Replay(args) => replay::play(&args, &times(), out),
        Command::Yarn { command } => yarn::execute(&command, lrsd, out),
        Command::Bench { args } => match exec::bench(cli.json, args)? {},
        Command::Demo(args) => lrs_bench::demo(&args, out),
        Command::DemoInner(args) => lrs_bench::run(&args, out),
        Command::Daemon { config } => {
            Err(Failure::ended(lrs_testbed::supervise::daemon(&config, crate::daemon::main)))
        }
    }
}

/// The runtime of every command that talks to the daemon: this thread and no other.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    crate::runtime::on_this_thread().map_err(|error| {
        Failure::failed(format!("cannot set up the event loop: {error}"))
            .hint("raise the limit of open files (`ulimit -n`); a command needs some 12")
    })
}
