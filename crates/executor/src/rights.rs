//! Who may do what (spec 5, "Rights").
//!
//! | role | who | may |
//! |---|---|---|
//! | admin | uid 0, `[grpc] admins` | everything |
//! | integration | `[grpc] integrations` | what a member may; pass on what its scheduler says of containers, and report how that goes |
//! | member | group `lrs`, supplementary membership included | read; ask for slots and act on tasks, waits and reservations of its own uid, with priorities up to `slots.max_user_priority` and reservations up to `slots.reservation_ttl_max`; no unit of systemd's: its weight is systemd's, even where its processes are the caller's |
//! | reader | everybody else on the node | read |
//!
//! Pure: the loop looks up who owns the process, task or reservation and asks here, in the
//! same turn in which it carries the command out. An owner that is not known (its record was
//! lost) has none, so only an admin may touch it. To use a reservation at admission is two
//! questions: [`Action::Admit`] with the owner of the process and [`Action::ActOnReservation`]
//! with the owner of the reservation.

use std::fmt;
use std::time::Duration;

pub use crate::command::Role;
use crate::command::{Caller, CommandError, ErrorKind};
use lrs_core::model::Priority;

/// What a caller wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Any reading call.
    Read,
    /// Put a process into a slot; the owner is the uid of the process.
    Admit {
        /// As asked for; `None` counts as 0.
        priority: Option<Priority>,
    },
    /// Promise a slot; it will be the caller's own.
    Reserve {
        /// As asked for.
        priority: Priority,
        /// As asked for; `None`: as the settings have it.
        ttl: Option<Duration>,
    },
    /// Release a task.
    ActOnTask,
    /// Give a task another priority.
    SetPriority {
        /// The new one. The old one does not matter: an owner may lower what an admin raised.
        priority: Priority,
    },
    /// Cancel or use a reservation.
    ActOnReservation,
    /// End the wait of a request; the owner is the uid of its process.
    ActOnWaiter,
    /// Admit a unit of systemd's, or a process in place of one.
    ShapeUnit,
    /// Tell what a scheduler says: Hint and ReportIntegration.
    Integrate,
    /// Drain, resume, reload.
    Operate,
    /// Have the tiers tested.
    TestTiers,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Read => "read",
            Action::Admit { .. } => "admit a process",
            Action::Reserve { .. } => "reserve a slot",
            Action::ActOnTask => "release a task",
            Action::SetPriority { .. } => "change a priority",
            Action::ActOnReservation => "use or cancel a reservation",
            Action::ActOnWaiter => "end the wait of a request",
            Action::ShapeUnit => "shape a unit of systemd's",
            Action::Integrate => "speak for a scheduler",
            Action::Operate => "drain, resume, reload or record",
            Action::TestTiers => "have the tiers tested",
        })
    }
}

/// The settings rights follow from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// `[grpc] admins`. Uid 0 needs no entry. The uid a private daemon runs as belongs here:
    /// it can replace that daemon anyway.
    pub admins: Vec<u32>,
    /// `[grpc] integrations`
    pub integrations: Vec<u32>,
    /// Group `lrs`; `None`: this node has no such group.
    pub lrs_gid: Option<u32>,
    /// `slots.max_user_priority`.
    pub max_user_priority: Priority,
    /// `slots.reservation_ttl_max`.
    pub reservation_ttl_max: Duration,
}

impl Rights {
    /// The role of `caller`: by the table, or what it was granted if that is more.
    pub fn role(&self, caller: &Caller) -> Role {
        caller.granted.unwrap_or(Role::Reader).max(self.own_role(caller))
    }

    fn own_role(&self, caller: &Caller) -> Role {
        if caller.uid == 0 || self.admins.contains(&caller.uid) {
            Role::Admin
        } else if self.integrations.contains(&caller.uid) {
            Role::Integration
        } else if self.lrs_gid.is_some_and(|gid| caller.gids.contains(&gid)) {
            Role::Member
        } else {
            Role::Reader
        }
    }

    /// Whether `caller` may do `action` to something of `owner` (a uid). `owner` is not
    /// looked at for [`Action::Read`], [`Action::Reserve`], [`Action::ShapeUnit`] and
    /// [`Action::Operate`].
    ///
    /// # Errors
    /// `PermissionDenied`; the message says which right is missing and how to get it.
    pub fn check(
        &self,
        caller: &Caller,
        action: Action,
        owner: Option<u32>,
    ) -> Result<(), CommandError> {
        match (self.role(caller), action) {
            (Role::Admin, _) | (_, Action::Read) => Ok(()),
            (Role::Integration, Action::Integrate) => Ok(()),
            (Role::Reader | Role::Member, Action::Integrate) => Err(denied(format!(
                "uid {} may not {action}: that takes root or a uid listed in [grpc] integrations",
                caller.uid
            ))),
            (_, Action::Operate | Action::TestTiers) => Err(denied(format!(
                "uid {} may not {action}: that takes root or a uid listed in [grpc] admins",
                caller.uid
            ))),
            (Role::Reader, _) => Err(self.only_reading(caller, action)),
            (Role::Member | Role::Integration, Action::ShapeUnit) => Err(denied(format!(
                "uid {} may not {action}: its weight counts against its neighbours', so that takes \
                 root or a uid listed in [grpc] admins; a process of one's own can be admitted by \
                 pid, not in place",
                caller.uid
            ))),
            (Role::Member | Role::Integration, Action::Admit { priority }) => {
                own(caller, "the process", action, owner)?;
                self.within_range(caller, priority.unwrap_or_default())
            }
            (role @ (Role::Member | Role::Integration), Action::Reserve { priority, ttl }) => {
                if role == Role::Member {
                    self.short_enough(caller, ttl)?;
                }
                self.within_range(caller, priority)
            }
            (Role::Member | Role::Integration, Action::SetPriority { priority }) => {
                own(caller, "the task", action, owner)?;
                self.within_range(caller, priority)
            }
            (Role::Member | Role::Integration, Action::ActOnTask) => {
                own(caller, "the task", action, owner)
            }
            (Role::Member | Role::Integration, Action::ActOnReservation) => {
                own(caller, "the reservation", action, owner)
            }
            (Role::Member | Role::Integration, Action::ActOnWaiter) => {
                own(caller, "the process that waits", action, owner)
            }
        }
    }

    fn within_range(&self, caller: &Caller, priority: Priority) -> Result<(), CommandError> {
        if priority <= self.max_user_priority {
            return Ok(());
        }
        Err(denied(format!(
            "uid {} may set priorities up to {}, not {priority}: ask for less, ask an admin, or \
             have slots.max_user_priority raised",
            caller.uid, self.max_user_priority
        )))
    }

    fn short_enough(&self, caller: &Caller, ttl: Option<Duration>) -> Result<(), CommandError> {
        let longest = self.reservation_ttl_max;
        if ttl.is_none_or(|ttl| ttl <= longest) {
            return Ok(());
        }
        Err(denied(format!(
            "uid {} may reserve for up to {}: give a shorter ttl and reserve again before it \
             ends, ask an admin, or have slots.reservation_ttl_max raised",
            caller.uid,
            lrs_config::duration_text(longest)
        )))
    }

    fn only_reading(&self, caller: &Caller, action: Action) -> CommandError {
        let remedy = match self.lrs_gid {
            Some(gid) => format!(
                "join group lrs (gid {gid}; `usermod -aG lrs USER`, then log in again), be listed \
                 in [grpc] admins, or be root"
            ),
            None => "this node has no group lrs: create it (`groupadd --system lrs`), join it and \
                     restart lrsd, be listed in [grpc] admins, or be root"
                .to_owned(),
        };
        denied(format!("uid {} may only read, not {action}: {remedy}", caller.uid))
    }
}

/// Members act on what is theirs.
fn own(
    caller: &Caller,
    what: &str,
    action: Action,
    owner: Option<u32>,
) -> Result<(), CommandError> {
    let owned = match owner {
        Some(owner) if owner == caller.uid => return Ok(()),
        Some(owner) => format!("belongs to uid {owner}"),
        None => "has no known owner".to_owned(),
    };
    Err(denied(format!(
        "uid {} may not {action} here: {what} {owned}; its owner, root or a uid listed in [grpc] \
         admins may",
        caller.uid
    )))
}

fn denied(message: String) -> CommandError {
    CommandError::new(ErrorKind::PermissionDenied, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LRS: u32 = 990;

    fn rights() -> Rights {
        Rights {
            admins: vec![7],
            integrations: vec![8],
            lrs_gid: Some(LRS),
            max_user_priority: Priority(5),
            reservation_ttl_max: Duration::from_secs(600),
        }
    }

    fn caller(uid: u32, gids: &[u32]) -> Caller {
        Caller {
            uid,
            gids: gids.to_vec(),
            process: crate::command::CallerProcess::Unseen,
            granted: None,
        }
    }

    #[test]
    fn roles() {
        let table = [
            (caller(0, &[0]), Role::Admin),
            (caller(7, &[7]), Role::Admin),
            (caller(7, &[7, LRS]), Role::Admin),
            (caller(8, &[LRS]), Role::Integration),
            (caller(8, &[8]), Role::Integration),
            (caller(1000, &[LRS]), Role::Member),
            (caller(1000, &[1000, 4, LRS]), Role::Member),
            (caller(1000, &[1000, 0]), Role::Reader),
            (caller(LRS, &[1000]), Role::Reader),
        ];
        for (caller, role) in table {
            assert_eq!(rights().role(&caller), role, "{caller:?}");
        }
        let no_group = Rights { lrs_gid: None, ..rights() };
        assert_eq!(no_group.role(&caller(1000, &[LRS])), Role::Reader);
    }

    #[test]
    fn a_grant_adds_and_never_takes_away() {
        for (uid, own) in [(0, Role::Admin), (2000, Role::Reader)] {
            for granted in [None, Some(Role::Reader), Some(Role::Member), Some(Role::Admin)] {
                let caller = Caller { granted, ..caller(uid, &[]) };
                let expected = granted.map_or(own, |granted| granted.max(own));
                assert_eq!(rights().role(&caller), expected, "{caller:?}");
            }
        }
    }

    /// Every (role, action), each with own, foreign and unknown owner.
    #[test]
    fn every_role_and_action() {
        let (low, high) = (Priority(5), Priority(6));
        // (action, may a member with: own, foreign, unknown owner)
        let table = [
            (Action::Read, [true, true, true]),
            (Action::Admit { priority: None }, [true, false, false]),
            (Action::Admit { priority: Some(low) }, [true, false, false]),
            (Action::Admit { priority: Some(high) }, [false, false, false]),
            (Action::Reserve { priority: low, ttl: None }, [true, true, true]),
            (Action::Reserve { priority: high, ttl: None }, [false, false, false]),
            (Action::ActOnTask, [true, false, false]),
            (Action::SetPriority { priority: low }, [true, false, false]),
            (Action::SetPriority { priority: Priority(i32::MIN) }, [true, false, false]),
            (Action::SetPriority { priority: high }, [false, false, false]),
            (Action::SetPriority { priority: Priority(i32::MAX) }, [false, false, false]),
            (Action::ActOnReservation, [true, false, false]),
            (Action::ShapeUnit, [false, false, false]),
            (Action::Integrate, [false, false, false]),
            (Action::Operate, [false, false, false]),
            (Action::TestTiers, [false, false, false]),
        ];
        let (root, admin, member, reader) =
            (caller(0, &[0]), caller(7, &[7]), caller(1000, &[1000, LRS]), caller(2000, &[2000]));
        let integration = caller(8, &[8]);
        for (action, member_may) in table {
            for (who, expected) in [
                (&root, [true; 3]),
                (&admin, [true; 3]),
                (&integration, if action == Action::Integrate { [true; 3] } else { member_may }),
                (&member, member_may),
                (&reader, [action == Action::Read; 3]),
            ] {
                for (owner, expected) in [Some(who.uid), Some(1), None].into_iter().zip(expected) {
                    let answer = rights().check(who, action, owner);
                    assert_eq!(answer.is_ok(), expected, "{who:?} {action:?} {owner:?}");
                    if let Err(error) = answer {
                        assert_eq!(error.kind, ErrorKind::PermissionDenied);
                    }
                }
            }
        }
    }

    #[test]
    fn a_members_reservation_is_short() {
        let reserve = |seconds| Action::Reserve {
            priority: Priority(0),
            ttl: Some(Duration::from_secs(seconds)),
        };
        let answer = |who: &Caller, seconds| rights().check(who, reserve(seconds), None);
        let member = caller(1000, &[LRS]);
        assert_eq!(answer(&member, 600), Ok(()));
        let error = answer(&member, 601).expect_err("too long");
        assert!(error.message.contains("up to 10m"), "{}", error.message);
        assert_eq!(error.kind, ErrorKind::PermissionDenied);
        for other in [caller(0, &[]), caller(7, &[]), caller(8, &[])] {
            assert_eq!(answer(&other, 24 * 3600), Ok(()), "{other:?}");
        }
    }

    #[test]
    fn absent_priority_is_zero_and_can_be_too_much() {
        let strict = Rights { max_user_priority: Priority(-1), ..rights() };
        let member = caller(1000, &[LRS]);
        let error = strict.check(&member, Action::Admit { priority: None }, Some(1000));
        assert!(error.is_err_and(|error| error.message.contains("up to -1, not 0")));
    }

    #[test]
    fn messages_say_what_is_missing_and_how_to_get_it() {
        let message = |rights: &Rights, caller: &Caller, action, owner| {
            rights.check(caller, action, owner).expect_err("must be refused").message
        };
        let reader = caller(2000, &[2000]);
        let text = message(&rights(), &reader, Action::ActOnTask, Some(2000));
        assert!(text.contains("usermod -aG lrs"), "{text}");
        let no_group = Rights { lrs_gid: None, ..rights() };
        let text = message(&no_group, &reader, Action::ActOnTask, Some(2000));
        assert!(text.contains("groupadd --system lrs"), "{text}");
        let member = caller(1000, &[LRS]);
        let text = message(&rights(), &member, Action::ActOnTask, Some(3));
        assert!(text.contains("belongs to uid 3"), "{text}");
        for caller in [&member, &reader] {
            let text = message(&rights(), caller, Action::Operate, None);
            assert!(text.contains("[grpc] admins") && !text.contains("usermod"), "{text}");
        }
    }
}
