//! What users and programs may rely on from 0.1.0 on: each name in `promised.txt` stays, and takes what it
//! took. A line is a table of the configuration, a command of lrsctl, or a type of the proto. Names that are
//! new come in by `LRS_REGENERATE=1 cargo test --lib promised`; none is taken out by that.

use std::collections::{BTreeMap, BTreeSet};

use clap::CommandFactory as _;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

type Names = BTreeMap<String, BTreeSet<String>>;

fn config(names: &mut Names) {
    let rules = crate::config::keys::RULE.iter().map(|key| (key.section(), key.name()));
    let keys = crate::config::keys::keys().map(|key| (key.section(), key.name()));
    for (section, key) in keys.chain(rules) {
        names.entry(format!("config {section}")).or_default().insert(key.to_owned());
    }
}

fn commands(path: &str, command: &clap::Command, names: &mut Names) {
    let of = names.entry(path.to_owned()).or_default();
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        let value = if argument.get_action().takes_values() { "=" } else { "" };
        let short = argument.get_short().map(|short| format!("-{short}{value}"));
        let long = argument.get_long().map(|long| format!("--{long}{value}"));
        let positional = argument.is_positional().then(|| argument.get_id().to_string());
        of.extend(short.into_iter().chain(long).chain(positional));
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        commands(&format!("{path} {}", sub.get_name()), sub, names);
    }
}

fn field(field: &FieldDescriptorProto) -> String {
    let kind = match field.type_name() {
        "" => {
            Type::try_from(field.r#type.unwrap()).unwrap().as_str_name().trim_start_matches("TYPE_")
        }
        named => named.trim_start_matches(".lrs.v1."),
    };
    let many = if field.label() == Label::Repeated { "[]" } else { "" };
    format!("{}:{kind}{many}={}", field.name(), field.number())
}

fn messages(prefix: &str, message: &DescriptorProto, names: &mut Names) {
    let name = format!("{prefix}{}", message.name());
    names.insert(format!("message {name}"), message.field.iter().map(field).collect());
    let nested = message
        .nested_type
        .iter()
        .filter(|nested| !nested.options.as_ref().is_some_and(|it| it.map_entry()));
    nested.for_each(|nested| messages(&format!("{name}."), nested, names));
    enums(&format!("{name}."), &message.enum_type, names);
}

fn enums(prefix: &str, enums: &[prost_types::EnumDescriptorProto], names: &mut Names) {
    for one in enums {
        let values = one.value.iter().map(|value| format!("{}={}", value.name(), value.number()));
        names.insert(format!("enum {prefix}{}", one.name()), values.collect());
    }
}

fn proto(names: &mut Names) {
    let set = FileDescriptorSet::decode(crate::proto::DESCRIPTOR).unwrap();
    let file = set.file.iter().find(|file| file.package() == "lrs.v1").unwrap();
    file.message_type.iter().for_each(|message| messages("", message, names));
    enums("", &file.enum_type, names);
    for service in &file.service {
        let type_of = |name: &str| name.trim_start_matches(".lrs.v1.").to_owned();
        let calls = service.method.iter().map(|call| {
            let stream = if call.server_streaming() { "stream:" } else { "" };
            let (from, to) = (type_of(call.input_type()), type_of(call.output_type()));
            format!("{}({from}):{stream}{to}", call.name())
        });
        names.insert(format!("service {}", service.name()), calls.collect());
    }
}

#[test]
fn what_0_1_0_promised_is_there() {
    let mut names = Names::new();
    config(&mut names);
    commands("lrsctl", &super::args::Cli::command(), &mut names);
    proto(&mut names);
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/promised.txt");
    let mut promised = Names::new();
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let (name, of) = line.split_once(':').unwrap();
        promised.insert(name.to_owned(), of.split_whitespace().map(str::to_owned).collect());
    }
    for (name, of) in &promised {
        let present = names.get(name).unwrap_or_else(|| panic!("{name} is promised and gone"));
        let gone: Vec<_> = of.difference(present).collect();
        assert!(gone.is_empty(), "{name}: {gone:?} are promised, and gone or changed: {present:?}");
    }
    let listed: String = names
        .iter()
        .map(|(name, of)| {
            format!("{name}:{}\n", of.iter().map(|one| format!(" {one}")).collect::<String>())
        })
        .collect();
    if std::env::var_os("LRS_REGENERATE").is_some() {
        std::fs::write(&path, &listed).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == listed, "there are new names: LRS_REGENERATE=1 cargo test --lib promised");
}
