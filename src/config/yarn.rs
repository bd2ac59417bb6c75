//! `[yarn]`: the settings, and the part of the table of keys that reads them.

use std::path::PathBuf;
use std::time::Duration;

use super::Auto;
use super::schema::{Applies, Key, list, show_list};
use super::value::{self, because};
use crate::units::Bytes;
use lrs_hadoop_conf::{NodeId, NotANodeId};

/// `[yarn]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Yarn {
    /// Whether this node is a YARN node whose containers are to become tasks.
    pub enabled: bool,
    /// Where yarn-site.xml and core-site.xml are.
    pub conf_dir: PathBuf,
    /// Local directories of all node managers; auto: yarn.nodemanager.local-dirs.
    pub local_dirs: Auto<Vec<PathBuf>>,
    /// Base addresses of the ResourceManagers' web services; auto: from yarn-site.xml.
    pub resource_managers: Auto<Vec<String>>,
    /// Base address of the NodeManager's web services; auto: from yarn-site.xml.
    pub node_manager: Auto<String>,
    /// The node as the ResourceManager knows it, `host:port`; auto: asked of the NodeManager.
    pub node_id: Auto<NodeId>,
    /// Whether slots are offered to the ResourceManager.
    pub offer: bool,
    /// How the offer gets there.
    pub offer_by: OfferBy,
    /// The command of `offer_by = "rmadmin"`, without the arguments LRS adds.
    pub rmadmin: Vec<String>,
    /// Memory offered for one slot more.
    pub slot_memory: Bytes,
    /// Vcores offered for one slot more.
    pub slot_vcores: u32,
    /// Who the node-resource call is by where the ResourceManager does not ask for a proof.
    pub user: String,
    /// Certificates to trust with https, PEM; auto: those of the system.
    pub ca_file: Auto<PathBuf>,
    /// How often the ResourceManager and the NodeManager are read.
    pub poll: Duration,
    /// How long one call may take.
    pub timeout: Duration,
}

/// `yarn.offer_by`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferBy {
    /// The node-resource call of the ResourceManager's web services (3.3.0 and later).
    Rest,
    /// `yarn rmadmin -updateNodeResource` (2.8 and later).
    Rmadmin,
}

impl Default for Yarn {
    fn default() -> Yarn {
        Yarn {
            enabled: false,
            conf_dir: PathBuf::from("/etc/hadoop/conf"),
            local_dirs: Auto::Auto,
            resource_managers: Auto::Auto,
            node_manager: Auto::Auto,
            node_id: Auto::Auto,
            offer: false,
            offer_by: OfferBy::Rest,
            rmadmin: vec![String::from("yarn"), String::from("rmadmin")],
            slot_memory: Bytes(1 << 30),
            slot_vcores: 1,
            user: String::from("yarn"),
            ca_file: Auto::Auto,
            poll: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
        }
    }
}

const OFFER_BY: &[(&str, OfferBy)] = &[("rest", OfferBy::Rest), ("rmadmin", OfferBy::Rmadmin)];

/// Most entries of a list; more are a mistake.
const MAX_DIRS: usize = 256;
const MAX_MANAGERS: usize = 16;
const MAX_ARGUMENTS: usize = 64;

/// The keys of `[yarn]`.
pub(super) static KEYS: &[Key] = &[
    Key {
        path: "yarn.enabled",
        doc: "Whether containers of the YARN NodeManagers on this node become tasks. Hadoop is \
              not changed; docs/yarn.md is the runbook.",
        range: "true or false",
        applies: Applies::Restart,
        read: |v, c| {
            c.yarn.enabled = value::boolean(v)?;
            Ok(())
        },
        write: |c| c.yarn.enabled.to_string(),
    },
    Key {
        path: "yarn.conf_dir",
        doc: "Hadoop's configuration: yarn-site.xml and core-site.xml. What stands below as \
              \"auto\" is read there.",
        range: "an absolute path",
        applies: Applies::Restart,
        read: |v, c| {
            c.yarn.conf_dir = value::directory(v)?;
            Ok(())
        },
        write: |c| value::show_text(&c.yarn.conf_dir.to_string_lossy()),
    },
    Key {
        path: "yarn.local_dirs",
        doc: "Local directories of the NodeManagers; containers are noticed in nmPrivate below \
              them. With several NodeManagers, those of all. \"auto\": \
              yarn.nodemanager.local-dirs.",
        range: "\"auto\" or a list of 1 to 256 absolute paths",
        applies: Applies::Restart,
        read: |v, c| {
            c.yarn.local_dirs = match v.get_ref().as_str() {
                Some("auto") => Auto::Auto,
                _ => Auto::Fixed(list(v, 1..=MAX_DIRS, value::directory)?),
            };
            Ok(())
        },
        write: |c| {
            value::show_auto(&c.yarn.local_dirs, |dirs| {
                show_list(dirs, |dir| value::show_text(&dir.to_string_lossy()))
            })
        },
    },
    Key {
        path: "yarn.resource_managers",
        doc: "Web addresses of the ResourceManagers, all of them where there are several; the \
              active one is found. \"auto\": from yarn-site.xml.",
        range: "\"auto\" or a list of 1 to 16 addresses \"http://host:8088\"",
        applies: Applies::Restart,
        read: |v, c| {
            c.yarn.resource_managers = match v.get_ref().as_str() {
                Some("auto") => Auto::Auto,
                _ => Auto::Fixed(list(v, 1..=MAX_MANAGERS, web_address)?),
            };
            Ok(())
        },
        write: |c| {
            value::show_auto(&c.yarn.resource_managers, |urls| {
                show_list(urls, |url| value::show_text(url))
            })
        },
    },
    Key {
        path: "yarn.node_manager",
        doc: "Web address of the NodeManager whose node the offer is for. \"auto\": from \
              yarn-site.xml.",
        range: "\"auto\" or an address \"http://localhost:8042\"",
        applies: Applies::Restart,
        read: |v, c| {
            c.yarn.node_manager = value::auto(v, web_address)?;
            Ok(())
        },
        write: |c| value::show_auto(&c.yarn.node_manager, |url| value::show_text(url)),
    },
    Key {
        path: "yarn.node_id",
        doc: "The node as the ResourceManager knows it. \"auto\": the NodeManager says, so that \
              a port it takes at random is followed; its host has to be this node. Required with several NodeManagers.",
        range: "\"auto\" or \"host:port\"",
        applies: Applies::Restart,
        read: |v, c| {
            c.yarn.node_id = value::auto(v, node_id)?;
            Ok(())
        },
        write: |c| value::show_auto(&c.yarn.node_id, |id| value::show_text(id.as_str())),
    },
    Key {
        path: "yarn.offer",
        doc: "Whether the ResourceManager is told of expanded slots: the configured memory and \
              vcores plus, for each slot open beyond the base, slot_memory and slot_vcores. Off, \
              LRS shapes the containers there are. Nothing is offered in observe mode.",
        range: "true or false",
        applies: Applies::Live,
        read: |v, c| {
            c.yarn.offer = value::boolean(v)?;
            Ok(())
        },
        write: |c| c.yarn.offer.to_string(),
    },
    Key {
        path: "yarn.offer_by",
        doc: "\"rest\": the ResourceManager's node-resource call (Hadoop 3.3 and later). \
              \"rmadmin\": the command below, for older ones and for Kerberos.",
        range: "\"rest\" or \"rmadmin\"",
        applies: Applies::Restart,
        read: |v, c| {
            c.yarn.offer_by = value::choice(v, OFFER_BY)?;
            Ok(())
        },
        write: |c| value::show_choice(&c.yarn.offer_by, OFFER_BY),
    },
    Key {
        path: "yarn.rmadmin",
        doc: "The command of offer_by = \"rmadmin\", run without a shell; LRS adds \
              -updateNodeResource and its arguments. Put what gets a ticket before it, for \
              example k5start. The packaged service can start no Java machine itself: \
              docs/yarn.md has the command with systemd-run.",
        range: "a list of 1 to 64 words",
        applies: Applies::Restart,
        read: |v, c| {
            c.yarn.rmadmin = command(v)?;
            Ok(())
        },
        write: |c| show_list(&c.yarn.rmadmin, |word| value::show_text(word)),
    },
    Key {
        path: "yarn.slot_memory",
        doc: "Memory offered for each slot beyond the base: what a container of the usual size \
              asks for. What is configured and offered together is at most MemTotal less \
              guard.memory_reserve.",
        range: "a size up to \"1TiB\", whole mebibytes",
        applies: Applies::Live,
        read: |v, c| {
            let Bytes(bytes) = value::size(v)?;
            if !bytes.is_multiple_of(1 << 20) || bytes > 1 << 40 {
                Err(value::Rejection::OutOfRange)?;
            }
            c.yarn.slot_memory = Bytes(bytes);
            Ok(())
        },
        write: |c| value::show_memory_amount(crate::units::MemoryAmount::Bytes(c.yarn.slot_memory)),
    },
    Key {
        path: "yarn.slot_vcores",
        doc: "Vcores offered for each slot beyond the base, also where no memory is left to \
              offer. They count only where the scheduler looks at vcores \
              (DominantResourceCalculator, or the policy DRF of the FairScheduler).",
        range: "0..=1024",
        applies: Applies::Live,
        read: |v, c| {
            c.yarn.slot_vcores = value::integer(v, 0..=1024)?;
            Ok(())
        },
        write: |c| c.yarn.slot_vcores.to_string(),
    },
    Key {
        path: "yarn.user",
        doc: "Who the node-resource call is made by (user.name) where the ResourceManager asks \
              for no proof. It has to be in the ResourceManager's yarn.admin.acl, or the user that \
              one runs as. Hadoop's configuration files may belong to this user or to root, and \
              nobody else may be able to write them.",
        range: "a name of letters, digits, \"_\", \"-\" and \".\", at most 64",
        applies: Applies::Restart,
        read: |v, c| {
            let name = value::text(v)?;
            let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
            if name.is_empty() || name.len() > 64 || !name.bytes().all(fits) {
                Err(value::Rejection::OutOfRange)?;
            }
            c.yarn.user = name.to_owned();
            Ok(())
        },
        write: |c| value::show_text(&c.yarn.user),
    },
    Key {
        path: "yarn.ca_file",
        doc: "Certificates to trust with https, as PEM. \"auto\": those of the system.",
        range: "\"auto\" or an absolute path",
        applies: Applies::Restart,
        read: |v, c| {
            c.yarn.ca_file = value::auto(v, value::directory)?;
            Ok(())
        },
        write: |c| {
            value::show_auto(&c.yarn.ca_file, |path| value::show_text(&path.to_string_lossy()))
        },
    },
    Key {
        path: "yarn.poll",
        doc: "How often the ResourceManager and the NodeManager are read: for priorities, \
              queues, execution types and whether the offer still stands.",
        range: "a duration from \"1s\" to \"1h\"",
        applies: Applies::Live,
        read: |v, c| {
            let range = Duration::from_secs(1)..=Duration::from_secs(3600);
            c.yarn.poll = value::duration(v, range)?;
            Ok(())
        },
        write: |c| value::show_duration(c.yarn.poll),
    },
    Key {
        path: "yarn.timeout",
        doc: "How long one call of theirs, or one run of rmadmin, may take.",
        range: "a duration from \"100ms\" to \"5m\"",
        applies: Applies::Live,
        read: |v, c| {
            let range = Duration::from_millis(100)..=Duration::from_secs(300);
            c.yarn.timeout = value::duration(v, range)?;
            Ok(())
        },
        write: |c| value::show_duration(c.yarn.timeout),
    },
];

/// `http://host:port` or https, without a path, a query or credentials.
fn web_address(node: &value::Node<'_>) -> value::Taken<String> {
    let written = value::text(node)?;
    let Some(rest) = written.strip_prefix("http://").or_else(|| written.strip_prefix("https://"))
    else {
        return because("has neither http:// nor https:// before it", "write it as a web address");
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':' | b'[' | b']');
    if authority.is_empty() || !authority.bytes().all(fits) {
        return because(
            "is not a scheme, a host and a port alone",
            "write it as \"http://host:8088\", without a path or a user",
        );
    }
    Ok(written.strip_suffix('/').unwrap_or(written).to_owned())
}

/// `host:port` as in the ResourceManager's list of nodes.
fn node_id(node: &value::Node<'_>) -> value::Taken<NodeId> {
    value::text(node)?.parse().map_err(|_: NotANodeId| value::Rejection::OutOfRange)
}

/// A program and its arguments, which may repeat.
fn command(node: &value::Node<'_>) -> value::Taken<Vec<String>> {
    let items = node.get_ref().as_array().ok_or(value::Rejection::OutOfRange)?;
    let words: Vec<String> = items.iter().map(word).collect::<Result<_, _>>()?;
    let fits = (1..=MAX_ARGUMENTS).contains(&words.len());
    fits.then_some(words).ok_or(value::Rejection::OutOfRange)
}

/// An argument of a command.
fn word(node: &value::Node<'_>) -> value::Taken<String> {
    let written = value::text(node)?;
    if written.is_empty() || written.chars().any(char::is_control) {
        return Err(value::Rejection::OutOfRange);
    }
    Ok(written.to_owned())
}
