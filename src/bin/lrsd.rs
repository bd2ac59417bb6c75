//! `lrsd`, the daemon.

fn main() -> std::process::ExitCode {
    lrs::daemon::lrsd()
}
