//! Joining a Hadoop node that does not know of LRS (spec 8).
//!
//! Nothing of Hadoop is changed or linked: what it writes for itself on the node is read, and its
//! web services are called. That is its configuration ([`site`]), what the node manager leaves on
//! disk and in /proc when it starts a container, and [`rm`], the ResourceManager, which is told of
//! slots.

pub mod hadoop_conf;
pub mod rm;
pub mod site;
