//! What schedulers reported of containers, kept until those are found.

use std::collections::HashMap;

use crate::executor::found::Hint;

/// Most hints that are kept.
const KEPT: usize = 4096;

/// What was reported of containers by name, found or not yet. Beyond a bound those go that were not
/// repeated for longest.
#[derive(Debug, Default)]
pub struct Hints {
    recent: HashMap<String, Hint>,
    older: HashMap<String, Hint>,
}

impl Hints {
    /// Keeps a hint in place of the one before it.
    pub fn insert(&mut self, hint: Hint) {
        if self.recent.len() >= KEPT / 2 && !self.recent.contains_key(&hint.container) {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(hint.container.clone(), hint);
    }

    /// The last report of the container of this name.
    pub fn get(&self, container: &str) -> Option<&Hint> {
        self.recent.get(container).or_else(|| self.older.get(container))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_is_kept_and_memory_is_bounded() {
        let mut hints = Hints::default();
        let hint = |name: String| Hint { container: name, ..Hint::default() };
        for turn in 0..10 * KEPT {
            hints.insert(hint(turn.to_string()));
            if turn % 1000 == 0 {
                hints.insert(hint(String::from("a")));
            }
        }
        assert!(hints.get("a").is_some() && hints.get("0").is_none());
        assert!(hints.get(&(10 * KEPT - 1).to_string()).is_some());
        assert!(hints.recent.len() + hints.older.len() <= KEPT);
    }
}
