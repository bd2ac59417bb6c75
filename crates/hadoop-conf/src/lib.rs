//! What LRS reads of a node's Hadoop configuration.
//!
//! lrsd's finder, `lrsctl doctor` and lrs-yarn read the same files, so they share one reader:
//! [`properties`] has the rules of Hadoop's XML, [`site`] the typed answers, [`trust`] which files
//! count, [`node_id`] what the ResourceManager calls a node.

pub mod node_id;
pub mod properties;
pub mod site;
pub mod trust;

pub use node_id::{NodeId, NotANodeId};
pub use site::{Site, SiteError};
pub use trust::Trust;
