//! Values of single keys: from TOML, and back to TOML.
//!
//! serde reads numbers, words and truth values. Here are the checks of ranges, the forms that are
//! written as text (paths, addresses, accounts), and the reasons why one is not taken.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use lrs_hadoop_conf::{NodeId, NotANodeId};
use serde::de::{DeserializeOwned, IntoDeserializer as _};
use serde::{Serialize, Serializer};
use toml::Spanned;
use toml::de::DeValue;

use super::error::excerpt;
use super::quantity::{self, duration};
use super::{Auto, Bus, DiskTiers, MAX_SOCKET_PATH, RootPath, SliceSetting, Version};
use lrs_core::model::Label;

/// A value as it is in the file.
pub(super) type Node<'a> = Spanned<DeValue<'a>>;

/// Why a value is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// Not what the key's documented range says.
    OutOfRange,
    /// What is wrong, and what to do.
    Because(String, String),
}

/// The value, or why not.
pub(super) type Taken<T> = Result<T, Rejection>;

/// Refuses a value: what is wrong with it, and what to do.
pub(super) fn because<T>(problem: impl Into<String>, remedy: impl Into<String>) -> Taken<T> {
    Err(Rejection::Because(problem.into(), remedy.into()))
}

/// What is wrong with a value or with one element of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Where the element stands; `None`: the value as a whole.
    pub(super) span: Option<Range<usize>>,
    /// Why it is not taken.
    pub(super) why: Rejection,
}

impl From<Rejection> for Vec<Wrong> {
    fn from(why: Rejection) -> Vec<Wrong> {
        vec![Wrong { span: None, why }]
    }
}

/// A number or a truth value, as its type says.
pub(super) fn plain<T: DeserializeOwned>(node: &Node<'_>) -> Taken<T> {
    if node.get_ref().is_array() || node.get_ref().is_table() {
        return Err(Rejection::OutOfRange);
    }
    T::deserialize(node.clone().into_deserializer()).map_err(|_| Rejection::OutOfRange)
}

/// One of the words that its type has.
pub(super) fn word<T: DeserializeOwned>(node: &Node<'_>) -> Taken<T> {
    text(node).and_then(|_| plain(node))
}

/// A text.
pub(super) fn text<'a>(node: &'a Node<'_>) -> Taken<&'a str> {
    node.get_ref().as_str().ok_or(Rejection::OutOfRange)
}

/// A number in `range`, in any of TOML's notations. NaN is in no range.
pub(super) fn number<T>(node: &Node<'_>, range: RangeInclusive<T>) -> Taken<T>
where
    T: DeserializeOwned + PartialOrd,
{
    plain(node)
        .and_then(|number| range.contains(&number).then_some(number).ok_or(Rejection::OutOfRange))
}

/// `"auto"`, or what `fixed` makes of the value.
pub(super) fn auto<T, E>(
    node: &Node<'_>,
    fixed: impl FnOnce(&Node<'_>) -> Result<T, E>,
) -> Result<Auto<T>, E> {
    if node.get_ref().as_str() == Some("auto") {
        return Ok(Auto::Auto);
    }
    fixed(node).map(Auto::Fixed)
}

impl<T: Serialize> Serialize for Auto<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Auto::Auto => serializer.serialize_str("auto"),
            Auto::Fixed(value) => value.serialize(serializer),
        }
    }
}

/// A list without repetitions; everything wrong with its elements, each with its place.
pub(super) fn list<T: PartialEq>(
    node: &Node<'_>,
    lengths: RangeInclusive<usize>,
    element: fn(&Node<'_>) -> Taken<T>,
) -> Result<Vec<T>, Vec<Wrong>> {
    let items = node.get_ref().as_array().filter(|items| lengths.contains(&items.len()));
    let mut taken = Vec::new();
    let mut wrong = Vec::new();
    for item in items.ok_or(Rejection::OutOfRange)?.iter() {
        match element(item) {
            Ok(value) if !taken.contains(&value) => taken.push(value),
            refused => {
                let twice =
                    || Rejection::Because("stands twice in the list".into(), "remove one".into());
                let why = refused.err().unwrap_or_else(twice);
                wrong.push(Wrong { span: Some(item.span()), why });
            }
        }
    }
    if wrong.is_empty() { Ok(taken) } else { Err(wrong) }
}

/// `node.labels`: at most 32 names, each with a text; everything wrong with them.
pub(super) fn labels(node: &Node<'_>) -> Result<BTreeMap<String, Label>, Vec<Wrong>> {
    let table = node.get_ref().as_table().filter(|table| table.len() <= 32);
    let mut labels = BTreeMap::new();
    let mut wrong = Vec::new();
    for (name, value) in table.ok_or(Rejection::OutOfRange)? {
        let text = name.get_ref();
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_./".contains(&b);
        if text.is_empty() || text.len() > 63 || !text.bytes().all(fits) {
            let remedy = "use 1 to 63 letters, digits and \"-\", \"_\", \".\", \"/\"";
            let why = Rejection::Because("is no name of a label".into(), remedy.into());
            wrong.push(Wrong { span: Some(name.span()), why });
            continue;
        }
        let label = value.get_ref().as_str().ok_or_else(|| "is no text".to_owned());
        match label.and_then(|text| Label::new(text).map_err(|error| error.to_string())) {
            Ok(label) => drop(labels.insert(text.to_string(), label)),
            Err(problem) => {
                let remedy = "use 1 to 256 bytes without control characters, in quotes";
                let why = Rejection::Because(problem, remedy.into());
                wrong.push(Wrong { span: Some(value.span()), why });
            }
        }
    }
    if wrong.is_empty() { Ok(labels) } else { Err(wrong) }
}

/// A program and its arguments, which may repeat.
pub(super) fn words(node: &Node<'_>, lengths: RangeInclusive<usize>) -> Taken<Vec<String>> {
    let items = node.get_ref().as_array().filter(|items| lengths.contains(&items.len()));
    let word = |item| {
        text(item).map(str::to_owned).and_then(|word| {
            let fits = !word.is_empty() && !word.chars().any(char::is_control);
            fits.then_some(word).ok_or(Rejection::OutOfRange)
        })
    };
    items.ok_or(Rejection::OutOfRange)?.iter().map(word).collect()
}

/// `tiers.io`: a word, or whether disks have tiers at all.
pub(super) fn disk_tiers(node: &Node<'_>) -> Taken<DiskTiers> {
    match (plain(node), node.get_ref().as_str()) {
        (Ok(true), _) | (_, Some("weights")) => Ok(DiskTiers::Weights),
        (_, Some("idle")) => Ok(DiskTiers::Idle),
        (Ok(false), _) => Ok(DiskTiers::Off),
        _ => Err(Rejection::OutOfRange),
    }
}

/// `tiers.slice`: a word, or how long.
pub(super) fn slice(node: &Node<'_>) -> Taken<SliceSetting> {
    let range = Duration::from_millis(1)..=Duration::from_millis(100);
    match node.get_ref().as_str() {
        Some("auto") => Ok(SliceSetting::Auto),
        Some("off") => Ok(SliceSetting::Off),
        _ => duration(node, range).map(SliceSetting::Fixed),
    }
}

impl Serialize for SliceSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            SliceSetting::Auto => serializer.serialize_str("auto"),
            SliceSetting::Off => serializer.serialize_str("off"),
            SliceSetting::Fixed(length) => quantity::show_duration(length, serializer),
        }
    }
}

impl Serialize for DiskTiers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            DiskTiers::Weights => serializer.serialize_bool(true),
            DiskTiers::Idle => serializer.serialize_str("idle"),
            DiskTiers::Off => serializer.serialize_bool(false),
        }
    }
}

/// `cgroup.version` other than `"auto"`.
pub(super) fn version(node: &Node<'_>) -> Taken<Version> {
    number(node, 1..=2).map(|number| if number == 1 { Version::V1 } else { Version::V2 })
}

/// As [`version`] reads it.
pub(super) fn show_version<S: Serializer>(
    version: &Auto<Version>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match version {
        Auto::Auto => serializer.serialize_str("auto"),
        Auto::Fixed(Version::V1) => serializer.serialize_u8(1),
        Auto::Fixed(Version::V2) => serializer.serialize_u8(2),
    }
}

/// A word for a bus, or its address.
pub(super) fn bus(node: &Node<'_>) -> Taken<Bus> {
    match text(node)? {
        "system" => Ok(Bus::System),
        "session" => Ok(Bus::Session),
        "off" => Ok(Bus::Off),
        address if !address.contains(':') => Err(Rejection::OutOfRange),
        // The bus says who calls. Over TCP neither side knows the other, and other kinds start
        // programs or look into an environment.
        address if address.split(';').any(|one| !one.starts_with("unix:")) => because(
            "is not the address of a unix socket, over which alone the kernel says who calls",
            "write it as \"unix:path=/run/my-bus\"",
        ),
        address if !address.contains(';') && names_a_socket(address) => {
            Ok(Bus::Address(address.to_owned()))
        }
        _ => because(
            "is no address of a bus (its keys are path or abstract, and guid)",
            "write it as \"unix:path=/run/my-bus\"",
        ),
    }
}

/// Whether `unix:...` names one socket (D-Bus specification, "Server Addresses"). Escaped bytes are not
/// read: zbus takes a path as it is written.
fn names_a_socket(address: &str) -> bool {
    let mut options = address.strip_prefix("unix:").unwrap_or_default().split(',');
    let mut sockets = 0;
    options.all(|option| match option.split_once('=') {
        Some(("path" | "abstract", value)) => {
            sockets += 1;
            !value.is_empty()
        }
        Some(("guid", value)) => {
            value.len() == 32 && value.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
        _ => false,
    }) && sockets == 1
}

/// An absolute path of a directory other than `/`.
pub(super) fn directory(node: &Node<'_>) -> Taken<PathBuf> {
    let written = text(node)?;
    absolute_path(written)?;
    let path: PathBuf = Path::new(written).components().collect();
    if path == Path::new("/") {
        return because("is the root of the file system", "name a directory of its own");
    }
    Ok(path)
}

fn absolute_path(written: &str) -> Taken<()> {
    if !written.starts_with('/') {
        return because("is not an absolute path", "start it with /");
    }
    if written.chars().any(char::is_control) {
        return because("has a control character", "use printable characters only");
    }
    if Path::new(written).components().any(|part| part == Component::ParentDir) {
        return because("has a \"..\" in it", "write the path without it");
    }
    Ok(())
}

/// `"unix:/absolute/path"`, at most [`MAX_SOCKET_PATH`] bytes of path.
pub(super) fn listen_address(node: &Node<'_>) -> Taken<PathBuf> {
    let written = text(node)?;
    let Some(path) = written.strip_prefix("unix:") else {
        if written.starts_with('/') {
            return because("is a bare path", format!("write \"unix:{}\"", excerpt(written)));
        }
        if written.contains(':') {
            return because(
                "not built yet in this version of LRS",
                "listen on \"unix:PATH\" and forward it, for example with ssh -L",
            );
        }
        return Err(Rejection::OutOfRange);
    };
    absolute_path(path)?;
    socket_length(path.len())?;
    if path.ends_with('/') {
        return because("names a directory", "name the socket itself");
    }
    Ok(PathBuf::from(path))
}

/// The address of a host, not its name, and a port.
pub(super) fn socket_address(node: &Node<'_>) -> Taken<String> {
    let address = text(node)?.parse::<std::net::SocketAddr>();
    let address = address.ok().filter(|address| address.port() != 0);
    address.map(|address| address.to_string()).ok_or(Rejection::OutOfRange)
}

/// Socket paths as [`listen_address`] reads them.
pub(super) fn show_sockets<S: Serializer>(
    paths: &[PathBuf],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| format!("unix:{}", path.to_string_lossy())))
}

/// Whether the kernel takes a socket path of so many bytes.
pub(super) fn socket_length(bytes: usize) -> Taken<()> {
    if bytes > MAX_SOCKET_PATH {
        return because(
            format!("the socket's path has {bytes} bytes; the kernel takes {MAX_SOCKET_PATH}"),
            "choose a shorter path",
        );
    }
    Ok(())
}

/// Longest component of a cgroup path in bytes (NAME_MAX), and longest path here: the mount
/// point, the root, a task's directory and a file name together must stay below PATH_MAX.
const MAX_COMPONENT: usize = 255;
const MAX_ROOT: usize = 1024;

/// `cgroup.root` other than `"auto"`.
pub(super) fn cgroup_root(node: &Node<'_>) -> Taken<RootPath> {
    let path = text(node)?;
    check_root(path).or_else(|(problem, remedy)| because(problem, remedy))?;
    Ok(RootPath(path.to_owned()))
}

fn check_root(text: &str) -> Result<(), (String, &'static str)> {
    if text == "auto" {
        return Err(("is the word for LRS's own choice".into(), "use another name"));
    }
    if text.starts_with('/') {
        return Err(("starts with \"/\"".into(), "write it relative to the cgroup mount: \"lrs\""));
    }
    if text.is_empty() || text.len() > MAX_ROOT {
        return Err((format!("has {} bytes", text.len()), "use 1 to 1024"));
    }
    for part in text.split('/') {
        if part.is_empty() {
            return Err(("has an empty component".into(), "use single slashes, none at the end"));
        }
        if part == "." || part == ".." {
            return Err((format!("has the component {part:?}"), "use plain names only"));
        }
        if part.len() > MAX_COMPONENT {
            return Err((format!("has a component of {} bytes", part.len()), "use at most 255"));
        }
        if part.chars().any(char::is_control) {
            return Err(("has a control character".into(), "use printable characters only"));
        }
        // The kernel keeps these names for its own files (cgroup-v2.rst, "Basic Operations").
        if part.starts_with("cgroup.") {
            return Err((
                format!("has the component {:?}", excerpt(part)),
                "names that start with \"cgroup.\" are the kernel's; choose another",
            ));
        }
    }
    Ok(())
}

/// A uid, or the name of an account.
pub(super) fn account(node: &Node<'_>) -> Taken<u32> {
    if node.get_ref().is_integer() {
        // 4294967295 is (uid_t) -1, "no uid" to the kernel.
        return number(node, 0..=u32::MAX - 1);
    }
    let name = text(node)?;
    match nix::unistd::User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) => {
            because("no account has this name", "write a uid without quotes")
        }
        Ok(None) => because("no account has this name", "create it, or name another"),
        Err(errno) => because(
            format!("cannot look up the account: {errno}"),
            "write its uid, or repair the account data base",
        ),
    }
}

/// Directives of a tracing filter.
pub(super) fn log_filter(node: &Node<'_>) -> Taken<String> {
    let directives = text(node)?;
    if directives.trim().is_empty() {
        return because("is empty", "write \"off\" for no log");
    }
    if directives.len() > 4096 || directives.chars().any(char::is_control) {
        return Err(Rejection::OutOfRange);
    }
    match tracing_subscriber::EnvFilter::builder().parse(directives) {
        Ok(_) => Ok(directives.to_owned()),
        Err(error) => because(
            format!("is no log filter: {}", excerpt(&error.to_string())),
            "write a level (error, warn, info, debug, trace, off) or directives such as \
             \"info,lrs::cgroup=debug\"",
        ),
    }
}

/// `http://host:port` or https, without a path, a query or credentials.
pub(super) fn address(node: &Node<'_>) -> Taken<String> {
    let written = text(node)?;
    let Some(rest) = written.strip_prefix("http://").or_else(|| written.strip_prefix("https://"))
    else {
        return because("has neither http:// nor https:// before it", "write it as a web address");
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':' | b'[' | b']');
    if authority.is_empty() || !authority.bytes().all(fits) {
        return because(
            "is not a scheme, a host and a port alone",
            "write it as \"http://host:8088\", without a path or a user",
        );
    }
    Ok(written.strip_suffix('/').unwrap_or(written).to_owned())
}

/// `host:port` as in the ResourceManager's list of nodes.
pub(super) fn node_id(node: &Node<'_>) -> Taken<NodeId> {
    text(node)?.parse().map_err(|_: NotANodeId| Rejection::OutOfRange)
}

/// `yarn.user`.
pub(super) fn user_name(node: &Node<'_>) -> Taken<String> {
    let name = text(node)?;
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let taken = (1..=64).contains(&name.len()) && name.bytes().all(fits);
    taken.then(|| name.to_owned()).ok_or(Rejection::OutOfRange)
}
