//! Every call of the contract that is not a stream.

use std::sync::Arc;
use std::time::Duration;

use lrs::command::{
    Caller, Command, CommandError, ErrorKind, QueueId, QueueMark, QueuePage, QueueRequest, Subject,
    Wait,
};
use lrs::core::event::EventKind;
use lrs::core::exit::Exit;
use lrs::core::model::{Priority, ReservationId, WaiterId};
use lrs::core::state::Lease;
use lrs::core::step::Ticket;
use lrs::proto;
use lrs::proto::evaluate_job_response::Advice;
use lrs::publish::{EventRing, Snapshot};
use lrs::serve::Limits;
use lrs::units::{BootTime, Pid};
use tonic::Code;

use crate::bench::{Bench, event, soon, task, task_id};

fn this_process(caller: &Caller) {
    assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
    assert_eq!(caller.gids[0], rustix::process::getegid().as_raw());
    for gid in rustix::process::getgroups().unwrap() {
        assert!(caller.gids.contains(&gid.as_raw()), "{gid:?} is not in {:?}", caller.gids);
    }
    assert_eq!(caller.process.pid(), Pid::new(std::process::id() as i32));
}

#[tokio::test]
async fn admit_arrives_typed_and_is_answered() {
    let mut bench = Bench::start();
    let mut client = bench.client().await;
    let request = proto::AdmitRequest {
        pid: 0,
        name: Some("n/ä".into()),
        job: Some("j".into()),
        kind: Some("k".into()),
        priority: Some(i32::MIN),
        reservation: Some("r0000001-9".into()),
        in_place: true,
        keep_unit: true,
        wait_ms: 1500,
        ticket: Some("as it came".into()),
        ..Default::default()
    };
    let call = tokio::spawn(async move { client.admit(request).await });
    let Command::Admit { caller, request, reply } = bench.next_command().await else {
        panic!("not an Admit");
    };
    this_process(&caller);
    assert_eq!(
        Some(request.subject),
        caller.process.pid().map(Subject::Process),
        "pid 0 is the caller"
    );
    assert_eq!(request.labels.name.unwrap().as_str(), "n/ä");
    assert_eq!(request.labels.job.unwrap().as_str(), "j");
    assert_eq!(request.labels.kind.unwrap().as_str(), "k");
    assert_eq!(request.priority, Some(Priority(i32::MIN)));
    assert_eq!(request.reservation, Some(ReservationId { epoch: 1, number: 9 }));
    assert!(request.in_place && request.keep_unit);
    assert_eq!(request.wait, Wait::For(Duration::from_millis(1500)));
    assert_eq!(request.ticket.as_deref(), Some("as it came"));
    reply.send(Ok(task(3))).unwrap();
    assert_eq!(soon(call).await.unwrap().unwrap().into_inner().task, Some(task(3)));
}

#[tokio::test]
async fn the_other_commands_arrive_and_are_answered() {
    let mut bench = Bench::start();
    let client = bench.client().await;

    macro_rules! exchange {
        ($call:ident($request:expr), $pattern:pat => $reply:ident($answer:expr), $check:block) => {{
            let mut client = client.clone();
            let call = tokio::spawn(async move { client.$call($request).await });
            let command = bench.next_command().await;
            let $pattern = command else { panic!("{command:?}") };
            $check
            $reply.send($answer).unwrap();
            soon(call).await.unwrap()
        }};
    }

    let granted = proto::Reservation { id: "r0000001-5".into(), ..Default::default() };
    let answer = exchange!(
        reserve(proto::ReserveRequest {
            job: Some("j".into()),
            kind: None,
            priority: 4,
            ttl_ms: Some(250),
            wait_ms: 20,
            count: 3,
            ..Default::default()
        }),
        Command::Reserve { caller, request, reply } => reply(Ok(granted.clone())),
        {
            this_process(&caller);
            assert_eq!(request.labels.job.unwrap().as_str(), "j");
            assert_eq!(request.priority, Priority(4));
            let ttl = Some(Duration::from_millis(250));
            assert_eq!(request.lease, Lease { ttl, count: 3, active: false });
            assert_eq!(request.wait, Wait::For(Duration::from_millis(20)));
        }
    );
    assert_eq!(answer.unwrap().into_inner(), granted);

    exchange!(
        cancel_reservation(proto::CancelReservationRequest { id: "r0000001-5".into() }),
        Command::CancelReservation { caller, id, reply } => reply(Ok(())),
        {
            this_process(&caller);
            assert_eq!(id, QueueId::Reservation(ReservationId { epoch: 1, number: 5 }));
        }
    )
    .unwrap();

    let waiter = WaiterId { epoch: 1, number: 6 };
    exchange!(
        cancel_reservation(proto::CancelReservationRequest { id: waiter.to_string() }),
        Command::CancelReservation { id, reply, .. } => reply(Ok(())),
        { assert_eq!(id, QueueId::Waiter(waiter)) }
    )
    .unwrap();

    // A page says where the next one begins.
    let mark = QueueMark { seen: 1000, last: Ticket(8), granted: 70 };
    let entries = vec![proto::Queued { id: waiter.to_string(), ..Default::default() }];
    let page = QueuePage { entries, next: Some(mark) };
    let page = exchange!(
        list_queue(proto::ListQueueRequest::default()),
        Command::ListQueue { request, reply, .. } => reply(Ok(page)),
        { assert!(matches!(request, QueueRequest::Page { after: None, size: 1000 })) }
    );
    let page = page.unwrap().into_inner();
    assert_eq!(page.queue[0].id, waiter.to_string());
    let (page_token, page_size) = (page.next_page_token, u32::MAX);
    let page = exchange!(
        list_queue(proto::ListQueueRequest { page_token, page_size, ..Default::default() }),
        Command::ListQueue { request, reply, .. } => reply(Ok(QueuePage::default())),
        {
            let QueueRequest::Page { after, size } = request else { panic!("{request:?}") };
            assert_eq!((after, size), (Some(mark), 1000), "the loop lists so many at once");
        }
    );
    assert_eq!(page.unwrap().into_inner().next_page_token, "");

    exchange!(
        release(proto::ReleaseRequest { id: task_id(2).to_string() }),
        Command::Release { caller, id, reply } => reply(Ok(())),
        {
            this_process(&caller);
            assert_eq!(id, task_id(2));
        }
    )
    .unwrap();

    let answer = exchange!(
        set_priority(proto::SetPriorityRequest { id: task_id(2).to_string(), priority: -3 }),
        Command::SetPriority { caller, id, priority, reply } => reply(Ok(task(2))),
        {
            this_process(&caller);
            assert_eq!((id, priority), (task_id(2), Priority(-3)));
        }
    );
    assert_eq!(answer.unwrap().into_inner(), task(2));

    exchange!(
        drain(proto::DrainRequest {}),
        Command::Drain { caller, reply } => reply(Ok(())), { this_process(&caller) }
    )
    .unwrap();
    exchange!(
        resume(proto::ResumeRequest {}),
        Command::Resume { caller, reply } => reply(Ok(())), { this_process(&caller) }
    )
    .unwrap();
    let answer = exchange!(
        reload(proto::ReloadRequest {}),
        Command::Reload { caller, reply } => reply(Ok(vec!["slots.active".to_owned()])),
        { this_process(&caller) }
    );
    assert_eq!(answer.unwrap().into_inner().changed, ["slots.active"]);

    let tested =
        proto::CgroupStatus { cpu_effect: "verified".into(), ..proto::CgroupStatus::default() };
    let answer = exchange!(
        verify_tiers(proto::VerifyTiersRequest {}),
        Command::VerifyTiers { caller, reply } => reply(Ok(tested)), { this_process(&caller) }
    );
    assert_eq!(answer.unwrap().into_inner().cgroup.unwrap().cpu_effect, "verified");

    let (recorder, recorded) = lrs::executor::recorder::Recorder::new();
    let answer = exchange!(
        record(proto::RecordRequest {}),
        Command::Record { caller, reply } => reply(Ok(recorded)), { this_process(&caller) }
    );
    let first = soon(answer.unwrap().into_inner().message()).await.unwrap().unwrap();
    assert!(first.whole && !first.data.is_empty(), "the header is there before any input");
    drop(recorder);
}

#[tokio::test]
async fn refusals_keep_their_code_message_and_task() {
    let mut bench = Bench::start();
    let client = bench.client().await;
    let table = [
        (ErrorKind::InvalidArgument, Code::InvalidArgument),
        (ErrorKind::NotFound, Code::NotFound),
        (ErrorKind::AlreadyExists(task_id(8)), Code::AlreadyExists),
        (ErrorKind::NoFreeSlot, Code::ResourceExhausted),
        (ErrorKind::FailedPrecondition, Code::FailedPrecondition),
        (ErrorKind::PermissionDenied, Code::PermissionDenied),
        (ErrorKind::WaitTimedOut, Code::DeadlineExceeded),
        (ErrorKind::Unavailable, Code::Unavailable),
        (ErrorKind::Internal, Code::Internal),
    ];
    for (kind, code) in table {
        let mut client = client.clone();
        let request = proto::AdmitRequest { pid: 1, ..Default::default() };
        let call = tokio::spawn(async move { client.admit(request).await });
        let Command::Admit { reply, .. } = bench.next_command().await else {
            panic!("not an Admit");
        };
        // Long, with line ends and not ASCII: a header would not take it as it is.
        let message = format!("größe\n{}", "ü\n".repeat(20_000));
        reply.send(Err(CommandError::new(kind, message))).unwrap();
        let status = soon(call).await.unwrap().unwrap_err();
        assert_eq!(status.code(), code);
        assert!(status.message().starts_with("größe\nü\n"), "{status}");
        let id = status.metadata().get("lrs-task").map(|id| id.to_str().unwrap());
        assert_eq!(id, (code == Code::AlreadyExists).then_some("t0000001-8"));
    }
}

#[tokio::test]
async fn a_loop_that_goes_away_is_unavailable() {
    let mut bench = Bench::start();
    let mut client = bench.client().await;
    let call = {
        let mut client = client.clone();
        tokio::spawn(async move { client.drain(proto::DrainRequest {}).await })
    };
    drop(bench.next_command().await);
    assert_eq!(soon(call).await.unwrap().unwrap_err().code(), Code::Unavailable);

    bench.commands.close();
    let first = client.drain(proto::DrainRequest {}).await.unwrap_err();
    assert_eq!(first.code(), Code::Unavailable);
}

/// What a call of lrsctl's was given, and its answer.
type Ticketed = (Vec<String>, Result<proto::AdmitResponse, tonic::Status>);

async fn ticketed(channel: tonic::transport::Channel) -> Ticketed {
    let mut given = Vec::new();
    let request = proto::AdmitRequest { pid: 1, wait_forever: true, ..Default::default() };
    let answer = lrs_api::client::admit(channel, request, |ticket| given.push(ticket.to_owned()));
    let answer = answer.await;
    (given, answer)
}

#[tokio::test]
async fn who_waits_has_its_ticket_before_the_answer_and_the_answer_is_whole() {
    let mut bench = Bench::start();
    let channel = bench.channel().await;
    let refused = || CommandError::new(ErrorKind::AlreadyExists(task_id(8)), "größe\n");
    for (waits, answer) in
        [(true, Ok(task(3))), (true, Err(refused())), (false, Ok(task(3))), (false, Err(refused()))]
    {
        let call = tokio::spawn(ticketed(channel.clone()));
        let Command::Admit { request, reply, .. } = bench.next_command().await else {
            panic!("not an Admit");
        };
        let to = request.ticket_to.expect("its client asks for the ticket");
        if waits {
            to.try_send("1.2.3".to_owned()).unwrap();
            // Taken before there is an answer.
            soon(to.closed()).await;
        }
        let expected = answer.clone();
        reply.send(answer).unwrap();
        let (given, answer) = soon(call).await.unwrap();
        assert_eq!(given, if waits { vec!["1.2.3"] } else { vec![] });
        match (expected, answer) {
            (Ok(task), Ok(answer)) => assert_eq!(answer.task, Some(task)),
            (Err(_), Err(status)) => {
                assert_eq!((status.code(), status.message()), (Code::AlreadyExists, "größe\n"));
                assert_eq!(status.metadata().get("lrs-task").unwrap(), "t0000001-8");
            }
            (_, answer) => panic!("{answer:?}"),
        }
    }
    // A client that does not ask for it is answered as ever, by one head at the end.
    let mut client = bench.client().await;
    let request = proto::AdmitRequest { pid: 1, wait_forever: true, ..Default::default() };
    let call = tokio::spawn(async move { client.admit(request).await });
    let Command::Admit { request, reply, .. } = bench.next_command().await else {
        panic!("not an Admit");
    };
    assert!(request.ticket_to.is_none());
    reply.send(Ok(task(3))).unwrap();
    assert_eq!(soon(call).await.unwrap().unwrap().metadata().get("lrs-ticket"), None);
}

#[tokio::test]
async fn the_end_of_the_daemon_ends_a_call_that_has_its_ticket() {
    let mut bench = Bench::start();
    let call = tokio::spawn(ticketed(bench.channel().await));
    let Command::Admit { request, reply: _waits, .. } = bench.next_command().await else {
        panic!("not an Admit");
    };
    let to = request.ticket_to.unwrap();
    to.try_send("1.2.3".to_owned()).unwrap();
    soon(to.closed()).await;
    bench.begin_stop();
    let (given, answer) = soon(call).await.unwrap();
    assert_eq!(given, ["1.2.3"]);
    assert_eq!(answer.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn the_loop_notices_a_waiting_client_that_goes_away() {
    let mut bench = Bench::start();
    let mut client = bench.client().await;
    let request = proto::AdmitRequest { pid: 1, wait_forever: true, ..Default::default() };
    let call = tokio::spawn(async move { client.admit(request).await });
    let Command::Admit { request, mut reply, .. } = bench.next_command().await else {
        panic!("not an Admit");
    };
    assert_eq!(request.wait, Wait::Forever);
    assert!(!reply.is_closed());
    call.abort();
    soon(reply.closed()).await;
}

#[tokio::test]
async fn the_loop_notices_a_deadline_of_the_client() {
    let mut bench = Bench::start();
    let mut client = bench.client().await;
    let mut request = tonic::Request::new(proto::AdmitRequest {
        pid: 1,
        wait_forever: true,
        ..Default::default()
    });
    request.set_timeout(Duration::from_millis(50));
    let call = tokio::spawn(async move { client.admit(request).await });
    let Command::Admit { mut reply, .. } = bench.next_command().await else {
        panic!("not an Admit");
    };
    soon(reply.closed()).await;
    let code = soon(call).await.unwrap().unwrap_err().code();
    assert!(matches!(code, Code::DeadlineExceeded | Code::Cancelled), "{code:?}");
}

#[tokio::test]
async fn bad_fields_never_reach_the_loop() {
    let mut bench = Bench::start();
    let mut client = bench.client().await;
    let id = |id: &str| proto::GetTaskRequest { id: id.to_owned() };
    let long = "x".repeat(10_000);
    for (text, code) in [
        ("", Code::InvalidArgument),
        ("../../etc", Code::InvalidArgument),
        ("a\nb\u{1b}[31m", Code::InvalidArgument),
        (long.as_str(), Code::InvalidArgument),
        ("nothing", Code::NotFound),
        ("t0000001-1", Code::NotFound),
        ("r0000001-1", Code::NotFound),
    ] {
        let error = client.get_task(id(text)).await.unwrap_err();
        assert_eq!(error.code(), code, "{text:?}: {error}");
    }
    let error = client.release(proto::ReleaseRequest { id: "t1".into() }).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    let error = client
        .cancel_reservation(proto::CancelReservationRequest { id: "t0000001-1".into() })
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    let error = client
        .reserve(proto::ReserveRequest { job: Some("a\nb".into()), ..Default::default() })
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().starts_with("job "), "{error}");
    let error = client
        .list_tasks(proto::ListTasksRequest { page_token: "7".into(), page_size: 1 })
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    for (id, pid, page_token) in [
        (Some("w1"), None, ""),
        (Some("w0000001-1"), Some(1), ""),
        (None, Some(-1), ""),
        (None, None, "7"),
        (None, None, "1.2.3.4.5"),
    ] {
        let (id, page_token) = (id.map(str::to_owned), page_token.to_owned());
        let request = proto::ListQueueRequest { id, pid, page_token, page_size: 0 };
        client.list_queue(request).await.unwrap_err();
    }
    assert!(bench.commands.try_recv().is_err());
}

#[tokio::test]
async fn reading_calls_answer_from_the_snapshot() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    let job = proto::Job { job: "j".into(), running: 1, ..Default::default() };
    bench.publish(|snapshot| {
        snapshot.status =
            Arc::new(proto::Status { version: "1.2.3".into(), waiting: 7, ..Default::default() });
        snapshot.tasks.insert(task_id(1), Arc::new(task(1)));
        snapshot.jobs = Arc::new(vec![job.clone()]);
        snapshot.config_toml = "[slots]\n".into();
    });
    let status = client.get_status(proto::GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.version.as_str(), status.waiting), ("1.2.3", 7));
    let found = client.get_task(proto::GetTaskRequest { id: task_id(1).to_string() }).await;
    assert_eq!(found.unwrap().into_inner(), task(1));
    let jobs = client.list_jobs(proto::ListJobsRequest {}).await.unwrap().into_inner();
    assert_eq!(jobs.jobs, [job]);
    let config = client.get_config(proto::GetConfigRequest {}).await.unwrap().into_inner();
    assert_eq!(config.toml, "[slots]\n");
}

#[tokio::test]
async fn status_tells_the_age_of_the_last_turn_also_of_a_loop_that_publishes_nothing() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    let mut status =
        async || client.get_status(proto::GetStatusRequest {}).await.unwrap().into_inner();
    let ago = |seconds| {
        let now = lrs::clock::boot_time().0;
        bench.last_turn.ended(BootTime(now.saturating_sub(Duration::from_secs(seconds))));
    };
    ago(9);
    let well = status().await;
    assert!((9.0..10.0).contains(&well.last_turn_seconds.unwrap()), "{well:?}");
    assert!(well.warnings.is_empty(), "{well:?}");
    ago(11);
    let hangs = status().await;
    assert!(hangs.last_turn_seconds.unwrap() >= 11.0, "{hangs:?}");
    assert!(hangs.warnings[0].contains("has not turned for 11 s"), "{hangs:?}");
    bench.publish(|snapshot| {
        let node = Some(proto::Node { period_ms: 5000, ..Default::default() });
        snapshot.status = Arc::new(proto::Status { node, ..Default::default() });
    });
    assert!(status().await.warnings.is_empty(), "three cycles are not over");
    ago(16);
    assert_eq!(status().await.warnings.len(), 1);
}

#[tokio::test]
async fn a_wait_for_a_task_ends_with_it_and_says_how() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    let ids = [1, 2].map(|number| task_id(number).to_string());
    bench.publish(|snapshot| {
        for number in [1, 2] {
            snapshot.tasks.insert(task_id(number), Arc::new(task(number)));
        }
    });
    let asked = |id: &str, wait_ms| proto::WaitTaskRequest { id: id.to_owned(), wait_ms };
    let runs = client.wait_task(asked(&ids[0], Some(1))).await.unwrap_err();
    assert_eq!(runs.code(), Code::DeadlineExceeded);
    let calls = ids.clone().map(|id| {
        let (mut client, asked) = (client.clone(), asked(&id, None));
        tokio::spawn(async move { client.wait_task(asked).await })
    });
    bench.events.push(event(1, EventKind::Completed, &ids[0]));
    bench.events.push(event(2, EventKind::Released, &ids[1]));
    bench.publish(|snapshot| snapshot.tasks.clear());
    // How it ended may come after the end.
    let mut exit = event(3, EventKind::Exit, &ids[0]);
    Exit::Status(3).note(&mut exit.inputs);
    bench.events.push(exit);
    let [ended, released] = calls;
    let ended = soon(ended).await.unwrap().unwrap().into_inner();
    assert_eq!((&ended.id, ended.exit_status), (&ids[0], Some(3)));
    let released = soon(released).await.unwrap().unwrap_err();
    assert_eq!(released.code(), Code::FailedPrecondition, "{released}");
    // It has ended already, and one that is unknown.
    assert_eq!(client.wait_task(asked(&ids[0], None)).await.unwrap().into_inner(), ended);
    let unknown = client.wait_task(asked("t0000001-9", None)).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn ten_thousand_tasks_come_in_pages_below_the_default_message_size() {
    use prost::Message as _;
    const CLIENT_LIMIT: usize = 4 << 20;
    let bench = Bench::start();
    let mut client = bench.client().await;
    let typical = task(10_000).encoded_len();
    println!("a typical task has {typical} bytes");
    assert!((150..=400).contains(&typical), "a task has {typical} bytes: mend the page limits");
    // A third of them as large as the ranges of their fields allow.
    let large = |number| {
        let long = || Some("ü".repeat(128));
        let path = Some(format!("/{}", "p".repeat(4094)));
        proto::Task {
            name: long(),
            job: long(),
            kind: long(),
            cgroup: path.clone(),
            ratio_group: path,
            ..task(number)
        }
    };
    bench.publish(|snapshot| {
        for number in 1..=10_000 {
            let task = if number % 3 == 0 { large(number) } else { task(number) };
            snapshot.tasks.insert(task_id(number), Arc::new(task));
        }
    });
    for page_size in [0, 1, 999, 10_000, u32::MAX] {
        let wanted = if page_size == 1 { 20 } else { 10_000 };
        let (mut token, mut seen) = (String::new(), Vec::new());
        while seen.len() < wanted {
            let request = proto::ListTasksRequest { page_size, page_token: token };
            let page = client.list_tasks(request).await.unwrap().into_inner();
            assert!(page.encoded_len() < CLIENT_LIMIT, "{}", page.encoded_len());
            assert!(!page.tasks.is_empty());
            let most = if page_size == 0 { 1000 } else { page_size as usize };
            assert!(page.tasks.len() <= most);
            seen.extend(page.tasks.into_iter().map(|task| task.id));
            token = page.next_page_token;
            assert_eq!(token.is_empty(), seen.len() == 10_000, "{} seen", seen.len());
        }
        let expected: Vec<String> =
            (1..=wanted as u64).map(|number| task_id(number).to_string()).collect();
        assert_eq!(seen, expected);
    }
}

#[tokio::test]
async fn a_page_token_outlives_its_task() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    bench.publish(|snapshot| {
        for number in 1..=3 {
            snapshot.tasks.insert(task_id(number), Arc::new(task(number)));
        }
    });
    let request = |page_token| proto::ListTasksRequest { page_size: 2, page_token };
    let page = client.list_tasks(request(String::new())).await.unwrap().into_inner();
    bench.publish(|snapshot| {
        snapshot.tasks.remove(&task_id(2));
    });
    let page = client.list_tasks(request(page.next_page_token)).await.unwrap().into_inner();
    assert_eq!(page.tasks, [task(3)]);
    assert_eq!(page.next_page_token, "");
}

#[tokio::test]
async fn explain_tells_what_is_known() {
    let ring = EventRing::new(3, (1..=4).map(|seq| event(seq, EventKind::Promoted, "t0000001-1")));
    let bench = Bench::with(Limits::default(), ring);
    let mut client = bench.client().await;
    let ask = |id: &str| proto::ExplainRequest { id: id.to_owned() };

    let known = client.explain(ask("t0000001-1")).await.unwrap().into_inner();
    assert_eq!(known.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [2, 3, 4]);
    assert!(known.truncated);
    let first = &known.events[0];
    assert_eq!((first.r#type.as_str(), first.to.as_deref()), ("promoted", Some("active")));
    assert!(first.inputs.as_ref().unwrap().fields.contains_key("free"));

    let error = client.explain(ask("t0000001-2")).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    let error = client.explain(ask("T/2")).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);

    bench.publish(|snapshot| {
        snapshot.tasks.insert(task_id(2), Arc::new(task(2)));
    });
    let runs = client.explain(ask("t0000001-2")).await.unwrap().into_inner();
    assert!(runs.events.is_empty() && runs.truncated);

    bench.events.push(event(5, EventKind::Admitted, "t0000001-3"));
    let whole = client.explain(ask("t0000001-3")).await.unwrap().into_inner();
    assert!(!whole.truncated, "it begins with the admission");
}

#[tokio::test]
async fn evaluate_job_reads_rates_off_the_snapshot() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    let job = |name: &str, kind: Option<&str>, rate| proto::Job {
        job: name.into(),
        kind: kind.map(str::to_owned),
        computing_rate: rate,
        uid: Some(1000),
        ..Default::default()
    };
    bench.publish(|snapshot: &mut Snapshot| {
        snapshot.colocation_threshold = 0.125;
        snapshot.jobs = Arc::new(vec![
            job("a", Some("map"), Some(0.25)),
            job("a", None, Some(0.75)),
            job("fresh", None, None),
        ]);
    });
    let ask = |job: Option<&str>, kind: Option<&str>, rate, mean| proto::EvaluateJobRequest {
        job: job.map(str::to_owned),
        kind: kind.map(str::to_owned),
        computing_rate: rate,
        mean_computing_rate: mean,
        uid: None,
    };
    let empty = client.evaluate_job(ask(Some("a"), None, None, None)).await.unwrap().into_inner();
    assert_eq!(empty.advice(), Advice::Suits);
    assert_eq!((empty.new_rate, empty.mean_rate, empty.running), (None, Some(0.5), 0));
    assert_eq!(empty.threshold, 0.125);

    bench.publish(|snapshot| {
        let rates = [(Some(0.5), None), (None, Some("map")), (None, Some("reduce"))];
        for (number, (rate, kind)) in (1..).zip(rates) {
            let task = proto::Task {
                job: Some("a".into()),
                kind: kind.map(str::to_owned),
                computing_rate: rate,
                ..task(number)
            };
            snapshot.tasks.insert(task_id(number), Arc::new(task));
        }
    });
    // Running: 0.5 measured, 0.25 by its job, and one that stands for M = 0.5.
    let answer = client.evaluate_job(ask(Some("a"), None, None, None)).await.unwrap().into_inner();
    assert_eq!(answer.advice(), Advice::Suits);
    assert_eq!(answer.new_rate, Some((0.75 + 0.5 + 0.25 + 0.5) / 4.0));
    assert!(answer.reason.contains("1 of 3"), "{}", answer.reason);
    let answer = client.evaluate_job(ask(Some("a"), Some("map"), None, None)).await.unwrap();
    assert_eq!(answer.get_ref().new_rate, Some((0.25 + 0.5 + 0.25 + 0.5) / 4.0));
    assert_eq!(answer.get_ref().advice(), Advice::Suits);
    let answer = client.evaluate_job(ask(Some("a"), None, Some(1.0), Some(0.25))).await.unwrap();
    assert_eq!(answer.get_ref().new_rate, Some((1.0 + 0.5 + 0.25 + 0.25) / 4.0));
    assert_eq!(answer.get_ref().advice(), Advice::DoesNotSuit);
    let answer = client.evaluate_job(ask(Some("a"), None, Some(0.0), Some(1.0))).await.unwrap();
    assert_eq!(answer.get_ref().new_rate, Some((0.5 + 0.25 + 1.0) / 4.0), "a given rate wins");
    assert_eq!(answer.get_ref().mean_rate, Some(1.0));

    let all = client.evaluate_jobs(proto::EvaluateJobsRequest::default()).await.unwrap();
    let order: Vec<_> = all.get_ref().jobs.iter().map(|job| (job.job(), job.kind())).collect();
    assert_eq!(order, [("fresh", ""), ("a", ""), ("a", "map")], "samples, then the nearest to M");
    let scores = all.get_ref().jobs.iter().map(|job| job.evaluation.as_ref().unwrap().score);
    assert_eq!(scores.collect::<Vec<_>>(), [None, Some(0.0), Some(0.125)]);
    let many = proto::EvaluateJobsRequest { jobs: vec![ask(Some("a"), None, None, None); 1001] };
    let error = client.evaluate_jobs(many).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    // Another user's job of that name says nothing about one's own.
    let of = |uid| proto::EvaluateJobRequest { uid: Some(uid), ..ask(Some("a"), None, None, None) };
    bench.publish(|snapshot| {
        let jobs = snapshot.jobs.iter().cloned();
        snapshot.jobs = Arc::new(jobs.map(|job| proto::Job { uid: Some(7), ..job }).collect());
    });
    let answer = client.evaluate_job(of(7)).await.unwrap();
    assert_ne!(answer.get_ref().advice(), Advice::SampleFirst);
    let answer = client.evaluate_job(of(8)).await.unwrap();
    assert_eq!(answer.get_ref().advice(), Advice::SampleFirst);

    for unknown in ["fresh", "never-seen"] {
        let answer = client.evaluate_job(ask(Some(unknown), None, None, None)).await.unwrap();
        assert_eq!(answer.get_ref().advice(), Advice::SampleFirst);
    }
    for bad in [
        ask(None, None, None, None),
        ask(None, Some("map"), None, None),
        ask(None, None, Some(1.5), None),
        ask(None, None, Some(f64::NAN), None),
        ask(Some("a"), None, None, Some(-1.0)),
        ask(Some(""), None, None, None),
    ] {
        let error = client.evaluate_job(bad).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    }
}
