//! What an error of the kernel means for an operator.

use std::{fmt, io};

/// errno(3), the same on every architecture of Linux.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// An error of a system call with, where a limit was reached, which one and how it is raised.
#[derive(Clone, Copy, Debug)]
pub struct Explained<'e>(pub &'e io::Error);

impl fmt::Display for Explained<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = match self.0.raw_os_error() {
            Some(EMFILE) => ": out of file descriptors; raise LimitNOFILE= of lrsd.service",
            Some(ENFILE) => ": the node is out of file descriptors; raise fs.file-max",
            _ => "",
        };
        write!(f, "{}{limit}", self.0)
    }
}
