//! Events one a line, and the story of one task.

use prost_types::value::Kind;

use super::when::Times;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, printable, say, wrap};
use crate::proto;
use lrs_api::words::{change, inputs};

/// `lrsctl events`: one line each, for grep; on a terminal it breaks at words.
pub(crate) fn line(
    event: &proto::Event,
    names: Option<&Names>,
    times: &Times,
    out: &mut Output,
) -> Result<(), Failure> {
    let task = event.task.as_deref().map(|id| format!(" {id}")).unwrap_or_default();
    let reason = event.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let text = format!("{}{task}{}{}{reason}", event.r#type, label(names), change(event));
    let time = times.write(event.at.as_ref());
    let text = format!("{} {time} {}", event.seq, printable(&text));
    match out.breaks_at() {
        Some(width) => out.line(wrap("", 4, &text, width).trim_start()),
        None => out.line(text),
    }
}

/// What people know a task by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) job: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
}

impl Names {
    /// Those of a running task.
    pub(crate) fn of_task(task: &proto::Task) -> Names {
        Names { job: task.job.clone(), kind: task.kind.clone(), name: task.name.clone() }
    }

    /// Those that an event brings, as that of an admission does.
    pub(crate) fn of_event(event: &proto::Event) -> Option<Names> {
        let input = |name: &str| match &event.inputs.as_ref()?.fields.get(name)?.kind {
            Some(Kind::StringValue(text)) => Some(text.clone()),
            _ => None,
        };
        let names = Names { job: input("job"), kind: input("kind"), name: input("name") };
        (names.job.is_some() || names.kind.is_some() || names.name.is_some()).then_some(names)
    }
}

/// ` (job/kind name)`: ids mean nothing to people.
fn label(names: Option<&Names>) -> String {
    let Some(names) = names else { return String::new() };
    let job: Vec<&str> = [&names.job, &names.kind].into_iter().flatten().map(|w| &**w).collect();
    let job = job.join("/");
    let words: Vec<&str> = [Some(&*job), names.name.as_deref()].into_iter().flatten().collect();
    match words.join(" ").trim() {
        "" => String::new(),
        words => format!(" ({words})"),
    }
}

/// `lrsctl why ID`: what happened, why, and on which figures.
pub(crate) fn why(
    id: &str,
    story: &proto::ExplainResponse,
    times: &Times,
    out: &mut Output,
) -> Result<(), Failure> {
    if story.events.is_empty() {
        say(format_args!("no decision about {} is kept", printable(id)));
        return Ok(());
    }
    if story.truncated {
        say(format_args!("older decisions about {} are not kept any more", printable(id)));
    }
    let bold = anstyle::Style::new().bold();
    let width = out.width();
    for event in &story.events {
        out.line(format_args!(
            "{}  {bold}{}{bold:#}{}",
            times.write(event.at.as_ref()),
            printable(&event.r#type),
            printable(&change(event)),
        ))?;
        if let Some(reason) = &event.reason {
            out.line(wrap("", 4, reason, width))?;
        }
        let inputs = inputs(event);
        if !inputs.is_empty() {
            out.line(wrap("    given", 10, &inputs, width))?;
        }
        // Who reads on will want this: the same event in the stream.
        out.line(format_args!("    event {}", event.seq))?;
    }
    Ok(())
}
