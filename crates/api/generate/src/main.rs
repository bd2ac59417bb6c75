//! Writes `crates/api/src/proto/` from `proto/lrs/v1/shaper.proto`: the messages and the service with
//! the serde shape of `--json`, and the descriptors for reflection.
//!
//! ```text
//! cargo run -p lrs-api-generate               write them anew
//! cargo run -p lrs-api-generate -- --check    fail if they are not of the .proto as it stands
//! ```
//!
//! The files are kept in the repository, as tonic's own crates keep theirs: a protobuf compiler
//! (protox, needs no `protoc`) takes a quarter of the time that LRS takes to build, and the .proto
//! seldom changes. The gate runs `--check`.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use protox::prost::Message as _;

/// The file that tonic-prost-build names after the package.
const MESSAGES: &str = "lrs.v1.rs";

const DESCRIPTORS: &str = "descriptors.bin";

/// Enum fields, and the function of `wire` that spells each in JSON.
const ENUM_FIELDS: &[(&str, &str)] = &[
    ("Status.state", "node_state"),
    ("Status.mode", "mode"),
    ("PassiveSlots.bound", "bound"),
    ("Task.tier", "tier"),
    ("Task.class", "class"),
    ("Task.attachment", "attachment"),
    ("Job.class", "class"),
    ("Queued.class", "class"),
    ("EndedTask.tier", "tier"),
    ("EndedTask.class", "class"),
    ("Queued.tier", "tier"),
    ("Reservation.tier", "tier"),
    ("EvaluateJobResponse.advice", "advice"),
    ("YarnContainer.tier", "tier"),
];

const TIMESTAMP_FIELDS: &[&str] = &[
    "CgroupStatus.tested_at",
    "Status.started_at",
    "Node.sampled_at",
    "Guard.since",
    "Task.admitted_at",
    "Task.promoted_at",
    "Job.last_timed_at",
    "Event.at",
    "EndedTask.ended_at",
    "ListHistoryRequest.since",
    "ListHistoryRequest.until",
    "ListNodeHistoryRequest.since",
    "ListNodeHistoryRequest.until",
    "NodeFigures.at",
    "Queued.since",
    "Queued.expires_at",
    "Reservation.expires_at",
    "YarnStatus.verified_at",
    "YarnStatus.last_error_at",
    "YarnStatus.reported_at",
    "YarnNodeManager.last_seen",
    "YarnResourceManager.last_seen",
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let check = match env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => return Err(format!("{other}: takes --check or nothing").into()),
    };
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let kept = api.join("src/proto");
    let made = tempfile::tempdir()?;
    generate(&api.join("../../proto"), made.path())?;
    let mut differ = false;
    for file in [MESSAGES, DESCRIPTORS] {
        let new = fs::read(made.path().join(file))?;
        if !check {
            fs::write(kept.join(file), new)?;
        } else if fs::read(kept.join(file)).ok() != Some(new) {
            differ = true;
            eprintln!(
                "crates/api/src/proto/{file} is not of the .proto: cargo run -p lrs-api-generate"
            );
        }
    }
    Ok(if differ { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Writes both files into `out`.
fn generate(proto: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let descriptors = protox::compile(["lrs/v1/shaper.proto"], [proto])?;
    fs::write(out.join(DESCRIPTORS), descriptors.encode_to_vec())?;
    let mut build = tonic_prost_build::configure()
        .out_dir(out)
        .emit_rerun_if_changed(false)
        .type_attribute(".lrs.v1", "#[derive(serde::Serialize)]")
        .type_attribute(".lrs.v1", "#[allow(missing_docs)]")
        .btree_map(".lrs.v1")
        .field_attribute(
            ".lrs.v1.Event.inputs",
            "#[serde(serialize_with = \"crate::wire::object\")]",
        )
        .field_attribute(
            ".lrs.v1.IntegrationChange.inputs",
            "#[serde(serialize_with = \"crate::wire::object\")]",
        );
    for (field, function) in ENUM_FIELDS {
        build = build.field_attribute(
            format!(".lrs.v1.{field}"),
            format!("#[serde(serialize_with = \"crate::wire::{function}\")]"),
        );
    }
    for field in TIMESTAMP_FIELDS {
        build = build.field_attribute(
            format!(".lrs.v1.{field}"),
            "#[serde(serialize_with = \"crate::wire::timestamp\")]",
        );
    }
    build.compile_fds(descriptors)?;
    Ok(())
}
