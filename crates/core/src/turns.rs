//! The order of those that wait: by priority; within a priority the users take turns; within a user by who
//! asked first.
//!
//! Users take turns so that many requests of one keep no other user's back. A user who begins to wait comes
//! behind those that wait already, and one who was served goes behind them all. So between two grants to
//! one user each other that waited at the same priority all the time has at least one grant, and exactly
//! one where the first waited all the time too. A first request waits for at most one grant to each other
//! user of its priority. Slots that only tasks that wait may have (`shaper/opening.rs`) are the exception: a
//! request that computes is passed over.
//!
//! What is kept of a user is the number of the last grant before it came or was served: its *turn*. Nothing
//! is kept of users that do not wait. Of equal turns the one that asked first is first: so it is after a
//! restart of the daemon, when all come back with turn 0.
//!
//! Limits. Turns are not stored: one that was served just before a restart may be the first after it. One
//! that leaves and asks again comes behind those that wait.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_set};
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::model::{Priority, Ticket};
use crate::units::WallTime;

/// When one first asked; of two at once the one that came first.
pub(super) type Arrival = (WallTime, Ticket);

/// Where a request is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub priority: Priority,
    /// The user of the task that it is going to be.
    pub uid: u32,
    pub arrival: Arrival,
}

/// The request that is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub priority: Priority,
    pub uid: u32,
    pub arrival: Arrival,
}

/// All that wait.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Turns {
    classes: BTreeMap<Reverse<Priority>, Class>,
    /// Grants so far.
    granted: u64,
}

/// Those of one priority.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Class {
    users: BTreeMap<u32, User>,
    /// The first request of each user, in the order in which they are served.
    heads: BTreeSet<Head>,
}

/// Turn, first request, uid.
type Head = (u64, Arrival, u32);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct User {
    turn: u64,
    waiting: BTreeSet<Arrival>,
}

impl User {
    fn head(&self, uid: u32) -> Option<Head> {
        self.waiting.first().map(|first| (self.turn, *first, uid))
    }
}

impl Class {
    /// Changes what is known of a user, and forgets one that waits no more.
    fn change(&mut self, uid: u32, turn: u64, change: impl FnOnce(&mut User)) {
        let user = self.users.entry(uid).or_insert_with(|| User { turn, ..User::default() });
        if let Some(head) = user.head(uid) {
            self.heads.remove(&head);
        }
        change(user);
        match user.head(uid) {
            Some(head) => {
                self.heads.insert(head);
            }
            None => {
                self.users.remove(&uid);
            }
        }
    }

    fn order(&self) -> Rounds<'_> {
        Rounds { class: self, heads: self.heads.iter(), others: VecDeque::new() }
    }
}

impl Turns {
    pub fn insert(&mut self, place: Place) {
        let class = self.classes.entry(Reverse(place.priority)).or_default();
        class.change(place.uid, self.granted, |user| {
            user.waiting.insert(place.arrival);
        });
    }

    pub fn remove(&mut self, place: Place) {
        let Some(class) = self.classes.get_mut(&Reverse(place.priority)) else { return };
        class.change(place.uid, self.granted, |user| {
            user.waiting.remove(&place.arrival);
        });
        if class.users.is_empty() {
            self.classes.remove(&Reverse(place.priority));
        }
    }

    /// One of this user's was granted, and is removed.
    pub fn served(&mut self, priority: Priority, uid: u32) {
        self.granted = self.granted.saturating_add(1);
        let turn = self.granted;
        if let Some(class) = self.classes.get_mut(&Reverse(priority)) {
            class.change(uid, turn, |user| user.turn = turn);
        }
    }

    /// The one that is next.
    pub fn first(&self) -> Option<Next> {
        let (Reverse(priority), class) = self.classes.first_key_value()?;
        let (_, arrival, uid) = *class.heads.first()?;
        Some(Next { priority: *priority, uid, arrival })
    }

    /// The user who is next of those that are not `uid`, and at which priority.
    pub fn first_of_others(&self, uid: u32) -> Option<(Priority, u32)> {
        self.classes.iter().find_map(|(Reverse(priority), class)| {
            let mut uids = class.heads.iter().map(|(.., uid)| *uid);
            Some((*priority, uids.find(|other| *other != uid)?))
        })
    }

    /// Those that wait; one who does at several priorities more than once.
    pub fn users(&self) -> impl Iterator<Item = u32> {
        self.classes.values().flat_map(|class| class.users.keys().copied())
    }

    /// All of a user at a priority, the earliest first, behind `after`.
    pub fn of_user(
        &self,
        priority: Priority,
        uid: u32,
        after: Option<Arrival>,
    ) -> impl Iterator<Item = Arrival> {
        let class = self.classes.get(&Reverse(priority));
        let user = class.and_then(|class| class.users.get(&uid));
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        user.into_iter().flat_map(move |user| user.waiting.range(range).copied())
    }

    /// All, in the order in which they are served if none comes or leaves.
    pub fn order(&self) -> impl Iterator<Item = Arrival> {
        self.classes.values().flat_map(Class::order)
    }

    /// Whether these are listed and no others, and the first of each user is known.
    pub fn lists(&self, places: impl Iterator<Item = Place>) -> bool {
        let mut listed = BTreeSet::new();
        for (Reverse(priority), class) in &self.classes {
            let mut heads = BTreeSet::new();
            for (uid, user) in &class.users {
                let Some(head) = user.head(*uid) else { return false };
                heads.insert(head);
                let place = |arrival| Place { priority: *priority, uid: *uid, arrival };
                listed.extend(user.waiting.iter().copied().map(place));
            }
            if heads.is_empty() || heads != class.heads {
                return false;
            }
        }
        listed == places.collect()
    }

    /// Grants so far.
    pub fn granted(&self) -> u64 {
        self.granted
    }
}

/// Those of a class: the first request of each user, then the second ones, and so on.
struct Rounds<'a> {
    class: &'a Class,
    heads: btree_set::Iter<'a, Head>,
    others: VecDeque<btree_set::Iter<'a, Arrival>>,
}

impl Iterator for Rounds<'_> {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        if let Some((_, first, uid)) = self.heads.next() {
            let mut own = self.class.users.get(uid)?.waiting.iter();
            own.next();
            self.others.push_back(own);
            return Some(*first);
        }
        while let Some(mut own) = self.others.pop_front() {
            if let Some(next) = own.next() {
                self.others.push_back(own);
                return Some(*next);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(priority: i32, uid: u32, number: u64) -> Place {
        let since = WallTime::from_unix_micros(i64::try_from(number).unwrap());
        let arrival = (since, Ticket(number));
        Place { priority: Priority(priority), uid, arrival }
    }

    fn serve(turns: &mut Turns) -> Option<Next> {
        let first = turns.first()?;
        let Next { priority, uid, arrival } = first;
        turns.remove(Place { priority, uid, arrival });
        turns.served(priority, uid);
        Some(first)
    }

    fn numbers(turns: &Turns) -> Vec<u64> {
        turns.order().map(|(_, ticket)| ticket.0).collect()
    }

    #[test]
    fn two_hundred_of_one_user_do_not_keep_another_back() {
        let mut turns = Turns::default();
        (0..200).for_each(|number| turns.insert(place(0, 1, number)));
        turns.insert(place(0, 2, 200));
        assert_eq!(numbers(&turns)[..3], [0, 200, 1]);
        turns.insert(place(1, 1, 201));
        assert_eq!(numbers(&turns)[..3], [201, 0, 200], "a higher priority comes first");
    }

    #[test]
    fn a_user_that_asks_again_at_once_is_not_served_again_at_once() {
        let mut turns = Turns::default();
        (0..3).for_each(|number| turns.insert(place(0, 1, number)));
        turns.insert(place(0, 2, 3));
        turns.insert(place(0, 3, 4));
        let mut served = Vec::new();
        for number in 5..11 {
            let first = serve(&mut turns).unwrap();
            served.push(first.uid);
            // This one never has more than one request.
            if first.uid == 2 {
                turns.insert(place(0, 2, number));
            }
        }
        assert_eq!(served, [1, 2, 3, 1, 2, 1]);
    }

    #[derive(Clone, Copy, Debug)]
    enum Happens {
        Comes { uid: u32, priority: i32 },
        Leaves(usize),
        Served,
    }

    fn happens() -> impl Strategy<Value = Happens> {
        prop_oneof![
            4 => (0..4u32, 0..2i32).prop_map(|(uid, priority)| Happens::Comes { uid, priority }),
            1 => any::<usize>().prop_map(Happens::Leaves),
            4 => Just(Happens::Served),
        ]
    }

    proptest! {
        #[test]
        fn users_take_turns_and_each_is_served_as_it_came(
            all in prop::collection::vec(happens(), 1..200),
        ) {
            let mut turns = Turns::default();
            let mut waiting: Vec<Place> = Vec::new();
            // Of each user and priority, the grants to others since its own last one, or since it
            // began to wait; `true`: it has been served.
            let mut since: BTreeMap<(i32, u32), (bool, BTreeMap<u32, u32>)> = BTreeMap::new();
            for (number, happens) in (0..).zip(all) {
                match happens {
                    Happens::Comes { uid, priority } => {
                        let place = place(priority, uid, number);
                        waiting.push(place);
                        turns.insert(place);
                        since.entry((priority, uid)).or_default();
                    }
                    Happens::Leaves(pick) if !waiting.is_empty() => {
                        let gone = waiting.remove(pick % waiting.len());
                        turns.remove(gone);
                    }
                    Happens::Leaves(_) => {}
                    Happens::Served => {
                        let shown = turns.order().next();
                        let first = turns.first();
                        prop_assert_eq!(shown, first.map(|first| first.arrival));
                        let Some(first) = first else { continue };
                        let highest = waiting.iter().map(|place| place.priority).max();
                        prop_assert_eq!(Some(first.priority), highest);
                        let own = |place: &&Place| {
                            place.uid == first.uid && place.priority == first.priority
                        };
                        let earliest = waiting.iter().filter(own).map(|place| place.arrival).min();
                        prop_assert_eq!(Some(first.arrival), earliest);
                        serve(&mut turns);
                        waiting.retain(|place| place.arrival != first.arrival);
                        for ((priority, uid), (_, others)) in &mut since {
                            if *priority == first.priority.0 && *uid != first.uid {
                                *others.entry(first.uid).or_default() += 1;
                            }
                        }
                        since.insert((first.priority.0, first.uid), (true, BTreeMap::new()));
                    }
                }
                // Nothing is known of who waits no more.
                let waits = |key: &(i32, u32)| {
                    waiting.iter().any(|place| (place.priority.0, place.uid) == *key)
                };
                since.retain(|key, _| waits(key));
                for (key, (_, others)) in &since {
                    let most = others.values().max().copied().unwrap_or(0);
                    prop_assert!(most <= 1, "{key:?} waits, and another was served {most} times");
                }
                prop_assert_eq!(turns.order().count(), waiting.len());
                prop_assert_eq!(turns.classes.values().map(|c| c.users.len()).sum::<usize>(), since.len());
            }
            // What is shown is what happens, if nothing else does.
            let shown = numbers(&turns);
            let mut served = Vec::new();
            while let Some(first) = serve(&mut turns) {
                served.push(first.arrival.1.0);
            }
            prop_assert_eq!(served, shown);
        }
    }
}
