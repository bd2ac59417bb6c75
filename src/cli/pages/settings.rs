//! lrs.toml(5), from the table of keys: the example file's words in the manual's form.

use clap_mangen::roff::{Roff, bold, roman};

use super::{MANUAL, see_also, source};
use crate::config::keys::{Applies, RULE, SECTIONS};
use crate::config::{ABOUT_THE_FILE, Config, DEFAULT_FILE, discover};

pub(super) fn page() -> Vec<u8> {
    let defaults = Config::default();
    let source = source();
    let mut roff = Roff::new();
    roff.control("TH", ["lrs.toml", "5", "", source.as_str(), MANUAL]);
    roff.control("SH", ["NAME"]).text([roman("lrs.toml - settings of lrsd")]);
    roff.control("SH", ["SYNOPSIS"]).text([bold(DEFAULT_FILE)]);
    roff.control("SH", ["DESCRIPTION"]).text([roman(ABOUT_THE_FILE)]);
    for section in SECTIONS {
        let name = format!("[{}]", section.name);
        roff.control("SH", [name.as_str()]).text([roman(section.doc)]);
        for key in section.keys {
            roff.control("TP", []);
            roff.text([bold(key.name()), roman(format!(" = {}", defaults.show(key.path)))]);
            roff.text([roman(key.doc)]);
            roff.control("RS", []);
            roff.text([roman(format!("Range: {}.", key.range))]);
            if key.applies == Applies::Restart {
                roff.text([roman("A change needs a restart of lrsd.")]);
            }
            roff.control("RE", []);
        }
    }
    roff.control("SH", ["[[discover]]"]).text([roman(discover::ABOUT)]);
    for key in RULE {
        roff.control("TP", []).text([bold(key.name())]).text([roman(key.doc)]);
        roff.control("RS", []).text([roman(format!("Range: {}.", key.range))]);
        roff.control("RE", []);
    }
    see_also(&mut roff, "lrs.toml");
    roff.render().into_bytes()
}
