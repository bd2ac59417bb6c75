//! `[[setting]]` and `[lrsd]`, and the settings of a suite that names none.
//!
//! Keys of lrsd are not known here: lrsd judges them ([`super::Judge`]), each setting's together
//! with those of `[lrsd]`.

use std::collections::BTreeMap;

use lrs_testbed::private::RESERVED;
use toml::{Spanned, Value};

use super::file::{self, Table, Word};
use super::reader::SuiteReader;
use super::{How, Setting};
use crate::record::SettingKind;

/// Keys of lrsd: path, value as TOML.
type Keys = Vec<(String, String)>;

/// Where in the file keys of lrsd stand.
type Places = BTreeMap<String, usize>;

/// Slots per core of the default static settings, as the sources compare them.
const PER_CORE: [f64; 3] = [1.0, 1.5, 2.0];

/// The settings of the suite, `[lrsd]` below those that take a daemon.
pub(super) fn read(
    reader: &mut SuiteReader<'_>,
    lrsd: Option<Spanned<Table>>,
    tables: Vec<Spanned<file::Setting>>,
) -> Vec<Setting> {
    let faults = reader.faults.count();
    let base = lrsd.map_or_else(Keys::new, |table| {
        let (keys, places) = keys(reader, "lrsd", &table);
        judge(reader, "lrsd", table.span().start, &keys, &places);
        keys
    });
    // What does not fit in [lrsd] is reported once, not for each setting over it.
    let base_fits = reader.faults.count() == faults;
    if tables.is_empty() {
        return defaults(&base, reader.cpus);
    }
    reader.unique("setting.name", &tables, |table| Some(&table.name.as_ref()?.0));
    let mut settings: Vec<Setting> = Vec::new();
    for table in tables {
        let at = table.span().start;
        let Some((setting, places)) = setting(reader, table, &base) else { continue };
        if let How::Daemon { keys, slots } = &setting.how
            && base_fits
        {
            let name = if slots.is_some() { "setting" } else { "setting.lrs" };
            judge(reader, name, at, keys, &places);
        }
        settings.push(setting);
    }
    name_references(&mut settings);
    settings
}

/// The first of LRS is what others are compared with; who has the same keys is the same again.
pub(super) fn name_references(settings: &mut [Setting]) {
    let mut reference: Option<Keys> = None;
    for setting in settings {
        let How::Daemon { keys, slots: None } = &setting.how else { continue };
        setting.kind = match &reference {
            None => {
                reference = Some(keys.clone());
                SettingKind::Lrs
            }
            Some(reference) if reference == keys => SettingKind::LrsAgain,
            Some(_) => SettingKind::LrsVariant,
        };
    }
}

fn setting(
    reader: &mut SuiteReader<'_>,
    table: Spanned<file::Setting>,
    base: &Keys,
) -> Option<(Setting, Places)> {
    let (at, table) = (table.span().start, table.into_inner());
    let name = reader.faults.need(at, "setting.name", table.name);
    let cpus = reader.cpus;
    let per_core = table.slots_per_core.map(|each| of_cores(each.0, cpus));
    let slots: Option<u32> = table.slots.map(|slots| slots.get());
    let shaped = table.lrs.is_some();
    if shaped && table.how.is_some() {
        let problem = "a setting of LRS decides by itself how";
        reader.faults.note(at, "setting.how", problem, "remove how, or lrs");
    }
    // lrs and how together have their fault
    let alone_too = table.how == Some(Word::Alone) && !shaped;
    let given = [slots.is_some(), per_core.is_some(), shaped, alone_too];
    let alternatives = given.into_iter().filter(|given| *given).count();
    if alternatives != 1 && !reader.faults.took_from(at) {
        reader.faults.note(
            at,
            "setting.slots",
            &format!("{alternatives} things decide what runs"),
            "give one of slots, slots_per_core, lrs = {} and how = \"alone\"",
        );
    }
    let own = table.lrs.map(|table| keys(reader, "setting.lrs", &table));
    let (own, places) = own.unzip();
    let name = name?.0;
    let mut setting = match (own, slots.or(per_core)) {
        (Some(own), None) => lrs(&name, SettingKind::Lrs, over(base, &own), &own),
        (None, Some(slots)) if table.how == Some(Word::Cgroup) => {
            through_cgroups(&name, slots, base)
        }
        (None, Some(slots)) => processes(&name, slots),
        (None, None) if table.how == Some(Word::Alone) => alone(&name),
        _ => return None,
    };
    if let Some(about) = table.about {
        setting.about = about.0;
    }
    Some((setting, places.unwrap_or_default()))
}

fn of_cores(per_core: f64, cpus: u32) -> u32 {
    // `as` saturates
    ((per_core * f64::from(cpus)).floor() as u32).max(1)
}

/// The keys of an inline table or section, quoted paths or nested tables, and their places.
fn keys(reader: &mut SuiteReader<'_>, name: &str, table: &Spanned<Table>) -> (Keys, Places) {
    let (mut taken, mut places) = (Keys::new(), Places::new());
    for (key, value) in table.get_ref() {
        let first = taken.len();
        flatten(key.get_ref(), value, &mut taken);
        let paths = taken.iter().skip(first).map(|(path, _)| path.clone());
        places.extend(paths.map(|path| (path, key.span().start)));
    }
    taken.retain(|(path, _)| {
        let reserved = RESERVED.contains(&&**path) || path == "daemon.mode";
        if reserved {
            let at = places.get(path).copied().unwrap_or_default();
            let problem = "is set by the bench, since its lrsd is a private one that shapes";
            reader.faults.note(at, &format!("{name}.\"{path}\""), problem, "remove it");
        }
        !reserved
    });
    (taken, places)
}

fn flatten(path: &str, value: &Value, taken: &mut Keys) {
    match value {
        Value::Table(table) => {
            for (key, value) in table {
                flatten(&format!("{path}.{key}"), value, taken);
            }
        }
        other => taken.push((path.to_owned(), other.to_string())),
    }
}

/// Notes what lrsd says of `keys`: at the key, or at `at` where the key is not of this table.
fn judge(reader: &mut SuiteReader<'_>, name: &str, at: usize, keys: &Keys, places: &Places) {
    if keys.is_empty() {
        return;
    }
    for (index, words) in (reader.judge)(keys) {
        let path = index.and_then(|index| keys.get(index)).map(|(path, _)| path);
        let place = path.and_then(|path| places.get(path)).copied().unwrap_or(at);
        let key = path.map_or_else(|| name.to_owned(), |path| format!("{name}.\"{path}\""));
        reader.faults.note_words(place, &key, &words);
    }
}

/// `own` over `base`.
fn over(base: &Keys, own: &Keys) -> Keys {
    let kept = base.iter().filter(|(path, _)| !own.iter().any(|(other, _)| other == path));
    kept.chain(own).cloned().collect()
}

fn slots_word(slots: u32) -> String {
    if slots == 1 { "1 slot".to_owned() } else { format!("{slots} slots") }
}

fn processes(name: &str, slots: u32) -> Setting {
    Setting {
        name: name.to_owned(),
        kind: SettingKind::Static,
        about: format!("{}, plain processes", slots_word(slots)),
        how: How::Processes(slots),
    }
}

fn through_cgroups(name: &str, slots: u32, base: &Keys) -> Setting {
    let own = [
        ("slots.active", &*slots.to_string()),
        ("slots.passive", "0"),
        ("slots.passive_max", "0"),
        ("slots.expand", "false"),
    ];
    let own = own.map(|(path, value)| (path.to_owned(), value.to_owned())).to_vec();
    Setting {
        name: name.to_owned(),
        kind: SettingKind::StaticCgroup,
        about: format!("{}, cgroups of equal weight, admitted by lrsd", slots_word(slots)),
        how: How::Daemon { keys: over(base, &own), slots: Some(slots) },
    }
}

fn lrs(name: &str, kind: SettingKind, keys: Keys, own: &Keys) -> Setting {
    let own: Vec<String> = own.iter().map(|(path, value)| format!("{path} = {value}")).collect();
    let about = if own.is_empty() {
        "active and passive slots".to_owned()
    } else {
        format!("active and passive slots, {}", own.join(", "))
    };
    Setting { name: name.to_owned(), kind, about, how: How::Daemon { keys, slots: None } }
}

fn alone(name: &str) -> Setting {
    Setting {
        name: name.to_owned(),
        kind: SettingKind::Alone,
        about: "one task of each group, one after the other".to_owned(),
        how: How::Alone,
    }
}

fn defaults(base: &Keys, cpus: u32) -> Vec<Setting> {
    let none = Keys::new();
    let fixed = PER_CORE.map(|each| processes(&format!("static {each}"), of_cores(each, cpus)));
    let grouped =
        PER_CORE.map(|each| through_cgroups(&format!("cgroup {each}"), of_cores(each, cpus), base));
    let no_expansion: Keys = vec![("slots.expand".to_owned(), "false".to_owned())];
    let shaped = [
        lrs("lrs", SettingKind::Lrs, base.clone(), &none),
        lrs("lrs again", SettingKind::LrsAgain, base.clone(), &none),
        lrs("lrs no expansion", SettingKind::LrsVariant, over(base, &no_expansion), &no_expansion),
        alone("alone"),
    ];
    fixed.into_iter().chain(grouped).chain(shaped).collect()
}
