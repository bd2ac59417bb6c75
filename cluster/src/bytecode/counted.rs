//! Loops with a number of rounds that is in the bytecode: `for (int i = 0; i < 1000; i++)`.
//!
//! Such a loop tests a variable against a constant where it ends, adds a constant to the variable
//! in one place, sets it nowhere else within, and sets it to a constant before. A `break` may end
//! it sooner: the longest path has all rounds.

use std::collections::{BTreeMap, BTreeSet};

use noak::reader::attributes::RawInstruction;
use noak::reader::cpool::{ConstantPool, Item};

use crate::bytecode::flow::Edge;

/// What an instruction does to a variable of type int, or with a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Push(i32),
    Load(u16),
    Store(u16),
    Add(u16, i32),
    /// Compares two numbers, and jumps or goes on.
    Compare,
    /// Compares a number with 0, and jumps or goes on.
    CompareZero,
    Other,
}

impl Does {
    pub(crate) fn of(instruction: &RawInstruction<'_>, pool: &ConstantPool<'_>) -> Does {
        use RawInstruction as R;
        let constant = |item: Result<&Item<'_>, _>| match item {
            Ok(Item::Integer(number)) => Does::Push(number.value),
            Ok(_) | Err(_) => Does::Other,
        };
        match instruction {
            R::IConstM1 => Does::Push(-1),
            R::IConst0 => Does::Push(0),
            R::IConst1 => Does::Push(1),
            R::IConst2 => Does::Push(2),
            R::IConst3 => Does::Push(3),
            R::IConst4 => Does::Push(4),
            R::IConst5 => Does::Push(5),
            R::BIPush { value } => Does::Push(i32::from(*value)),
            R::SIPush { value } => Does::Push(i32::from(*value)),
            R::LdC { index } => constant(pool.get(*index)),
            R::LdCW { index } => constant(pool.get(*index)),
            R::ILoad { index } => Does::Load(u16::from(*index)),
            R::ILoadW { index } => Does::Load(*index),
            R::ILoad0 => Does::Load(0),
            R::ILoad1 => Does::Load(1),
            R::ILoad2 => Does::Load(2),
            R::ILoad3 => Does::Load(3),
            R::IStore { index } => Does::Store(u16::from(*index)),
            R::IStoreW { index } => Does::Store(*index),
            R::IStore0 => Does::Store(0),
            R::IStore1 => Does::Store(1),
            R::IStore2 => Does::Store(2),
            R::IStore3 => Does::Store(3),
            R::IInc { index, value } => Does::Add(u16::from(*index), i32::from(*value)),
            R::IIncW { index, value } => Does::Add(*index, i32::from(*value)),
            R::IfICmpEq { .. }
            | R::IfICmpGe { .. }
            | R::IfICmpGt { .. }
            | R::IfICmpLe { .. }
            | R::IfICmpLt { .. }
            | R::IfICmpNe { .. } => Does::Compare,
            R::IfEq { .. }
            | R::IfGe { .. }
            | R::IfGt { .. }
            | R::IfLe { .. }
            | R::IfLt { .. }
            | R::IfNe { .. } => Does::CompareZero,
            _ => Does::Other,
        }
    }
}

/// What the instructions of a method do to variables, by the numbers of the instructions.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    tests: BTreeMap<u32, Test>,
    added: BTreeMap<u32, (u16, i32)>,
    stored: BTreeMap<u32, u16>,
}

/// A variable that is compared with a constant.
#[derive(Debug)]
struct Test {
    variable: u16,
    /// From the constant that it was set to last, in the order of the method, to this one.
    way: i64,
    next: Vec<u32>,
}

impl Counting {
    /// Of all instructions in the order of the method; one that nothing leads to has no number.
    pub(crate) fn new(does: &[(Option<u32>, Does)], edges: &[(u32, u32, Edge)]) -> Counting {
        let mut counting = Counting::default();
        let mut set: BTreeMap<u16, Option<i32>> = BTreeMap::new();
        for (place, (number, what)) in does.iter().enumerate() {
            let Some(number) = *number else { continue };
            let before = |by: usize| place.checked_sub(by).map(|place| does[place].1);
            let (variable, limit) = match (before(2), before(1), *what) {
                (Some(Does::Load(variable)), Some(Does::Push(limit)), Does::Compare) => {
                    (variable, limit)
                }
                (_, Some(Does::Load(variable)), Does::CompareZero) => (variable, 0),
                (_, _, Does::Add(variable, by)) => {
                    counting.added.insert(number, (variable, by));
                    continue;
                }
                (_, pushed, Does::Store(variable)) => {
                    let constant = match pushed {
                        Some(Does::Push(value)) => Some(value),
                        _ => None,
                    };
                    set.insert(variable, constant);
                    counting.stored.insert(number, variable);
                    continue;
                }
                _ => continue,
            };
            if let Some(first) = set.get(&variable).copied().flatten() {
                let way = i64::from(limit) - i64::from(first);
                counting.tests.insert(number, Test { variable, way, next: Vec::new() });
            }
        }
        for (from, to, _) in edges {
            if let Some(test) = counting.tests.get_mut(from) {
                test.next.push(*to);
            }
        }
        counting
    }

    /// How often a loop of these instructions runs.
    pub(crate) fn rounds(&self, instructions: &[u32]) -> Option<u64> {
        if self.tests.is_empty() || self.added.is_empty() {
            return None;
        }
        let within: BTreeSet<u32> = instructions.iter().copied().collect();
        let stored: BTreeSet<u16> =
            within.iter().filter_map(|at| self.stored.get(at)).copied().collect();
        // None: added to in two places.
        let mut added: BTreeMap<u16, Option<i64>> = BTreeMap::new();
        for (variable, by) in within.iter().filter_map(|at| self.added.get(at)) {
            let by = Some(i64::from(*by));
            added.entry(*variable).and_modify(|by| *by = None).or_insert(by);
        }
        let tests = within.iter().filter_map(|at| self.tests.get(at));
        let ends = tests.filter(|test| test.next.iter().any(|next| !within.contains(next)));
        ends.filter_map(|test| {
            let by = added.get(&test.variable).copied().flatten()?;
            // The other way round it ends by an overflow, or counts nothing.
            let counts =
                by != 0 && test.way.signum() == by.signum() && !stored.contains(&test.variable);
            counts.then(|| test.way.unsigned_abs().div_ceil(by.unsigned_abs()))
        })
        .min()
    }
}
