//! A suite as written in its file; `docs/bench.md` has every key. What a key may be is in its
//! type ([`super::values`]), what keys mean together is in [`super::read`].

use std::collections::BTreeMap;

use lrs_testbed::data::Kind;
use serde::Deserialize;
use toml::{Spanned, Value};

use super::Arrival;
use super::values::{Absolute, Count, DAY, Line, Name, Number, Size, Time, Whole};
use crate::record::LoadClass;

/// Keys of lrsd, each with its place.
pub(super) type Table = BTreeMap<Spanned<String>, Value>;

pub(super) type Rounds = Whole<1, 1000>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Option<Name>,
    pub(super) about: Option<Line>,
    pub(super) rounds: Option<Rounds>,
    pub(super) time_limit: Option<Time<1_000, DAY>>,
    pub(super) seed: Option<Whole<0, 4_294_967_295>>,
    #[serde(default)]
    pub(super) programs: Vec<String>,
    pub(super) space: Option<Size>,
    pub(super) space_per_core: Option<Size>,
    pub(super) directory: Option<Absolute>,
    pub(super) quick: Option<Quick>,
    pub(super) disk: Option<Spanned<Disk>>,
    pub(super) lrsd: Option<Spanned<Table>>,
    #[serde(default)]
    pub(super) data: Vec<Spanned<Data>>,
    #[serde(default)]
    pub(super) load: Vec<Spanned<Load>>,
    #[serde(default)]
    pub(super) setting: Vec<Spanned<Setting>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quick {
    pub(super) rounds: Option<Rounds>,
    pub(super) scale: Option<Number<1, 1_000>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Disk {
    pub(super) size: Option<Size>,
    pub(super) size_per_core: Option<Size>,
    pub(super) bandwidth: Option<Size>,
    pub(super) seek: Option<Time<0, 1_000>>,
    pub(super) scheduler: Option<Name>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Data {
    pub(super) name: Option<Name>,
    pub(super) parts: Option<Spanned<Count>>,
    pub(super) kind: Option<Kind>,
    pub(super) size: Option<Size>,
    pub(super) command: Option<Spanned<Vec<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Load {
    pub(super) name: Option<Name>,
    pub(super) class: Option<LoadClass>,
    pub(super) about: Option<Line>,
    pub(super) check: Option<Spanned<Vec<String>>>,
    #[serde(default)]
    pub(super) tasks: Vec<Spanned<GroupTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupTable {
    pub(super) name: Option<Name>,
    pub(super) kind: Option<Line>,
    pub(super) job: Option<Line>,
    pub(super) count: Option<Spanned<Count>>,
    pub(super) command: Option<Spanned<Vec<String>>>,
    pub(super) priority: Option<i32>,
    pub(super) arrival: Option<Arrival>,
    pub(super) start: Option<Time<0, DAY>>,
    #[serde(default)]
    pub(super) after: Vec<String>,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, Spanned<String>>,
    pub(super) directory: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setting {
    pub(super) name: Option<Line>,
    pub(super) about: Option<Line>,
    pub(super) slots: Option<Whole<1, 4096>>,
    pub(super) slots_per_core: Option<Number<10, 100_000>>,
    pub(super) how: Option<Word>,
    pub(super) lrs: Option<Spanned<Table>>,
}

/// `how`
#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Word {
    Process,
    Cgroup,
    Alone,
}
