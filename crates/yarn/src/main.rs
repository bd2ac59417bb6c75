//! `lrs-yarn`; everything is in [`lrs_yarn`].

fn main() -> std::process::ExitCode {
    lrs_yarn::main()
}
