//! Joining a YARN node: Hadoop is not changed, LRS looks, shapes and tells the ResourceManager.
//!
//! [`rm`] is the side that talks: to the NodeManager's and the ResourceManager's web services.

pub mod rm;
