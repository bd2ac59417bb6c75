//! What the command lines of LRS share: data on stdout, talk on stderr, and how a command ends.
//!
//! `lrsctl` and `lrs-bench` print the same kinds of tables and end with the same codes. This crate
//! knows nothing of lrsd and of the network.

mod failure;
pub mod figures;
mod output;

pub use failure::{Exit, Failure};
pub use output::{
    Captured, Column, Columns, Output, printable, say, say_lines, takes_ascii_only, wrap,
};
