//! What the parts of a suite are read with: the faults so far, the node's CPUs, and lrsd's word on its
//! own keys.

use toml::Spanned;

use super::faults::Faults;

/// What lrsd says of settings: for each fault the index of the setting that it is of, if it is of
/// one, and the words.
pub(crate) type Judge<'a> = &'a dyn Fn(&[(String, String)]) -> Vec<(Option<usize>, String)>;

/// What the values of a suite are read with.
pub(super) struct SuiteReader<'a> {
    pub(super) faults: Faults<'a>,
    /// CPUs of the node, for counts per core.
    pub(super) cpus: u32,
    /// Asks lrsd of its own keys.
    pub(super) judge: Judge<'a>,
    /// Names of the data sets.
    pub(super) sets: Vec<String>,
}

impl SuiteReader<'_> {
    /// A fault for each name that was there before; a table may have others as well.
    pub(super) fn unique<T>(
        &mut self,
        key: &str,
        tables: &[Spanned<T>],
        name: fn(&T) -> Option<&String>,
    ) {
        for (index, table) in tables.iter().enumerate() {
            let Some(own) = name(table.get_ref()) else { continue };
            let same = |other: &&Spanned<T>| name(other.get_ref()) == Some(own);
            if let Some(first) = tables.iter().take(index).find(same) {
                let line = self.faults.line(first.span().start);
                let problem = format!("the name \"{own}\" is taken by line {line}");
                self.faults.note(table.span().start, key, &problem, "choose another");
            }
        }
    }
}
