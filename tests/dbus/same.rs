//! One script through both transports, each on an lrsd of its own: the same answers, the same kinds
//! of error, the same words.

use std::collections::HashMap;
use std::sync::Arc;

use lrs::access::Access;
use lrs::command::YarnFound;
use lrs::proto;
use lrs::proto::shaper_client::ShaperClient;
use lrs::serve;
use serde_json::{Value as Json, json};
use tonic::transport::Channel;
use tonic::{Code, Status};
use zbus::Connection;
use zbus::zvariant::{DynamicType, OwnedObjectPath, Value};

use crate::bench::{Bench, name_owned, task, task_id};
use crate::bus::Bus;
use crate::client::{ERROR, manager, map, maps, soon, with};
use crate::daemon::{Lrsd, Process};

/// An answer, or the kind and message of the error; AlreadyExists with the task's id behind it.
type Outcome = Result<Json, (String, String)>;

/// One transport, spoken to in JSON: arguments as `--json` names them.
enum Transport {
    Grpc(ShaperClient<Channel>),
    DBus(Connection),
}

impl Transport {
    async fn call(&mut self, method: &str, arguments: &Json) -> Outcome {
        match self {
            Transport::Grpc(client) => soon(grpc(client, method, arguments)).await,
            Transport::DBus(client) => soon(dbus(client, method, arguments)).await,
        }
    }
}

fn text(arguments: &Json, field: &str) -> Option<String> {
    Some(arguments.get(field)?.as_str()?.to_owned())
}

fn id(arguments: &Json) -> String {
    text(arguments, "id").unwrap_or_default()
}

fn number<T: TryFrom<i64>>(arguments: &Json, field: &str) -> Option<T> {
    T::try_from(arguments.get(field)?.as_i64()?).ok()
}

async fn grpc(client: &mut ShaperClient<Channel>, method: &str, of: &Json) -> Outcome {
    let answer = match method {
        "GetStatus" => client.get_status(proto::GetStatusRequest {}).await.map(json_of),
        "GetYarn" => client.get_yarn(proto::GetYarnRequest {}).await.map(json_of),
        "GetTask" => client.get_task(proto::GetTaskRequest { id: id(of) }).await.map(json_of),
        "ListTasks" => client
            .list_tasks(proto::ListTasksRequest::default())
            .await
            .map(|answer| json!(answer.into_inner().tasks)),
        "ListQueue" => client
            .list_queue(proto::ListQueueRequest { id: text(of, "id"), ..Default::default() })
            .await
            .map(|answer| json!(answer.into_inner().queue)),
        "ListJobs" => client
            .list_jobs(proto::ListJobsRequest {})
            .await
            .map(|answer| json!(answer.into_inner().jobs)),
        "Admit" => {
            let request = proto::AdmitRequest {
                pid: number(of, "pid").unwrap(),
                name: text(of, "name"),
                job: text(of, "job"),
                kind: text(of, "kind"),
                group: text(of, "group"),
                command: text(of, "command"),
                hinted_rate: of["hinted_rate"].as_f64(),
                priority: number(of, "priority"),
                reservation: text(of, "reservation"),
                in_place: of["in_place"] == true,
                keep_unit: of["keep_unit"] == true,
                leave_unit: of["leave_unit"] == true,
                wait_ms: number(of, "wait_ms").unwrap_or(0),
                wait_forever: of["wait_forever"] == true,
                ticket: text(of, "ticket"),
                unit: text(of, "unit"),
            };
            client.admit(request).await.map(|answer| json!(answer.into_inner().task.unwrap().id))
        }
        "Reserve" => {
            let request = proto::ReserveRequest {
                job: text(of, "job"),
                kind: text(of, "kind"),
                group: text(of, "group"),
                hinted_rate: of["hinted_rate"].as_f64(),
                priority: number(of, "priority").unwrap_or(0),
                ttl_ms: number(of, "ttl_ms"),
                wait_ms: number(of, "wait_ms").unwrap_or(0),
                wait_forever: of["wait_forever"] == true,
                tier: if of["tier"] == "active" { 1 } else { 0 },
                count: 0,
            };
            client.reserve(request).await.map(|answer| {
                let granted = json!(answer.into_inner());
                json!([granted["id"], granted["tier"]])
            })
        }
        "CancelReservation" => client
            .cancel_reservation(proto::CancelReservationRequest { id: id(of) })
            .await
            .map(|_| Json::Null),
        "Release" => client.release(proto::ReleaseRequest { id: id(of) }).await.map(|_| Json::Null),
        "SetPriority" => client
            .set_priority(proto::SetPriorityRequest {
                id: id(of),
                priority: number(of, "priority").unwrap(),
            })
            .await
            .map(|_| Json::Null),
        "SetJobPriority" => {
            let request = proto::SetJobPriorityRequest {
                job: text(of, "job").unwrap(),
                uid: number(of, "uid"),
                priority: number(of, "priority").unwrap(),
            };
            client.set_job_priority(request).await.map(|answer| {
                let proto::SetJobPriorityResponse { tasks, waiting } = answer.into_inner();
                json!([tasks, waiting])
            })
        }
        "Drain" => client.drain(proto::DrainRequest {}).await.map(|_| Json::Null),
        "Resume" => client.resume(proto::ResumeRequest {}).await.map(|_| Json::Null),
        "Reload" => client
            .reload(proto::ReloadRequest {})
            .await
            .map(|answer| json!(answer.into_inner().changed)),
        "GetConfig" => client
            .get_config(proto::GetConfigRequest {})
            .await
            .map(|answer| json!(answer.into_inner().toml)),
        "Explain" => client.explain(proto::ExplainRequest { id: id(of) }).await.map(|answer| {
            let story = answer.into_inner();
            json!([story.events, story.truncated])
        }),
        "EvaluateJob" => {
            let request = proto::EvaluateJobRequest {
                job: text(of, "job"),
                kind: text(of, "kind"),
                computing_rate: of["computing_rate"].as_f64(),
                mean_computing_rate: of["mean_computing_rate"].as_f64(),
                uid: None,
            };
            client.evaluate_job(request).await.map(json_of)
        }
        "EvaluateJobs" => {
            let request = proto::EvaluateJobsRequest { jobs: Vec::new() };
            client.evaluate_jobs(request).await.map(|answer| json!(answer.into_inner().jobs))
        }
        "Events" => {
            let request = proto::WatchEventsRequest { since: Some(1), no_follow: true };
            let mut stream = client.watch_events(request).await.unwrap().into_inner();
            let mut events = Vec::new();
            while let Some(item) = stream.message().await.unwrap() {
                match item.item.unwrap() {
                    proto::event_stream_item::Item::Event(event) => events.push(event),
                    proto::event_stream_item::Item::Lost(lost) => panic!("{lost} lost"),
                }
            }
            Ok(json!(events))
        }
        _ => panic!("no method {method}"),
    };
    answer.map_err(|status: Status| {
        let kind = match status.code() {
            Code::ResourceExhausted => "NoFreeSlot".to_owned(),
            Code::DeadlineExceeded => "WaitTimedOut".to_owned(),
            code => format!("{code:?}"),
        };
        let task = status.metadata().get("lrs-task").map(|task| task.to_str().unwrap());
        let kind = task.into_iter().fold(kind, |kind, task| format!("{kind} {task}"));
        (kind, status.message().to_owned())
    })
}

fn json_of<T: serde::Serialize>(answer: tonic::Response<T>) -> Json {
    json!(answer.into_inner())
}

async fn dbus(client: &Connection, method: &str, of: &Json) -> Outcome {
    async fn call<B: serde::Serialize + DynamicType>(
        client: &Connection,
        method: &str,
        body: &B,
    ) -> Result<zbus::Message, (String, String)> {
        manager(client, method, body).await.map_err(|(name, message)| {
            let kind = name.strip_prefix(ERROR);
            (kind.unwrap_or_else(|| panic!("{name}: {message}")).to_owned(), message)
        })
    }
    let options = || -> HashMap<String, Value<'static>> {
        let object = of.as_object().unwrap();
        let named = object.iter().filter(|(name, _)| !["pid", "id"].contains(&name.as_str()));
        named.map(|(name, value)| (name.clone(), variant(value))).collect()
    };
    let list = |reply: &zbus::Message| {
        let body = reply.body();
        maps(&body.deserialize::<Vec<HashMap<String, Value<'_>>>>().unwrap())
    };
    Ok(match method {
        "GetStatus" | "GetYarn" => map(&call(client, method, &()).await?),
        "GetTask" => map(&call(client, method, &(id(of),)).await?),
        "ListTasks" | "ListJobs" => list(&call(client, method, &()).await?),
        "ListQueue" => {
            let of_id = text(of, "id").map(|id| with([("id", Value::from(id))]));
            list(&call(client, method, &(of_id.unwrap_or_default(),)).await?)
        }
        "Admit" => {
            let pid: i32 = number(of, "pid").unwrap();
            let reply = call(client, method, &(pid, options())).await?;
            json!(reply.body().deserialize::<(String, OwnedObjectPath)>().unwrap().0)
        }
        "Reserve" => {
            let reply = call(client, method, &(options(),)).await?;
            let (id, tier, _): (String, String, String) = reply.body().deserialize().unwrap();
            json!([id, tier])
        }
        "CancelReservation" | "Release" => {
            call(client, method, &(id(of),)).await?;
            Json::Null
        }
        "SetPriority" => {
            let priority: i32 = number(of, "priority").unwrap();
            call(client, method, &(id(of), priority)).await?;
            Json::Null
        }
        "SetJobPriority" => {
            let (job, priority) =
                (text(of, "job").unwrap(), number::<i32>(of, "priority").unwrap());
            let uid = number::<u32>(of, "uid").map(|uid| with([("uid", Value::from(uid))]));
            let reply = call(client, method, &(job, priority, uid.unwrap_or_default())).await?;
            json!(reply.body().deserialize::<(u32, u32)>().unwrap())
        }
        "Drain" | "Resume" => {
            call(client, method, &()).await?;
            Json::Null
        }
        "Reload" => {
            let reply = call(client, method, &()).await?;
            json!(reply.body().deserialize::<Vec<String>>().unwrap())
        }
        "GetConfig" => {
            let reply = call(client, method, &()).await?;
            json!(reply.body().deserialize::<String>().unwrap())
        }
        "Explain" => {
            let reply = call(client, method, &(id(of),)).await?;
            let body = reply.body();
            let (events, truncated): (Vec<HashMap<String, Value<'_>>>, bool) =
                body.deserialize().unwrap();
            json!([maps(&events), truncated])
        }
        "EvaluateJob" => map(&call(client, method, &(options(),)).await?),
        "EvaluateJobs" => {
            let none = Vec::<HashMap<&str, Value<'_>>>::new();
            let reply = call(client, method, &(none,)).await?;
            let body = reply.body();
            let jobs: Vec<HashMap<String, Value<'_>>> = body.deserialize().unwrap();
            maps(&jobs)
        }
        "Events" => {
            let reply = call(client, method, &(1u64, 0u32)).await?;
            let body = reply.body();
            let (events, lost): (Vec<HashMap<String, Value<'_>>>, u64) =
                body.deserialize().unwrap();
            assert_eq!(lost, 0);
            maps(&events)
        }
        _ => panic!("no method {method}"),
    })
}

fn variant(json: &Json) -> Value<'static> {
    match json {
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::from(number),
            None => Value::from(number.as_f64().unwrap()),
        },
        Json::String(text) => Value::from(text.clone()),
        other => panic!("no option: {other}"),
    }
}

/// Fields that differ from run to run.
const OF_THE_MOMENT: &[&str] = &[
    "node",
    "daemon",
    "started_at",
    "at",
    "admitted_at",
    "promoted_at",
    "expires_at",
    "warnings",
    "pid",
    "computing_rate_raw",
    "cpu_seconds",
    "cpu_share",
    "write_bytes_per_sec",
    "read_bytes_per_sec",
    "elapsed_seconds",
    "resident_bytes",
    "expected_remaining_seconds",
    "duration_seconds",
    "duration_spread_seconds",
    "last_timed_at",
    "rated",
    "rate_sum",
    "next_free_slot_seconds",
    "last_turn_seconds",
    "inputs",
];

/// What must be equal: without null and what is of the moment, with names in place of this
/// run's ids, pids and paths.
fn comparable(json: Json, names: &[(String, String)]) -> Json {
    match json {
        Json::Object(object) => Json::Object(
            object
                .into_iter()
                .filter(|(name, value)| !value.is_null() && !OF_THE_MOMENT.contains(&name.as_str()))
                .map(|(name, value)| (name, comparable(value, names)))
                .filter(|(_, value)| *value != json!({}))
                .collect(),
        ),
        Json::Array(items) => items.into_iter().map(|item| comparable(item, names)).collect(),
        Json::String(text) => json!(renamed(text, names)),
        other => other,
    }
}

/// With other names; a pid within a longer number (a uid) is none.
fn renamed(text: String, names: &[(String, String)]) -> String {
    names.iter().fold(text, |text, (found, name)| {
        let mut parts = text.split(found.as_str());
        let mut renamed = parts.next().unwrap_or_default().to_owned();
        let is_number = found.bytes().all(|byte| byte.is_ascii_digit());
        for part in parts {
            let within = is_number
                && (renamed.ends_with(|c: char| c.is_ascii_digit())
                    || part.starts_with(|c: char| c.is_ascii_digit()));
            renamed += if within { found } else { name };
            renamed += part;
        }
        renamed
    })
}

#[test]
fn a_pid_within_a_uid_is_not_renamed() {
    let names = [("4321".to_owned(), "P0".to_owned()), ("/x".to_owned(), "DIR".to_owned())];
    let text = renamed("uid 54321, pid 4321, /x/4321 and 43210".to_owned(), &names);
    assert_eq!(text, "uid 54321, pid P0, DIR/P0 and 43210");
}

/// Plays the script; every answer in comparable form.
async fn play(transport: &mut Transport, lrsd: &Lrsd, bus: &Bus) -> Vec<(String, Json)> {
    let processes = [Process::start(), Process::start(), Process::start()];
    let dead = {
        let process = Process::start();
        process.pid()
    };
    let mut names = vec![
        (lrsd.dir.path().display().to_string(), "DIR".to_owned()),
        (lrsd.dir.path().file_name().unwrap().to_string_lossy().into_owned(), "ROOT".to_owned()),
        (bus.address(), "BUS".to_owned()),
        (dead.to_string(), "DEAD".to_owned()),
    ];
    for (number, process) in processes.iter().enumerate() {
        names.push((process.pid().to_string(), format!("P{number}")));
    }
    let [p0, p1, p2] = [0, 1, 2].map(|number: usize| processes[number].pid());
    let mut answers = Vec::new();
    macro_rules! step {
        ($method:expr, $arguments:expr) => {{
            let arguments = $arguments;
            let outcome = transport.call($method, &arguments).await;
            answers.push(($method, arguments, outcome.clone()));
            outcome
        }};
    }

    let _ = step!("GetStatus", json!({}));
    let _ = step!("GetConfig", json!({}));
    step!("GetYarn", json!({})).unwrap();
    let first =
        step!("Admit", json!({"pid": p0, "name": "a", "job": "j", "kind": "map", "group": "g"}))
            .unwrap();
    let first = first.as_str().unwrap().to_owned();
    names.push((first.clone(), "T0".to_owned()));
    let _ = step!("Admit", json!({"pid": p0}));
    let second = step!("Admit", json!({"pid": p1, "job": "j", "priority": -1})).unwrap();
    let second = second.as_str().unwrap().to_owned();
    names.push((second.clone(), "T1".to_owned()));
    for refused in [
        json!({"pid": p2}),
        json!({"pid": p2, "wait_ms": 20}),
        json!({"pid": dead}),
        json!({"pid": -1}),
        json!({"pid": 1}),
        json!({"pid": p2, "name": ""}),
        json!({"pid": p2, "kind": "a\u{1b}[2J"}),
        json!({"pid": p2, "group": "g".repeat(257)}),
        json!({"pid": p2, "reservation": "../x"}),
        json!({"pid": p2, "reservation": "r0000001-1"}),
        json!({"pid": p2, "wait_ms": 1, "wait_forever": true}),
        json!({"pid": p2, "unit": "cron.service"}),
        json!({"pid": 0, "unit": "a\nb.service"}),
        json!({"pid": 0, "unit": "-.slice"}),
        json!({"pid": 0, "unit": "init.scope"}),
    ] {
        step!("Admit", refused).unwrap_err();
    }
    for refused in [
        json!({}),
        json!({"wait_ms": 20}),
        json!({"tier": "active"}),
        json!({"tier": "active", "wait_ms": 20}),
        json!({"wait_ms": 1, "wait_forever": true}),
    ] {
        step!("Reserve", refused).unwrap_err();
    }
    step!("SetPriority", json!({"id": second, "priority": 5})).unwrap();
    step!("SetJobPriority", json!({"job": "j", "priority": 4})).unwrap();
    for refused in [
        json!({"job": "j", "uid": 54321, "priority": 4}),
        json!({"job": "never", "priority": 4}),
        json!({"job": "", "priority": 4}),
    ] {
        step!("SetJobPriority", refused).unwrap_err();
    }
    for id in [&*first, &*second, "t0000001-9", "../x", ""] {
        let _ = step!("GetTask", json!({"id": id}));
        let _ = step!("Explain", json!({"id": id}));
    }
    for (method, arguments) in [
        ("SetPriority", json!({"id": "t0000001-9", "priority": 0})),
        ("Release", json!({"id": "t0000001-9"})),
        ("Release", json!({"id": "ü"})),
        ("CancelReservation", json!({"id": "r0000001-9"})),
    ] {
        step!(method, arguments).unwrap_err();
    }
    step!("ListTasks", json!({})).unwrap();
    step!("ListQueue", json!({})).unwrap();
    step!("ListQueue", json!({"id": "w0000001-9"})).unwrap_err();
    step!("ListJobs", json!({})).unwrap();
    step!("Release", json!({"id": first})).unwrap();
    step!("Release", json!({"id": first})).unwrap_err();
    let reserved =
        step!("Reserve", json!({"job": "j", "group": "g", "priority": -3, "ttl_ms": 60_000}))
            .unwrap();
    let reservation = reserved[0].as_str().unwrap().to_owned();
    names.push((reservation.clone(), "R0".to_owned()));
    step!("CancelReservation", json!({"id": reservation})).unwrap();
    step!("CancelReservation", json!({"id": reservation})).unwrap_err();
    step!("Admit", json!({"pid": p2, "reservation": reservation})).unwrap_err();
    step!("Reserve", json!({"ttl_ms": 1})).unwrap_err();
    step!("Drain", json!({})).unwrap();
    step!("Admit", json!({"pid": p2})).unwrap_err();
    step!("Resume", json!({})).unwrap();
    step!("Reload", json!({})).unwrap();
    lrsd.configure("tiers.ratio = 0\n");
    step!("Reload", json!({})).unwrap_err();
    for question in [
        json!({}),
        json!({"job": "never"}),
        json!({"computing_rate": 2.0}),
        json!({"computing_rate": 0.5, "mean_computing_rate": 0.1}),
    ] {
        let _ = step!("EvaluateJob", question);
    }
    step!("EvaluateJobs", json!({})).unwrap();
    step!("GetStatus", json!({})).unwrap();
    step!("Events", json!({})).unwrap();
    // At the end, when every name is known.
    let shown = |(method, arguments, outcome): (&str, Json, Outcome)| {
        let outcome = match outcome {
            Ok(answer) => json!({"ok": comparable(answer, &names)}),
            Err((kind, message)) => {
                json!({"error": renamed(kind, &names), "says": renamed(message, &names)})
            }
        };
        (format!("{method} {}", comparable(arguments, &names)), outcome)
    };
    answers.into_iter().map(shown).collect()
}

#[tokio::test]
async fn both_servers_give_the_same_answers() {
    let bus = Bus::start();
    let one = Lrsd::start(&bus).await;
    name_owned(&bus).await;
    let other_bus = Bus::start();
    let other = Lrsd::start(&other_bus).await;
    let over_dbus = play(&mut Transport::DBus(bus.connect().await), &one, &bus).await;
    let over_grpc = play(&mut Transport::Grpc(other.grpc().await), &other, &other_bus).await;
    assert_eq!(over_dbus.len(), over_grpc.len());
    for (dbus, grpc) in over_dbus.iter().zip(&over_grpc) {
        assert_eq!(dbus, grpc);
    }
}

/// A YARN node about which everything is known.
fn yarn() -> proto::YarnStatus {
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 6_000 });
    let resource = |memory_mib, vcores| Some(proto::YarnResource { memory_mib, vcores });
    proto::YarnStatus {
        enabled: true,
        node_manager: Some(proto::YarnNodeManager {
            url: Some("http://localhost:8042".into()),
            node_id: Some("node1:45454".into()),
            version: Some("3.5.0".into()),
            state: Some("RUNNING".into()),
            last_seen: at(1_767_323_045),
            error: Some("refused".into()),
        }),
        resource_manager: Some(proto::YarnResourceManager {
            urls: vec!["http://rm1:8088".into(), "http://rm2:8088".into()],
            active: Some("http://rm2:8088".into()),
            version: Some("3.5.0".into()),
            ha_state: Some("ACTIVE".into()),
            last_seen: at(1_767_323_046),
            error: Some("hangs".into()),
        }),
        configured: resource(8192, 8),
        advertised: resource(9216, 9),
        offered: resource(10_240, 10),
        offer_enabled: true,
        offer_by: "rest".into(),
        verified: Some(false),
        verified_at: at(1_767_323_047),
        containers: Vec::new(),
        last_error: Some("it still shows 9216 MiB".into()),
        last_error_at: at(1_767_323_048),
        reported_at: at(1_767_323_049),
        node_managers: None,
        site: resource(4096, 4),
    }
}

/// One that is a task, one with a task that has ended, one that is none.
fn yarn_containers() -> Vec<proto::YarnContainer> {
    let container = |number: u64, task: Option<u64>, ignored: Option<&str>| proto::YarnContainer {
        id: format!("container_1700000000000_0001_01_00000{number}"),
        application: Some("application_1700000000000_0001".into()),
        kind: Some("map".into()),
        queue: Some("root.ä".into()),
        execution_type: Some("GUARANTEED".into()),
        task: task.map(|task| task_id(task).to_string()),
        ignored_reason: ignored.map(str::to_owned),
        ..Default::default()
    };
    vec![
        container(2, Some(1), None),
        container(3, Some(9), None),
        container(4, None, Some("a finite MemoryMax=")),
    ]
}

/// The real lrsd of the script is on no YARN node: here both transports show one snapshot.
#[tokio::test]
async fn both_servers_report_the_same_of_yarn() {
    let bench = Bench::start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lrsd.sock");
    let socket = serve::bind(&path).unwrap();
    let (commands, _taken) = lrs::access::queue().unwrap();
    let (snapshot, events) = (bench.snapshot.subscribe(), Arc::clone(&bench.events));
    let access = Access::new(commands, snapshot, events);
    tokio::spawn(serve::serve(socket, access, serve::Health::new(), std::future::pending()));
    let endpoint = format!("unix:{}", path.display());
    let mut over_grpc = Transport::Grpc(soon(ShaperClient::connect(endpoint)).await.unwrap());
    let mut over_dbus = Transport::DBus(bench.bus.connect().await);
    let mut answers = Vec::new();
    for complete in [false, true] {
        bench.publish(|snapshot| {
            snapshot.tasks.insert(task_id(1), Arc::new(task(1)));
            if complete {
                snapshot.yarn = Some(Arc::new(yarn()));
                let containers = yarn_containers();
                snapshot.yarn_found =
                    Arc::new(YarnFound { containers, node_managers: Some(2), problem: None });
            }
        });
        let grpc = comparable(over_grpc.call("GetYarn", &json!({})).await.unwrap(), &[]);
        let dbus = comparable(over_dbus.call("GetYarn", &json!({})).await.unwrap(), &[]);
        assert_eq!(dbus, grpc);
        answers.push(dbus);
    }
    assert_eq!(answers[0]["enabled"], false);
    let containers = &answers[1]["containers"];
    assert_eq!((&containers[0]["tier"], &containers[1]["task"]), (&json!("passive"), &Json::Null));
    assert_eq!(answers[1]["resource_manager"]["urls"][1], "http://rm2:8088");
    assert_eq!(answers[1]["verified_at"], "2026-01-02T03:04:07.000006Z");
}
