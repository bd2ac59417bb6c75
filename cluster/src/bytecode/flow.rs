//! The longest path through a graph of instructions, in which a loop counts once, and beside it
//! how deep loops are nested and which of them have a known count.
//!
//! A strongly connected component is a loop. Its length is the longest path through it with the
//! edges back into where it is entered taken away, which is found the same way for the loops
//! inside; then the graph of components has no circle, and its longest path is a sum. Each level
//! takes an edge away, so it ends; [`MAX_NEST`] bounds the time for graphs that no compiler makes.

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

/// Loops inside loops; a deeper one counts with all of its instructions.
const MAX_NEST: usize = 16;

/// One instruction, with what it calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Step {
    /// Its number in its method.
    pub number: u32,
    /// Instructions, with the longest of what it may call; a loop counts once.
    pub longest: u64,
    /// Instructions, with the shortest of what it may call; a loop counts as often as it runs, as
    /// far as that is known.
    pub sure: u64,
    /// Loops inside loops in what it calls.
    pub loops: u32,
    /// Whether it waits, or calls what always does.
    pub waits: bool,
}

/// From one instruction to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    /// The next one, or a jump.
    Goes,
    /// To the handler of an exception.
    Raises,
}

/// What is known of the paths from the first instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// The greatest sum of [`Step::longest`]. Sums end at `u64::MAX`.
    pub longest: u64,
    /// The greatest sum of [`Step::sure`], loops of known count multiplied.
    pub sure: u64,
    /// Loops inside loops, those of called methods included.
    pub loops: u32,
    /// Whether a loop has no known count and does not wait.
    pub uncounted: bool,
    /// Whether each path waits, but for those of exceptions.
    pub waits: bool,
}

/// How often a loop of these instructions runs, where that is known.
pub type Rounds<'a> = dyn Fn(&[u32]) -> Option<u64> + 'a;

/// The paths through a graph that start at `start`.
#[must_use]
pub fn path(graph: &DiGraph<Step, Edge>, start: NodeIndex, rounds: &Rounds<'_>) -> Path {
    path_within(graph, Some(start), rounds, 0)
}

fn path_within(
    graph: &DiGraph<Step, Edge>,
    start: Option<NodeIndex>,
    rounds: &Rounds<'_>,
    nest: usize,
) -> Path {
    // Components come after all that they lead to.
    let components = kosaraju_scc(graph);
    let mut component_of = vec![0; graph.node_count()];
    for (number, nodes) in components.iter().enumerate() {
        for node in nodes {
            component_of[node.index()] = number;
        }
    }
    let mut onward: Vec<Path> = Vec::with_capacity(components.len());
    for (number, nodes) in components.iter().enumerate() {
        let within = |node: &NodeIndex| component_of[node.index()] == number;
        let mut own = match nodes.as_slice() {
            [node] => Path::of(graph[*node]),
            _ if nest == MAX_NEST => {
                nodes.iter().fold(Path::default(), |sum, node| sum.then(Path::of(graph[*node])))
            }
            _ => once_round(graph, nodes, &within, start, rounds, nest),
        };
        if nodes.len() > 1 || graph.contains_edge(nodes[0], nodes[0]) {
            own.loops = own.loops.saturating_add(1);
            let numbers: Vec<u32> = nodes.iter().map(|node| graph[*node].number).collect();
            let count = rounds(&numbers);
            let has_wait = nodes.iter().any(|node| graph[*node].waits);
            // A loop that may not run at all does not always wait.
            own.waits = has_wait && count.is_some();
            if !has_wait {
                own.sure = own.sure.saturating_mul(count.unwrap_or(1));
                own.uncounted |= count.is_none();
            }
        }
        let mut beyond: Option<Path> = None;
        for edge in nodes.iter().flat_map(|node| graph.edges(*node)) {
            if !within(&edge.target()) {
                let mut next = onward[component_of[edge.target().index()]];
                next.waits |= *edge.weight() == Edge::Raises;
                beyond = Some(beyond.map_or(next, |path| path.or(next)));
            }
        }
        onward.push(own.then(beyond.unwrap_or_default()));
    }
    match start {
        Some(start) => onward[component_of[start.index()]],
        None => onward.into_iter().reduce(Path::or).unwrap_or_default(),
    }
}

impl Path {
    fn of(step: Step) -> Path {
        let Step { longest, sure, loops, waits, .. } = step;
        Path { longest, sure, loops, uncounted: false, waits }
    }

    /// This one, and then another.
    fn then(self, other: Path) -> Path {
        Path {
            longest: self.longest.saturating_add(other.longest),
            sure: self.sure.saturating_add(other.sure),
            loops: self.loops.max(other.loops),
            uncounted: self.uncounted || other.uncounted,
            waits: self.waits || other.waits,
        }
    }

    /// This one, or another.
    pub(crate) fn or(self, other: Path) -> Path {
        Path {
            longest: self.longest.max(other.longest),
            sure: self.sure.max(other.sure),
            loops: self.loops.max(other.loops),
            uncounted: self.uncounted || other.uncounted,
            waits: self.waits && other.waits,
        }
    }
}

/// The longest pass through one loop.
fn once_round(
    graph: &DiGraph<Step, Edge>,
    nodes: &[NodeIndex],
    within: &impl Fn(&NodeIndex) -> bool,
    start: Option<NodeIndex>,
    rounds: &Rounds<'_>,
    nest: usize,
) -> Path {
    let is_entered = |node: NodeIndex| {
        start == Some(node)
            || graph.neighbors_directed(node, petgraph::Incoming).any(|before| !within(&before))
    };
    let mut inside = DiGraph::with_capacity(nodes.len(), nodes.len());
    let mut copies = std::collections::BTreeMap::new();
    for node in nodes {
        copies.insert(*node, (inside.add_node(graph[*node]), is_entered(*node)));
    }
    for (node, (from, _)) in &copies {
        for edge in graph.edges(*node) {
            if let Some((to, false)) = copies.get(&edge.target()) {
                inside.add_edge(*from, *to, *edge.weight());
            }
        }
    }
    path_within(&inside, None, rounds, nest + 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)] // measures how long it takes

    use super::*;

    /// The paths from node 0, each node 1 where there are edges or `nodes` asks for it.
    fn all(nodes: usize, edges: &[(u32, u32)], rounds: &Rounds<'_>) -> Path {
        let mut graph: DiGraph<(), ()> = DiGraph::from_edges(edges.iter().copied());
        while graph.node_count() < nodes {
            graph.add_node(());
        }
        let step = |number: NodeIndex| Step {
            number: number.index() as u32,
            longest: 1,
            sure: 1,
            ..Step::default()
        };
        super::path(
            &graph.map(|node, ()| step(node), |_, ()| Edge::Goes),
            NodeIndex::new(0),
            rounds,
        )
    }

    fn path(nodes: usize, edges: &[(u32, u32)]) -> u64 {
        all(nodes, edges, &|_| None).longest
    }

    #[test]
    fn a_path_without_branches_counts_each_node() {
        assert_eq!(path(1, &[]), 1);
        assert_eq!(path(3, &[(0, 1), (1, 2)]), 3);
    }

    #[test]
    fn the_longer_branch_counts() {
        assert_eq!(path(5, &[(0, 1), (1, 2), (2, 4), (0, 3), (3, 4)]), 4);
    }

    /// while (1) { 2; 3 } 4: the body once, and what follows it.
    #[test]
    fn a_loop_counts_once_with_what_follows() {
        assert_eq!(path(5, &[(0, 1), (1, 2), (2, 3), (3, 1), (1, 4)]), 5);
        assert_eq!(path(2, &[(0, 1), (1, 1)]), 2, "a loop of one");
        assert_eq!(path(2, &[(0, 1), (1, 0)]), 2, "a loop that is entered at the start");
    }

    #[test]
    fn a_loop_in_a_loop_counts_once_each() {
        // 0 [1 [2 3] 4] 5
        let edges = [(0, 1), (1, 2), (2, 3), (3, 2), (2, 4), (4, 1), (1, 5)];
        assert_eq!(path(6, &edges), 6);
    }

    #[test]
    fn a_loop_that_is_entered_in_two_places_ends() {
        assert_eq!(path(4, &[(0, 1), (0, 2), (1, 2), (2, 1), (1, 3), (2, 3)]), 3);
    }

    #[test]
    fn what_is_not_reached_does_not_count() {
        assert_eq!(path(5, &[(0, 1), (2, 3), (3, 4)]), 2);
    }

    #[test]
    fn weights_do_not_overflow() {
        let mut graph = DiGraph::new();
        let most = Step { longest: u64::MAX, sure: u64::MAX, ..Step::default() };
        let (first, second) = (graph.add_node(most), graph.add_node(most));
        graph.add_edge(first, second, Edge::Goes);
        graph.add_edge(second, second, Edge::Goes);
        assert_eq!(super::path(&graph, first, &|_| Some(2)).sure, u64::MAX);
    }

    #[test]
    fn loops_are_nested_and_one_of_known_count_is_multiplied() {
        // 0 [1 [2 3] 4] 5
        let edges = [(0, 1), (1, 2), (2, 3), (3, 2), (2, 4), (4, 1), (1, 5)];
        let inner = |nodes: &[u32]| (nodes.len() == 2).then_some(10);
        let found = all(6, &edges, &inner);
        assert_eq!((found.longest, found.loops, found.uncounted), (6, 2, true));
        assert_eq!(found.sure, 24, "10 rounds of 2 and 4 once");
        let found = all(6, &edges, &|_| Some(3));
        assert_eq!((found.sure, found.uncounted), (2 + 3 * (2 + 3 * 2), false));
        assert_eq!(all(3, &[(0, 1), (1, 2)], &|_| None).loops, 0);
    }

    /// Loops nested as deep as a method is long: 20,000 loops that end at the same node.
    #[test]
    fn deep_nests_end() {
        let depth = 20_000;
        let mut edges: Vec<(u32, u32)> = (0..depth).map(|node| (node, node + 1)).collect();
        edges.extend((1..depth).map(|node| (depth, node)));
        // In steps that grow with the square of the depth this would not end.
        assert_eq!(path(depth as usize + 1, &edges), u64::from(depth) + 1);
    }
}
