//! What methods reach: paths through all that they call, and what could not be followed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::bytecode::class::MethodKey;
use crate::bytecode::code::{Call, How};
use crate::bytecode::evidence::{Evidence, Node, Open};
use crate::bytecode::flow::{Path, Step, path};
use crate::bytecode::jar::Fault;
use crate::bytecode::known::{Known, is_runtime, known};
use crate::bytecode::program::{Program, dotted};

/// Classes that are read below one class.
const MAX_DESCENDANTS: usize = 1_000;

const OBJECT: &str = "java/lang/Object";

fn of_object(method: &str) -> bool {
    ["<init>", "clone", "equals", "getClass", "hashCode", "notify", "notifyAll", "toString", "wait"]
        .contains(&method)
}

/// What a call leads to besides, by name.
type Named = (Open, Rc<str>);

/// Methods that a call may lead to, and what is open about it.
#[derive(Clone, Debug, Default)]
struct Callees {
    nodes: Vec<NodeIndex>,
    open: Option<Named>,
}

impl Program {
    /// What is known of each of the methods.
    pub(crate) fn evidence(
        &self,
        starts: BTreeSet<Node>,
    ) -> Result<BTreeMap<Node, Evidence>, Fault> {
        let mut graph: DiGraph<Node, ()> = DiGraph::new();
        let mut nodes: BTreeMap<Node, NodeIndex> = BTreeMap::new();
        let mut callees: BTreeMap<(Option<usize>, &Call), Callees> = BTreeMap::new();
        let mut waiting = Vec::new();
        for id in starts {
            let node = graph.add_node(id.clone());
            nodes.insert(id, node);
            waiting.push(node);
        }
        while let Some(caller) = waiting.pop() {
            let (this, class, key) = graph[caller].clone();
            for (_, call) in self.body(class, &key)?.into_iter().flat_map(|body| &body.calls) {
                let found = match callees.entry((this, call)) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(unknown) => {
                        let (ids, open) = self.callees(this, call)?;
                        let mut found = Callees { nodes: Vec::new(), open };
                        for id in ids {
                            found.nodes.push(*nodes.entry(id.clone()).or_insert_with(|| {
                                let node = graph.add_node(id);
                                waiting.push(node);
                                node
                            }));
                        }
                        unknown.insert(found)
                    }
                };
                self.spend(found.nodes.len())?;
                for callee in &found.nodes {
                    graph.add_edge(caller, *callee, ());
                }
            }
        }
        // Callees come before their callers; a call inside a circle has no evidence yet.
        let mut known: Vec<Evidence> = vec![Evidence::default(); graph.node_count()];
        for circle in kosaraju_scc(&graph) {
            let mut own = Vec::with_capacity(circle.len());
            for node in &circle {
                own.push(self.one(&graph[*node], &callees, &known)?);
            }
            if circle.len() > 1 || graph.contains_edge(circle[0], circle[0]) {
                let mut all = Evidence::default();
                own.iter().for_each(|one| all.take(one, false));
                for one in &mut own {
                    one.path.loops = one.path.loops.saturating_add(1);
                    one.path.uncounted = true;
                    one.take(&all, false);
                }
            }
            for (node, evidence) in circle.iter().zip(own) {
                known[node.index()] = evidence;
            }
        }
        Ok(nodes.into_iter().map(|(id, node)| (id, known[node.index()].clone())).collect())
    }

    /// What is known of one method where what it calls is known.
    fn one(
        &self,
        (this, class, key): &Node,
        callees: &BTreeMap<(Option<usize>, &Call), Callees>,
        known: &[Evidence],
    ) -> Result<Evidence, Fault> {
        let mut evidence = Evidence::default();
        let Some(body) = self.body(*class, key)? else { return Ok(evidence) };
        let mut graph = DiGraph::with_capacity(body.instructions, body.edges.len());
        for number in 0..body.instructions {
            let number = number as u32;
            graph.add_node(Step { number, longest: 1, sure: 1, ..Step::default() });
        }
        for (from, to, edge) in &body.edges {
            graph.add_edge(NodeIndex::new(*from as usize), NodeIndex::new(*to as usize), *edge);
        }
        for (at, call) in &body.calls {
            let Some(Callees { nodes, open }) = callees.get(&(*this, call)) else { continue };
            let called: Vec<&Evidence> = nodes.iter().map(|node| &known[node.index()]).collect();
            let paths = || called.iter().map(|one| one.path);
            let step = &mut graph[NodeIndex::new(*at as usize)];
            let longest = paths().map(|path| path.longest).max().unwrap_or(0);
            step.longest = step.longest.saturating_add(longest);
            step.sure = step.sure.saturating_add(paths().map(|path| path.sure).min().unwrap_or(0));
            step.loops = paths().map(|path| path.loops).max().unwrap_or(0);
            step.waits = !called.is_empty() && !call.is_later && paths().all(|path| path.waits);
            called.iter().for_each(|one| evidence.take(one, called.len() > 1 || call.is_later));
            evidence.path.uncounted |= paths().any(|path| path.uncounted);
            if let Some((open, name)) = open {
                step.waits |= *open == Open::Waits && !call.is_later;
                evidence.add(*open, Rc::clone(name));
            }
        }
        let within = path(&graph, NodeIndex::new(0), &|nodes| body.rounds(nodes));
        let uncounted = evidence.path.uncounted || within.uncounted;
        evidence.path = Path { uncounted, ..within };
        Ok(evidence)
    }

    /// The methods that a call may lead to, as far as they are there, and what is open about it.
    fn callees(
        &self,
        this: Option<usize>,
        call: &Call,
    ) -> Result<(Vec<Node>, Option<Named>), Fault> {
        let target = &call.target;
        let name: Rc<str> = format!("{}.{}", dotted(&target.class), target.name).into();
        if target.class.starts_with('[') {
            // A copy of an array.
            return Ok((Vec::new(), None));
        }
        if call.how == How::Dynamic {
            return Ok((
                Vec::new(),
                Some((Open::Foreign, format!("{name} (invokedynamic)").into())),
            ));
        }
        let own = match this {
            Some(this) => self.above(&self.classes[this].name),
            None => Vec::new(),
        };
        let is_own = target.name != "<init>" && own.contains(&target.class);
        let of_java = |class: &str| match known(class, &target.name) {
            Known::Short => None,
            Known::Plain => Some((Open::Plain, Rc::clone(&name))),
            Known::Waits => Some((Open::Waits, Rc::clone(&name))),
            Known::MayWait => Some((Open::MayWait, Rc::clone(&name))),
            Known::Reflects => Some((Open::Foreign, format!("{name} (reflection)").into())),
            Known::Unknown => Some((Open::Unknown, Rc::clone(&name))),
        };
        if is_runtime(&target.class) && !is_own {
            return Ok((Vec::new(), of_java(&target.class)));
        }
        let key = (target.name.clone(), target.descriptor.clone());
        let above = match (is_own, call.how) {
            (true, How::Virtual) => own,
            _ => self.above(&target.class),
        };
        let this = this.filter(|_| is_own);
        let (mut found, mut absent, mut java) = (Vec::new(), None, None);
        for class in &above {
            self.spend(1)?;
            match self.by_name.get(class) {
                Some(number) if self.body(*number, &key)?.is_some() => {
                    found.push((this, *number, key.clone()));
                    break;
                }
                Some(number) if self.is_native(*number, &key)? => {
                    return Ok((
                        Vec::new(),
                        Some((Open::Foreign, format!("{name} (native)").into())),
                    ));
                }
                Some(_) => {}
                // Above every class, but for a class of Java itself it says little.
                None if class == OBJECT && !of_object(&target.name) => {}
                None if is_runtime(class) => java = java.or(Some(class)),
                None => absent = absent.or(Some(class)),
            }
        }
        if this.is_none() && call.how == How::Virtual {
            self.below(&target.class, &key, &mut found)?;
        }
        let open = match (found.len(), absent, java) {
            (1, ..) => None,
            (2.., ..) => Some((Open::Several, name)),
            (_, Some(class), _) if *class == target.class => {
                Some((Open::Foreign, format!("{name} (in no jar)").into()))
            }
            (_, Some(class), _) => {
                Some((Open::Foreign, format!("{name} (of {}, in no jar)", dotted(class)).into()))
            }
            (_, None, Some(class)) => of_java(class),
            (_, None, None) => Some((Open::Foreign, format!("{name} (no body)").into())),
        };
        Ok((found, open))
    }

    /// The bodies of a method in the classes below one.
    fn below(&self, class: &str, key: &MethodKey, found: &mut Vec<Node>) -> Result<(), Fault> {
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<usize> = self.below.get(class).cloned().unwrap_or_default();
        while let Some(number) = waiting.pop() {
            if seen.len() == MAX_DESCENDANTS || !seen.insert(number) {
                continue;
            }
            self.spend(1)?;
            let id = (None, number, key.clone());
            if self.body(number, key)?.is_some() && !found.contains(&id) {
                found.push(id);
            }
            waiting.extend(self.below.get(&self.classes[number].name).into_iter().flatten());
        }
        Ok(())
    }
}
