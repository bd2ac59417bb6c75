//! `lrs-place`: the placement policies, the classifier and the simulated clusters of [`lrs_place`].

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
