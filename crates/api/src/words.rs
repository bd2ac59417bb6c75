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

/// What people know a task by: job, kind and name; empty if it has none of them and no process.
pub fn title(task: &proto::Task) -> String {
    let job = [&task.job, &task.kind].into_iter().flatten().map(String::as_str);
    let job = job.collect::<Vec<_>>().join("/");
    let name = match (&task.name, task.pid) {
        (Some(name), _) => name.clone(),
        (None, Some(pid)) if task.job.is_none() => format!("pid {pid}"),
        (None, _) => String::new(),
    };
    [job, name].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// What people know a request by: job, kind and name; else the process or unit, else a dash.
pub fn queued_title(one: &proto::Queued) -> String {
    let of_job: Vec<&str> =
        [&one.job, &one.kind].into_iter().flatten().map(String::as_str).collect();
    let mut words: Vec<String> =
        (!of_job.is_empty()).then(|| of_job.join("/")).into_iter().collect();
    words.extend(one.name.clone());
    if words.is_empty() {
        words.extend(one.unit.clone().or(one.pid.map(|pid| format!("pid {pid}"))));
    }
    if words.is_empty() { "-".to_owned() } else { words.join(" ") }
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
