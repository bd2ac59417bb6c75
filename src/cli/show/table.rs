//! `lrsctl tasks`: a line a task, in the columns and the order asked for.
//!
//! A column has the name of the field in the JSON, so that `-o`, `--sort` and `--json` speak of the
//! same things.

use lrs_api::words;
use serde_json::Value;

use super::tasks::{OnNode, oddities, title};
use super::{brief_rate, bytes, known, percent, rate, seconds_age, tier_word};
use crate::cli::args::TasksArgs;
use crate::cli::failure::Failure;
use crate::cli::output::{Column, Columns, Output, say};
use crate::proto;

/// A column: the field, the head, how it stands, its text.
struct Field(&'static str, &'static str, Column, fn(OnNode<'_>) -> String);

const FIELDS: &[Field] = &[
    Field("id", "ID", Column::Text, |task| task.id.clone()),
    Field("tier", "TIER", Column::Text, |task| tier_word(task.tier).to_owned()),
    Field("priority", "PRI", Column::Figure, |task| {
        known(task.priority, |priority| priority.to_string())
    }),
    Field("class", "CLASS", Column::Text, |task| words::class(task.class, task.hinted)),
    Field("computing_rate", "RATE", Column::Figure, |task| rate(task.computing_rate)),
    Field("cpu_share", "CPU", Column::Figure, |task| percent(task.cpu_share)),
    Field("cpus", "CPUS", Column::Text, |task| text(task.task.cpus.as_deref())),
    Field("write_bytes_per_sec", "WRITE/s", Column::Figure, |task| {
        brief_rate(task.write_bytes_per_sec)
    }),
    Field("elapsed_seconds", "AGE", Column::Figure, |task| seconds_age(task.elapsed_seconds)),
    Field("expected_remaining_seconds", "LEFT", Column::Figure, |task| {
        seconds_age(task.expected_remaining_seconds)
    }),
    Field(TITLE, "NAME", Column::Elastic(8), title),
    Field("name", "NAME", Column::Elastic(8), |task| text(task.name.as_deref())),
    Field("job", "JOB", Column::Elastic(8), |task| text(task.job.as_deref())),
    Field("kind", "KIND", Column::Elastic(6), |task| text(task.kind.as_deref())),
    Field("group", "GROUP", Column::Elastic(6), |task| text(task.group.as_deref())),
    Field("pid", "PID", Column::Figure, |task| known(task.pid, |pid| pid.to_string())),
    Field("uid", "UID", Column::Figure, |task| known(task.uid, |uid| uid.to_string())),
    Field("cpu_seconds", "CPU-S", Column::Figure, |task| {
        known(task.cpu_seconds, |seconds| format!("{seconds:.1}"))
    }),
    Field("read_bytes_per_sec", "READ/s", Column::Figure, |task| {
        brief_rate(task.read_bytes_per_sec)
    }),
    Field("resident_bytes", "MEMORY", Column::Figure, |task| known(task.resident_bytes, bytes)),
    Field("flags", "FLAGS", Column::Text, |task| match oddities(task).join(",") {
        none if none.is_empty() => super::DASH.to_owned(),
        flags => flags,
    }),
    Field("unit", "UNIT", Column::Elastic(8), |task| text(task.unit.as_deref())),
    Field("cgroup", "CGROUP", Column::Elastic(12), |task| text(task.cgroup.as_deref())),
];

/// Job, kind and name with the flags in front: what people know a task by.
const TITLE: &str = "title";

/// The columns without `-o`, on lines of this width or more.
const USUAL: &[(usize, &[&str])] = &[
    (
        80,
        &[
            "id",
            "tier",
            "priority",
            "class",
            "computing_rate",
            "cpu_share",
            "write_bytes_per_sec",
            "elapsed_seconds",
            TITLE,
        ],
    ),
    (60, &["id", "tier", "class", "cpu_share", "elapsed_seconds", TITLE]),
    (0, &["id", "tier", "cpu_share", "elapsed_seconds", TITLE]),
];

/// Names for `-o` and `--sort`.
pub(crate) fn fields() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|field| field.0)
}

/// The table, or in JSON the list: those asked for, in the order asked for.
pub(crate) fn tasks(
    tasks: Vec<proto::Task>,
    cpus: Option<f64>,
    args: &TasksArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let own = rustix::process::geteuid().as_raw();
    let mut tasks: Vec<proto::Task> = tasks
        .into_iter()
        .filter(|task| !args.mine || task.uid == Some(own))
        .filter(|task| args.job.is_none() || task.job == args.job)
        .filter(|task| args.group.is_none() || task.group == args.group)
        .collect();
    match &args.sort {
        // The active tier first, each tier in the order of the answer, which is that of admission.
        None if !out.is_json() => tasks.sort_by_key(|task| task.tier),
        None => {}
        Some(key) => sort(&mut tasks, cpus, key)?,
    }
    if out.is_json() {
        return out.json(&tasks);
    }
    if tasks.is_empty() {
        say(format_args!("no tasks"));
        return Ok(());
    }
    let usual = || {
        let fits = USUAL.iter().find(|(width, _)| out.width() >= *width);
        fits.map_or(&[][..], |(_, names)| names)
    };
    let pinned = tasks.iter().any(|task| task.cpus.is_some());
    let names: Vec<&str> = match &args.output[..] {
        [] if pinned => with_cpus(usual()),
        [] => usual().to_vec(),
        asked => asked.iter().map(String::as_str).collect(),
    };
    let field = |name: &&str| FIELDS.iter().find(|field| field.0 == *name);
    let fields: Vec<&Field> = names.iter().filter_map(field).collect();
    let mut table =
        Columns::new(&fields.iter().map(|field| (field.1, field.2)).collect::<Vec<_>>());
    for task in &tasks {
        table.row(fields.iter().map(|field| field.3(OnNode { task, cpus })).collect());
    }
    out.table(&if args.no_header { table.without_heads() } else { table })
}

/// Beside what they use of the CPUs, which they may use, where not all may use all.
fn with_cpus(usual: &[&'static str]) -> Vec<&'static str> {
    let beside = |name: &&'static str| match *name {
        "cpu_share" => vec!["cpu_share", "cpus"],
        other => vec![other],
    };
    usual.iter().flat_map(beside).collect()
}

/// By a field of the JSON, descending with `-` in front; what is unknown stands last.
fn sort(tasks: &mut Vec<proto::Task>, cpus: Option<f64>, key: &str) -> Result<(), Failure> {
    let (descending, key) = match key.strip_prefix('-') {
        Some(key) => (true, key),
        None => (false, key),
    };
    let mut keyed = Vec::with_capacity(tasks.len());
    for task in tasks.drain(..) {
        let value = match key {
            TITLE => Value::String(title(OnNode { task: &task, cpus })),
            "flags" => Value::String(oddities(OnNode { task: &task, cpus }).join(",")),
            key => serde_json::to_value(&task)
                .ok()
                .and_then(|mut value| value.get_mut(key).map(Value::take))
                .unwrap_or_default(),
        };
        keyed.push((value, task));
    }
    keyed.sort_by(|(one, _), (other, _)| {
        let order = match (one, other) {
            (Value::Null, _) | (_, Value::Null) => return one.is_null().cmp(&other.is_null()),
            (Value::Number(one), Value::Number(other)) => {
                one.as_f64().unwrap_or(0.0).total_cmp(&other.as_f64().unwrap_or(0.0))
            }
            (one, other) => one.as_str().cmp(&other.as_str()),
        };
        if descending { order.reverse() } else { order }
    });
    tasks.extend(keyed.into_iter().map(|(_, task)| task));
    Ok(())
}

fn text(value: Option<&str>) -> String {
    known(value, str::to_owned)
}
