//! Joining a Hadoop node that does not know of LRS (spec 8).
//!
//! Nothing of Hadoop is changed, linked or called on the node: what it writes for itself is read.
//! That is its configuration ([`site`]), and what the node manager leaves on disk and in /proc
//! when it starts a container.

pub mod hadoop_conf;
pub mod site;
