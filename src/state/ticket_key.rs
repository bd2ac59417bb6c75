//! The key of tickets, by which those that wait keep their place over a restart: `<runtime_dir>/key`.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use lrs_host::{files, trust};

use crate::executor::KEY_BYTES;

/// The key in `runtime_dir`, or a new one that is put there.
pub fn of(runtime_dir: &Path) -> [u8; KEY_BYTES] {
    let path = &runtime_dir.join("key");
    let lost = match stored_key(path) {
        Ok(Some(key)) => return key,
        Ok(None) => None,
        Err(why) => Some(why),
    };
    if let Some(why) = lost {
        let path = path.display();
        tracing::warn!(
            "{path} is no key of lrsd's: {why}; it gets a new one, and who waited begins anew"
        );
    }
    let mut key = [0; KEY_BYTES];
    let drawn = rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty());
    if drawn != Ok(KEY_BYTES) {
        // Not of a kernel that LRS runs on; it must not be guessed all the same.
        tracing::warn!(
            "the kernel has no random numbers; a member may make up its place in the queue"
        );
    }
    if let Err(error) = files::write_atomically(path, &key) {
        tracing::warn!(%error, "who waits will lose its place with the next start of lrsd: {error}");
    }
    key
}

/// `None`: there is none yet.
fn stored_key(path: &Path) -> Result<Option<[u8; KEY_BYTES]>, String> {
    let file = match trust::open(path, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mode = file.metadata().map_err(|error| error.to_string())?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(format!("others may read it (mode {mode:o})"));
    }
    let mut key = Vec::with_capacity(KEY_BYTES + 1);
    file.take(KEY_BYTES as u64 + 1).read_to_end(&mut key).map_err(|error| error.to_string())?;
    let found = key.len();
    let key = key.try_into().map_err(|_| format!("it has not {KEY_BYTES} bytes but {found}"))?;
    Ok(Some(key))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_kept_and_one_that_others_may_know_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let first = of(dir.path());
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
        assert_eq!(of(dir.path()), first);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let second = of(dir.path());
        assert_ne!(second, first);
        std::fs::write(&path, "short").unwrap();
        assert_ne!(of(dir.path()), second);
        assert_eq!(std::fs::read(&path).unwrap().len(), KEY_BYTES);
    }
}
