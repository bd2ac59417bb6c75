//! The map and reduce classes of a program, and the methods that a task runs of each.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use crate::bytecode::class::{Class, MethodKey, Methods};
use crate::bytecode::code::Body;
use crate::bytecode::evidence::{Evidence, Node, Open};
use crate::bytecode::flow::Path;
use crate::bytecode::jar::{Contents, Fault};
use crate::bytecode::known::{is_hadoops, is_runtime};
use crate::bytecode::predicted::{Kind, Predicted};

/// Instructions, methods and classes that are looked at, at most.
pub const MAX_CODE: usize = 10_000_000;

/// Classes that are looked at above one class.
const MAX_ANCESTORS: usize = 64;

/// The classes of a jar, of the jars in it, and of those that it calls.
pub struct Program {
    pub(crate) classes: Vec<Class>,
    pub(crate) by_name: BTreeMap<String, usize>,
    pub(crate) below: BTreeMap<String, Vec<usize>>,
    /// Class files that were left out, each with the reason.
    pub skipped: Vec<String>,
    looked_at: Cell<usize>,
}

/// Where the entry methods of a class are.
enum Entries {
    Methods {
        /// What runs for each record.
        each: Vec<Node>,
        /// What runs once in a task.
        once: Vec<Node>,
        /// The class above that is in no jar: it may have what runs once.
        absent: Option<String>,
    },
    /// Hadoop's own method: the input is passed on.
    Identity,
    Unknown(String),
}

impl Program {
    /// Reads the headers of all classes; one that cannot be read is left out and named. A job names
    /// classes of `job`; those of `libraries` are there for what they call.
    #[must_use]
    pub fn new(job: Contents, libraries: Vec<Contents>) -> Program {
        let mut program = Program {
            classes: Vec::with_capacity(job.classes.len()),
            by_name: BTreeMap::new(),
            below: BTreeMap::new(),
            skipped: Vec::new(),
            looked_at: Cell::new(0),
        };
        program.read(job.classes, false, true);
        program.read(job.nested, false, false);
        program.skipped.extend(job.skipped);
        for library in libraries {
            program.read(library.classes, true, false);
            program.read(library.nested, true, false);
            program.skipped.extend(library.skipped);
        }
        program
    }

    /// In two jars the same class is usual, and Java takes the first, too: `is_once` is for one jar.
    fn read(&mut self, files: Vec<(String, Vec<u8>)>, is_library: bool, is_once: bool) {
        for (entry, bytes) in files {
            match Class::new(bytes, is_library) {
                Ok(class) if !self.by_name.contains_key(&class.name) => self.add(class),
                Ok(class) if is_once => {
                    let reason = "is there twice; the first counts";
                    self.skipped.push(format!("{}: {reason}", dotted(&class.name)));
                }
                Ok(_) => {}
                Err(reason) => self.skipped.push(format!("{entry}: {reason}")),
            }
        }
    }

    fn add(&mut self, class: Class) {
        let number = self.classes.len();
        self.by_name.insert(class.name.clone(), number);
        for above in class.parent.iter().chain(&class.interfaces) {
            self.below.entry(above.clone()).or_default().push(number);
        }
        self.classes.push(class);
    }

    /// What is predicted of the map and reduce classes, in the order of their names: all that a job
    /// can name, without Hadoop's own; or those that `wanted` names, by the whole name or its end.
    ///
    /// # Errors
    /// [`Fault::TooMuchCode`].
    pub fn predict(&self, wanted: Option<&str>) -> Result<Vec<Predicted>, Fault> {
        let mut entries = Vec::new();
        for (name, number) in &self.by_name {
            let class = &self.classes[*number];
            let chosen = match wanted {
                Some(wanted) => is_named(name, wanted),
                None => !class.is_abstract && !class.is_library && !is_runtime(name),
            };
            if chosen {
                for kind in self.kinds(*number) {
                    entries.push((*number, kind, self.entries(*number, kind)?));
                }
            }
        }
        let starts = entries.iter().flat_map(|(_, _, entries)| match entries {
            Entries::Methods { each, once, .. } => each.iter().chain(once).cloned().collect(),
            Entries::Identity | Entries::Unknown(_) => Vec::new(),
        });
        let known = self.evidence(starts.collect())?;
        let together = |methods: &[Node]| {
            let all = methods.iter().filter_map(|id| known.get(id));
            let path = all.clone().map(|one| one.path).reduce(Path::or).unwrap_or_default();
            let mut together = Evidence::default();
            // `run` of a program's own calls `map`, perhaps for no record.
            let waits = all.clone().any(|one| one.path.waits);
            together.path = Path { waits, ..path };
            all.for_each(|one| together.take(one, false));
            together
        };
        let predicted = entries.into_iter().map(|(number, kind, entries)| {
            let class = dotted(&self.classes[number].name);
            match entries {
                Entries::Methods { each, once, absent } => {
                    let mut once = together(&once);
                    if each.is_empty() {
                        once.add(Open::Plain, format!("Hadoop's own {}", kind.name()).into());
                    }
                    if let Some(absent) = absent {
                        let name = format!("setup and cleanup of {} (in no jar)", dotted(&absent));
                        once.add(Open::Foreign, name.into());
                    }
                    Predicted::new(class, kind, &together(&each), &once)
                }
                Entries::Identity => Predicted {
                    longest_path: Some(0),
                    ..Predicted::unknown(class, kind, format!(
                        "has Hadoop's own {}: passes its input on; what Hadoop computes for that is not known",
                        kind.name()
                    ))
                },
                Entries::Unknown(note) => Predicted::unknown(class, kind, note),
            }
        });
        Ok(predicted.collect())
    }

    /// Whether a class of this name is there, as [`Program::predict`] takes names.
    #[must_use]
    pub fn has(&self, wanted: &str) -> bool {
        self.by_name.keys().any(|name| is_named(name, wanted))
    }

    /// Classes that may be map or reduce classes by an ancestor that is in no jar: each with the
    /// ancestor.
    #[must_use]
    pub fn orphans(&self, wanted: Option<&str>) -> Vec<(String, String)> {
        let chosen = self.by_name.iter().filter(|(name, number)| match wanted {
            Some(wanted) => is_named(name, wanted),
            None => !self.classes[**number].is_library,
        });
        let orphans = chosen.filter(|(_, number)| self.kinds(**number).is_empty());
        let orphans = orphans.filter_map(|(name, _)| {
            let is_absent = |name: &String| !self.by_name.contains_key(name) && !is_runtime(name);
            let ancestor = self.above(name).into_iter().find(is_absent)?;
            Some((dotted(name), dotted(&ancestor)))
        });
        orphans.collect()
    }

    pub(crate) fn spend(&self, amount: usize) -> Result<(), Fault> {
        self.looked_at.set(self.looked_at.get().saturating_add(amount));
        if self.looked_at.get() > MAX_CODE { Err(Fault::TooMuchCode(MAX_CODE)) } else { Ok(()) }
    }

    /// Names of the classes and interfaces above a class, the class itself first, nearest first;
    /// also those that the jar does not have.
    pub(crate) fn above(&self, name: &str) -> Vec<String> {
        let mut names = vec![name.to_owned()];
        let mut next = 0;
        while next < names.len() && names.len() < MAX_ANCESTORS {
            if let Some(number) = self.by_name.get(&names[next]) {
                let class = &self.classes[*number];
                for name in class.parent.iter().chain(&class.interfaces) {
                    if !names.contains(name) {
                        names.push(name.clone());
                    }
                }
            }
            next += 1;
        }
        names
    }

    /// What a class is by the classes of Hadoop above it. A library class of Hadoop that the jar
    /// does not have is known by its name: `org.apache.hadoop.mapreduce.lib.map.InverseMapper`.
    fn kinds(&self, number: usize) -> Vec<Kind> {
        let above = self.above(&self.classes[number].name);
        let is_a =
            |kind: Kind| above.iter().skip(1).any(|name| is_hadoops(name) && kind.is_of(name));
        [Kind::Map, Kind::Reduce].into_iter().filter(|kind| is_a(*kind)).collect()
    }

    /// The methods of a class that a task runs: the nearest of each name.
    fn entries(&self, number: usize, kind: Kind) -> Result<Entries, Fault> {
        let this = Some(number);
        let (mut each, mut once) = (Vec::new(), Vec::new());
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let mut current = Some(self.classes[number].name.clone());
        let mut steps = 0;
        let mut absent = None;
        while let Some(name) = current {
            steps += 1;
            let number = self.by_name.get(&name);
            let Some(number) = number.filter(|_| steps <= MAX_ANCESTORS && !is_base(&name)) else {
                absent = Some(name);
                break;
            };
            let class = &self.classes[*number];
            let methods = match self.methods(*number)? {
                Ok(methods) => methods,
                Err(reason) => return Ok(Entries::Unknown(format!("cannot be read: {reason}"))),
            };
            let mut found = BTreeSet::new();
            for (key, method) in methods {
                if method.is_bridge || method.body.is_none() || seen.contains(&key.0) {
                    continue;
                }
                let id = (this, *number, key.clone());
                match role(key, kind) {
                    Some(Role::Each) => each.push(id),
                    Some(Role::Once) => once.push(id),
                    None => continue,
                }
                found.insert(key.0.clone());
            }
            seen.extend(found);
            current = class.parent.clone();
        }
        Ok(match absent {
            Some(name) if is_base(&name) && each.is_empty() && once.is_empty() => Entries::Identity,
            Some(name) if each.is_empty() && !is_base(&name) => {
                Entries::Unknown(match name.as_str() {
                    "java/lang/Object" => format!("has no {} method", kind.name()),
                    _ => format!("its {} is in {}, which is in no jar", kind.name(), dotted(&name)),
                })
            }
            None => Entries::Unknown(format!("has no {} method", kind.name())),
            absent => {
                Entries::Methods { each, once, absent: absent.filter(|name| !is_runtime(name)) }
            }
        })
    }

    pub(crate) fn methods(&self, number: usize) -> Result<Result<&Methods, &str>, Fault> {
        let (read, is_new) = self.classes[number].methods();
        if is_new {
            let bodies = read.into_iter().flat_map(BTreeMap::values);
            let bodies = bodies.filter_map(|method| method.body.as_ref());
            self.spend(1 + bodies.map(|body| 1 + body.instructions).sum::<usize>())?;
        }
        Ok(read)
    }

    pub(crate) fn body(&self, number: usize, key: &MethodKey) -> Result<Option<&Body>, Fault> {
        let method = self.methods(number)?.ok().and_then(|methods| methods.get(key));
        Ok(method.and_then(|method| method.body.as_ref()))
    }

    pub(crate) fn is_native(&self, number: usize, key: &MethodKey) -> Result<bool, Fault> {
        let method = self.methods(number)?.ok().and_then(|methods| methods.get(key));
        Ok(method.is_some_and(|method| method.is_native))
    }
}

/// Hadoop's own map, reduce, setup and cleanup, which pass their input on or do nothing.
fn is_base(class: &str) -> bool {
    class == "org/apache/hadoop/mapreduce/Mapper" || class == "org/apache/hadoop/mapreduce/Reducer"
}

/// How often a task runs a method.
enum Role {
    Each,
    Once,
}

/// What a method of this name and descriptor is to a task; of the new API, and of the old one.
fn role((name, descriptor): &MethodKey, kind: Kind) -> Option<Role> {
    let is_entry = descriptor.ends_with("$Context;)V")
        || descriptor.ends_with("Lorg/apache/hadoop/mapred/Reporter;)V");
    match name.as_str() {
        "run" if is_entry => Some(Role::Each),
        name if name == kind.name() && is_entry => Some(Role::Each),
        "setup" | "cleanup" if is_entry => Some(Role::Once),
        "configure" if descriptor == "(Lorg/apache/hadoop/mapred/JobConf;)V" => Some(Role::Once),
        "close" if descriptor == "()V" => Some(Role::Once),
        _ => None,
    }
}

fn is_named(class: &str, wanted: &str) -> bool {
    let wanted = wanted.replace('.', "/");
    class == wanted
        || class
            .strip_suffix(&wanted)
            .is_some_and(|before| before.ends_with('/') || before.ends_with('$'))
}

pub(crate) fn dotted(class: &str) -> String {
    class.replace('/', ".")
}
