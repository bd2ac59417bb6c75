//! Which tasks are shown, and in which order.

use std::cmp::Ordering;

use crate::figures::{Row, Who};

/// What tasks are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // they are columns
pub enum SortKey {
    Tier,
    Id,
    User,
    Priority,
    Class,
    Rate,
    Cpu,
    Write,
    Read,
    Memory,
    Age,
    Name,
}

impl SortKey {
    /// All, with their names.
    pub const ALL: [(SortKey, &'static str); 12] = [
        (SortKey::Tier, "tier, then admission"),
        (SortKey::Id, "id (admission)"),
        (SortKey::User, "user"),
        (SortKey::Priority, "priority"),
        (SortKey::Class, "class"),
        (SortKey::Rate, "computing rate"),
        (SortKey::Cpu, "CPU"),
        (SortKey::Write, "bytes written"),
        (SortKey::Read, "bytes read"),
        (SortKey::Memory, "memory"),
        (SortKey::Age, "age"),
        (SortKey::Name, "name"),
    ];

    fn greatest_first(self) -> bool {
        use SortKey::{Age, Cpu, Memory, Priority, Rate, Read, Write};
        matches!(self, Priority | Rate | Cpu | Write | Read | Memory | Age)
    }
}

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// By what.
    pub key: SortKey,
    /// The greatest first.
    pub descending: bool,
}

impl Sort {
    /// In the direction that people mean by it.
    pub fn by(key: SortKey) -> Sort {
        Sort { key, descending: key.greatest_first() }
    }

    /// What is not known comes last in either direction; equal ones by admission.
    pub fn compare(self, one: &Row, other: &Row) -> Ordering {
        let directed = |order: Ordering| if self.descending { order.reverse() } else { order };
        let order = match self.key {
            SortKey::User => directed(one.who.user.cmp(&other.who.user)),
            SortKey::Name => directed(one.who.title.cmp(&other.who.title)),
            key => match (number(one, key), number(other, key)) {
                (Some(one), Some(other)) => directed(one.total_cmp(&other)),
                (one, other) => other.is_some().cmp(&one.is_some()),
            },
        };
        order.then(one.who.serial.cmp(&other.who.serial))
    }
}

// Exact up to 2^53.
#[allow(clippy::cast_precision_loss)]
fn number(row: &Row, key: SortKey) -> Option<f64> {
    match key {
        SortKey::Tier => row.active.map(|active| if active { 0.0 } else { 1.0 }),
        SortKey::Priority => row.priority.map(f64::from),
        SortKey::Class => Some(f64::from(row.class)),
        SortKey::Rate => row.rate.map(f64::from),
        SortKey::Cpu => row.cpu.map(f64::from),
        SortKey::Write => row.write.map(f64::from),
        SortKey::Read => row.read.map(f64::from),
        SortKey::Memory => row.resident.map(|bytes| bytes as f64),
        SortKey::Age => row.elapsed.map(f64::from),
        SortKey::Id | SortKey::User | SortKey::Name => Some(row.who.serial as f64),
    }
}

/// What a filter lets through: each of its words is in the id, user, name or flags, or in what the word
/// before a colon says. Upper and lower case are the same.
pub fn matches(filter: &str, who: &Who, flags: &str, tier: Option<&str>) -> bool {
    filter.split_whitespace().map(str::to_lowercase).all(|word| match word.split_once(':') {
        Some(("job", job)) => names(&who.job, job),
        Some(("user", user)) => names(&who.user, user),
        Some(("tier", wanted)) => tier.is_some_and(|tier| tier.starts_with(wanted)),
        _ => who.search.contains(&word) || flags.contains(&word),
    })
}

/// Whether a name has `part` in it, or with `=` before it is that.
fn names(name: &str, part: &str) -> bool {
    let name = name.to_lowercase();
    part.strip_prefix('=').map_or_else(|| name.contains(part), |whole| name == whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_of_a_filter_has_to_match() {
        let who = Who {
            job: "Nightly".into(),
            user: "ann".into(),
            search: "t1-7 ann nightly/map x".into(),
            ..Who::default()
        };
        for (filter, shown) in [
            ("", true),
            ("NIGHT", true),
            ("night starves", true),
            ("night lane", false),
            ("job:night user:ANN tier:a", true),
            ("job:other", false),
            ("job:=nightly", true),
            ("job:=night", false),
            ("tier:passive", false),
            ("user:", true),
            ("other:thing", false),
        ] {
            assert_eq!(matches(filter, &who, "starves", Some("active")), shown, "{filter:?}");
        }
        assert!(!matches("tier:", &who, "", None), "it is not known");
    }
}
