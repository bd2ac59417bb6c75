//! What each call takes on a standing connection, by number of tasks.

use std::cell::Cell;
use std::time::Duration;

use lrs::clock::boot_time;
use lrs::proto;

use crate::client::Rpc;
use crate::node::Node;
use crate::{Effort, section};
use lrs_bench::stats::Spread;

pub fn run(effort: Effort) {
    let calls = effort.pick(500, 50);
    section(&format!("Calls on a standing connection, ms (p50 / p99), {calls} each"));
    let sizes = effort.pick(&[10, 100, 1_000, 10_000][..], &[10, 100]);
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    for tasks in sizes {
        let mut node = Node::start("slots.expand = false\nslots.passive = 20000");
        node.nest(*tasks);
        for (row, (name, call)) in calls_of(node.rpc()).into_iter().enumerate() {
            let times: Vec<Duration> = (0..calls)
                .map(|_| {
                    let begun = boot_time();
                    call(node.rpc());
                    boot_time().since(begun)
                })
                .collect();
            let spread = Spread::millis(&times).expect("readings");
            let cell = format!("{:.3} / {:.3}", spread.median(), spread.quantile(0.99));
            match rows.get_mut(row) {
                Some((_, cells)) => cells.push(cell),
                None => rows.push((name, vec![cell])),
            }
        }
        node.end_all();
    }
    let heads: Vec<String> = sizes.iter().map(|tasks| format!("{tasks} tasks")).collect();
    println!("| call | {} |\n|---|{}", heads.join(" | "), "---|".repeat(sizes.len()));
    for (name, cells) in rows {
        println!("| {name} | {} |", cells.join(" | "));
    }
}

type Call = Box<dyn Fn(&Rpc)>;

fn calls_of(rpc: &Rpc) -> Vec<(&'static str, Call)> {
    let id = rpc.tasks().last().expect("a task").id.clone();
    let (explained, moved) = (id.clone(), id.clone());
    // The priority it has already would change nothing.
    let priority = Cell::new(0);
    vec![
        ("GetStatus", Box::new(|rpc| drop(rpc.status()))),
        ("ListTasks, all pages of 1,000", Box::new(|rpc| drop(rpc.tasks()))),
        (
            "GetTask",
            Box::new(move |rpc| {
                let request = proto::GetTaskRequest { id: id.clone() };
                rpc.call(async |mut client| client.get_task(request).await);
            }),
        ),
        (
            "ListJobs",
            Box::new(|rpc| {
                let request = proto::ListJobsRequest {};
                rpc.call(async |mut client| client.list_jobs(request).await);
            }),
        ),
        (
            "Explain",
            Box::new(move |rpc| {
                let request = proto::ExplainRequest { id: explained.clone() };
                rpc.call(async |mut client| client.explain(request).await);
            }),
        ),
        (
            "EvaluateJob",
            Box::new(|rpc| {
                let rate = Some(0.5);
                let request =
                    proto::EvaluateJobRequest { computing_rate: rate, ..Default::default() };
                rpc.call(async |mut client| client.evaluate_job(request).await);
            }),
        ),
        (
            "GetConfig",
            Box::new(|rpc| {
                let request = proto::GetConfigRequest {};
                rpc.call(async |mut client| client.get_config(request).await);
            }),
        ),
        (
            "SetPriority",
            Box::new(move |rpc| {
                priority.set(1 - priority.get());
                let request =
                    proto::SetPriorityRequest { id: moved.clone(), priority: priority.get() };
                rpc.call(async |mut client| client.set_priority(request).await);
            }),
        ),
        (
            "Reserve and CancelReservation",
            Box::new(|rpc| {
                let reservation = rpc.call(async |mut client| {
                    client.reserve(proto::ReserveRequest::default()).await
                });
                let request = proto::CancelReservationRequest { id: reservation.id };
                rpc.call(async |mut client| client.cancel_reservation(request).await);
            }),
        ),
    ]
}
