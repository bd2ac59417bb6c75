//! `lrsctl history`: a line a task that ended.

use lrs_api::words;

use super::when::Times;
use super::{DASH, bytes, duration, known, rate, tier_word};
use crate::cli::args::HistoryArgs;
use crate::cli::failure::Failure;
use crate::cli::output::{Column, Columns, Output, say, wrap};
use crate::core::exit::signal_name;
use crate::proto::EndedTask;
use crate::wire;

/// A column: the field, the head, how it stands, its text.
struct Field(&'static str, &'static str, Column, fn(&EndedTask, &Times) -> String);

const FIELDS: &[Field] = &[
    Field("id", "ID", Column::Text, |task, _| task.id.clone()),
    Field("ended_at", "ENDED", Column::Text, |task, times| match &task.ended_at {
        Some(at) => times.write(Some(at)),
        None => "away".to_owned(),
    }),
    Field("tier", "TIER", Column::Text, |task, _| tier_word(task.tier).to_owned()),
    Field("exit", "EXIT", Column::Text, |task, _| exit(task)),
    Field("elapsed_seconds", "TIME", Column::Figure, |task, _| duration(task.elapsed_seconds)),
    Field("cpu_seconds", "CPU-S", Column::Figure, |task, _| {
        known(task.cpu_seconds, |seconds| format!("{seconds:.1}"))
    }),
    Field("peak_memory_bytes", "MEMORY", Column::Figure, |task, _| {
        let mark = if task.peak_memory_sampled { "~" } else { "" };
        known(task.peak_memory_bytes, |peak| format!("{mark}{}", bytes(peak)))
    }),
    Field("read_bytes", "READ", Column::Figure, |task, _| known(task.read_bytes, bytes)),
    Field("write_bytes", "WRITE", Column::Figure, |task, _| known(task.write_bytes, bytes)),
    Field("class", "CLASS", Column::Text, |task, _| wire::class_word(task.class).to_owned()),
    Field("computing_rate", "RATE", Column::Figure, |task, _| rate(task.computing_rate)),
    Field("uid", "UID", Column::Figure, |task, _| known(task.uid, |uid| uid.to_string())),
    Field("title", "NAME", Column::Elastic(8), |task, _| title(task)),
    Field("name", "NAME", Column::Elastic(8), |task, _| text(task.name.as_ref())),
    Field("job", "JOB", Column::Elastic(8), |task, _| text(task.job.as_ref())),
    Field("kind", "KIND", Column::Elastic(6), |task, _| text(task.kind.as_ref())),
    Field("group", "GROUP", Column::Elastic(6), |task, _| text(task.group.as_ref())),
    Field("index", "INDEX", Column::Figure, |task, _| known(task.index, |index| index.to_string())),
    Field("command", "COMMAND", Column::Elastic(8), |task, _| text(task.command.as_ref())),
];

/// The columns without `-o`, on lines of this width or more.
const USUAL: &[(usize, &[&str])] = &[
    (
        120,
        &[
            "id",
            "ended_at",
            "tier",
            "exit",
            "elapsed_seconds",
            "cpu_seconds",
            "peak_memory_bytes",
            "read_bytes",
            "write_bytes",
            "class",
            "title",
            "command",
        ],
    ),
    (
        80,
        &[
            "id",
            "ended_at",
            "exit",
            "elapsed_seconds",
            "cpu_seconds",
            "peak_memory_bytes",
            "title",
            "command",
        ],
    ),
    (0, &["id", "exit", "elapsed_seconds", "title"]),
];

/// Names for `-o`.
pub(crate) fn fields() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|field| field.0)
}

/// The table, in the columns asked for.
pub(crate) fn table(
    tasks: &[EndedTask],
    args: &HistoryArgs,
    times: &Times,
    out: &mut Output,
) -> Result<(), Failure> {
    if tasks.is_empty() {
        say(format_args!("no task that ended is kept, or none fits what was asked"));
        return Ok(());
    }
    let usual = USUAL.iter().find(|(width, _)| out.width() >= *width);
    let names: Vec<&str> = match &args.output[..] {
        [] => usual.map_or(&[][..], |(_, names)| names).to_vec(),
        asked => asked.iter().map(String::as_str).collect(),
    };
    let field = |name: &&str| FIELDS.iter().find(|field| field.0 == *name);
    let fields: Vec<&Field> = names.iter().filter_map(field).collect();
    let mut table =
        Columns::new(&fields.iter().map(|field| (field.1, field.2)).collect::<Vec<_>>());
    for task in tasks {
        table.row(fields.iter().map(|field| field.3(task, times)).collect());
    }
    out.table(&if args.no_header { table.without_heads() } else { table })?;
    out.flush()?;
    say(format_args!("{}", summary(tasks)));
    Ok(())
}

/// How many, and how long they took.
fn summary(tasks: &[EndedTask]) -> String {
    let failed = |task: &&EndedTask| match task.exit_status {
        Some(status) => status != 0,
        None => task.exit_signal.is_some(),
    };
    let failed = tasks.iter().filter(failed).count();
    let mut times: Vec<f64> = tasks.iter().filter_map(|task| task.elapsed_seconds).collect();
    times.sort_by(f64::total_cmp);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let p95 = times.get((times.len() * 95).div_ceil(100).saturating_sub(1)).copied();
    let (mean, p95) = (duration(p95.map(|_| mean)), duration(p95));
    format!("{} ended, {failed} failed; time {mean} in the mean, 95 % within {p95}", tasks.len())
}

/// `lrsctl task ID` of one that has ended: everything, a line each.
pub(crate) fn one(task: &EndedTask, times: &Times, out: &mut Output) -> Result<(), Failure> {
    for Field(name, _, _, value) in FIELDS.iter().filter(|field| field.0 != "title") {
        let line = wrap(name, 18, &value(task, times), out.width());
        out.line(line)?;
    }
    Ok(())
}

/// `3`, `SIGSEGV+core`, `SIGKILL+oom`, and `0+oom` where the kernel killed another process of the task.
pub(crate) fn exit(task: &EndedTask) -> String {
    let core = if task.core_dumped == Some(true) { "+core" } else { "" };
    let oom = task.oom_kills.is_some_and(|killed| killed > 0);
    let how = match (task.exit_status, task.exit_signal) {
        (Some(status), _) => status.to_string(),
        (None, Some(signal)) => match u8::try_from(signal).ok().and_then(signal_name) {
            Some(name) => format!("{name}{core}"),
            None => format!("signal {signal}{core}"),
        },
        (None, None) if oom => return "oom".to_owned(),
        (None, None) => DASH.to_owned(),
    };
    if oom { format!("{how}+oom") } else { how }
}

/// Job, kind and name.
pub(crate) fn title(task: &EndedTask) -> String {
    let title = words::labels(task.job.as_deref(), task.kind.as_deref(), task.name.as_deref());
    known(Some(title).filter(|title| !title.is_empty()), |title| title)
}

fn text(value: Option<&String>) -> String {
    known(value, String::clone)
}
