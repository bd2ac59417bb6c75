//! `[[setting]]` and `[lrsd]`, and the settings of a suite that names none.

use std::ops::Range;
use std::path::Path;

use toml::de::DeTable;

use super::fields::{Fields, LINE, Reader, line};
use super::read::unique;
use super::{How, Setting};
use crate::bench::record::SettingKind;
use crate::config::value::{self, Node};
use crate::config::{Config, source::nearest};
use crate::rig::private::RESERVED;

/// Keys of lrsd: path, value as TOML.
type Keys = Vec<(&'static str, String)>;

/// Slots per core of the default static settings, as the sources compare them.
const PER_CORE: [f64; 3] = [1.0, 1.5, 2.0];

/// The settings of the suite, `[lrsd]` below those that take a daemon.
pub(super) fn read(
    reader: &mut Reader<'_>,
    top: &mut Fields<'_>,
    lrsd: Option<Fields<'_>>,
) -> Vec<Setting> {
    let faults = reader.faults.len();
    let lrsd = top.node("lrsd").filter(|_| lrsd.is_some());
    let base = lrsd.map_or_else(Keys::new, |node| keys(reader, "lrsd", node));
    if let Some(node) = lrsd
        && reader.faults.len() == faults
    {
        fit(reader, "lrsd", node.span(), &base);
    }
    // What does not fit in [lrsd] is told once, not of each setting over it.
    let base_fits = reader.faults.len() == faults;
    let tables = top.tables(reader, "setting", false);
    if tables.is_empty() {
        return defaults(&base, reader.cpus);
    }
    unique(reader, "setting.name", &tables);
    let mut settings: Vec<Setting> = tables
        .into_iter()
        .filter_map(|table| {
            let (faults, place) = (reader.faults.len(), table.place.clone());
            let setting = setting(reader, table, &base)?;
            if let How::Daemon { keys, slots } = &setting.how
                && base_fits
                && reader.faults.len() == faults
            {
                let name = if slots.is_some() { "setting" } else { "setting.lrs" };
                fit(reader, name, place, keys);
            }
            Some(setting)
        })
        .collect();
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

fn setting(reader: &mut Reader<'_>, mut table: Fields<'_>, base: &Keys) -> Option<Setting> {
    const HOW: &str = "\"process\", \"cgroup\" or \"alone\"";
    let name = table.need(reader, "name", LINE, line);
    let about = table.take(reader, "about", LINE, line);
    let per_core = table
        .take(reader, "slots_per_core", "0.01..=100", |node| value::number(node, 0.01..=100.0));
    let slots = table.take(reader, "slots", "1..=4096", |node| value::number(node, 1..=4096_u32));
    let how = table.take(reader, "how", HOW, |node| {
        value::choice(node, &[("process", "process"), ("cgroup", "cgroup"), ("alone", "alone")])
    });
    let shaped = table.node("lrs");
    if let (Some(word), Some(node)) = (how.filter(|_| shaped.is_some()), table.node("how")) {
        let problem = format!("a setting of LRS is no \"{word}\"");
        reader.fault(table.key("how"), node.span(), problem, "remove how, or lrs");
    }
    let fixed = ["slots_per_core", "slots"].into_iter().filter(|name| table.node(name).is_some());
    // lrs and how together have their fault
    let alone_too = how == Some("alone") && shaped.is_none();
    let alternatives = fixed.count() + usize::from(shaped.is_some()) + usize::from(alone_too);
    if alternatives != 1 {
        reader.fault(
            table.key("slots"),
            table.place.clone(),
            format!("{alternatives} things decide what runs"),
            "give one of slots, slots_per_core, lrs = {} and how = \"alone\"",
        );
    }
    let own = shaped.map(|node| keys(reader, "setting.lrs", node));
    table.finish(reader);
    let name = name?;
    let cpus = reader.cpus;
    let mut setting = match (own, slots.or(per_core.map(|each| of_cores(each, cpus)))) {
        (Some(own), None) => lrs(&name, SettingKind::Lrs, over(base, &own), &own),
        (None, Some(slots)) if how == Some("cgroup") => through_cgroups(&name, slots, base),
        (None, Some(slots)) => processes(&name, slots),
        (None, None) if how == Some("alone") => alone(&name),
        _ => return None,
    };
    if let Some(about) = about {
        setting.about = about;
    }
    Some(setting)
}

fn of_cores(per_core: f64, cpus: u32) -> u32 {
    // `as` saturates
    ((per_core * f64::from(cpus)).floor() as u32).max(1)
}

/// The keys of an inline table or section, quoted paths or nested tables, and what is wrong
/// with each.
fn keys(reader: &mut Reader<'_>, name: &str, node: &Node<'_>) -> Keys {
    let Some(table) = node.get_ref().as_table() else {
        let remedy = "write keys of lrs.toml: { \"slots.expand\" = false }";
        reader.fault(name, node.span(), "is no table", remedy);
        return Keys::new();
    };
    let mut config = Config::default();
    let mut taken = Keys::new();
    nested(reader, name, "", table, &mut config, &mut taken);
    taken
}

/// Faults for the keys that do not go together.
fn fit(reader: &mut Reader<'_>, name: &str, place: Range<usize>, keys: &Keys) {
    let text: String = keys.iter().map(|(path, value)| format!("{path} = {value}\n")).collect();
    let Err(errors) = Config::from_toml(&text, Path::new("lrs.toml")) else { return };
    for fault in errors.faults() {
        let key = format!("{name}.\"{}\"", fault.key.clone().unwrap_or_default());
        reader.fault(key, place.clone(), fault.problem.clone(), fault.remedy.clone());
    }
}

fn nested(
    reader: &mut Reader<'_>,
    name: &str,
    prefix: &str,
    table: &DeTable<'_>,
    config: &mut Config,
    taken: &mut Keys,
) {
    for (key, node) in table {
        let path = format!("{prefix}{}", key.get_ref());
        if let Some(inner) = node.get_ref().as_table() {
            nested(reader, name, &format!("{path}."), inner, config, taken);
            continue;
        }
        let shown = format!("{name}.\"{path}\"");
        if RESERVED.contains(&&*path) || path == "daemon.mode" {
            let problem = "is set by the bench, whose lrsd is a private one that shapes";
            reader.fault(shown, node.span(), problem, "remove it");
            continue;
        }
        match config.read_key(&path, node) {
            Some(Ok(key)) => taken.push(key),
            Some(Err(reasons)) => {
                let remedy = format!("see {} in lrs.toml(5)", path);
                reader.fault(shown, node.span(), reasons.join("; "), remedy);
            }
            None => {
                let paths: Vec<String> =
                    crate::config::keys::keys().map(|key| key.path.to_owned()).collect();
                let remedy = match nearest(&path, &paths) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => "`lrsctl man lrs.toml` has the keys of lrsd".to_owned(),
                };
                reader.fault(shown, node.span(), "is no key of lrsd", remedy);
            }
        }
    }
}

/// `own` over `base`.
fn over(base: &Keys, own: &[(&'static str, String)]) -> Keys {
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
        ("slots.active", slots.to_string()),
        ("slots.passive", "0".to_owned()),
        ("slots.passive_max", "0".to_owned()),
        ("slots.expand", "false".to_owned()),
    ];
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
    let no_expansion: Keys = vec![("slots.expand", "false".to_owned())];
    let shaped = [
        lrs("lrs", SettingKind::Lrs, base.clone(), &none),
        lrs("lrs again", SettingKind::LrsAgain, base.clone(), &none),
        lrs("lrs no expansion", SettingKind::LrsVariant, over(base, &no_expansion), &no_expansion),
        alone("alone"),
    ];
    fixed.into_iter().chain(grouped).chain(shaped).collect()
}
