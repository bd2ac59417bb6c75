//! From the text of a suite to a checked [`Suite`], or to everything that is wrong with it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use toml::de::DeTable;

use super::fields::{
    COMMAND, COUNT, Fields, LINE, NAME, Reader, command, count, line, name, texts,
};
use super::template::Place;
use super::{Data, Made, Quick, Suite, loads, settings};
use crate::bench::data::Kind;
use crate::bench::disk::DiskSpec;
use crate::config::ConfigErrors;
use crate::config::source::Source;
use crate::config::value::{self, Rejection};
use crate::units::Bytes;

/// Rounds, of the suite and of `--rounds`.
pub(crate) const ROUNDS: std::ops::RangeInclusive<u32> = 1..=1000;

/// A run that takes longer is no run of a bench.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// See [`Suite::load`].
pub(super) fn suite(text: &str, file: &Path, cpus: u32) -> Result<Suite, ConfigErrors> {
    let mut reader =
        Reader { source: Source::new(text, file), faults: Vec::new(), cpus, sets: Rc::from([]) };
    let (root, syntax) = DeTable::parse_recoverable(text);
    if !syntax.is_empty() {
        // What the parser made of the rest is its guess.
        let faults = syntax.iter().map(|error| reader.source.syntax(error.message(), error.span()));
        return Err(ConfigErrors::new(faults.collect()));
    }
    let suite = whole(&mut reader, Fields::new("", root.get_ref(), 0..0));
    match suite {
        Some(suite) if reader.faults.is_empty() => Ok(suite),
        _ => Err(ConfigErrors::new(reader.faults)),
    }
}

/// `None` only with a fault noted.
fn whole(reader: &mut Reader<'_>, mut top: Fields<'_>) -> Option<Suite> {
    let suite_name = top.need(reader, "name", NAME, name);
    let about = top.take(reader, "about", LINE, line).unwrap_or_default();
    let rounds = top.take(reader, "rounds", "1..=1000", |node| value::number(node, ROUNDS));
    let time_limit = top.take(reader, "time_limit", "1s..=24h", |node| {
        value::duration(node, Duration::from_secs(1)..=LONGEST)
    });
    let seed = top.take(reader, "seed", "0..=4294967295", |node| value::number(node, 0..=u32::MAX));
    let named_programs = top.take(reader, "programs", "a list of names", texts).unwrap_or_default();
    let cpus = reader.cpus;
    let space = top.take(reader, "space", "a size, such as \"2GiB\"", value::size);
    let space_per_core =
        top.take(reader, "space_per_core", "a size, such as \"64MiB\"", value::size);
    let directory = top.take(reader, "directory", "an absolute path", |node| {
        Some(PathBuf::from(value::text(node)?))
            .filter(|path| path.is_absolute())
            .ok_or(Rejection::OutOfRange)
    });
    let rounds = rounds.unwrap_or(10);
    let quick = top.tables(reader, "quick", true).pop();
    let quick = quick.map_or(Quick { rounds: 1, scale: 1.0 }, |table| quick_of(reader, table));
    let disk = top.tables(reader, "disk", true).pop().and_then(|table| disk_of(reader, table));
    let data: Vec<Data> = {
        let tables = top.tables(reader, "data", false);
        unique(reader, "data.name", &tables);
        reader.sets =
            tables.iter().filter_map(|table| table.text("name").map(str::to_owned)).collect();
        tables.into_iter().filter_map(|table| data_of(reader, table)).collect()
    };
    let lrsd = top.tables(reader, "lrsd", true).pop();
    let settings = settings::read(reader, &mut top, lrsd);
    let loads = loads::read(reader, &mut top);
    if loads.is_empty() && reader.faults.is_empty() {
        reader.fault("load", 0..0, "the suite has no load", "add a [[load]] with [[load.tasks]]");
    }
    top.finish(reader);
    Some(Suite {
        name: suite_name?,
        about,
        rounds,
        time_limit: time_limit.unwrap_or(Duration::from_secs(300)),
        seed: u64::from(seed.unwrap_or(1)),
        named_programs,
        space: on_node(space.unwrap_or(Bytes(0)), space_per_core, cpus),
        directory,
        quick,
        scale: 1.0,
        disk,
        data,
        loads,
        settings,
    })
}

fn quick_of(reader: &mut Reader<'_>, mut table: Fields<'_>) -> Quick {
    let rounds = table.take(reader, "rounds", "1..=1000", |node| value::number(node, ROUNDS));
    let scale = table.take(reader, "scale", "0.001..=1", |node| value::number(node, 0.001..=1.0));
    table.finish(reader);
    Quick { rounds: rounds.unwrap_or(1), scale: scale.unwrap_or(1.0) }
}

fn disk_of(reader: &mut Reader<'_>, mut table: Fields<'_>) -> Option<DiskSpec> {
    let size = table.need(reader, "size", "a size, such as \"4GiB\"", value::size);
    let per_core = table.take(reader, "size_per_core", "a size, such as \"256MiB\"", value::size);
    let bandwidth =
        table.need(reader, "bandwidth", "bytes a second, such as \"80MiB\"", value::size);
    let seek = table.take(reader, "seek", "0s..=1s", |node| {
        value::duration(node, Duration::ZERO..=Duration::from_secs(1))
    });
    let scheduler = table.take(reader, "scheduler", NAME, name);
    table.finish(reader);
    Some(DiskSpec {
        size_bytes: on_node(size?, per_core, reader.cpus).0,
        bandwidth_bytes_per_sec: bandwidth?.0,
        seek: seek.unwrap_or(Duration::ZERO),
        scheduler: scheduler.unwrap_or_else(|| "bfq".to_owned()),
    })
}

/// What is needed on a node of `cpus` CPUs: counts of tasks grow with them, and so does what
/// the tasks write.
fn on_node(fixed: Bytes, per_core: Option<Bytes>, cpus: u32) -> Bytes {
    let grown = per_core.map_or(0, |each| each.0.saturating_mul(u64::from(cpus)));
    Bytes(fixed.0.saturating_add(grown))
}

const KINDS: [(&str, Kind); 3] =
    [("text", Kind::Text), ("records", Kind::Records), ("random", Kind::Random)];

fn data_of(reader: &mut Reader<'_>, mut table: Fields<'_>) -> Option<Data> {
    let data_name = table.need(reader, "name", NAME, name);
    let (cpus, sets) = (reader.cpus, Rc::clone(&reader.sets));
    let parts = table.take(reader, "parts", COUNT, |node| count(node, cpus));
    let kind = table.take(reader, "kind", "\"text\", \"records\" or \"random\"", |node| {
        value::choice(node, &KINDS)
    });
    let size = table.take(reader, "size", "a size, such as \"64MiB\"", value::size);
    let made = table.take(reader, "command", COMMAND, |node| command(node, Place::Data, &sets));
    let has = [kind.is_some() && size.is_some(), made.is_some()];
    let named = [table.node("kind"), table.node("size"), table.node("command")];
    let (generated, derived) = (named[0].is_some() || named[1].is_some(), named[2].is_some());
    // a value that was refused has its fault already
    let complete = (named[0].is_some() && named[1].is_some()) != derived;
    if generated == derived || !complete {
        reader.fault(
            table.key("kind"),
            table.place.clone(),
            "it is not clear how the data is made",
            "give kind and size, or a command",
        );
    }
    table.finish(reader);
    let made = match (kind, size, made) {
        (Some(kind), Some(size), None) if has[0] => Made::Generated(kind, size),
        (None, None, Some(command)) => Made::Derived(command),
        _ => return None,
    };
    Some(Data { name: data_name?, parts: parts.unwrap_or(1), made })
}

/// A fault for each name that was there before; a table may have others as well.
pub(super) fn unique(reader: &mut Reader<'_>, key: &str, tables: &[Fields<'_>]) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for table in tables {
        let Some(name) = table.text("name") else { continue };
        if let Some(before) = seen.get(name) {
            let problem = format!("the name \"{name}\" is taken by line {before}");
            reader.fault(key, table.place.clone(), problem, "choose another");
        } else {
            seen.insert(name, reader.source.line(table.place.start));
        }
    }
}
