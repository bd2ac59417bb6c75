//! Which configuration files are believed.
//!
//! Hadoop's files tell lrsd, which is root, where containers are and which users they may run as.
//! A file that anybody else can write would let its writer decide that. So each file, includes
//! too, has to belong to root or to the user that NodeManagers run as, and no other user may write
//! it ([`lrs_host::trust`]). Directories are not looked at: a file that was put in another's place has
//! another owner.
//!
//! Limit: the NodeManager's user is taken from `yarn.user`, since what the files themselves say is
//! what is in question.

use std::fs::Metadata;

use lrs_host::trust::Objection;
use nix::unistd::{Uid, User, geteuid};

/// Who may own a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    owners: Vec<u32>,
    node_manager: String,
    /// The node has an account of that name.
    is_known: bool,
}

impl Trust {
    /// Root, who runs this, and the user `node_manager`, if this node has one of that name.
    pub fn of(node_manager: &str) -> Trust {
        // A name that cannot be looked up owns nothing here either.
        let user = User::from_name(node_manager).ok().flatten().map(|user| user.uid);
        let owners = [Some(Uid::from_raw(0)), Some(geteuid()), user];
        let owners = owners.into_iter().flatten().map(Uid::as_raw).collect();
        Trust { owners, node_manager: node_manager.to_owned(), is_known: user.is_some() }
    }

    /// Why a file is not believed, and what to do about it.
    pub(crate) fn objection(&self, file: &Metadata) -> Option<String> {
        Some(match lrs_host::trust::objection(file, &self.owners)? {
            Objection::Owner(uid) if !self.is_known => format!(
                "it belongs to uid {uid}, not to root, and no account {} is found, the NodeManager's by \
                 yarn.user (programs of the static archive read /etc/passwd alone); give it to root, or \
                 correct yarn.user",
                self.node_manager
            ),
            Objection::Owner(uid) => format!(
                "it belongs to uid {uid}, which is neither root nor the NodeManager's user {}; give it \
                 to root, or set yarn.user to the user the NodeManager runs as",
                self.node_manager
            ),
            objection => format!("{objection}; chmod go-w it"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_counts_if_only_its_trusted_owner_can_write_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let objection_to = |mode: u32, trust: &Trust| {
            let permissions = std::fs::Permissions::from_mode(mode);
            file.as_file().set_permissions(permissions).unwrap();
            trust.objection(&file.as_file().metadata().unwrap())
        };
        let own = Trust::of("no-such-user");
        assert_eq!([0o600, 0o644, 0o755].map(|mode| objection_to(mode, &own)), [None, None, None]);
        for mode in [0o664, 0o646, 0o620, 0o602] {
            assert!(objection_to(mode, &own).unwrap().contains("chmod go-w"), "{mode:o}");
        }
        let other = Trust {
            owners: vec![geteuid().as_raw() + 1],
            node_manager: "yarn".into(),
            is_known: true,
        };
        let objection = objection_to(0o600, &other).unwrap();
        assert!(objection.contains("user yarn") && objection.contains("yarn.user"), "{objection}");
        let unknown = Trust { is_known: false, ..other };
        let objection = objection_to(0o600, &unknown).unwrap();
        assert!(objection.contains("no account yarn is found"), "{objection}");
        assert!(!own.is_known && Trust::of("root").is_known);
    }
}
