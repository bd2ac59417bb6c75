//! The class of Hadoop's map and reduce programs, predicted from their bytecode.
//!
//! A job that has never run has no computing rate. The thesis (2.4.1.1) predicts one from the
//! control-flow graph of the map or reduce method: programs with a long longest path compute,
//! programs with a short one wait for their input. [`jar`] reads the classes of a jar,
//! [`program`] finds the map and reduce methods and what they call, [`flow`] has the longest path.
//!
//! The thesis gives the thresholds. It does not say how loops, calls and recursion are
//! counted; here
//!
//! - length is the number of bytecode instructions on the path;
//! - a loop counts once, with its longest pass, whatever follows it;
//! - a call counts one, and the longest path of the called method where the jar has it: the
//!   method that the static type names, or, where that one has no body, the longest of those that
//!   implement it. Calls into Java and Hadoop count one, also in a jar that contains them;
//! - methods that call each other in a circle count once each: a call inside the circle counts one;
//! - exception handlers, lambdas and static initialisers are not followed.
//!
//! Limits: what a job reads, how much, and what its libraries do is not in its bytecode, so the
//! prediction is for a job that was never measured. Jars inside the jar are not opened. The
//! sizes of what is read are bounded ([`jar::Limits`], [`program::MAX_CODE`]): a jar cannot make
//! this run long or use much memory.

mod code;
pub mod flow;
pub mod jar;
pub mod program;

#[cfg(test)]
mod tests;

pub use jar::{Fault, Limits};
pub use program::{Predicted, Program};
