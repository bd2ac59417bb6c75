//! What the doctor says of limits of memory above the tasks, and of the memory controller.

use super::*;
use crate::core::sample::MemoryLimit;

/// Tasks below `MemoryMax=400M`, of which 330 MiB are used and 30 MiB of that are cache.
fn limited() -> Facts {
    let file = "/cg/lrs.slice/memory.max".into();
    let [limit, used, reclaimable] = [400, 330, 30].map(|mib: u64| Bytes(mib << 20));
    let found = vec![MemoryLimit { file, limit, used, reclaimable }];
    with(v2(), |facts| facts.memory_limits = MemoryLimits { found, problems: Vec::new() })
}

#[test]
fn a_limit_is_named_with_what_is_reserved_of_it() {
    use Verdict::{Fail, Ok as Fine, Warn};
    for (settings, verdict, text) in [
        (
            "",
            Fine,
            "100.0 MiB of 400.0 MiB available (the limit in /cg/lrs.slice/memory.max), \
             guard.memory_reserve is 20.0 MiB",
        ),
        ("guard.memory_reserve = \"30%\"", Warn, "no passive slot is opened now"),
        (
            "guard.memory_reserve = \"1GiB\"",
            Fail,
            "of 400.0 MiB available (the limit in /cg/lrs.slice/memory.max), \
             guard.memory_reserve is 1.0 GiB: no passive slot is ever offered",
        ),
        (
            "guard.memory_reserve = \"100MiB\"\nguard.memory_resume = \"500MiB\"",
            Warn,
            "guard.memory_resume (500.0 MiB) keeps it so",
        ),
    ] {
        let found = check(&limited(), settings, "memory");
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.found.contains(text), "{found:?}");
        if verdict == Fail {
            assert!(found.remedy.unwrap().contains("or raise /cg/lrs.slice/memory.max"));
        }
    }
}

#[test]
fn a_limit_that_cannot_be_read_is_reported() {
    let problem = String::from("cannot read /cg/memory.stat: no");
    let facts = with(v2(), |facts| facts.memory_limits.problems = vec![problem]);
    let found = check(&facts, "", "memory");
    assert_eq!(found.verdict, Verdict::Warn);
    assert!(found.found.contains("left out: cannot read /cg/memory.stat"), "{found:?}");
}

#[test]
fn what_is_not_known_without_the_memory_controller_is_reported() {
    let lacks = with(v2(), |facts| unified(facts).available = strings("cpu io"));
    const OFF: &str = "cgroup.memory_controller = false";
    for (facts, settings, text, unknown) in [
        (&v2(), "", "in the groups of tasks", false),
        (&v2(), &format!("{OFF}\ntiers.io = false"), "off, as cgroup.memory_controller says", true),
        (&lacks, "", "not available here", true),
        (&hybrid(), "", "not used on cgroup v1", true),
        (&v2(), "daemon.mode = \"observe\"", "not used: daemon.mode", true),
    ] {
        let found = check(facts, settings, "task_memory");
        assert!(found.verdict == Verdict::Ok && found.found.contains(text), "{found:?}");
        assert_eq!(found.found.contains("for want of memory is not known"), unknown, "{found:?}");
    }
    let alone = check(&v2(), OFF, "task_memory");
    assert_eq!(alone.verdict, Verdict::Warn, "{alone:?}");
    assert!(alone.remedy.unwrap().contains("set tiers.io = false too"));
    assert_eq!(
        check(&lacks, OFF, "cgroup").verdict,
        Verdict::Ok,
        "what is not wanted is not missed"
    );
}
