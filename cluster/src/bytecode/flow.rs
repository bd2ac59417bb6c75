//! The longest path through a graph of instructions, in which a loop counts once.
//!
//! A strongly connected component is a loop. Its length is the longest path through it with the
//! edges back into where it is entered taken away, which is found the same way for the loops
//! inside; then the graph of components has no circle, and its longest path is a sum. Each level
//! takes an edge away, so it ends; [`MAX_NEST`] bounds the time for graphs that no compiler makes.

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

/// Loops inside loops; a deeper one counts with all of its instructions.
const MAX_NEST: usize = 16;

/// The greatest sum of weights on a path that starts at `start`. Sums end at `u64::MAX`.
#[must_use]
pub fn longest(graph: &DiGraph<u64, ()>, start: NodeIndex) -> u64 {
    longest_within(graph, Some(start), 0)
}

fn longest_within(graph: &DiGraph<u64, ()>, start: Option<NodeIndex>, nest: usize) -> u64 {
    // Components come after all that they lead to.
    let components = kosaraju_scc(graph);
    let mut component_of = vec![0; graph.node_count()];
    for (number, nodes) in components.iter().enumerate() {
        for node in nodes {
            component_of[node.index()] = number;
        }
    }
    let mut onward: Vec<u64> = Vec::with_capacity(components.len());
    for (number, nodes) in components.iter().enumerate() {
        let within = |node: &NodeIndex| component_of[node.index()] == number;
        let own = match nodes.as_slice() {
            [node] => graph[*node],
            _ if nest == MAX_NEST => sum(nodes.iter().map(|node| graph[*node])),
            _ => once_round(graph, nodes, &within, start, nest),
        };
        let beyond = nodes
            .iter()
            .flat_map(|node| graph.neighbors(*node))
            .filter(|next| !within(next))
            .map(|next| onward[component_of[next.index()]])
            .max();
        onward.push(own.saturating_add(beyond.unwrap_or(0)));
    }
    let first = start.map(|start| onward[component_of[start.index()]]);
    first.or_else(|| onward.into_iter().max()).unwrap_or(0)
}

/// The longest pass through one loop.
fn once_round(
    graph: &DiGraph<u64, ()>,
    nodes: &[NodeIndex],
    within: &impl Fn(&NodeIndex) -> bool,
    start: Option<NodeIndex>,
    nest: usize,
) -> u64 {
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
        for next in graph.neighbors(*node) {
            if let Some((to, false)) = copies.get(&next) {
                inside.add_edge(*from, *to, ());
            }
        }
    }
    longest_within(&inside, None, nest + 1)
}

/// The sum, at most `u64::MAX`.
pub(crate) fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)] // measures how long it takes

    use super::*;

    /// The longest path from node 0, each node 1 unless `weights` says more.
    fn path(nodes: usize, edges: &[(u32, u32)]) -> u64 {
        let mut graph = DiGraph::from_edges(edges.iter().copied());
        while graph.node_count() < nodes {
            graph.add_node(0);
        }
        longest(&graph.map(|_, _: &u64| 1, |_, ()| ()), NodeIndex::new(0))
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
        let first = graph.add_node(u64::MAX);
        let second = graph.add_node(u64::MAX);
        graph.add_edge(first, second, ());
        assert_eq!(longest(&graph, first), u64::MAX);
    }

    /// Loops nested as deep as a method is long: 20,000 loops that end at the same node.
    #[test]
    fn deep_nests_end_soon() {
        let depth = 20_000;
        let mut edges: Vec<(u32, u32)> = (0..depth).map(|node| (node, node + 1)).collect();
        edges.extend((1..depth).map(|node| (depth, node)));
        let began = std::time::Instant::now();
        assert_eq!(path(depth as usize + 1, &edges), u64::from(depth) + 1);
        assert!(began.elapsed().as_secs() < 20);
    }
}
