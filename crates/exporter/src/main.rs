//! `lrs-exporter`; everything is in [`lrs_exporter`].

fn main() -> std::process::ExitCode {
    lrs_exporter::main()
}
