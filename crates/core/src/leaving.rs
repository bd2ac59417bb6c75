//! Whether a process may be moved into a group of LRS's, and what becomes of it where it may not.
//!
//! What another manager holds is never taken away: a scheduler or a container runtime finds its
//! processes by its groups, and one that was moved out survives its `scancel` or its `docker stop`.
//! So each process has a [`Holder`], found over all hierarchies that LRS moves processes in:
//!
//! | held by | it is in | it is |
//! |---|---|---|
//! | no manager | the root of each hierarchy, or LRS's own tree | moved |
//! | systemd | a login's session or a unit that is not delegated | moved, if nothing is lost |
//! | another manager | a delegated unit or below it, or any other group | in place, or partly moved, or refused |
//!
//! What is lost by leaving a unit of systemd's:
//!
//! | the process is in | lost |
//! |---|---|
//! | a scope (a session, `systemd-run --scope`), no limit | nothing |
//! | a service with `KillMode=process` or `none` (cron, atd), no limit | nothing |
//! | a unit with a finite limit on the way up | the limit |
//! | a service with `KillMode=control-group` or `mixed` | its stop |
//!
//! | it stays, or is another manager's | when |
//! |---|---|
//! | in place | its group and all below hold nothing but the task, and there is a CPU weight that the caller may have changed |
//! | moved in cpu, cpuacct and blkio alone | another manager's on v1, and it is at the root of those three |
//! | not at all: refused | otherwise; the message names who holds it, and the way out |
//!
//! The last table is tried from the top. What a rule finds is not taken in place unless the rule says
//! so. A container of YARN's leaves the unit or group of its NodeManager, whatever is lost, and no other
//! manager's scope. All there is in a unit, admitted by pid, is that unit: it stays. An administrator's `lrsctl
//! admit` moves a part out of a unit whatever is lost, and warns of it. `--leave-unit` moves whatever is
//! lost; out of another manager's group it does so for an administrator alone.
//! Pure: `crates/executor/src/keeping.rs` brings the facts.

/// What is known of a process that is to be a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Who wants it moved, and how much.
    pub wish: Wish,
    /// Who holds it.
    pub holder: Holder,
    /// The first finite limit that it would leave, in a sentence; also when that is not known.
    pub limit: Option<String>,
    /// Its group and those below hold no other process than the task's.
    pub alone: bool,
    /// The weight of its group.
    pub weight: Weight,
    /// The caller may do all.
    pub admin: bool,
}

/// Who wants a process moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// `lrsctl run`, for itself.
    Run,
    /// `lrsctl admit`, for a process that runs.
    Admit,
    /// A `[[discover]]` rule that takes what it finds into groups of LRS's.
    Rule,
    /// A container of YARN's without groups of its own: it is moved out of the unit or group of
    /// its NodeManager, which the operator has prepared for that (docs/yarn.md).
    Container,
    /// A client that wants it moved whatever is lost (`--leave-unit`).
    LeaveUnit,
}

/// Who manages the groups that a process is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// No manager: it is in the root of each hierarchy, or in LRS's own tree.
    None,
    /// systemd, in a unit that is not delegated.
    Systemd(Unit),
    /// Another manager.
    Manager(Manager),
}

/// A unit of systemd's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name, with the type.
    pub name: String,
    /// It is the session of a login.
    pub login: bool,
    /// What stopping it ends.
    pub stop: Stop,
}

/// Another manager of groups: a container runtime, a scheduler, a delegated unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    /// The delegated unit, or the topmost group: `docker`, `slurmstepd.scope`.
    pub name: String,
    /// The group the process is in, with the hierarchy where there are several: `freezer:/slurm/job_1`.
    pub group: String,
    /// On v1, it is at the root of the hierarchies of cpu, cpuacct and blkio.
    pub apart_from_weights: bool,
}

/// What `systemctl stop` of a unit ends (`KillMode=`, systemd.kill(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is a scope: whoever stops it means what is in it then.
    Scope,
    /// A service's main process alone, or none: `KillMode=process`, `none`.
    MainProcess,
    /// All that is in a service: `KillMode=control-group`, `mixed`.
    Everything,
    /// It is a service, and what stopping it ends is not known: all is assumed. In words, why.
    Assumed(String),
}

/// Whether the weight of a group can be a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It can.
    Usable,
    /// It is a unit's, and the caller may not change that (`lrs::rights`).
    Forbidden,
    /// It has none.
    None,
}

/// What becomes of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// It is moved into a group of LRS's.
    Leave {
        /// What is lost by that, a sentence without a full stop; `None`: nothing, or it was asked for.
        lost: Option<String>,
    },
    /// It is moved in the hierarchies of cpu, cpuacct and blkio, and stays where it is in all others.
    LeavePartly,
    /// Its present group is managed as it is.
    InPlace {
        /// What would be lost otherwise, a sentence without a full stop.
        because: String,
    },
    /// It is not admitted; the message says what to do.
    Refuse(String),
    /// The same, and an administrator could.
    Deny(String),
}

impl Leaving {
    /// Whether both put the process in the same place.
    pub fn is_like(&self, other: &Leaving) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// See the module.
pub fn decide(facts: &Facts) -> Leaving {
    match &facts.holder {
        Holder::None => Leaving::Leave { lost: None },
        Holder::Systemd(unit) => from_unit(facts, unit),
        Holder::Manager(manager) => from_manager(facts, manager),
    }
}

fn from_unit(facts: &Facts, unit: &Unit) -> Leaving {
    let lost = loss(unit, facts.limit.as_deref()).or_else(|| emptied(facts, unit));
    let takes_all = matches!(facts.wish, Wish::LeaveUnit | Wish::Container);
    let Some(because) = lost.filter(|_| !takes_all) else {
        return Leaving::Leave { lost: None };
    };
    match facts.wish {
        Wish::Admit if facts.admin && obstacle(facts).is_some() => {
            return Leaving::Leave { lost: Some(because) };
        }
        Wish::Rule => {
            return Leaving::Refuse(format!(
                "{because}; it stays in {}: have the rule take it in place (attach = \"in-place\")",
                unit.name
            ));
        }
        Wish::Run | Wish::Admit | Wish::Container | Wish::LeaveUnit => {}
    }
    let Some(obstacle) = obstacle(facts) else { return Leaving::InPlace { because } };
    let stays = format!("{because}; it cannot stay in {} as a task: {obstacle}", unit.name);
    // No request takes a process out of a limit.
    if facts.limit.is_some() && !facts.admin {
        return Leaving::Deny(format!("{stays}; ask an administrator to run it"));
    }
    let alone = if !facts.alone && facts.weight == Weight::Usable {
        "make it the only process of its unit (exec lrsctl run ...), or "
    } else {
        ""
    };
    Leaving::Refuse(format!("{stays}; {alone}leave the unit all the same with --leave-unit"))
}

/// What a unit loses when its only process is taken: it ends, and with it the properties that were set
/// for it. `run` execs in a unit made for it, and no program waits for the end of that unit.
fn emptied(facts: &Facts, unit: &Unit) -> Option<String> {
    let taken = facts.wish == Wish::Admit && facts.alone && !unit.login;
    let name = &unit.name;
    taken.then(|| format!("{name} would be left without a process, end, and lose its properties"))
}

fn from_manager(facts: &Facts, manager: &Manager) -> Leaving {
    let Manager { name, group, .. } = manager;
    let because = format!(
        "the process is in {group}, which is {name}'s: moved out, {name} would not find it any more"
    );
    match facts.wish {
        Wish::LeaveUnit if facts.admin => return Leaving::Leave { lost: None },
        Wish::LeaveUnit => {
            return Leaving::Deny(format!("{because}; only an administrator may take it out"));
        }
        Wish::Run | Wish::Admit if obstacle(facts).is_none() => {
            return Leaving::InPlace { because };
        }
        // The NodeManager's own: a service with `Delegate=`, or what a script made for it. A scope is
        // that of who runs the NodeManager in a container.
        Wish::Container if !name.ends_with(".scope") => return Leaving::Leave { lost: None },
        Wish::Run | Wish::Admit | Wish::Rule | Wish::Container => {}
    }
    if manager.apart_from_weights {
        return Leaving::LeavePartly;
    }
    // The service's own program is in there too, so that a rule would take both.
    let shared = name.ends_with(".service") && group.ends_with(&format!("/{name}"));
    let rule = match facts.wish {
        _ if shared => &format!(
            "no [[discover]] rule helps there: have {name} give each job a group of its own (Slurm: \
             ProctrackType=proctrack/cgroup, docs/discover.md)"
        ),
        Wish::Rule => {
            "have a rule take its group in place (attach = \"in-place\", docs/discover.md)"
        }
        _ => "have a [[discover]] rule take the jobs of that manager in place (docs/discover.md)",
    };
    let way_out = match facts.wish {
        Wish::Container => {
            "run the NodeManager in a service of systemd's (docs/yarn.md)".to_owned()
        }
        Wish::Rule => rule.to_owned(),
        _ => format!(
            "{rule}, run it outside of them, or, as an administrator, take it out with --leave-unit"
        ),
    };
    let obstacle = match (facts.wish, obstacle(facts)) {
        (Wish::Run | Wish::Admit, Some(why)) => format!("; it cannot be a task in place: {why}"),
        _ => String::new(),
    };
    Leaving::Refuse(format!("{because}{obstacle}; {way_out}"))
}

/// Why its group cannot be the task's as it is; `None`: it can.
fn obstacle(facts: &Facts) -> Option<&'static str> {
    match (facts.alone, facts.weight) {
        (true, Weight::Usable) => None,
        (false, _) => {
            Some("it shares its cgroup with other processes, which would become the task too")
        }
        (true, Weight::Forbidden) => Some(
            "managing it in place changes the weight of the unit, which takes an administrator",
        ),
        (true, Weight::None) => {
            Some("its cgroup has no CPU weight, which a unit gets with CPUWeight=100")
        }
    }
}

/// What is lost by leaving `unit`, in a sentence; `None`: nothing.
fn loss(unit: &Unit, limit: Option<&str>) -> Option<String> {
    let name = &unit.name;
    let stop = |note: &str| {
        Some(format!(
            "systemctl stop {name} ends all processes of {name}{note} and would not end one that was moved out"
        ))
    };
    match (limit, &unit.stop) {
        (Some(limit), _) => Some(limit.to_owned()),
        (None, Stop::Scope | Stop::MainProcess) => None,
        (None, Stop::Everything) => stop(""),
        (None, Stop::Assumed(why)) => {
            stop(&format!(" (KillMode=control-group is assumed, because {why})"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: &str = "process 7 is limited by memory.max = 62914560, which a move would lift";

    fn facts(stop: Stop) -> Facts {
        Facts {
            wish: Wish::Run,
            holder: Holder::Systemd(Unit { name: "u".into(), login: false, stop }),
            limit: None,
            alone: false,
            weight: Weight::Usable,
            admin: true,
        }
    }

    fn managed(wish: Wish) -> Facts {
        let (name, group) =
            ("slurmstepd.scope".into(), "/system.slice/slurmstepd.scope/job_1".into());
        let manager = Manager { name, group, apart_from_weights: false };
        Facts { wish, holder: Holder::Manager(manager), ..facts(Stop::Scope) }
    }

    fn apart(mut facts: Facts) -> Facts {
        if let Holder::Manager(manager) = &mut facts.holder {
            manager.apart_from_weights = true;
        }
        facts
    }

    /// The outcome in a word.
    fn word(facts: &Facts) -> &'static str {
        match decide(facts) {
            Leaving::Leave { lost: None } => "leave",
            Leaving::Leave { lost: Some(_) } => "leave, with a warning",
            Leaving::LeavePartly => "partly",
            Leaving::InPlace { .. } => "in place",
            Leaving::Refuse(_) => "refuse",
            Leaving::Deny(_) => "deny",
        }
    }

    fn check(rows: impl IntoIterator<Item = (&'static str, Facts, &'static str)>) {
        for (what, facts, expected) in rows {
            assert_eq!(word(&facts), expected, "{what}: {:?}", decide(&facts));
        }
    }

    #[test]
    fn out_of_a_unit_of_systemds() {
        let limit = || Some(LIMIT.to_owned());
        let silent = || Stop::Assumed("systemd is silent".into());
        let service = || facts(Stop::Everything);
        let none = Facts { holder: Holder::None, limit: limit(), ..service() };
        check([
            ("no manager's, as ever", none.clone(), "leave"),
            ("no manager's, a member", Facts { admin: false, ..none }, "leave"),
            ("a session, a scope", facts(Stop::Scope), "leave"),
            ("the same, alone", Facts { alone: true, ..facts(Stop::Scope) }, "leave"),
            ("cron", facts(Stop::MainProcess), "leave"),
            ("a script in a service", service(), "refuse"),
            ("a service alone", Facts { alone: true, ..service() }, "in place"),
            ("not known", facts(silent()), "refuse"),
            ("not known, alone", Facts { alone: true, ..facts(silent()) }, "in place"),
            ("no weight", Facts { alone: true, weight: Weight::None, ..service() }, "refuse"),
            ("a limited scope", Facts { limit: limit(), ..facts(Stop::Scope) }, "refuse"),
            (
                "a limited scope, alone",
                Facts { limit: limit(), alone: true, ..facts(Stop::Scope) },
                "in place",
            ),
            ("a limited cron", Facts { limit: limit(), ..facts(Stop::MainProcess) }, "refuse"),
            ("asked to leave", Facts { wish: Wish::LeaveUnit, ..service() }, "leave"),
            ("an admin's admit", Facts { wish: Wish::Admit, ..service() }, "leave, with a warning"),
            (
                "an admin's admit of all that is in a service",
                Facts { wish: Wish::Admit, alone: true, ..service() },
                "in place",
            ),
            (
                "an admin's admit of all that is in a scope",
                Facts { wish: Wish::Admit, alone: true, ..facts(Stop::Scope) },
                "in place",
            ),
            (
                "the same, without a weight",
                Facts {
                    wish: Wish::Admit,
                    alone: true,
                    weight: Weight::None,
                    ..facts(Stop::Scope)
                },
                "leave, with a warning",
            ),
            (
                "an admin's admit out of a session",
                Facts { wish: Wish::Admit, ..facts(Stop::Scope) },
                "leave",
            ),
            ("a member's admit", Facts { wish: Wish::Admit, admin: false, ..service() }, "refuse"),
            ("a rule, cron", Facts { wish: Wish::Rule, ..facts(Stop::MainProcess) }, "leave"),
            (
                "a rule, a service alone",
                Facts { wish: Wish::Rule, alone: true, ..service() },
                "refuse",
            ),
            ("a container of YARN's", Facts { wish: Wish::Container, ..service() }, "leave"),
        ]);
    }

    #[test]
    fn out_of_the_hands_of_another_manager() {
        let alone = |wish| Facts { alone: true, ..managed(wish) };
        let member = |facts| Facts { admin: false, ..facts };
        check([
            ("run in a job", managed(Wish::Run), "refuse"),
            ("run alone in a group", alone(Wish::Run), "in place"),
            ("the same, a member", member(alone(Wish::Run)), "in place"),
            ("admit of all that is in a group", alone(Wish::Admit), "in place"),
            ("admit, shared", managed(Wish::Admit), "refuse"),
            ("admit by an admin too, shared", managed(Wish::Admit), "refuse"),
            ("no weight", Facts { weight: Weight::None, ..alone(Wish::Run) }, "refuse"),
            ("a rule with groups of its own", alone(Wish::Rule), "refuse"),
            ("v1, weights apart", apart(managed(Wish::Run)), "partly"),
            ("v1, weights apart, a rule", apart(managed(Wish::Rule)), "partly"),
            ("an admin's override", managed(Wish::LeaveUnit), "leave"),
            ("a member's", member(managed(Wish::LeaveUnit)), "deny"),
            ("a member's, weights apart", apart(member(managed(Wish::LeaveUnit))), "deny"),
            ("a container of YARN's in a scope", managed(Wish::Container), "refuse"),
            ("the same, weights apart", apart(managed(Wish::Container)), "partly"),
        ]);
        let of = |wish, name: &str| {
            let group = format!("/system.slice/{name}");
            let manager = Manager { name: name.into(), group, apart_from_weights: false };
            Facts { holder: Holder::Manager(manager), ..managed(wish) }
        };
        check([
            ("a delegated NodeManager", of(Wish::Container, "yarn.service"), "leave"),
            ("a NodeManager without systemd", of(Wish::Container, "hadoop"), "leave"),
            ("a rule's process in it", of(Wish::Rule, "yarn.service"), "refuse"),
        ]);
        let limit = Facts { limit: Some(LIMIT.into()), ..managed(Wish::Run) };
        check([("limit or not", limit, "refuse")]);
    }

    #[test]
    fn a_refusal_names_who_holds_the_process_and_the_way_out() {
        for wish in [Wish::Run, Wish::Admit, Wish::Rule, Wish::Container] {
            let Leaving::Refuse(text) = decide(&managed(wish)) else { panic!("{wish:?}") };
            assert!(text.contains("slurmstepd.scope/job_1"), "{text}");
            assert!(text.contains("slurmstepd.scope's"), "{text}");
            let page = if wish == Wish::Container { "docs/yarn.md" } else { "docs/discover.md" };
            assert!(text.contains(page), "{text}");
            let asked = matches!(wish, Wish::Run | Wish::Admit);
            assert_eq!(text.contains("--leave-unit"), asked, "{text}");
        }
    }

    /// slurmd with proctrack/linuxproc on v2.
    #[test]
    fn a_refusal_in_the_group_of_the_service_itself_advises_no_rule() {
        let name = "slurmd.service";
        for wish in [Wish::Run, Wish::Admit, Wish::Rule] {
            for group in [format!("/system.slice/{name}"), format!("cpu:/system.slice/{name}")] {
                let manager = Manager { name: name.into(), group, apart_from_weights: false };
                let Leaving::Refuse(text) =
                    decide(&Facts { holder: Holder::Manager(manager), ..managed(wish) })
                else {
                    panic!("{wish:?}")
                };
                assert!(text.contains("no [[discover]] rule helps there"), "{text}");
                assert!(text.contains("have slurmd.service give each job a group"), "{text}");
                assert_eq!(text.contains("--leave-unit"), wish != Wish::Rule, "{text}");
                assert!(!text.contains("in place (") && !text.contains("attach ="), "{text}");
            }
        }
    }

    #[test]
    fn a_member_reads_the_way_out_unless_a_limit_bars_it() {
        let member = Facts { admin: false, ..facts(Stop::Everything) };
        let forbidden = Facts { alone: true, weight: Weight::Forbidden, ..member.clone() };
        for facts in [&member, &forbidden] {
            let Leaving::Refuse(text) = decide(facts) else { panic!("{facts:?}") };
            assert!(text.contains("--leave-unit"), "{text}");
        }
        for facts in [member, forbidden] {
            let facts = Facts { limit: Some(LIMIT.into()), ..facts };
            let Leaving::Deny(text) = decide(&facts) else { panic!("{facts:?}") };
            assert!(!text.contains("--leave-unit") && text.contains(LIMIT), "{text}");
        }
    }

    #[test]
    fn what_was_assumed_is_in_the_answer() {
        let stop = Stop::Assumed("systemd is silent".into());
        for alone in [false, true] {
            let decided = decide(&Facts { alone, ..facts(stop.clone()) });
            assert!(format!("{decided:?}").contains("because systemd is silent"), "{decided:?}");
        }
    }

    #[test]
    fn places_are_compared_and_words_are_not() {
        let because = |text: &str| Leaving::InPlace { because: text.into() };
        assert!(because("a").is_like(&because("b")));
        let leave = || Leaving::Leave { lost: None };
        assert!(leave().is_like(&Leaving::Leave { lost: Some("a limit".into()) }));
        assert!(!leave().is_like(&Leaving::LeavePartly) && !leave().is_like(&because("a")));
    }
}
