//! The map and reduce classes of a program, what their methods call, and the class of each.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};

use noak::AccessFlags;
use noak::reader::{AttributeContent, Class as ClassFile};
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use serde::Serialize;

use crate::bytecode::code::{Body, Target, body};
use crate::bytecode::flow::{longest, sum};
use crate::bytecode::jar::{Contents, Fault};

/// Instructions, methods and classes that are looked at, at most.
pub const MAX_CODE: usize = 10_000_000;

/// Classes that are looked at above one class.
const MAX_ANCESTORS: usize = 64;

/// Classes that are looked at below one class.
const MAX_DESCENDANTS: usize = 1_000;

/// The kinds of program for which the thesis predicts the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Map.
    Map,
    /// Reduce, and combine.
    Reduce,
}

impl Kind {
    /// The name of the method, and of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Map => "map",
            Kind::Reduce => "reduce",
        }
    }

    /// Instructions; a program with a shorter longest path waits for input (thesis 2.4.1.1).
    #[must_use]
    pub fn threshold(self) -> u64 {
        match self {
            Kind::Map => 500,
            Kind::Reduce => 1_000,
        }
    }

    /// How the names of Hadoop's classes of this kind end.
    fn suffix(self) -> &'static str {
        match self {
            Kind::Map => "Mapper",
            Kind::Reduce => "Reducer",
        }
    }
}

/// The classes that the thesis predicts. It has no third one between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Predicts {
    /// Waits for its input: computing rate below 0.2.
    Io,
    /// Computes.
    Cpu,
}

impl Predicts {
    /// The name, as tasks have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Predicts::Io => "io",
            Predicts::Cpu => "cpu",
        }
    }

    /// The middle of the rates of the class, 0 to 0.2 and 0.2 to 1: what stands for the rate of a
    /// job without one.
    #[must_use]
    pub fn rate(self) -> f64 {
        match self {
            Predicts::Io => 0.1,
            Predicts::Cpu => 0.6,
        }
    }
}

/// What is predicted of one map or reduce class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// The class, spelt as in Java (`org.example.Count$Map`).
    pub class: String,
    /// Map or reduce.
    pub kind: Kind,
    /// Instructions; None: not known, see `note`. 0 where it passes its input on unchanged.
    pub longest_path: Option<u64>,
    /// See [`Kind::threshold`].
    pub threshold: u64,
    /// None where the path is not known.
    pub predicted: Option<Predicts>,
    /// A computing rate to assume until one is measured.
    pub assumed_computing_rate: Option<f64>,
    /// What is special about it.
    pub note: Option<String>,
}

struct Class {
    name: String,
    parent: Option<String>,
    interfaces: Vec<String>,
    is_abstract: bool,
    bytes: Vec<u8>,
    /// Read when something calls into the class. The text says why it cannot be read.
    methods: OnceCell<Result<Methods, String>>,
}

/// By name and descriptor.
type Methods = BTreeMap<(String, String), Method>;

struct Method {
    is_bridge: bool,
    /// None: abstract or native.
    body: Option<Body>,
}

/// A class's number, and name and descriptor of the method.
type MethodId = (usize, (String, String));

/// The classes of a jar.
pub struct Program {
    classes: Vec<Class>,
    by_name: BTreeMap<String, usize>,
    below: BTreeMap<String, Vec<usize>>,
    /// Class files that were left out, each with the reason.
    pub skipped: Vec<String>,
    looked_at: Cell<usize>,
}

/// Where the entry methods of a class are.
enum Entries {
    Methods(Vec<MethodId>),
    /// Hadoop's own method: the input is passed on.
    Identity,
    Unknown(String),
}

impl Program {
    /// Reads the headers of all classes; one that cannot be read is left out and named.
    #[must_use]
    pub fn new(contents: Contents) -> Program {
        let Contents { classes: files, skipped } = contents;
        let mut program = Program {
            classes: Vec::with_capacity(files.len()),
            by_name: BTreeMap::new(),
            below: BTreeMap::new(),
            skipped,
            looked_at: Cell::new(0),
        };
        for (entry, bytes) in files {
            match header(bytes) {
                Ok(class) => program.add(class),
                Err(reason) => program.skipped.push(format!("{entry}: {reason}")),
            }
        }
        program
    }

    fn add(&mut self, class: Class) {
        let number = self.classes.len();
        if self.by_name.contains_key(&class.name) {
            self.skipped.push(format!("{}: is there twice; the first counts", dotted(&class.name)));
            return;
        }
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
                None => !class.is_abstract && !is_runtime(name),
            };
            if chosen {
                for kind in self.kinds(*number) {
                    entries.push((*number, kind, self.entries(*number, kind)?));
                }
            }
        }
        let starts = entries.iter().filter_map(|(_, _, entries)| match entries {
            Entries::Methods(methods) => Some(methods),
            Entries::Identity | Entries::Unknown(_) => None,
        });
        let lengths = self.lengths(starts.flatten().cloned().collect())?;
        let predicted = entries.into_iter().map(|(number, kind, entries)| {
            let class = dotted(&self.classes[number].name);
            match entries {
                Entries::Methods(methods) => {
                    let longest = methods.iter().filter_map(|id| lengths.get(id)).max();
                    predicted(class, kind, longest.copied(), None)
                }
                Entries::Identity => {
                    let note = format!("has Hadoop's own {}: passes its input on", kind.name());
                    predicted(class, kind, Some(0), Some(note))
                }
                Entries::Unknown(note) => predicted(class, kind, None, Some(note)),
            }
        });
        Ok(predicted.collect())
    }

    /// Whether a class of this name is there, as [`Program::predict`] takes names.
    #[must_use]
    pub fn has(&self, wanted: &str) -> bool {
        self.by_name.keys().any(|name| is_named(name, wanted))
    }

    fn spend(&self, amount: usize) -> Result<(), Fault> {
        self.looked_at.set(self.looked_at.get().saturating_add(amount));
        if self.looked_at.get() > MAX_CODE { Err(Fault::TooMuchCode(MAX_CODE)) } else { Ok(()) }
    }

    /// Names of the classes and interfaces above a class, the class itself first, nearest first;
    /// also those that the jar does not have.
    fn above(&self, name: &str) -> Vec<String> {
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
        let is_a = |kind: Kind| {
            above.iter().skip(1).any(|name| is_hadoops(name) && name.ends_with(kind.suffix()))
        };
        [Kind::Map, Kind::Reduce].into_iter().filter(|kind| is_a(*kind)).collect()
    }

    /// The map or reduce methods of a class, and `run` where it has its own.
    fn entries(&self, number: usize, kind: Kind) -> Result<Entries, Fault> {
        let mut found = Vec::new();
        let mut has_method = false;
        let mut current = Some(self.classes[number].name.clone());
        let mut steps = 0;
        while let Some(name) = current {
            steps += 1;
            if name == "org/apache/hadoop/mapreduce/Mapper"
                || name == "org/apache/hadoop/mapreduce/Reducer"
            {
                let is_own = found.is_empty();
                return Ok(if is_own { Entries::Identity } else { Entries::Methods(found) });
            }
            let Some(number) = self.by_name.get(&name).filter(|_| steps <= MAX_ANCESTORS) else {
                return Ok(Entries::Unknown(format!(
                    "its {} is in {}, which the jar does not have",
                    kind.name(),
                    dotted(&name)
                )));
            };
            let class = &self.classes[*number];
            let methods = match self.methods(*number)? {
                Ok(methods) => methods,
                Err(reason) => return Ok(Entries::Unknown(format!("cannot be read: {reason}"))),
            };
            let own = methods.iter().filter(|((name, descriptor), method)| {
                let wanted = name == kind.name() && !has_method || name == "run";
                wanted && is_entry(descriptor) && !method.is_bridge && method.body.is_some()
            });
            let own: Vec<MethodId> = own.map(|(key, _)| (*number, key.clone())).collect();
            has_method |= own.iter().any(|(_, (name, _))| name == kind.name());
            found.extend(own);
            if has_method {
                return Ok(Entries::Methods(found));
            }
            current = class.parent.clone();
        }
        Ok(Entries::Unknown(format!("has no {} method", kind.name())))
    }

    fn methods(&self, number: usize) -> Result<Result<&Methods, &str>, Fault> {
        let class = &self.classes[number];
        if let Some(read) = class.methods.get() {
            return Ok(read.as_ref().map_err(String::as_str));
        }
        let read = methods(&class.bytes);
        let bodies =
            read.iter().flat_map(BTreeMap::values).filter_map(|method| method.body.as_ref());
        self.spend(1 + bodies.map(|body| 1 + body.instructions).sum::<usize>())?;
        Ok(class.methods.get_or_init(|| read).as_ref().map_err(String::as_str))
    }

    fn body(&self, (number, key): &MethodId) -> Result<Option<&Body>, Fault> {
        let methods = self.methods(*number)?;
        Ok(methods
            .ok()
            .and_then(|methods| methods.get(key))
            .and_then(|method| method.body.as_ref()))
    }

    /// The bodies that a call may lead to, as far as the jar has them.
    fn callees(&self, target: &Target) -> Result<Vec<MethodId>, Fault> {
        if is_runtime(&target.class) {
            return Ok(Vec::new());
        }
        let key = (target.name.clone(), target.descriptor.clone());
        for name in self.above(&target.class) {
            self.spend(1)?;
            let Some(number) = self.by_name.get(&name) else { continue };
            if self.body(&(*number, key.clone()))?.is_some() {
                return Ok(vec![(*number, key)]);
            }
        }
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<usize> = self.below.get(&target.class).cloned().unwrap_or_default();
        while let Some(number) = waiting.pop() {
            if seen.len() == MAX_DESCENDANTS || !seen.insert(number) {
                continue;
            }
            self.spend(1)?;
            let id = (number, key.clone());
            if self.body(&id)?.is_some() {
                found.push(id);
            }
            waiting.extend(self.below.get(&self.classes[number].name).into_iter().flatten());
        }
        Ok(found)
    }

    /// The longest paths of methods and of all that they reach.
    fn lengths(&self, starts: BTreeSet<MethodId>) -> Result<BTreeMap<MethodId, u64>, Fault> {
        let mut graph: DiGraph<MethodId, ()> = DiGraph::new();
        let mut nodes: BTreeMap<MethodId, NodeIndex> = BTreeMap::new();
        let mut known: BTreeMap<Target, Vec<NodeIndex>> = BTreeMap::new();
        let mut waiting = Vec::new();
        for id in starts {
            let node = graph.add_node(id.clone());
            nodes.insert(id, node);
            waiting.push(node);
        }
        while let Some(caller) = waiting.pop() {
            let id = graph[caller].clone();
            for (_, target) in self.body(&id)?.into_iter().flat_map(|body| &body.calls) {
                if !known.contains_key(target) {
                    let mut callees = Vec::new();
                    for id in self.callees(target)? {
                        let node = *nodes.entry(id.clone()).or_insert_with(|| {
                            let node = graph.add_node(id);
                            waiting.push(node);
                            node
                        });
                        callees.push(node);
                    }
                    known.insert(target.clone(), callees);
                }
                let callees = &known[target];
                self.spend(callees.len())?;
                for callee in callees {
                    graph.add_edge(caller, *callee, ());
                }
            }
        }
        // Callees come before their callers; a call inside a circle has no length yet.
        let mut lengths: Vec<u64> = vec![0; graph.node_count()];
        for circle in kosaraju_scc(&graph) {
            let mut own = Vec::with_capacity(circle.len());
            for node in &circle {
                own.push(self.length(&graph[*node], &known, &lengths)?);
            }
            for (node, length) in circle.iter().zip(own) {
                lengths[node.index()] = length;
            }
        }
        Ok(nodes.into_iter().map(|(id, node)| (id, lengths[node.index()])).collect())
    }

    fn length(
        &self,
        id: &MethodId,
        callees: &BTreeMap<Target, Vec<NodeIndex>>,
        lengths: &[u64],
    ) -> Result<u64, Fault> {
        let Some(body) = self.body(id)? else { return Ok(0) };
        let mut graph = DiGraph::with_capacity(body.instructions, body.edges.len());
        for _ in 0..body.instructions {
            graph.add_node(1_u64);
        }
        for (from, to) in &body.edges {
            graph.add_edge(NodeIndex::new(*from as usize), NodeIndex::new(*to as usize), ());
        }
        for (at, target) in &body.calls {
            let callees = callees.get(target).into_iter().flatten();
            let longest = callees.map(|node| lengths[node.index()]).max().unwrap_or(0);
            let weight = &mut graph[NodeIndex::new(*at as usize)];
            *weight = sum([*weight, longest].into_iter());
        }
        Ok(longest(&graph, NodeIndex::new(0)))
    }
}

fn predicted(class: String, kind: Kind, longest: Option<u64>, note: Option<String>) -> Predicted {
    let predicted =
        longest.map(|path| if path < kind.threshold() { Predicts::Io } else { Predicts::Cpu });
    Predicted {
        class,
        kind,
        longest_path: longest,
        threshold: kind.threshold(),
        predicted,
        assumed_computing_rate: predicted.map(Predicts::rate),
        note,
    }
}

/// What Java and Hadoop bring: the same for every program.
fn is_runtime(class: &str) -> bool {
    let is_example = class.starts_with("org/apache/hadoop/examples/");
    ["java/", "javax/", "jdk/", "sun/", "scala/runtime/", "org/apache/hadoop/"]
        .iter()
        .any(|prefix| class.starts_with(prefix))
        && !is_example
}

/// Of one of the two APIs of MapReduce.
fn is_hadoops(class: &str) -> bool {
    class.starts_with("org/apache/hadoop/mapreduce/")
        || class.starts_with("org/apache/hadoop/mapred/")
}

/// The last argument of map, reduce and run: of the new API, and of the old one.
fn is_entry(descriptor: &str) -> bool {
    descriptor.ends_with("$Context;)V")
        || descriptor.ends_with("Lorg/apache/hadoop/mapred/Reporter;)V")
}

fn is_named(class: &str, wanted: &str) -> bool {
    let wanted = wanted.replace('.', "/");
    class == wanted
        || class
            .strip_suffix(&wanted)
            .is_some_and(|before| before.ends_with('/') || before.ends_with('$'))
}

fn dotted(class: &str) -> String {
    class.replace('/', ".")
}

fn header(bytes: Vec<u8>) -> Result<Class, String> {
    let read = || {
        let file = ClassFile::new(&bytes)?;
        let pool = file.pool();
        let name = pool.retrieve(file.this_class())?.name.display().to_string();
        let parent = match file.super_class() {
            Some(parent) => Some(pool.retrieve(parent)?.name.display().to_string()),
            None => None,
        };
        let mut interfaces = Vec::new();
        for interface in file.interfaces() {
            interfaces.push(pool.retrieve(interface?)?.name.display().to_string());
        }
        let is_abstract =
            file.access_flags().intersects(AccessFlags::ABSTRACT | AccessFlags::INTERFACE);
        Ok((name, parent, interfaces, is_abstract))
    };
    let (name, parent, interfaces, is_abstract) =
        read().map_err(|error: noak::error::DecodeError| error.to_string())?;
    Ok(Class { name, parent, interfaces, is_abstract, bytes, methods: OnceCell::new() })
}

fn methods(bytes: &[u8]) -> Result<Methods, String> {
    let in_words = |error: noak::error::DecodeError| error.to_string();
    let file = ClassFile::new(bytes).map_err(in_words)?;
    let pool = file.pool();
    let mut methods = Methods::new();
    for method in file.methods() {
        let method = method.map_err(in_words)?;
        let name = pool.retrieve(method.name()).map_err(in_words)?.display().to_string();
        let descriptor =
            pool.retrieve(method.descriptor()).map_err(in_words)?.display().to_string();
        let mut own = None;
        for attribute in method.attributes() {
            let attribute = attribute.map_err(in_words)?;
            if pool.retrieve(attribute.name()).map_err(in_words)?.as_bytes() != b"Code" {
                continue;
            }
            if let AttributeContent::Code(code) = attribute.read_content(pool).map_err(in_words)? {
                own = Some(body(&code, pool).map_err(|reason| format!("{name}: {reason}"))?);
            }
        }
        let is_bridge = method.access_flags().contains(AccessFlags::BRIDGE);
        methods.insert((name, descriptor), Method { is_bridge, body: own });
    }
    Ok(methods)
}
