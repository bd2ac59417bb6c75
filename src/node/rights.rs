//! Who may do what, by the settings and the accounts of the node.

use crate::config::{Auto, Config};
use crate::core::model::Priority;
use crate::rights::Rights;

/// Who may do what, from the settings and the node's groups.
pub fn rights(config: &Config) -> Rights {
    let lrs_gid = match nix::unistd::Group::from_name("lrs") {
        Ok(group) => group.map(|group| group.gid.as_raw()),
        Err(errno) => {
            tracing::warn!("cannot look up group lrs ({errno}): only admins may ask for slots");
            None
        }
    };
    // Whoever runs a private daemon may replace it; telling it what to do is less.
    let mut admins = config.grpc.admins.clone();
    admins.push(rustix::process::geteuid().as_raw());
    let max_user_priority = Priority(config.slots.max_user_priority);
    let reservation_ttl_max = config.slots.reservation_ttl_max;
    let integrations = integrations(config);
    Rights { admins, integrations, lrs_gid, max_user_priority, reservation_ttl_max }
}

/// The account of the package's own integration.
const OWN_INTEGRATION: &str = "lrs-yarn";

fn integrations(config: &Config) -> Vec<u32> {
    let found = match &config.grpc.integrations {
        Auto::Fixed(uids) => return uids.clone(),
        Auto::Auto => nix::unistd::User::from_name(OWN_INTEGRATION),
    };
    let found = found.inspect_err(|errno| {
        tracing::warn!(
            "cannot look up the account {OWN_INTEGRATION} ({errno}): only admins may speak for a \
             scheduler"
        );
    });
    found.ok().flatten().map(|user| user.uid.as_raw()).into_iter().collect()
}
