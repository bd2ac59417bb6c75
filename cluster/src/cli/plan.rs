//! `lrs-place plan`: what a placement policy would start on a cluster that a file describes.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use lrs_place::placement::catalogue::{Entry, POLICIES};
use lrs_place::placement::check::{Faults, parse};
use lrs_place::placement::cluster::Cluster;
use lrs_place::placement::explain::{Explanation, explain, find_task};
use lrs_place::placement::plan::{Plan, Summary, plan};
use lrs_term::{Column, Columns, Exit, Failure, Output, printable, say, wrap};
use serde::Serialize;

use super::files;

#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    /// The cluster as JSON; - is stdin
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// The policy that decides
    #[arg(long, value_name = "NAME", default_value = POLICIES[0].name, value_parser = policies())]
    policy: &'static Entry,
    /// Of TASK, or JOB/TASK, each node with the verdict, the cost and the price of a slot; without
    /// TASK all policies side by side, in figures
    #[arg(long, value_name = "TASK", num_args = 0..=1)]
    explain: Option<Option<String>>,
    /// Print data as JSON
    #[arg(long)]
    pub(super) json: bool,
}

fn policies() -> impl TypedValueParser<Value = &'static Entry> {
    let names = POLICIES.iter().map(|entry| PossibleValue::new(entry.name).help(entry.about));
    PossibleValuesParser::new(names).try_map(|name| Entry::find(&name))
}

/// Largest file: a cluster of 10,000 nodes and 100,000 tasks has an eighth of it.
const MOST_BYTES: u64 = 64 << 20;

/// What stands where a cost is not known.
const UNKNOWN: &str = "-";

/// A policy's row of `--explain`, and the JSON of it.
#[derive(Serialize)]
struct Compared {
    policy: &'static str,
    about: &'static str,
    source: &'static str,
    /// None: the policy refuses the file.
    summary: Option<Summary>,
    /// What the file lacks for this policy.
    refused: Option<String>,
}

/// `lrs-place plan FILE`: every fault of the file a line on stderr (in JSON: in the object), exit 1;
/// or the plan.
pub(super) fn plan_file(args: &PlanArgs, out: &mut Output) -> Result<(), Failure> {
    let cluster = match parse(&files::read(&args.file, MOST_BYTES)?) {
        Ok(cluster) => cluster,
        Err(faults) => return refuse(&args.file, &faults, out),
    };
    let faults = |fault| Faults(vec![fault]);
    match &args.explain {
        Some(None) => compare(&cluster, out),
        Some(Some(task)) => {
            let task = find_task(&cluster, task);
            match task.and_then(|task| explain(args.policy, &cluster, task)) {
                Ok(explanation) if out.is_json() => out.json(&explanation),
                Ok(explanation) => show_nodes(&explanation, out),
                Err(fault) => refuse(&args.file, &faults(fault), out),
            }
        }
        None => match plan(args.policy, &cluster) {
            Ok(plan) if out.is_json() => out.json(&plan),
            Ok(plan) => show(&plan, out),
            Err(fault) => refuse(&args.file, &faults(fault), out),
        },
    }
}

fn refuse(file: &Path, faults: &Faults, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        let faults: Vec<String> = faults.0.iter().map(ToString::to_string).collect();
        out.json(&serde_json::json!({ "file": file.to_string_lossy(), "faults": faults }))?;
    }
    out.flush()?;
    for fault in faults.0.iter().filter(|_| !out.is_json()) {
        say(format_args!("lrs-place: {}: {}", file.display(), printable(&fault.to_string())));
    }
    Err(Failure::ended(Exit::Failed.into()))
}

fn show(plan: &Plan, out: &mut Output) -> Result<(), Failure> {
    let mut table = Columns::new(&[
        ("JOB", Column::Elastic(8)),
        ("TASK", Column::Elastic(8)),
        ("NODE", Column::Elastic(8)),
        ("TIER", Column::Text),
        ("INPUT", Column::Text),
        ("SECONDS", Column::Figure),
        ("WHY", Column::Text),
    ]);
    for task in &plan.assigned {
        table.row(vec![
            task.job.clone(),
            task.task.clone(),
            task.node.clone(),
            task.tier.to_string(),
            task.locality.to_string(),
            seconds(task.transfer_seconds),
            task.reason.clone(),
        ]);
    }
    out.table(&table)?;
    for job in &plan.waiting {
        let text = format!("{} of {}: {}", job.tasks, job.job, job.reason);
        let lines = wrap("waiting", 9, &text, out.width());
        out.line(lines)?;
    }
    for warning in &plan.warnings {
        let lines = wrap("warning", 9, warning, out.width());
        out.line(lines)?;
    }
    let Summary { assigned, node_local, rack_local, remote, active, waiting, transfer_seconds } =
        plan.summary;
    let text = format!(
        "{assigned} start ({node_local} at their input, {rack_local} in its rack, {remote} \
         elsewhere; {active} active), {waiting} wait; {} seconds of moving input",
        seconds(transfer_seconds)
    );
    let lines = wrap(plan.policy, plan.policy.len() + 2, &text, out.width());
    out.line(lines)
}

fn show_nodes(explanation: &Explanation, out: &mut Output) -> Result<(), Failure> {
    let mut table = Columns::new(&[
        ("NODE", Column::Elastic(8)),
        ("INPUT", Column::Text),
        ("SECONDS", Column::Figure),
        ("COST", Column::Figure),
        ("PRICE", Column::Figure),
        ("VERDICT", Column::Text),
    ]);
    for node in &explanation.nodes {
        table.row(vec![
            node.node.clone(),
            node.locality.to_string(),
            seconds(node.transfer_seconds),
            seconds(node.cost),
            seconds(node.price),
            node.verdict.clone(),
        ]);
    }
    out.table(&table)?;
    let Explanation { job, task, outcome, best, second_best, .. } = explanation;
    let text = format!("{job}/{task} {outcome}");
    let lines = wrap(&explanation.policy, explanation.policy.len() + 2, &text, out.width());
    out.line(lines)?;
    let [best, second] = [best, second_best].map(|node| node.as_deref().unwrap_or("none"));
    out.line(format!("best: {best}; second best: {second}"))
}

fn compare(cluster: &Cluster, out: &mut Output) -> Result<(), Failure> {
    let compared: Vec<Compared> = POLICIES.iter().map(|entry| asked(entry, cluster)).collect();
    if out.is_json() {
        return out.json(&compared);
    }
    let mut table = Columns::new(&[
        ("POLICY", Column::Text),
        ("START", Column::Figure),
        ("NODE", Column::Figure),
        ("RACK", Column::Figure),
        ("REMOTE", Column::Figure),
        ("ACTIVE", Column::Figure),
        ("WAIT", Column::Figure),
        ("SECONDS", Column::Figure),
    ]);
    let mut refusals = Vec::new();
    for Compared { policy, summary, refused, .. } in compared {
        refusals.extend(refused.map(|fault| format!("{policy}: {fault}")));
        let Some(summary) = summary else { continue };
        let Summary { assigned, node_local, rack_local, remote, active, waiting, .. } = summary;
        let mut row = vec![policy.to_owned()];
        let figures = [assigned, node_local, rack_local, remote, active, waiting];
        row.extend(figures.map(|figure| figure.to_string()));
        row.push(seconds(summary.transfer_seconds));
        table.row(row);
    }
    out.table(&table)?;
    refusals.into_iter().try_for_each(|refusal| out.line(refusal))
}

fn asked(entry: &'static Entry, cluster: &Cluster) -> Compared {
    let planned = plan(entry, cluster);
    Compared {
        policy: entry.name,
        about: entry.about,
        source: entry.source,
        summary: planned.as_ref().ok().map(|plan| plan.summary),
        refused: planned.err().map(|fault| fault.to_string()),
    }
}

fn seconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| UNKNOWN.to_owned(), |seconds| format!("{seconds:.2}"))
}
