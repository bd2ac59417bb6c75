//! A scheduler on the crate `lrs-api`: it reserves a slot, starts a task, admits it, and watches until all
//! have ended.
//!
//! ```sh
//! cargo run -p lrs-api --example scheduler [unix:/run/lrs/lrsd.sock]
//! ```

#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::process::{Child, Command, Stdio};

use lrs_api::client::{self, Connection, DEFAULT_ENDPOINT};
use lrs_api::proto::event_stream_item::Item;
use lrs_api::proto::{AdmitRequest, ReserveRequest, Tier, WatchEventsRequest};

/// A task: its process while it runs, its name, and what became of it.
struct Task {
    process: Option<Child>,
    name: String,
    story: Vec<String>,
}

/// Waits for its admission, so that it cannot end before; then some tenths of a second of computing.
fn command() -> std::io::Result<Child> {
    let compute = "read -r _; head -c 200M /dev/zero | sha256sum";
    let (stdin, stdout) = (Stdio::piped(), Stdio::null());
    Command::new("sh").args(["-c", compute]).stdin(stdin).stdout(stdout).spawn()
}

/// Starts what waits, while there are free slots.
async fn fill(
    node: &mut Connection,
    waiting: &mut VecDeque<String>,
    tasks: &mut BTreeMap<String, Task>,
) -> Result<(), Box<dyn Error>> {
    while !waiting.is_empty() {
        let request = ReserveRequest { job: Some("example".to_owned()), ..Default::default() };
        let reservation = match node.reserve(request).await {
            Ok(answer) => answer.into_inner(),
            // No free slot: the next event says when to ask again.
            Err(status) if status.code() == tonic::Code::ResourceExhausted => return Ok(()),
            Err(status) => return Err(status.into()),
        };
        let Some(name) = waiting.pop_front() else { break };
        let mut process = command()?;
        let request = AdmitRequest {
            pid: i32::try_from(process.id())?,
            name: Some(name.clone()),
            job: Some("example".to_owned()),
            reservation: Some(reservation.id),
            ..Default::default()
        };
        let task =
            node.admit(request).await?.into_inner().task.ok_or("an answer without a task")?;
        drop(process.stdin.take());
        let tier = match task.tier() {
            Tier::Active => "active",
            _ => "passive",
        };
        let story = vec![tier.to_owned()];
        tasks.insert(task.id, Task { process: Some(process), name, story });
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let endpoint = std::env::args().nth(1).unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
    let mut node = client::connect(&endpoint.parse()?, "example/1").await?;
    // From here on no event is missed.
    let mut events = node.watch_events(WatchEventsRequest::default()).await?.into_inner();
    let mut waiting: VecDeque<String> = (0..8).map(|number| format!("task-{number}")).collect();
    let mut tasks = BTreeMap::new();
    fill(&mut node, &mut waiting, &mut tasks).await?;
    while !waiting.is_empty() || tasks.values().any(|task: &Task| task.process.is_some()) {
        let item = events.message().await?.ok_or("the daemon has stopped")?;
        let Some(Item::Event(event)) = item.item else { continue };
        let task = event.task.as_ref().and_then(|id| tasks.get_mut(id));
        if let (Some(task), "promoted" | "demoted" | "completed") = (task, &*event.r#type) {
            task.story.push(event.r#type.clone());
            if event.r#type == "completed"
                && let Some(mut process) = task.process.take()
            {
                process.wait()?;
            }
        }
        fill(&mut node, &mut waiting, &mut tasks).await?;
    }
    for (id, task) in &tasks {
        println!("{id:20} {:8} {}", task.name, task.story.join(" -> "));
    }
    Ok(())
}
