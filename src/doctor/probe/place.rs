//! Whether something can be made at a path.

use std::path::{Path, PathBuf};

use lrs_host::trust;
use rustix::fs::Access;

use super::reading::Reading;

/// Whether something can be made at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct DirFacts {
    /// What was asked for.
    pub(in crate::doctor) path: PathBuf,
    pub(in crate::doctor) exists: bool,
    /// Whether this process may write there, or where it would be made.
    pub(in crate::doctor) writable: Reading<()>,
}

/// Whether `path` is there and may be written, or else the nearest directory above it.
pub(super) fn place(path: &Path) -> DirFacts {
    DirFacts { path: path.to_owned(), exists: path.exists(), writable: writable(nearest(path)) }
}

/// A place in which lrsd works only if no other user could have put or changed what is there.
pub(super) fn believed(place: DirFacts) -> DirFacts {
    let refused = trust::check_path(&place.path).err();
    let objection = refused.and_then(|refused| {
        let remedy = trust::objection_in(&refused.source)?.remedy();
        Some(format!("{}: {}; {remedy}", refused.path.display(), refused.source))
    });
    match objection {
        Some(objection) => DirFacts { writable: Err(objection), ..place },
        None => place,
    }
}

pub(super) fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|above| above.exists()).unwrap_or(path)
}

pub(super) fn writable(path: &Path) -> Reading<()> {
    rustix::fs::access(path, Access::WRITE_OK)
        .map_err(|errno| format!("no write access to {}: {}", path.display(), errno.kind()))
}
