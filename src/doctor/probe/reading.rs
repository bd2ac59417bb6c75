//! A fact, as it is read.

use std::path::Path;

/// A fact, or why it is not known.
pub(in crate::doctor) type Reading<T> = Result<T, String>;

/// The text of a small file; the error names the file.
pub(super) fn text(path: &Path) -> Reading<String> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}
