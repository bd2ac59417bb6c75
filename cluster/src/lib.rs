//! The cluster half of LRS: which waiting task goes to which node, and what becomes of a cluster so.
//!
//! LRS shapes one node. This package is for those who write or compare schedulers: it needs no daemon
//! and no rights, and no node needs it, so a plain `cargo build` leaves it out. The program is
//! `lrs-place`; docs/placement.md is its manual. cluster/README.md says where to start.
//!
//! | module | what | command |
//! |---|---|---|
//! | [`placement`] | the policies of LRS's sources, pure | `plan` |
//! | [`bytecode`] | the class of a Hadoop program that has not run yet | `classify` |
//! | [`simulation`] | whole clusters around the policies, from a seed | `simulate`, `tables`, `queue` |
//!
//! A node with LRS in a simulated cluster is that of [`lrs_sim::pretend`], with lrsd's own loop. Nothing
//! here reads a clock or writes a file but the commands (`src/cli`); a jar is read by
//! [`bytecode::jar`] alone.

pub mod bytecode;
pub mod placement;
pub mod simulation;
