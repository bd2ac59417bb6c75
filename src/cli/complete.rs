//! Completions: the shell's script calls `lrsctl`, which asks lrsd for tasks and jobs.
//!
//! The value name of an argument decides what completes it, so that a new command completes like
//! the others. A daemon that does not answer within [`PATIENCE`] completes nothing, since a
//! completion cannot show an error. Limit: it asks the daemon of `LRS_ENDPOINT`, not that of an
//! `--endpoint` on the line that is completed.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory as _};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use lrs_api::client::{Connection, DEFAULT_ENDPOINT, all_tasks};
use lrs_api::proto::{ListJobsRequest, ListQueueRequest, Queued, Task};

use super::args::Cli;
use super::client::{Lrsd, connect};
use super::failure::Failure;
use super::output::Output;
use super::queue::{title, whole};

/// Names the shell when a script asks; of our own, since others use clap's `COMPLETE`.
const VARIABLE: &str = "LRSCTL_COMPLETE";
/// No shell waits longer for a list.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers a script of [`script`] and ends the process; returns if none asks.
pub(super) fn answer() {
    CompleteEnv::with_factory(|| completing(Cli::command())).var(VARIABLE).complete();
}

/// `lrsctl completions SHELL`: the script to stdout.
pub(super) fn script(shell: clap_complete::Shell, out: &mut Output) -> Result<(), Failure> {
    let shell = shell.to_string();
    let shells = Shells::builtins();
    let completer = shells
        .completer(&shell)
        .ok_or_else(|| Failure::usage(format!("no completions for the shell {shell}")))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "lrsctl", "lrsctl", "lrsctl", &mut script)?;
    out.text(String::from_utf8_lossy(&script))
}

fn completing(command: Command) -> Command {
    command.mut_subcommands(|sub| sub.mut_args(with_candidates))
}

fn with_candidates(arg: Arg) -> Arg {
    let is =
        |name: &str| arg.get_value_names().is_some_and(|names| names.iter().any(|n| n == name));
    if is("TASK") {
        arg.add(ArgValueCandidates::new(tasks))
    } else if is("QUEUED") {
        arg.add(ArgValueCandidates::new(queued))
    } else if is("JOB") {
        arg.add(ArgValueCandidates::new(jobs))
    } else {
        arg
    }
}

/// Names that stand for one task, and all ids.
fn tasks() -> Vec<CompletionCandidate> {
    let tasks = asked(all_tasks).unwrap_or_default();
    let name = |task: &Task| task.name.clone().filter(|name| fits(name));
    let alone = |name: &str| tasks.iter().filter(|t| t.name.as_deref() == Some(name)).count() == 1;
    let names = tasks.iter().filter_map(|task| {
        let name = name(task).filter(|name| alone(name))?;
        Some(CompletionCandidate::new(name).help(Some(task.id.clone().into())))
    });
    let ids = tasks
        .iter()
        .map(|task| CompletionCandidate::new(&task.id).help(name(task).map(Into::into)));
    names.chain(ids).collect()
}

fn queued() -> Vec<CompletionCandidate> {
    let queue = asked(|lrsd| whole(lrsd, ListQueueRequest::default())).unwrap_or_default();
    let title = |one: &Queued| Some(title(one)).filter(|title| fits(title)).map(Into::into);
    queue.iter().map(|one| CompletionCandidate::new(&one.id).help(title(one))).collect()
}

fn jobs() -> Vec<CompletionCandidate> {
    let jobs = asked(|mut lrsd: Connection| async move {
        Ok(lrsd.list_jobs(ListJobsRequest {}).await?.into_inner().jobs)
    });
    let names: BTreeSet<String> = jobs.into_iter().flatten().map(|job| job.job).collect();
    names.into_iter().filter(|name| fits(name)).map(CompletionCandidate::new).collect()
}

/// Whether the word can stand on a line as it is: a shell does not quote what it completes.
fn fits(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_.,+@%/".contains(c))
}

fn asked<T, Fut>(request: impl FnOnce(Connection) -> Fut) -> Option<T>
where
    Fut: Future<Output = Result<T, tonic::Status>>,
{
    let named = std::env::var("LRS_ENDPOINT");
    let endpoint = named.as_deref().unwrap_or(DEFAULT_ENDPOINT).parse().ok()?;
    let lrsd = Lrsd { endpoint, timeout: Some(PATIENCE) };
    let answer = async { request(connect(&lrsd).await.ok()?).await.ok() };
    super::runtime().ok()?.block_on(async { tokio::time::timeout(PATIENCE, answer).await.ok()? })
}
