//! The manual pages and the completions of the packages.

use crate::lrs_place;

#[test]
fn each_command_has_a_page_and_no_hidden_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let ended = lrs_place(&["__man", path]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    let page = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    for command in ["plan", "classify", "simulate", "queue", "tables"] {
        assert!(page("lrs-place.1").contains(&format!("lrs\\-place\\-{command}(1)")), "{command}");
        assert!(page(&format!("lrs-place-{command}.1")).contains(".SH SYNOPSIS"), "{command}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 6);
    assert!(page("lrs-place.1").contains("Exit codes") && !page("lrs-place.1").contains("__"));
    assert!(page("lrs-place-plan.1").contains("\\-\\-explain"));
    assert_eq!(lrs_place(&["__man", "/nonexistent"]).code, Some(1));
}

#[test]
fn completions_offer_each_command_and_no_hidden_one() {
    for shell in ["bash", "zsh", "fish"] {
        let script = lrs_place(&["__completions", shell]).out;
        for command in ["plan", "classify", "simulate", "queue", "tables"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
        assert!(!script.contains("__man") && !script.contains("__completions"), "{shell}");
    }
}
