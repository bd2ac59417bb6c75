//! Whether `lrsctl run` may leave the unit of systemd's that it was started in.
//!
//! A task of LRS's own is moved, out of the unit and its limits, and `systemctl stop` does not
//! reach it any more. So `run` moves only where nothing of that is lost; else it stays where it
//! can, and is refused where it cannot:
//!
//! | the process is in | lost by leaving | then |
//! |---|---|---|
//! | no unit | not asked | leaves |
//! | a scope (a session, `systemd-run --scope`), no limit | nothing | leaves |
//! | a service with `KillMode=process` or `none` (cron, atd), no limit | nothing | leaves |
//! | a unit with a finite limit on the way up | the limit | stays |
//! | a service with `KillMode=control-group` or `mixed` | its stop | stays |
//!
//! | it stays | when |
//! |---|---|
//! | in place | it is alone in a leaf group with a CPU weight that the caller may have changed |
//! | in a group of its own below the unit | the unit is delegated, and gives the groups in it CPU weights |
//! | not at all: refused | otherwise; the message names the way out |
//!
//! The second table is tried from the top. Pure: `driver/keeping.rs` brings the facts.

/// What is known of a process that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The unit it is in, if it is in one.
    pub unit: Option<Unit>,
    /// The first finite limit that it would leave, in a sentence; also when that cannot be told.
    pub limit: Option<String>,
    /// No other process is in its group, and no group is below that.
    pub alone: bool,
    /// The weight of its group.
    pub weight: Weight,
    /// The group of the unit in which one for the task can be made beside its own, with the same
    /// limits above it.
    pub below: Option<String>,
    /// The caller may do all.
    pub admin: bool,
}

/// The unit a process is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name, with the type.
    pub name: String,
    /// What stopping it ends.
    pub stop: Stop,
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
    /// It is a service, and nobody said: all is assumed. In words, why.
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
    Leave,
    /// Its present group is managed as it is.
    InPlace {
        /// What would be lost otherwise, a sentence without a final stop.
        because: String,
    },
    /// It is moved into a group of its own below its unit.
    Below {
        /// The group in which that is made.
        parent: String,
        /// As above.
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
        match (self, other) {
            (Leaving::Below { parent, .. }, Leaving::Below { parent: other, .. }) => {
                parent == other
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// See the module.
pub fn decide(facts: &Facts) -> Leaving {
    let Some(unit) = &facts.unit else { return Leaving::Leave };
    let Some(because) = loss(unit, facts.limit.as_deref()) else { return Leaving::Leave };
    let obstacle = match (facts.alone, facts.weight) {
        (true, Weight::Usable) => return Leaving::InPlace { because },
        (false, _) => "it shares its cgroup with other processes, which would become the task too",
        (true, Weight::Forbidden) => {
            "managing it in place changes the weight of the unit, which takes an administrator"
        }
        (true, Weight::None) => {
            "its cgroup has no CPU weight, which a unit gets with CPUWeight=100"
        }
    };
    if let Some(parent) = &facts.below {
        return Leaving::Below { parent: parent.clone(), because };
    }
    let stays = format!("{because}; it cannot stay in {} as a task: {obstacle}", unit.name);
    // Out of a limit nobody gets by asking for it.
    if facts.limit.is_some() && !facts.admin {
        return Leaving::Deny(format!("{stays}; ask an administrator to run it"));
    }
    let alone = if !facts.alone && facts.weight == Weight::Usable {
        "make it the only process of its unit (exec lrsctl run ...), or "
    } else {
        ""
    };
    Leaving::Refuse(format!(
        "{stays}; {alone}leave the unit all the same with lrsctl run --leave-unit"
    ))
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
            unit: Some(Unit { name: "u".into(), stop }),
            limit: None,
            alone: false,
            weight: Weight::Usable,
            below: None,
            admin: true,
        }
    }

    /// The outcome in a word.
    fn word(facts: &Facts) -> &'static str {
        match decide(facts) {
            Leaving::Leave => "leave",
            Leaving::InPlace { .. } => "in place",
            Leaving::Below { .. } => "below",
            Leaving::Refuse(_) => "refuse",
            Leaving::Deny(_) => "deny",
        }
    }

    #[test]
    fn the_table() {
        let limit = || Some(LIMIT.to_owned());
        let below = || Some("/u".to_owned());
        let silent = || Stop::Assumed("systemd is silent".into());
        let none = Facts { unit: None, limit: limit(), ..facts(Stop::Everything) };
        let rows = [
            ("no unit, as ever", none.clone(), "leave"),
            ("no unit, a member", Facts { admin: false, ..none }, "leave"),
            ("a session, a scope", facts(Stop::Scope), "leave"),
            ("the same, alone", Facts { alone: true, ..facts(Stop::Scope) }, "leave"),
            ("cron", facts(Stop::MainProcess), "leave"),
            ("a script in a service", facts(Stop::Everything), "refuse"),
            ("a service alone", Facts { alone: true, ..facts(Stop::Everything) }, "in place"),
            ("nobody knows", facts(silent()), "refuse"),
            ("nobody knows, alone", Facts { alone: true, ..facts(silent()) }, "in place"),
            ("a delegated unit", Facts { below: below(), ..facts(Stop::Everything) }, "below"),
            (
                "in place goes first",
                Facts { alone: true, below: below(), ..facts(Stop::Everything) },
                "in place",
            ),
            (
                "no weight",
                Facts { alone: true, weight: Weight::None, ..facts(Stop::Everything) },
                "refuse",
            ),
            (
                "no weight, delegated",
                Facts {
                    alone: true,
                    weight: Weight::None,
                    below: below(),
                    ..facts(Stop::Everything)
                },
                "below",
            ),
            ("a limited scope", Facts { limit: limit(), ..facts(Stop::Scope) }, "refuse"),
            (
                "a limited scope, alone",
                Facts { limit: limit(), alone: true, ..facts(Stop::Scope) },
                "in place",
            ),
            ("a limited cron", Facts { limit: limit(), ..facts(Stop::MainProcess) }, "refuse"),
        ];
        for (what, facts, expected) in rows {
            assert_eq!(word(&facts), expected, "{what}: {:?}", decide(&facts));
        }
    }

    #[test]
    fn a_member_is_told_of_the_way_out_unless_a_limit_bars_it() {
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
    fn what_was_assumed_is_said() {
        let stop = Stop::Assumed("systemd is silent".into());
        for alone in [false, true] {
            let decided = decide(&Facts { alone, ..facts(stop.clone()) });
            assert!(format!("{decided:?}").contains("because systemd is silent"), "{decided:?}");
        }
    }

    #[test]
    fn places_are_compared_and_words_are_not() {
        let below = |parent: &str, because: &str| Leaving::Below {
            parent: parent.into(),
            because: because.into(),
        };
        assert!(below("/u", "a").is_like(&below("/u", "b")));
        assert!(!below("/u", "a").is_like(&below("/v", "a")));
        assert!(Leaving::Leave.is_like(&Leaving::Leave));
        assert!(!Leaving::Leave.is_like(&below("/u", "a")));
    }
}
