//! Reading what the kernel says in files: procfs, sysfs and cgroupfs.
//!
//! [`files`] reads them, keeping those of the hot path open; [`parse`] makes numbers of their text;
//! [`process`] is a process's own files, [`name`] what becomes of a name that is no UTF-8.
//! The applier and the sampler both stand on it. Limits: nothing here writes, and nothing knows
//! what a task is.

pub mod files;
pub mod parse;
pub mod process;

pub use crate::core::name;
