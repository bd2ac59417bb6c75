//! What `--verbose` adds; the rest of the output is [`lrs_term`].

use std::fmt::Arguments;

pub(crate) use lrs_term::{Column, Columns, Output, printable, say, say_lines, wrap};

/// How much to say on stderr.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    /// `--verbose`.
    pub verbose: bool,
}

impl Talk {
    /// Written only with `--verbose`.
    pub fn detail(self, text: Arguments<'_>) {
        if self.verbose {
            say(format_args!("lrsctl: {text}"));
        }
    }
}
