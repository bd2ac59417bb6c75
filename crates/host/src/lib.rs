//! What LRS's daemons share of the host they run on.
//!
//! [`accounts`] is for static programs, [`clock`] reads the clocks, [`log`] says where log lines go,
//! [`files`] replaces small files as a whole, [`lock`] keeps a directory for one daemon, [`spare`] looks
//! for threads and descriptors, [`trust`] says which files are believed. A crate of its own, so that
//! `lrs-yarn` has them without linking `lrsd`.

pub mod accounts;
pub mod clock;
pub mod files;
pub mod lock;
pub mod log;
pub mod spare;
pub mod trust;
