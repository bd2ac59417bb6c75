//! No lrsd may panic, whatever a test looked at. `tests/panics` is the same for shell scripts.

/// For the `drop` of whatever ran an lrsd, with all that it has logged. Of a test that fails
/// already, it shows the log.
pub fn none_in(log: &str) {
    if std::thread::panicking() {
        eprintln!("--- log of lrsd ---\n{log}");
    } else {
        assert!(!log.contains("panicked"), "lrsd panicked:\n{log}");
    }
}
