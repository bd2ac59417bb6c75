//! polkit adds to the table of rights: a polkit played by the test, on the same bus.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use lrs::command::{Caller, Command, CommandError, ErrorKind, Wait};
use lrs::dbus::Limits;
use lrs::rights::Role;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use zbus::Connection;
use zbus::message::Message;
use zbus::zvariant::OwnedValue;

use crate::bench::{Bench, limits, task};
use crate::bus::Bus;
use crate::client::{ERROR, manager, none, soon, with};

/// Answers by the action that is asked for and whether a person may be asked. For a task it is
/// a person who never comes.
struct Authority {
    calls: mpsc::UnboundedSender<Call>,
    free: Arc<Notify>,
}

/// The calls that polkit got.
#[derive(Debug, PartialEq, Eq)]
enum Call {
    Asked { details: BTreeMap<String, String>, id: String },
    TakenBack(String),
}

#[zbus::interface(name = "org.freedesktop.PolicyKit1.Authority")]
impl Authority {
    async fn check_authorization(
        &self,
        subject: (String, HashMap<String, OwnedValue>),
        action: String,
        details: BTreeMap<String, String>,
        flags: u32,
        cancellation: String,
    ) -> ((bool, bool, HashMap<String, String>),) {
        assert_eq!(subject.0, "system-bus-name");
        assert!(subject.1.contains_key("name"));
        let waits = details["method"] == "Admit";
        self.calls.send(Call::Asked { details, id: cancellation }).unwrap();
        if waits {
            self.free.notified().await;
        }
        let (allowed, challenge) = match (action.as_str(), flags) {
            ("org.lrs.Shaper1.operate", 1) => (true, false),
            ("org.lrs.Shaper1.operate", _) => (false, true),
            ("org.lrs.Shaper1.manage-tasks", _) => (waits, false),
            (action, _) => panic!("no action of ours: {action}"),
        };
        ((allowed, challenge, HashMap::new()),)
    }

    fn cancel_check_authorization(&self, id: String) {
        self.calls.send(Call::TakenBack(id)).unwrap();
    }
}

/// polkit on the bus of a server that trusts it.
struct Polkit {
    _bus: Connection,
    calls: mpsc::UnboundedReceiver<Call>,
    free: Arc<Notify>,
}

impl Polkit {
    async fn start(bus: &Bus) -> Polkit {
        let bus = bus.connect().await;
        let (sender, calls) = mpsc::unbounded_channel();
        let free = Arc::new(Notify::new());
        let authority = Authority { calls: sender, free: Arc::clone(&free) };
        bus.object_server().at("/org/freedesktop/PolicyKit1/Authority", authority).await.unwrap();
        bus.request_name("org.freedesktop.PolicyKit1").await.unwrap();
        Polkit { _bus: bus, calls, free }
    }

    /// The details of the next question, and its id.
    async fn asked(&mut self) -> (BTreeMap<String, String>, String) {
        match soon(self.calls.recv()).await.unwrap() {
            Call::Asked { details, id } => (details, id),
            other => panic!("{other:?}"),
        }
    }
}

async fn trusting() -> (Bench, Polkit) {
    let limits = Limits { trust_polkit: true, ..limits() };
    let bench = Bench::with(Bus::start(), limits).await;
    let polkit = Polkit::start(&bench.bus).await;
    (bench, polkit)
}

fn denied() -> CommandError {
    CommandError::new(ErrorKind::PermissionDenied, "may only read")
}

#[tokio::test]
async fn polkit_is_asked_once_the_table_has_refused() {
    let (mut bench, mut polkit) = trusting().await;
    let client = bench.bus.connect().await;

    // Allowed after asking: the same command comes again, with more rights for this once.
    let message = zbus::message::Message::method_call("/org/lrs/Shaper1", "Drain")
        .unwrap()
        .destination("org.lrs.Shaper1")
        .unwrap()
        .interface("org.lrs.Shaper1.Manager")
        .unwrap()
        .with_flags(zbus::message::Flags::AllowInteractiveAuth)
        .unwrap()
        .build(&())
        .unwrap();
    client.send(&message).await.unwrap();
    let Command::Drain { caller, reply } = bench.next_command().await else { panic!("no Drain") };
    assert_eq!(caller.granted, None);
    reply.send(Err(denied())).unwrap();
    let Command::Drain { caller: again, reply } = bench.next_command().await else {
        panic!("no Drain")
    };
    assert_eq!(again, Caller { granted: Some(Role::Admin), ..caller });
    reply.send(Ok(())).unwrap();
    let (details, _) = polkit.asked().await;
    assert_eq!(details, BTreeMap::from([("method".into(), "Drain".into())]));

    // No user may be asked.
    let asking = client.clone();
    let asked = tokio::spawn(async move { manager(&asking, "Resume", &()).await });
    let Command::Resume { reply, .. } = bench.next_command().await else { panic!("no Resume") };
    reply.send(Err(denied())).unwrap();
    let error = soon(asked).await.unwrap().unwrap_err();
    assert_eq!(error.0, "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired");
    assert!(error.1.starts_with("may only read; polkit would ask"), "{error:?}");

    // polkit says no: the table's own refusal stands.
    let asking = client.clone();
    let asked = tokio::spawn(async move { manager(&asking, "Reserve", &(none(),)).await });
    let Command::Reserve { reply, .. } = bench.next_command().await else { panic!("no Reserve") };
    reply.send(Err(denied())).unwrap();
    let error = soon(asked).await.unwrap().unwrap_err();
    assert_eq!(error, (format!("{ERROR}PermissionDenied"), "may only read".to_owned()));
}

/// An Admit that the table refuses; polkit has been asked when this returns.
async fn admit_refused(
    bench: &mut Bench,
    client: &Connection,
    pid: i32,
) -> JoinHandle<Result<Message, (String, String)>> {
    let client = client.clone();
    let options = with([("wait_ms", 3_600_000u64.into())]);
    let asked = tokio::spawn(async move { manager(&client, "Admit", &(pid, options)).await });
    let Command::Admit { reply, .. } = bench.next_command().await else { panic!("no Admit") };
    reply.send(Err(denied())).unwrap();
    asked
}

#[tokio::test]
async fn what_was_granted_is_for_the_process_that_was_asked_about() {
    let (mut bench, mut polkit) = trusting().await;
    let client = bench.bus.connect().await;
    let pid = std::process::id();
    let asked = admit_refused(&mut bench, &client, pid as i32).await;
    let (details, _) = polkit.asked().await;
    let about = [("method", "Admit".to_owned()), ("pid", pid.to_string())];
    assert_eq!(details, BTreeMap::from(about.map(|(name, value)| (name.into(), value))));
    polkit.free.notify_one();
    let Command::Admit { caller, request, reply } = bench.next_command().await else {
        panic!("no Admit")
    };
    assert_eq!(caller.granted, Some(Role::Admin));
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let started = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    assert_eq!(request.start_ticks, Some(started.parse().unwrap()));
    let Wait::For(left) = request.wait else { panic!("{:?}", request.wait) };
    assert!(left < Duration::from_millis(3_600_000), "the time polkit took counts: {left:?}");
    reply.send(Ok(task(1))).unwrap();
    soon(asked).await.unwrap().unwrap();

    // No user can say yes to a process that has ended.
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let asked = admit_refused(&mut bench, &client, child.id() as i32).await;
    let error = soon(asked).await.unwrap().unwrap_err();
    assert_eq!(error, (format!("{ERROR}PermissionDenied"), "may only read".to_owned()));
    assert!(polkit.calls.try_recv().is_err());
}

#[tokio::test]
async fn a_question_is_taken_back_when_its_caller_leaves() {
    let (mut bench, mut polkit) = trusting().await;
    let client = bench.bus.connect().await;
    let asked = admit_refused(&mut bench, &client, std::process::id() as i32).await;
    let (_, id) = polkit.asked().await;
    asked.abort();
    let _ = asked.await;
    client.close().await.unwrap();
    assert_eq!(soon(polkit.calls.recv()).await, Some(Call::TakenBack(id)));
}

/// On any bus but the system's anybody may take polkit's name.
#[tokio::test]
async fn a_polkit_on_another_bus_is_not_asked() {
    let mut bench = Bench::start().await;
    let mut polkit = Polkit::start(&bench.bus).await;
    let client = bench.bus.connect().await;
    let asked = admit_refused(&mut bench, &client, std::process::id() as i32).await;
    let error = soon(asked).await.unwrap().unwrap_err();
    assert_eq!(error, (format!("{ERROR}PermissionDenied"), "may only read".to_owned()));
    assert!(polkit.calls.try_recv().is_err() && bench.commands.try_recv().is_err());
}
