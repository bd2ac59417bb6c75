//! Compiles `proto/lrs/v1/shaper.proto` with protox, so that building LRS needs no
//! system protobuf compiler, and gives the messages the serde shape of `--json`.

use std::path::PathBuf;

use protox::prost::Message as _;

/// Enum fields, and the function of `wire` that spells each in JSON.
const ENUM_FIELDS: &[(&str, &str)] = &[
    ("Status.state", "node_state"),
    ("Status.mode", "mode"),
    ("Task.tier", "tier"),
    ("Task.class", "class"),
    ("Task.attachment", "attachment"),
    ("Job.class", "class"),
    ("EndedTask.tier", "tier"),
    ("EndedTask.class", "class"),
    ("Queued.tier", "tier"),
    ("Reservation.tier", "tier"),
    ("EvaluateJobResponse.advice", "advice"),
    ("YarnContainer.tier", "tier"),
];

const TIMESTAMP_FIELDS: &[&str] = &[
    "Status.started_at",
    "Node.sampled_at",
    "Guard.since",
    "Task.admitted_at",
    "Task.promoted_at",
    "Job.last_timed_at",
    "Event.at",
    "EndedTask.ended_at",
    "ListHistoryRequest.since",
    "Queued.since",
    "Queued.expires_at",
    "Reservation.expires_at",
    "YarnStatus.verified_at",
    "YarnStatus.last_error_at",
    "YarnStatus.reported_at",
    "YarnNodeManager.last_seen",
    "YarnResourceManager.last_seen",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../../proto");
    let descriptors = protox::compile(["lrs/v1/shaper.proto"], ["../../proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("lrs_v1_descriptor.bin"), descriptors.encode_to_vec())?;

    let mut build = tonic_prost_build::configure()
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
