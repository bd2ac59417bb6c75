//! `[[load]]` and `[[load.tasks]]`.

use std::rc::Rc;
use std::time::Duration;

use toml::de::DeValue;

use super::fields::{
    COMMAND, COUNT, Fields, LINE, NAME, Reader, command, count, line, name, template, texts,
};
use super::read::unique;
use super::template::{Place, Template};
use super::{Arrival, Group, Load};
use crate::bench::record::LoadClass;
use crate::config::value::{self, Node, Rejection, Taken};

const CLASSES: [(&str, LoadClass); 4] = [
    ("cpu", LoadClass::Cpu),
    ("moderate", LoadClass::Moderate),
    ("io", LoadClass::Io),
    ("mixed", LoadClass::Mixed),
];

/// Latest begin of a group, and longest pause between two arrivals.
const LATEST: Duration = Duration::from_secs(24 * 3600);

const ARRIVAL: &str = "\"at once\", \"every 500ms\" or \"exponential 2s\"";

/// All loads of the suite; those with a fault may be missing.
pub(super) fn read(reader: &mut Reader<'_>, top: &mut Fields<'_>) -> Vec<Load> {
    let tables = top.tables(reader, "load", false);
    unique(reader, "load.name", &tables);
    tables.into_iter().filter_map(|table| load(reader, table)).collect()
}

fn load(reader: &mut Reader<'_>, mut table: Fields<'_>) -> Option<Load> {
    let load_name = table.need(reader, "name", NAME, name);
    let class = table.need(reader, "class", "\"cpu\", \"moderate\", \"io\" or \"mixed\"", |node| {
        value::choice(node, &CLASSES)
    });
    let about = table.take(reader, "about", LINE, line).unwrap_or_default();
    let sets = Rc::clone(&reader.sets);
    let check = table.take(reader, "check", COMMAND, |node| command(node, Place::Check, &sets));
    let groups = groups(reader, &mut table);
    table.finish(reader);
    Some(Load { name: load_name?, class: class?, about, check, groups: groups? })
}

/// A group and the names it is to follow.
type Raw = (Group, Vec<String>);

fn groups(reader: &mut Reader<'_>, load: &mut Fields<'_>) -> Option<Vec<Group>> {
    let tables = load.tables(reader, "tasks", false);
    if tables.is_empty() && load.node("tasks").is_none_or(|node| node.get_ref().is_array()) {
        let key = load.key("tasks");
        reader.fault(key, load.place.clone(), "the load has no task", "add a [[load.tasks]]");
    }
    let places: Vec<_> = tables.iter().map(|table| table.place.clone()).collect();
    unique(reader, "load.tasks.name", &tables);
    let raw: Vec<Option<Raw>> = tables.into_iter().map(|table| group(reader, table)).collect();
    // With one missing, what follows it would be said to follow nothing.
    let raw: Vec<Raw> = raw.into_iter().collect::<Option<_>>()?;
    let names: Vec<String> = raw.iter().map(|(group, _)| group.name.clone()).collect();
    let mut groups = Vec::new();
    for ((mut group, after), place) in raw.into_iter().zip(&places) {
        for wanted in after {
            match names.iter().position(|name| *name == wanted) {
                Some(index) => group.after.push(index),
                None => reader.fault(
                    "load.tasks.after",
                    place.clone(),
                    format!("\"{wanted}\" is no group of this load"),
                    format!("the groups are {}", names.join(", ")),
                ),
            }
        }
        groups.push(group);
    }
    for (group, place) in circular(&groups)
        .into_iter()
        .filter_map(|index| Some((groups.get(index)?.name.clone(), places.get(index)?.clone())))
    {
        let problem = format!("\"{group}\" waits for itself, through what it is after");
        reader.fault("load.tasks.after", place, problem, "break the circle");
    }
    Some(groups).filter(|groups| !groups.is_empty())
}

/// The groups that can never begin, by index.
fn circular(groups: &[Group]) -> Vec<usize> {
    let mut free = vec![false; groups.len()];
    let is_free = |free: &[bool], index: usize| free.get(index).copied().unwrap_or(false);
    // each pass frees one at least, or nothing more comes free
    for _ in groups {
        let able: Vec<bool> = groups
            .iter()
            .map(|group| group.after.iter().all(|&before| is_free(&free, before)))
            .collect();
        free = able;
    }
    (0..groups.len()).filter(|&index| !is_free(&free, index)).collect()
}

fn group(reader: &mut Reader<'_>, mut table: Fields<'_>) -> Option<Raw> {
    let (cpus, sets) = (reader.cpus, Rc::clone(&reader.sets));
    let group_name = table.need(reader, "name", NAME, name);
    let kind = table.take(reader, "kind", LINE, line);
    let job = table.take(reader, "job", LINE, line);
    let count_given = table.node("count").is_some();
    let count = table.take(reader, "count", COUNT, |node| count(node, cpus));
    let command = table.need(reader, "command", COMMAND, |node| command(node, Place::Task, &sets));
    let priority = table.take(reader, "priority", "a whole number", |node| {
        value::number(node, i32::MIN..=i32::MAX)
    });
    let arrives = table.take(reader, "arrival", ARRIVAL, arrival);
    let start = table
        .take(reader, "start", "0s..=24h", |node| value::duration(node, Duration::ZERO..=LATEST));
    let after = table.take(reader, "after", "a list of groups of this load", texts);
    let environment =
        table.take(reader, "environment", "names with texts", |node| environment(node, &sets));
    let directory = table.take(reader, "directory", "a path", |node| {
        template(value::text(node)?, Place::Task, &sets)
    });
    table.finish(reader);
    let group = Group {
        name: group_name?,
        kind,
        job,
        count: if count_given { count? } else { 1 },
        command: command?,
        priority: priority.unwrap_or(0),
        arrival: arrives.unwrap_or(Arrival::AtOnce),
        start: start.unwrap_or(Duration::ZERO),
        after: Vec::new(),
        environment: environment.unwrap_or_default(),
        directory,
    };
    Some((group, after.unwrap_or_default()))
}

fn arrival(node: &Node<'_>) -> Taken<Arrival> {
    let text = value::text(node)?;
    if text == "at once" {
        return Ok(Arrival::AtOnce);
    }
    let (word, pause) = text.split_once(' ').ok_or(Rejection::OutOfRange)?;
    // the value of a node of its own, so that durations are read in one place
    let pause = toml::Spanned::new(node.span(), DeValue::String(pause.trim().into()));
    let pause = value::duration(&pause, Duration::from_millis(1)..=LATEST)?;
    match word {
        "every" => Ok(Arrival::Every(pause)),
        "exponential" => Ok(Arrival::Exponential(pause)),
        _ => Err(Rejection::OutOfRange),
    }
}

fn environment(node: &Node<'_>, sets: &[String]) -> Taken<Vec<(String, Template)>> {
    let table = node.get_ref().as_table().ok_or(Rejection::OutOfRange)?;
    let variable = |(name, node): (&toml::Spanned<std::borrow::Cow<'_, str>>, &Node<'_>)| {
        let name = name.get_ref();
        if name.is_empty() || name.contains(['=', '\0']) {
            return value::because("has a name that is none", "use letters, digits and _");
        }
        Ok((name.to_string(), template(value::text(node)?, Place::Task, sets)?))
    };
    table.iter().map(variable).collect()
}
