//! From the text of a suite to a checked [`Suite`], or to everything that is wrong with it.

use std::path::Path;
use std::time::Duration;

use toml::Spanned;

use super::faults::{Faults, nearest};
use super::reader::{Judge, SuiteReader};
use super::template::{Template, Usage};
use super::values::{COUNT, Count, Size};
use super::{Arrival, Data, Group, Load, Made, Quick, Suite, file, settings};
use crate::disk::DiskSpec;

/// See [`Suite::load`].
pub(super) fn suite(text: &str, file: &Path, cpus: u32, judge: Judge<'_>) -> Result<Suite, String> {
    let mut reader = SuiteReader { faults: Faults::new(text, file), cpus, judge, sets: Vec::new() };
    let read = reader.faults.read::<file::File>();
    match read.and_then(|file| reader.whole(file)) {
        Some(suite) if reader.faults.is_empty() => Ok(suite),
        _ => Err(reader.faults.into_text()),
    }
}

impl SuiteReader<'_> {
    /// `None` only with a fault noted.
    fn whole(&mut self, file: file::File) -> Option<Suite> {
        let name = self.faults.need(0, "name", file.name);
        let sets = file.data.iter().filter_map(|set| set.get_ref().name.clone());
        self.sets = sets.map(|name| name.0).collect();
        self.unique("data.name", &file.data, |set| Some(&set.name.as_ref()?.0));
        self.unique("load.name", &file.load, |load| Some(&load.name.as_ref()?.0));
        if file.load.is_empty() && self.faults.is_empty() {
            self.faults.note(
                0,
                "load",
                "the suite has no load",
                "add a [[load]] with [[load.tasks]]",
            );
        }
        let disk = file.disk.map(|disk| self.disk(disk));
        let data: Vec<_> = file.data.into_iter().map(|set| self.data(set)).collect();
        let settings = settings::read(self, file.lrsd, file.setting);
        let loads: Vec<_> = file.load.into_iter().map(|load| self.load(load)).collect();
        Some(Suite {
            name: name?.0,
            about: file.about.map(|line| line.0).unwrap_or_default(),
            rounds: file.rounds.map_or(10, |rounds| rounds.get()),
            time_limit: file.time_limit.map_or(Duration::from_secs(300), |time| time.0),
            seed: file.seed.map_or(1, |seed| seed.get()),
            named_programs: file.programs,
            space: self.on_node(file.space, file.space_per_core),
            directory: file.directory.map(|path| path.0),
            quick: Quick {
                rounds: file.quick.as_ref().and_then(|it| it.rounds).map_or(1, |it| it.get()),
                scale: file.quick.as_ref().and_then(|it| it.scale).map_or(1.0, |it| it.0),
            },
            scale: 1.0,
            disk: disk.flatten(),
            data: data.into_iter().collect::<Option<_>>()?,
            loads: loads.into_iter().collect::<Option<_>>()?,
            settings,
        })
    }

    /// What is needed on this node: counts of tasks grow with the CPUs, and so does what the
    /// tasks write.
    fn on_node(&self, fixed: Option<Size>, per_core: Option<Size>) -> lrs_core::units::Bytes {
        let grown = per_core.map_or(0, |each| each.0.saturating_mul(u64::from(self.cpus)));
        lrs_core::units::Bytes(fixed.map_or(0, |fixed| fixed.0).saturating_add(grown))
    }

    fn disk(&mut self, disk: Spanned<file::Disk>) -> Option<DiskSpec> {
        let (at, disk) = (disk.span().start, disk.into_inner());
        let size = self.faults.need(at, "disk.size", disk.size);
        let bandwidth = self.faults.need(at, "disk.bandwidth", disk.bandwidth);
        Some(DiskSpec {
            size_bytes: self.on_node(Some(size?), disk.size_per_core).0,
            bandwidth_bytes_per_sec: bandwidth?.0,
            seek: disk.seek.map_or(Duration::ZERO, |seek| seek.0),
            scheduler: disk.scheduler.map_or_else(|| "bfq".to_owned(), |name| name.0),
        })
    }

    fn data(&mut self, set: Spanned<file::Data>) -> Option<Data> {
        let (at, set) = (set.span().start, set.into_inner());
        let name = self.faults.need(at, "data.name", set.name);
        let before = self.faults.count();
        let parts = self.count("data.parts", set.parts);
        let command =
            set.command.and_then(|words| self.command("data.command", words, Usage::Data));
        let made = match (set.kind, set.size, command) {
            (Some(kind), Some(size), None) => Made::Generated(kind, lrs_core::units::Bytes(size.0)),
            (None, None, Some(command)) => Made::Derived(command),
            _ => {
                // A value that was refused has its fault already.
                if self.faults.count() == before && !self.faults.took_from(at) {
                    let problem = "it is not clear how the data is made";
                    self.faults.note(at, "data.kind", problem, "give kind and size, or a command");
                }
                return None;
            }
        };
        Some(Data { name: name?.0, parts: parts?, made })
    }

    fn load(&mut self, load: Spanned<file::Load>) -> Option<Load> {
        let (at, load) = (load.span().start, load.into_inner());
        let name = self.faults.need(at, "load.name", load.name);
        let class = self.faults.need(at, "load.class", load.class);
        let check = load.check.map(|words| self.command("load.check", words, Usage::Check));
        if load.tasks.is_empty() && !self.faults.took_from(at) {
            self.faults.note(at, "load.tasks", "the load has no task", "add a [[load.tasks]]");
        }
        self.unique("load.tasks.name", &load.tasks, |group| Some(&group.name.as_ref()?.0));
        let groups = self.groups(load.tasks);
        Some(Load {
            name: name?.0,
            class: class?,
            about: load.about.map(|line| line.0).unwrap_or_default(),
            check: match check {
                Some(check) => Some(check?),
                None => None,
            },
            groups: groups?,
        })
    }

    fn groups(&mut self, tables: Vec<Spanned<file::GroupTable>>) -> Option<Vec<Group>> {
        let places: Vec<usize> = tables.iter().map(|table| table.span().start).collect();
        let after: Vec<Vec<String>> =
            tables.iter().map(|table| table.get_ref().after.clone()).collect();
        let groups: Vec<_> = tables.into_iter().map(|table| self.group(table)).collect();
        // With one missing, what follows it would be reported to follow nothing.
        let mut groups: Vec<Group> = groups.into_iter().collect::<Option<_>>()?;
        let names: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
        for ((group, after), &at) in groups.iter_mut().zip(after).zip(&places) {
            for wanted in after {
                match names.iter().position(|name| *name == wanted) {
                    Some(index) => group.after.push(index),
                    None => self.faults.note(
                        at,
                        "load.tasks.after",
                        &format!("\"{wanted}\" is no group of this load"),
                        &format!("the groups are {}", names.join(", ")),
                    ),
                }
            }
        }
        for index in circular(&groups) {
            let (Some(name), Some(&at)) = (names.get(index), places.get(index)) else { continue };
            let problem = format!("\"{name}\" waits for itself, through what it is after");
            self.faults.note(at, "load.tasks.after", &problem, "break the circle");
        }
        Some(groups)
    }

    fn group(&mut self, table: Spanned<file::GroupTable>) -> Option<Group> {
        let (at, group) = (table.span().start, table.into_inner());
        let name = self.faults.need(at, "load.tasks.name", group.name);
        let command = self.faults.need(at, "load.tasks.command", group.command);
        let count = self.count("load.tasks.count", group.count);
        let command =
            command.and_then(|words| self.command("load.tasks.command", words, Usage::Task));
        let mut environment = Vec::new();
        for (name, value) in group.environment {
            if name.is_empty() || name.contains(['=', '\0']) {
                let at = value.span().start;
                let problem = "has a name that is none";
                self.faults.note(
                    at,
                    "load.tasks.environment",
                    problem,
                    "use letters, digits and _",
                );
            } else if let Some(word) = self.word("load.tasks.environment", &value, Usage::Task) {
                environment.push((name, word));
            }
        }
        let directory = group.directory;
        let directory =
            directory.and_then(|it| self.word("load.tasks.directory", &it, Usage::Task));
        Some(Group {
            name: name?.0,
            kind: group.kind.map(|line| line.0),
            job: group.job.map(|line| line.0),
            count: count?,
            command: command?,
            priority: group.priority.unwrap_or(0),
            arrival: group.arrival.unwrap_or(Arrival::AtOnce),
            start: group.start.map_or(Duration::ZERO, |start| start.0),
            after: Vec::new(),
            environment,
            directory,
        })
    }

    /// 1 where none is given.
    fn count(&mut self, key: &str, count: Option<Spanned<Count>>) -> Option<u32> {
        let Some(count) = count else { return Some(1) };
        let on_node = count.get_ref().on(self.cpus);
        if on_node.is_none() {
            self.faults.note(
                count.span().start,
                key,
                &format!("{} CPUs make too many", self.cpus),
                COUNT,
            );
        }
        on_node
    }

    /// A command: words, the first not empty.
    fn command(
        &mut self,
        key: &str,
        words: Spanned<Vec<String>>,
        place: Usage,
    ) -> Option<Vec<Template>> {
        let at = words.span().start;
        let Some(program) = words.get_ref().first().filter(|program| !program.is_empty()) else {
            self.faults.note(at, key, "is empty", "write a program and its arguments, each a word");
            return None;
        };
        if program.contains('/') && !program.starts_with(['/', '{']) {
            self.faults.note(
                at,
                key,
                &format!(
                    "{program} depends on where one is, and tasks are in directories of the run"
                ),
                "write its absolute path, or the name of a program in PATH",
            );
            return None;
        }
        let words = words.into_inner().into_iter().map(|word| Spanned::new(at..at, word));
        let filled: Vec<_> = words.map(|word| self.word(key, &word, place)).collect();
        filled.into_iter().collect()
    }

    /// One word with placeholders.
    fn word(&mut self, key: &str, word: &Spanned<String>, place: Usage) -> Option<Template> {
        let (at, word) = (word.span().start, word.get_ref());
        if word.contains('\0') {
            self.faults.note(at, key, "holds a NUL byte", "remove it");
            return None;
        }
        let template = match Template::parse(word, place) {
            Ok(template) => template,
            Err(unknown) => {
                self.faults.note(
                    at,
                    key,
                    &format!("unknown placeholder {unknown}"),
                    &format!("there are {} here; a brace is written {{{{", place.names()),
                );
                return None;
            }
        };
        let unknown = template.sets().find(|name| !self.sets.iter().any(|set| set == name));
        let Some(unknown) = unknown.map(str::to_owned) else { return Some(template) };
        let remedy = match nearest(&unknown, self.sets.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {near}?"),
            None => "add it as [[data]]".to_owned(),
        };
        self.faults.note(at, key, &format!("there are no data \"{unknown}\""), &remedy);
        None
    }
}

/// The groups that can never begin, by index.
fn circular(groups: &[Group]) -> Vec<usize> {
    let mut free = vec![false; groups.len()];
    let is_free = |free: &[bool], index: usize| free.get(index).copied().unwrap_or(false);
    // each pass frees one at least, or nothing more comes free
    for _ in groups {
        let able = |group: &Group| group.after.iter().all(|&before| is_free(&free, before));
        free = groups.iter().map(able).collect();
    }
    (0..groups.len()).filter(|&index| !is_free(&free, index)).collect()
}
