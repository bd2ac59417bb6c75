//! The shipped `config/lrs.toml`, made from the table of keys.

use super::keys::{Applies, RULE, SECTIONS};
use super::{Config, discover};

/// Columns of the file's comments.
const WIDTH: usize = 80;

/// Rules for other schedulers, ready to be used.
const RULES: &str = include_str!("rules.toml");

/// What the reader of the file has to know first; lrs.toml(5) says the same.
pub const ABOUT_THE_FILE: &str = "Settings of lrsd. Each key is shown with its default; remove the \"#\" before a key to set \
     it. Unknown keys and values out of range are errors: check the file with \
     \"lrsctl config check FILE\" and apply it with \"lrsctl reload\" or SIGHUP. Files *.toml in \
     the directory of this name with \".d\" behind it (/etc/lrs/lrs.toml.d) are read after it, in the \
     order of their names; of a key in several files the last one counts, and rules add up. \
     Durations have a unit: ms, s, m or h. Sizes have one of KiB, MiB, GiB, TiB, or none for bytes.";

/// Text of `config/lrs.toml`: every key with its documentation, range and default, commented
/// out. Lines of text start with "# ", settings with "#key", so that an operator (and a test)
/// can tell them apart.
pub fn example() -> String {
    let defaults = Config::default();
    let mut file = String::new();
    comment(&mut file, ABOUT_THE_FILE);
    for section in SECTIONS {
        file.push('\n');
        comment(&mut file, section.doc);
        file.push_str(&format!("[{}]\n", section.name));
        for key in section.keys {
            file.push('\n');
            comment(&mut file, key.doc);
            comment(&mut file, &format!("Range: {}.", key.range));
            if key.applies == Applies::Restart {
                comment(&mut file, "A change needs a restart of lrsd.");
            }
            file.push_str(&format!("#{} = {}\n", key.name(), defaults.show(key.path)));
        }
    }
    rules(&mut file);
    file
}

/// The rules there could be. They come last: a key below a rule would be the rule's.
fn rules(file: &mut String) {
    file.push('\n');
    comment(file, discover::ABOUT);
    for key in RULE {
        file.push('\n');
        comment(file, &format!("{}: {} Range: {}.", key.name(), key.doc, key.range));
    }
    file.push('\n');
    file.push_str(RULES);
}

/// The rules of the shipped file as its reader would use them, with the "#" before each line removed.
pub fn example_rules() -> String {
    let uncommented = |line: &str| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') => format!("{key}\n"),
        _ => format!("{line}\n"),
    };
    RULES.lines().map(uncommented).collect()
}

/// Appends `text` as comment lines, wrapped.
fn comment(file: &mut String, text: &str) {
    let mut columns = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if columns > 0 && columns + 1 + length <= WIDTH {
            file.push(' ');
            columns += 1 + length;
        } else {
            if columns > 0 {
                file.push('\n');
            }
            file.push_str("# ");
            columns = 2 + length;
        }
        file.push_str(word);
    }
    file.push('\n');
}
