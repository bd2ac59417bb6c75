use std::fs;

use super::*;

fn parsed(text: &str) -> Result<Properties, ConfError> {
    let mut properties =
        Properties::new(&[("base", "/default"), ("dir", "${base}/x")], Trust::of("yarn"));
    properties.add_text(Path::new("/conf/site.xml"), text).map(|()| properties)
}

fn value(properties: &Properties, key: &str) -> String {
    properties.get(key).map(|expanded| expanded.text).unwrap_or_default()
}

#[test]
fn properties_in_both_spellings() {
    let properties = parsed(
        "<?xml version=\"1.0\"?>\n<!-- c -->\n<configuration>\
         <property><name> a </name><value> 1 &amp; &#50; </value>\
         <description>any <b>text</b></description></property>\
         <property name='b' value='&lt;2&gt;' final='true'/>\
         <property><name>b</name><value>later</value></property>\
         <property><name>c</name><value><![CDATA[<3>]]></value></property>\
         <property><name>none</name></property>\
         <property><name>empty</name><value/></property></configuration>",
    )
    .unwrap();
    assert_eq!(value(&properties, "a"), "1 & 2");
    assert_eq!(value(&properties, "b"), "<2>", "final stays");
    assert_eq!(value(&properties, "c"), "<3>");
    assert_eq!(properties.get("none"), None);
    assert_eq!(value(&properties, "empty"), "");
}

#[test]
fn variables_stand_for_properties_and_unknown_ones_are_named() {
    let properties = parsed(
        "<configuration>\
         <property><name>base</name><value>/disk</value></property>\
         <property><name>u</name><value>/tmp/${user.name}/${base}</value></property>\
         <property><name>loop</name><value>${loop}</value></property>\
         <property><name>odd</name><value>${ base} $ ${} ${base</value></property>\
         </configuration>",
    )
    .unwrap();
    assert_eq!(value(&properties, "dir"), "/disk/x");
    let unknown = properties.get("u").unwrap();
    assert_eq!(unknown.text, "/tmp/${user.name}//disk");
    assert_eq!(unknown.unknown.as_deref(), Some("user.name"));
    assert_eq!(properties.get("loop").unwrap().unknown.as_deref(), Some("loop"));
    let odd = properties.get("odd").unwrap();
    assert_eq!((odd.text.as_str(), odd.unknown), ("${ base} $ ${} ${base", None));
}

#[test]
fn variables_that_double_end() {
    let mut text = String::from("<configuration>");
    for i in 0..30 {
        let next = i + 1;
        text += &format!("<property name='v{i}' value='${{v{next}}}${{v{next}}}'/>");
    }
    text += "<property name='v30' value='0123456789'/></configuration>";
    let expanded = parsed(&text).unwrap().get("v0").unwrap();
    assert!(expanded.unknown.is_some());
    assert!(expanded.text.len() < 10 * MAX_EXPANSIONS);
}

#[test]
fn what_is_no_configuration_is_refused_with_its_place() {
    for (text, line) in [
        ("<html>\n<body>404</body></html>", 1),
        ("<configuration>\n<property><name>a</name>\n", 3),
        ("<configuration>\n<property></name></property></configuration>", 2),
        ("<configuration>\n\n<property><name>&who;</name></property></configuration>", 3),
        ("", 1),
        ("not xml", 1),
    ] {
        match parsed(text).unwrap_err() {
            ConfError::Malformed { path, line: found, .. } => {
                assert_eq!((path.as_path(), found), (Path::new("/conf/site.xml"), line), "{text}");
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn files_include_others() {
    let dir = tempfile::tempdir().unwrap();
    let site = dir.path().join("yarn-site.xml");
    fs::write(
        dir.path().join("more.xml"),
        "<configuration><property name='m' value='1'/></configuration>",
    )
    .unwrap();
    fs::write(
        &site,
        "<configuration xmlns:xi='http://www.w3.org/2001/XInclude'>\
         <xi:include href='more.xml'><xi:fallback><property name='f' value='unused'/></xi:fallback></xi:include>\
         <xi:include href='more.xml'/>\
         <xi:include href='gone.xml'><xi:fallback><property name='g' value='2'/></xi:fallback></xi:include>\
         </configuration>",
    )
    .unwrap();
    let mut properties = Properties::new(&[], Trust::of("yarn"));
    assert!(properties.add(&site).unwrap());
    assert!(!properties.add(&dir.path().join("none.xml")).unwrap());
    assert_eq!(value(&properties, "m"), "1");
    assert_eq!(value(&properties, "g"), "2");
    assert_eq!(properties.get("f"), None);
    for href in ["gone.xml", "yarn-site.xml", "http://host/x.xml"] {
        fs::write(&site, format!("<configuration><include href='{href}'/></configuration>"))
            .unwrap();
        let error = Properties::new(&[], Trust::of("yarn")).add(&site).unwrap_err().to_string();
        assert!(error.contains("xml"), "{error}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_ends_in_an_answer(text in "(<configuration>|</|<property>|<name>|a|\\$\\{|\\}|&amp;|<!--|-->|<!\\[CDATA\\[|\\]\\]>|\\PC){0,20}") {
        if let Ok(properties) = parsed(&text) {
            properties.get("a");
        }
    }
}

#[test]
fn a_default_of_the_environment_replaces_what_only_the_java_process_knows() {
    let of = super::default_of_environment;
    assert_eq!((of("env.X:-/a-b"), of("env.X-d")), (Some("/a-b"), Some("d")));
    assert_eq!((of("env.X"), of("other-key")), (None, None));
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let site = dir.path().join("yarn-site.xml");
    assert!(std::process::Command::new("mkfifo").arg(&site).status().unwrap().success());
    let error = Properties::new(&[], Trust::of("yarn")).add(&site).unwrap_err().to_string();
    assert!(error.contains("it is a pipe"), "{error}");
}
