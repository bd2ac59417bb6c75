//! Events one a line, and the story of one task.

use prost_types::value::Kind;

use super::time;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, printable, say, wrap};
use crate::proto;

/// `lrsctl events`: one line each, for grep.
pub(crate) fn line(event: &proto::Event, out: &mut Output) -> Result<(), Failure> {
    let task = event.task.as_deref().map(|id| format!(" {id}")).unwrap_or_default();
    let reason = event.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let text = format!("{}{task}{}{}{reason}", event.r#type, label(event), change(event));
    out.line(format_args!("{} {} {}", event.seq, time(event.at.as_ref()), printable(&text)))
}

/// ` (job/kind name)` of an event that brings them: ids mean nothing to people.
fn label(event: &proto::Event) -> String {
    let input = |name: &str| {
        let value = event.inputs.as_ref()?.fields.get(name)?;
        match &value.kind {
            Some(Kind::StringValue(text)) => Some(text.as_str()),
            _ => None,
        }
    };
    let job: Vec<&str> = [input("job"), input("kind")].into_iter().flatten().collect();
    let job = job.join("/");
    let words: Vec<&str> = [Some(&*job), input("name")].into_iter().flatten().collect();
    match words.join(" ").trim() {
        "" => String::new(),
        words => format!(" ({words})"),
    }
}

/// ` active -> passive`, or what of it is known.
fn change(event: &proto::Event) -> String {
    match (&event.from, &event.to) {
        (Some(from), Some(to)) => format!(" {from} -> {to}"),
        (None, Some(to)) => format!(" -> {to}"),
        (Some(from), None) => format!(" from {from}"),
        (None, None) => String::new(),
    }
}

/// `lrsctl why ID`: what happened, why, and on which figures.
pub(crate) fn why(
    id: &str,
    story: &proto::ExplainResponse,
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
            time(event.at.as_ref()),
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

/// `active_free 0, passive_free 3`: names as in the JSON.
fn inputs(event: &proto::Event) -> String {
    let fields = event.inputs.iter().flat_map(|inputs| &inputs.fields);
    fields
        .map(|(name, value)| format!("{name} {}", value_text(value)))
        .collect::<Vec<_>>()
        .join(", ")
}

fn value_text(value: &prost_types::Value) -> String {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => "unknown".to_owned(),
        Some(Kind::BoolValue(value)) => if *value { "yes" } else { "no" }.to_owned(),
        Some(Kind::NumberValue(value)) if value.fract() == 0.0 => format!("{value:.0}"),
        Some(Kind::NumberValue(value)) => {
            let rounded = format!("{value:.4}");
            rounded.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        Some(Kind::StringValue(value)) => value.clone(),
        Some(Kind::ListValue(list)) => {
            format!("[{}]", list.values.iter().map(value_text).collect::<Vec<_>>().join(", "))
        }
        Some(Kind::StructValue(object)) => {
            let fields = object.fields.iter();
            let fields = fields.map(|(name, value)| format!("{name} {}", value_text(value)));
            format!("({})", fields.collect::<Vec<_>>().join(", "))
        }
    }
}
