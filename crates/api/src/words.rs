//! What people call tasks, requests and decisions: the same words in `lrsctl`'s tables and in `lrsctl top`.
//!
//! Pure. Limit: what comes out has names of other users' choice in it, as they are; whoever shows it makes it
//! printable (`lrs_term::printable`).

use prost_types::value::Kind;

use crate::proto;

/// What shares of the CPU are of, in CPUs, if the answer names it.
pub fn cpus(status: &proto::Status) -> Option<f64> {
    let node = status.node.as_ref()?;
    node.cpu_quota.or(Some(f64::from(node.cores))).filter(|cpus| *cpus > 0.0)
}

/// A passive task that wants the CPU, as far as is known, and has got less than a tenth of one in the
/// last cycle. From one that is only booked nothing is withheld. `cpus`: what its share is of.
pub fn starves(task: &proto::Task, cpus: Option<f64>) -> bool {
    let wants = matches!(
        proto::Class::try_from(task.class),
        Ok(proto::Class::Cpu | proto::Class::Moderate)
    );
    task.tier == proto::Tier::Passive as i32
        && task.attachment != proto::Attachment::None as i32
        && wants
        && task.cpu_share.zip(cpus).is_some_and(|(share, cpus)| share * cpus < 0.1)
}

/// The word for a class number; with a question mark if a client expects it and nothing is measured.
pub fn class(class: i32, hinted: bool) -> String {
    format!("{}{}", crate::wire::class_word(class), if hinted { "?" } else { "" })
}

/// What is odd about a task, a word each.
pub fn oddities(task: &proto::Task, cpus: Option<f64>) -> Vec<&'static str> {
    [
        (starves(task, cpus), "starves"),
        (task.cpu_lane.is_some(), "lane"),
        (task.loan, "loan"),
        (task.lends, "lends"),
        (task.overflow, "overflow"),
        (task.slotless, "slotless"),
        (task.opportunistic, "opportunistic"),
        (task.cpu_quota.is_some(), "capped"),
        (task.frozen, "frozen"),
        (task.stopped, "stopped"),
        (task.contested, "contested"),
        (task.main_exited, "main exited"),
    ]
    .into_iter()
    .filter_map(|(is, word)| is.then_some(word))
    .collect()
}

/// The number in brackets at the end of a name: that of a task of `lrsctl run --each`.
pub fn index(name: &str) -> Option<u64> {
    name.strip_suffix(']')?.rsplit_once('[')?.1.parse().ok()
}

/// Job, kind and name as people know them, empty without any: `job/kind name`, and `job/kind[7]` of what
/// `lrsctl run --each` named by its job.
pub fn labels(job: Option<&str>, kind: Option<&str>, name: Option<&str>) -> String {
    let of_job = [job, kind].into_iter().flatten().collect::<Vec<_>>().join("/");
    let behind = name.zip(job).and_then(|(name, job)| name.strip_prefix(job));
    match behind.filter(|rest| rest.starts_with('[') && index(rest).is_some()) {
        Some(index) => of_job + index,
        None => {
            let words = [Some(&*of_job), name].into_iter().flatten();
            words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
        }
    }
}

/// What people know a task by: its labels, else its process; empty if it has neither.
pub fn title(task: &proto::Task) -> String {
    let title = labels(task.job.as_deref(), task.kind.as_deref(), task.name.as_deref());
    match task.pid {
        Some(pid) if task.job.is_none() && task.name.is_none() => {
            [title, format!("pid {pid}")].join(" ").trim_start().to_owned()
        }
        _ => title,
    }
}

/// What people know a request by: its labels, else the process or unit, else a dash.
pub fn queued_title(one: &proto::Queued) -> String {
    let title = labels(one.job.as_deref(), one.kind.as_deref(), one.name.as_deref());
    let other = || one.unit.clone().or(one.pid.map(|pid| format!("pid {pid}")));
    let title = Some(title).filter(|title| !title.is_empty()).or_else(other);
    title.unwrap_or_else(|| "-".to_owned())
}

/// ` active -> passive`, or what of it is known.
pub fn change(event: &proto::Event) -> String {
    match (&event.from, &event.to) {
        (Some(from), Some(to)) => format!(" {from} -> {to}"),
        (None, Some(to)) => format!(" -> {to}"),
        (Some(from), None) => format!(" from {from}"),
        (None, None) => String::new(),
    }
}

/// The figures of a decision: `active_free 0, passive_free 3`, names as in the JSON.
pub fn inputs(event: &proto::Event) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_of_a_list_is_called_by_its_job_and_number() {
        let title = |job, kind, name| labels(job, kind, name);
        assert_eq!(title(Some("day"), None, Some("day[77]")), "day[77]");
        assert_eq!(title(Some("day"), Some("map"), Some("day[77]")), "day/map[77]");
        assert_eq!(title(Some("day"), None, Some("other[77]")), "day other[77]");
        assert_eq!(title(Some("day"), None, Some("day[x]")), "day day[x]");
        assert_eq!(title(None, None, Some("a")) + &title(None, None, None), "a");
        assert_eq!(
            ["a[0]", "a", "a[", "a[]", "a[-1]", "[7]"].map(index),
            [Some(0), None, None, None, None, Some(7)]
        );
    }
}
