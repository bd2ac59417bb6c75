//! What is known of a method with all that it reaches: the path that counts, and what is open about it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::bytecode::class::MethodKey;
use crate::bytecode::flow::Path;

/// Calls of one sort that are named.
const MAX_NAMED: usize = 8;

/// A method, and the class of the object that it runs on where that is one that was asked for.
pub(crate) type Node = (Option<usize>, usize, MethodKey);

/// What a call leads to besides methods with a path that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Open {
    /// Not followed: absent, native, by reflection, by an unknown `invokedynamic`.
    Foreign,
    /// Not followed: Java or Hadoop, and it may compute much.
    Unknown,
    /// Not followed: Java or Hadoop, and ordinary work.
    Plain,
    /// One of several methods; which is not known.
    Several,
    /// Waits.
    Waits,
    /// May wait.
    MayWait,
}

/// What is known of a method with all that it reaches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) path: Path,
    /// The first names of each sort.
    open: BTreeMap<Open, BTreeSet<Rc<str>>>,
}

impl Evidence {
    pub(crate) fn has(&self, open: Open) -> bool {
        self.open.contains_key(&open)
    }

    pub(crate) fn names(&self, open: Open) -> impl Iterator<Item = &str> {
        self.open.get(&open).into_iter().flatten().map(AsRef::as_ref)
    }

    pub(crate) fn add(&mut self, open: Open, name: Rc<str>) {
        let names = self.open.entry(open).or_default();
        names.insert(name);
        if names.len() > MAX_NAMED {
            names.pop_last();
        }
    }

    /// What another one has open, too, which perhaps does not run.
    pub(crate) fn take(&mut self, other: &Evidence, is_perhaps: bool) {
        for (open, names) in &other.open {
            let open = match open {
                Open::Waits if is_perhaps => Open::MayWait,
                open => *open,
            };
            names.iter().for_each(|name| self.add(open, Rc::clone(name)));
        }
    }
}
