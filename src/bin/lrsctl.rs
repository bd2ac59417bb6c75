//! The command line; everything is in [`lrs::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    lrs::cli::main()
}
