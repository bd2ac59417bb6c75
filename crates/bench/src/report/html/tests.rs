use quick_xml::Reader;
use quick_xml::events::Event;

use super::super::synthetic;
use super::*;

fn made(name: &str) -> String {
    let mut machine = synthetic::machine();
    let mut runs = synthetic::runs(6);
    machine.loads[0].name = name.to_owned();
    machine.settings[0].name = format!("static {name}");
    for run in &mut runs {
        if run.load == "word-count" {
            run.load = name.to_owned();
        }
        if run.setting == "static 1" {
            run.setting = format!("static {name}");
        }
        for task in &mut run.tasks {
            task.name.insert_str(0, name);
            task.group.insert_str(0, name);
        }
    }
    page(&Report::new(&machine, &runs), &runs)
}

#[test]
fn no_text_breaks_the_page() {
    let page = made("<b onload='x'>\"&]]>\u{1b}");
    assert!(!page.contains("<b ") && !page.contains("<script"), "unescaped");
    let mut reader = Reader::from_str(&page);
    let mut elements = 0;
    loop {
        match reader.read_event().expect("well-formed") {
            Event::Eof => break,
            Event::Start(_) | Event::Empty(_) => elements += 1,
            _ => {}
        }
    }
    assert!(elements > 1_000, "{elements}");
}

#[test]
fn the_page_fetches_nothing() {
    let page = made("plain").replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "//", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn losses_and_failures_show_like_gains() {
    let page = made("plain");
    for told in ["class=\"faster\"", "class=\"slower\"", "Failed: static 2, round 1: map-3 ended"] {
        assert!(page.contains(told), "{told}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf"), "no figure is made up");
}
