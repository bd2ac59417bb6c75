//! The command line; everything is in [`lrs_bench`].

use std::process::ExitCode;

fn main() -> ExitCode {
    lrs_bench::main()
}
