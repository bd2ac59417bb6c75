//! The class of Hadoop's map and reduce programs, predicted from their bytecode.
//!
//! A job that has never run has no computing rate. The thesis (2.4.1.1) predicts one from the
//! control-flow graph of the map or reduce method: programs with a long longest path compute,
//! programs with a short one wait for their input. [`jar`] reads the classes of a jar,
//! [`program`] finds the map and reduce classes and the methods that a task runs, `reach` what
//! these call, `flow` the longest path, `predicted` the class.
//!
//! The thesis gives the thresholds. It does not say how loops, calls and recursion are
//! counted; here
//!
//! - length is the number of bytecode instructions on the path, of map or reduce, and of what a task
//!   runs once: `setup` and `cleanup`, `configure` and `close`;
//! - a loop counts once, with its longest pass. Beside the path, a loop that counts from a constant
//!   to a constant is multiplied (`counted`), and loops inside loops are counted;
//! - a call counts one, and the longest path of what it may run, which is also the body of a lambda.
//!   On the object itself that is the method of the class asked about; elsewhere any of the classes
//!   below the named one;
//! - methods that call each other in a circle count once each: a call inside the circle counts one;
//! - an exception handler begins where its `try` does.
//!
//! What is not followed makes a short path a lower bound, of which nothing follows: a method in no
//! jar, native, by reflection, by an `invokedynamic` that is not Java's own, and what Java and
//! Hadoop do (`known`); a loop or a circle without a count; one method of several. It is named.
//!
//! Limits: what a job reads and how much is not in its bytecode, so the prediction is for a job
//! that was never measured. Static initialisers and constructors that only the framework calls are
//! not followed. A call on the object itself is one that names the object's class or one above it: another
//! object of such a class is taken for it. The sizes of what is read are bounded
//! ([`jar::Limits`], [`program::MAX_CODE`]): a jar cannot make this run long or use much memory.

mod class;
mod code;
mod counted;
mod evidence;
mod flow;
pub mod jar;
mod known;
mod predicted;
pub mod program;
mod reach;

#[cfg(test)]
mod tests;

pub use jar::{Fault, Limits};
pub use predicted::{Kind, Predicted, Predicts};
pub use program::Program;
