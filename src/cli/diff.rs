//! `lrsctl config diff`: what the files of the settings make different from the defaults, or from what lrsd
//! has in force, and which file each value is from.
//!
//! The files are read here, as lrsd reads them; of lrsd it is asked which they are, and what is in force.

use std::path::Path;

use serde_json::{Value, json};

use super::client::{Lrsd, ask};
use super::failure::{Failure, Purpose};
use super::output::{Column, Columns, Output, printable, say};
use crate::config::files::Line;
use crate::config::{Absent, Config, DEFAULT_FILE, Loaded, discover, toml_to_json};
use crate::proto::{GetConfigRequest, GetConfigResponse};

/// What differs where the rules are the same, one by one.
const ORDER: &str = "[[discover]] in this order";

/// A key or a rule.
struct Difference {
    key: String,
    /// As TOML, of a rule as JSON; `None`: there is no such rule.
    value: Option<String>,
    /// The same of the other side.
    other: Option<String>,
    line: Option<Line>,
    needs_restart: bool,
}

/// `lrsctl config diff [FILE] [--running]`
pub(super) fn diff(
    lrsd: &Lrsd,
    file: Option<&Path>,
    running: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    let answer = running.then(|| {
        ask(lrsd, Purpose::Other, |mut lrsd| async move {
            lrsd.get_config(GetConfigRequest {}).await.map(tonic::Response::into_inner)
        })
    });
    let GetConfigResponse { toml, file: of_lrsd } = answer.transpose()?.unwrap_or_default();
    // An lrsd of another version may not say which.
    let usual = if of_lrsd.is_empty() { DEFAULT_FILE } else { &of_lrsd };
    let loaded = match file {
        Some(file) => Config::load(file, Absent::IsError),
        None => Config::load(Path::new(usual), Absent::IsDefault),
    };
    let loaded = loaded.map_err(|errors| Failure::failed(printable_lines(&errors.to_string())))?;
    let other = match running {
        false => Config::default(),
        true => Config::from_toml(&toml, lrsd.endpoint.path()).map_err(|errors| {
            Failure::failed(printable_lines(&format!("the settings in force of lrsd: {errors}")))
                .hint("lrsd is of another version; `lrsctl config show` shows them")
        })?,
    };
    let differences = differences(&loaded, &other);
    if out.is_json() {
        return out.json(&as_json(&loaded, &differences, running));
    }
    if differences.is_empty() {
        let (of, files) = (&loaded.sources, printable(usual));
        match (running, of.files.is_empty()) {
            (true, _) => say(format_args!("lrsctl: {lrsd} has in force what the files say ({of})")),
            (false, true) => say(format_args!("lrsctl: there is no {files}: the defaults hold")),
            (false, false) => say(format_args!("lrsctl: {of}: every key has its default")),
        }
        return Ok(());
    }
    out.table(&table(&differences, running))
}

fn differences(loaded: &Loaded, other: &Config) -> Vec<Difference> {
    let Loaded { config, sources } = loaded;
    let keys = other.changed_keys(config).into_iter().filter(|it| it.key != discover::TABLE);
    let mut differences: Vec<Difference> = keys
        .map(|changed| Difference {
            key: changed.key.to_owned(),
            value: Some(config.show(changed.key)),
            other: Some(other.show(changed.key)),
            line: sources.keys.get(changed.key).cloned(),
            needs_restart: changed.needs_restart,
        })
        .collect();
    let shown = |config: &Config, name: &str| {
        let rule = config.discover.iter().find(|rule| rule.name.as_str() == name)?;
        serde_json::to_string(rule).ok()
    };
    let mut names: Vec<&str> = Vec::new();
    for rule in config.discover.iter().chain(&other.discover) {
        if !names.contains(&rule.name.as_str()) {
            names.push(rule.name.as_str());
        }
    }
    for name in names {
        let (value, of_other) = (shown(config, name), shown(other, name));
        if value != of_other {
            let here = config.discover.iter().position(|rule| rule.name.as_str() == name);
            differences.push(Difference {
                key: format!("[[discover]] {name}"),
                value,
                other: of_other,
                line: here.and_then(|index| sources.rules.get(index).cloned()),
                needs_restart: true,
            });
        }
    }
    // Who comes first gets a process that two rules fit.
    let order = |config: &Config| {
        let names = config.discover.iter().map(|rule| rule.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let (here, there) = (order(config), order(other));
    if here != there && differences.iter().all(|it| !it.key.starts_with('[')) {
        differences.push(Difference {
            key: ORDER.to_owned(),
            value: Some(json!(here).to_string()),
            other: Some(json!(there).to_string()),
            line: None,
            needs_restart: true,
        });
    }
    differences
}

fn table(differences: &[Difference], running: bool) -> Columns {
    let mut columns = vec![
        ("KEY", Column::Text),
        ("VALUE", Column::Elastic(8)),
        (if running { "IN FORCE" } else { "DEFAULT" }, Column::Elastic(8)),
        ("FROM", Column::Text),
    ];
    if running {
        columns.insert(3, ("NEEDS", Column::Text));
    }
    let mut table = Columns::new(&columns);
    for it in differences {
        // A rule has many lines.
        let is_rule = it.key.starts_with('[');
        let shown = |value: &Option<String>| match value {
            None => "-".to_owned(),
            Some(_) if is_rule && it.key != ORDER => "a rule".to_owned(),
            Some(value) => value.clone(),
        };
        let from = match (&it.line, &it.value) {
            (Some(line), _) => line.to_string(),
            (None, None) => "-".to_owned(),
            (None, Some(_)) if it.key == ORDER => "all files".to_owned(),
            (None, Some(value)) if *value == Config::default().show(&it.key) => {
                "the default".to_owned()
            }
            (None, Some(_)) => "other keys".to_owned(),
        };
        let mut row = vec![it.key.clone(), shown(&it.value), shown(&it.other), from];
        if running {
            row.insert(3, if it.needs_restart { "restart" } else { "reload" }.to_owned());
        }
        table.row(row);
    }
    table
}

fn as_json(loaded: &Loaded, differences: &[Difference], running: bool) -> Value {
    let value = |it: &Difference, toml: &Option<String>| {
        let Some(toml) = toml else { return Value::Null };
        if it.key.starts_with('[') {
            return serde_json::from_str(toml).unwrap_or_default();
        }
        toml_to_json(&format!("value = {toml}")).map_or(Value::Null, |it| it["value"].clone())
    };
    let differences = differences.iter().map(|it| {
        let line = it.line.as_ref();
        let mut entry = json!({
            "key": it.key,
            "value": value(it, &it.value),
            "file": line.map(|line| line.file.to_string_lossy()),
            "line": line.map(|line| line.line),
            "needs_restart": it.needs_restart,
        });
        entry[if running { "in_force" } else { "default" }] = value(it, &it.other);
        entry
    });
    let files = loaded.sources.files.iter().map(|file| file.to_string_lossy());
    json!({
        "files": files.collect::<Vec<_>>(),
        "against": if running { "running" } else { "defaults" },
        "differences": differences.collect::<Vec<_>>(),
    })
}

fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_names_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lrs.toml");
        let drop_ins = dir.path().join("lrs.toml.d");
        std::fs::create_dir(&drop_ins).unwrap();
        std::fs::write(&file, "[slots]\nactive = 2\npassive = 4\n").unwrap();
        let rule =
            "[slots]\nactive = 3\n[[discover]]\nname = \"r\"\ncommand = \"x\"\nuser = [\"root\"]\n";
        std::fs::write(drop_ins.join("9.toml"), rule).unwrap();
        let loaded = Config::load(&file, Absent::IsError).unwrap();

        let found = differences(&loaded, &Config::default());
        let shown: Vec<_> = found.iter().map(|it| (it.key.as_str(), it.value.as_deref())).collect();
        assert_eq!(shown[..2], [("slots.active", Some("3")), ("slots.passive", Some("4"))]);
        assert_eq!(shown[2].0, "[[discover]] r");
        let line = |index: usize| found[index].line.clone().unwrap();
        assert_eq!((line(0).file, line(0).line), (drop_ins.join("9.toml"), 2));
        assert_eq!((line(1).file, line(1).line), (file.clone(), 3));
        assert_eq!((line(2).file, line(2).line), (drop_ins.join("9.toml"), 3));

        let json = as_json(&loaded, &found, false);
        assert_eq!(json["differences"][0]["default"], "auto");
        assert_eq!(json["differences"][0]["value"], 3);
        assert_eq!(json["differences"][2]["value"]["name"], "r");
        assert_eq!(json["differences"][2]["default"], Value::Null);

        let running = Config::from_toml("[daemon]\nlog = \"debug\"", "x".as_ref()).unwrap();
        let found = differences(&loaded, &running);
        let log = found.iter().find(|it| it.key == "daemon.log").unwrap();
        assert_eq!(
            (log.value.as_deref(), log.other.as_deref()),
            (Some("\"info\""), Some("\"debug\""))
        );
        assert!(log.line.is_none() && !log.needs_restart);
        assert!(differences(&loaded, &loaded.config).is_empty());

        let rules = |names: [&str; 2]| {
            let rule = |name| {
                format!("[[discover]]\nname = \"{name}\"\ncommand = \"x\"\nuser = [\"root\"]\n")
            };
            names.map(rule).concat()
        };
        std::fs::remove_file(drop_ins.join("9.toml")).unwrap();
        std::fs::write(&file, rules(["a", "b"])).unwrap();
        let loaded = Config::load(&file, Absent::IsError).unwrap();
        let other = Config::from_toml(&rules(["b", "a"]), "x".as_ref()).unwrap();
        let found = differences(&loaded, &other);
        assert_eq!((found.len(), found[0].key.as_str()), (1, ORDER));
        assert_eq!(found[0].value.as_deref(), Some("\"a, b\""));
    }
}
