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
mod exec;
mod failure;
mod inherited;
mod local;
mod manage;
mod output;
mod pages;
mod plan;
mod read;
mod show;
mod values;
mod yarn;

use std::process::ExitCode;

use clap::Parser;

use failure::Failure;
use output::Output;

use args::{Cli, Command, ConfigCommand};

/// Parses the arguments, carries the command out and says how it ended.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help on a closed pipe is as good as help that was read.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
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
    let endpoint = &cli.endpoint;
    let talk = output::Talk { verbose: cli.verbose };
    match cli.command {
        Command::Status => read::status(endpoint, out),
        Command::Tasks => read::tasks(endpoint, out),
        Command::Task { id } => read::task(endpoint, &id, out),
        Command::Jobs => read::jobs(endpoint, out),
        Command::Events { since, no_follow } => read::events(endpoint, since, no_follow, out),
        Command::Why { id } => read::why(endpoint, &id, out),
        Command::Run(args) => match admit::run(endpoint, args, talk)? {},
        Command::Admit(args) => admit::admit(endpoint, &args, talk, out),
        Command::Release { id } => manage::release(endpoint, id),
        Command::Priority { id, priority } => manage::priority(endpoint, id, priority, out),
        Command::Reserve(args) => manage::reserve(endpoint, args, out),
        Command::Cancel { id } => manage::cancel(endpoint, id),
        Command::Drain => manage::drain(endpoint),
        Command::Resume => manage::resume(endpoint),
        Command::Reload => manage::reload(endpoint, out),
        Command::Doctor { config } => local::doctor(config.as_deref(), out),
        Command::Config { command: ConfigCommand::Check { file } } => local::check(&file, out),
        Command::Config { command: ConfigCommand::Show } => read::config(endpoint, out),
        Command::Plan(args) => plan::plan_file(&args, out),
        Command::Completions { shell } => pages::completions(shell, out),
        Command::Man { page, out: directory } => {
            pages::man(page.as_deref(), directory.as_deref(), out)
        }
        Command::Yarn { command } => yarn::execute(&command, endpoint, out),
        Command::Bench { args } => match exec::bench(cli.json, args)? {},
        Command::Demo(args) => crate::demo::supervise(&args, out),
        Command::DemoInner(args) => crate::demo::run(&args, out),
        Command::Daemon { config } => {
            Err(Failure::ended(lrs_testbed::supervise::daemon(&config, crate::daemon::main)))
        }
    }
}

/// The runtime of every command that talks to the daemon: this thread and no other.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::failed(format!("cannot set up the event loop: {error}; raise `ulimit -n`?"))
    })
}
