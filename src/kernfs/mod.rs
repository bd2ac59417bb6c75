//! Reading what the kernel says in files: procfs, sysfs and cgroupfs.
//!
//! [`files`] reads them, keeping those of the hot path open; [`parse`] makes numbers of their text.
//! The applier and the sampler both stand on it. Limits: nothing here writes, and nothing knows
//! what a task is.

pub mod files;
pub mod parse;
