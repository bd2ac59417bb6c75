//! A real lrsd in observe mode on a private bus: the loop, the signals and the stop are its own.

use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lrs::proto;
use lrs::proto::shaper_client::ShaperClient;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;
use tonic::transport::Channel;
use zbus::zvariant::{Fd, OwnedObjectPath};

use crate::bench::name_owned;
use crate::bus::Bus;
use crate::client::{
    ERROR, MANAGER, PATH, Signals, TASK, all, call, get, manager, none, soon, with,
};
use crate::harness::Daemon;

/// A private lrsd with one active and one passive slot on a private bus.
pub struct Lrsd(Daemon);

impl Lrsd {
    /// Serves gRPC when this returns; D-Bus comes by itself.
    pub async fn start(bus: &Bus) -> Lrsd {
        let mut lrsd = Lrsd::new(bus);
        lrsd.launch();
        lrsd
    }

    /// Not running yet.
    fn new(bus: &Bus) -> Lrsd {
        let mut daemon = Daemon::observing("");
        daemon.bus = bus.address();
        let lrsd = Lrsd(daemon);
        lrsd.configure("");
        lrsd
    }

    /// One that tells its states to this socket.
    fn notifying(bus: &Bus, socket: &Path) -> Lrsd {
        let mut lrsd = Lrsd::new(bus);
        lrsd.environment.push(("NOTIFY_SOCKET", socket.display().to_string()));
        lrsd
    }

    /// Writes the configuration, with these settings at its end.
    pub fn configure(&self, settings: &str) {
        self.0.configure(&format!(
            "daemon.mode = \"observe\"\nguard.enabled = false\n\
             slots.active = 1\nslots.passive = 1\nslots.expand = false\n{settings}"
        ));
    }

    pub async fn grpc(&self) -> ShaperClient<Channel> {
        let endpoint = format!("unix:{}", self.socket().display());
        soon(ShaperClient::connect(endpoint)).await.unwrap()
    }

    async fn logged(&self, words: &str) {
        let found = async {
            while !self.log().contains(words) {
                tokio::task::yield_now().await;
            }
        };
        soon(found).await;
    }
}

impl Deref for Lrsd {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.0
    }
}

impl DerefMut for Lrsd {
    fn deref_mut(&mut self) -> &mut Daemon {
        &mut self.0
    }
}

/// A process that ends when it is dropped.
pub struct Process(Child);

impl Process {
    pub fn start() -> Process {
        Process(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_task_lives_and_every_watcher_sees_it() {
    let bus = Bus::start();
    let _lrsd = Lrsd::start(&bus).await;
    name_owned(&bus).await;
    let client = bus.connect().await;
    let mut signals = Signals::listen(&client).await;
    let (first, second) = (Process::start(), Process::start());

    let pidfd = pidfd_open(Pid::from_child(&first.0), PidfdFlags::empty()).unwrap();
    let options = with([("name", "first".into())]);
    let reply = manager(&client, "AdmitPidfd", &(Fd::from(pidfd), options)).await.unwrap();
    let (first_id, first_path): (String, OwnedObjectPath) = reply.body().deserialize().unwrap();
    // Whoever was answered reads his own change.
    assert_eq!(get(&client, &first_path, TASK, "Name").await, json!("first"));
    assert_eq!(get(&client, PATH, MANAGER, "ActiveFree").await, json!(0));
    let signal = signals.until("InterfacesAdded").await;
    assert_eq!(signal.body[0], first_path.as_str());
    let signal = signals.until("TaskAdmitted").await;
    assert_eq!(signal.body[0], first_id.as_str());

    let reply = manager(&client, "Admit", &(second.pid(), none())).await.unwrap();
    let (_, path): (String, OwnedObjectPath) = reply.body().deserialize().unwrap();
    assert_eq!(get(&client, &path, TASK, "Tier").await, json!("passive"));
    let again = manager(&client, "Admit", &(first.pid(), none())).await.unwrap();
    assert_eq!(again.body().deserialize::<(String, OwnedObjectPath)>().unwrap().0, first_id);

    drop(first);
    let signal = signals.until("TaskCompleted").await;
    assert_eq!(signal.body[0], first_id.as_str());
    assert_eq!(signal.body[1], first_path.as_str());
    let signal = signals.until("TaskPromoted").await;
    assert_eq!(signal.body[1], path.as_str());
    let gone = call(&client, &first_path, TASK, "Explain", &()).await.unwrap_err();
    assert_eq!(gone.0, "org.freedesktop.DBus.Error.UnknownObject");
    let signal = signals.until("SlotsChanged").await;
    assert_eq!(signal.body, json!([1, 0, 1, 1]));
}

/// `systemctl start lrsd && busctl call org.lrs.Shaper1 ...`
#[tokio::test]
async fn a_daemon_that_says_it_is_ready_has_its_name() {
    let bus = Bus::start();
    let client = bus.connect().await;
    let manager = tokio::net::UnixDatagram::bind(bus.dir().join("notify")).unwrap();
    let mut lrsd = Lrsd::notifying(&bus, &bus.dir().join("notify"));
    lrsd.spawn();
    let mut signal = [0; 4096];
    loop {
        let length = soon(manager.recv(&mut signal)).await.unwrap();
        if String::from_utf8_lossy(&signal[..length]).lines().any(|line| line == "READY=1") {
            break;
        }
    }
    call(&client, PATH, MANAGER, "GetStatus", &()).await.unwrap();
}

#[tokio::test]
async fn a_caller_that_leaves_gives_up_its_place_in_the_queue() {
    let bus = Bus::start();
    let _lrsd = Lrsd::start(&bus).await;
    name_owned(&bus).await;
    let (client, other) = (bus.connect().await, bus.connect().await);
    let mut signals = Signals::listen(&other).await;
    let tasks = [Process::start(), Process::start()];
    for task in &tasks {
        manager(&other, "Admit", &(task.pid(), none())).await.unwrap();
    }
    let waiter = Process::start();
    let options = with([("wait_forever", true.into())]);
    let arguments = (waiter.pid(), options);
    let asking = client.clone();
    let asked = tokio::spawn(async move { manager(&asking, "Admit", &arguments).await });
    let waiting = async |signals: &mut Signals, number: u32| {
        while signals.until("PropertiesChanged").await.body[1]["Waiting"] != number {}
    };
    waiting(&mut signals, 1).await;
    asked.abort();
    let _ = asked.await;
    client.close().await.unwrap();
    waiting(&mut signals, 0).await;
}

#[tokio::test]
async fn the_bus_may_die_under_a_running_task() {
    let mut bus = Bus::start();
    let mut lrsd = Lrsd::start(&bus).await;
    name_owned(&bus).await;
    let task = Process::start();
    let client = bus.connect().await;
    let reply = manager(&client, "Admit", &(task.pid(), none())).await.unwrap();
    let (_, path): (String, OwnedObjectPath) = reply.body().deserialize().unwrap();
    bus.kill();
    // The other server does not notice.
    let status = lrsd.grpc().await.get_status(proto::GetStatusRequest {}).await.unwrap();
    assert_eq!(status.into_inner().totals.unwrap().admitted, 1);
    bus.run();
    name_owned(&bus).await;
    let client = bus.connect().await;
    assert_eq!(get(&client, &path, TASK, "Pid").await, json!(task.pid()));
    assert_eq!(lrsd.stop().0, Some(0));
}

#[tokio::test]
async fn a_bus_that_never_answers_delays_nothing_and_is_served_when_it_does() {
    let mut bus = Bus::start();
    bus.kill();
    std::fs::remove_file(bus.dir().join("bus")).unwrap();
    // Connections wait in its queue.
    let hung = UnixListener::bind(bus.dir().join("bus")).unwrap();
    let notified = bus.dir().join("notify");
    let manager = tokio::net::UnixDatagram::bind(&notified).unwrap();
    let mut lrsd = Lrsd::notifying(&bus, &notified);
    lrsd.launch();
    let status = lrsd.grpc().await.get_status(proto::GetStatusRequest {}).await;
    assert!(status.is_ok(), "{status:?}");
    // It serves, so it is ready as good as at once, whatever becomes of the bus.
    let serving = Instant::now();
    let mut states = [0; 4096];
    loop {
        let length = soon(manager.recv(&mut states)).await.unwrap();
        if states[..length].starts_with(b"READY=1") {
            break;
        }
    }
    let took = serving.elapsed();
    assert!(took < Duration::from_secs(1), "ready {took:?} after it served");
    let task = Process::start();
    let request = proto::AdmitRequest { pid: task.pid(), ..Default::default() };
    lrsd.grpc().await.admit(request).await.unwrap();
    drop(hung);
    bus.run();
    name_owned(&bus).await;
    assert_eq!(lrsd.stop().0, Some(0));
}

#[tokio::test]
async fn a_second_lrsd_says_that_the_name_is_taken_and_serves_grpc() {
    let bus = Bus::start();
    let mut first = Lrsd::start(&bus).await;
    name_owned(&bus).await;
    let mut second = Lrsd::start(&bus).await;
    second.logged("another process owns org.lrs.Shaper1").await;
    let answer = second.grpc().await.get_status(proto::GetStatusRequest {}).await;
    assert!(answer.is_ok());
    assert_eq!(first.stop().0, Some(0));
    // Taken over once it is free.
    second.logged("serving org.lrs.Shaper1").await;
    assert_eq!(second.stop().0, Some(0));
}

#[tokio::test]
async fn a_stop_answers_those_who_wait() {
    let bus = Bus::start();
    let mut lrsd = Lrsd::start(&bus).await;
    name_owned(&bus).await;
    let client = bus.connect().await;
    let mut signals = Signals::listen(&client).await;
    let tasks = [Process::start(), Process::start()];
    for task in &tasks {
        manager(&client, "Admit", &(task.pid(), none())).await.unwrap();
    }
    let waiter = Process::start();
    let arguments = (waiter.pid(), with([("wait_forever", true.into())]));
    let asking = client.clone();
    let asked = tokio::spawn(async move { manager(&asking, "Admit", &arguments).await });
    while signals.until("PropertiesChanged").await.body[1]["Waiting"] != 1 {}
    let stopped = tokio::task::spawn_blocking(move || lrsd.stop().0);
    let error = soon(asked).await.unwrap().unwrap_err();
    assert_eq!(error.0, format!("{ERROR}Unavailable"), "{error:?}");
    assert_eq!(soon(stopped).await.unwrap(), Some(0));
}

#[tokio::test]
async fn a_reload_is_reported_and_a_restart_key_is_refused() {
    let bus = Bus::start();
    let lrsd = Lrsd::start(&bus).await;
    name_owned(&bus).await;
    let client = bus.connect().await;
    lrsd.configure("tiers.ratio = 50\n");
    let reply = manager(&client, "Reload", &()).await.unwrap();
    assert_eq!(reply.body().deserialize::<Vec<String>>().unwrap(), ["tiers.ratio"]);
    let text = std::fs::read_to_string(lrsd.config()).unwrap();
    let off = text.replace(&format!("{:?}", bus.address()), "\"off\"");
    std::fs::write(lrsd.config(), off).unwrap();
    let (name, message) = manager(&client, "Reload", &()).await.unwrap_err();
    assert_eq!(name, format!("{ERROR}FailedPrecondition"), "{message}");
    assert!(message.contains("dbus.bus can only change with a restart"), "{message}");
    assert_eq!(all(&client, PATH, MANAGER).await["State"], "accepting");
}

/// A user without any right, by the credentials the bus tells.
#[tokio::test]
#[ignore = "needs root and cgroups"]
async fn a_stranger_may_read_and_change_nothing() {
    const NOBODY: u32 = 65534;
    assert!(rustix::process::geteuid().is_root(), "run as root or leave it ignored");
    let bus = Bus::start();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bus.dir(), open).unwrap();
    let _lrsd = Lrsd::start(&bus).await;
    name_owned(&bus).await;
    let address = bus.address();
    let send = |member: &str| {
        let output = Command::new("dbus-send")
            .args([&format!("--bus={address}"), "--print-reply", "--dest=org.lrs.Shaper1", PATH])
            .arg(format!("{MANAGER}.{member}"))
            .current_dir(Path::new("/"))
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
            .unwrap_or_else(|error| panic!("dbus-send: {error}; install it (package dbus-bin)"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), text)
    };
    assert!(send("GetConfig").0);
    let (done, words) = send("Drain");
    assert!(!done && words.contains("org.lrs.Shaper1.Error.PermissionDenied"), "{words}");
    assert!(
        words.contains("uid 65534 may not drain") && words.contains("[grpc] admins"),
        "{words}"
    );
}

/// A process on the bus from a pid namespace of its own.
#[tokio::test]
#[ignore = "needs root and cgroups"]
async fn a_number_of_another_pid_namespace_is_refused_and_its_own_is_not() {
    let bus = Bus::start();
    let _lrsd = Lrsd::start(&bus).await;
    name_owned(&bus).await;
    let outside = Process::start();
    // busctl as process 1 takes itself for systemd, and says nothing on stderr.
    let script = format!(
        "busctl --address={} call org.lrs.Shaper1 {PATH} {MANAGER} Admit 'ia{{sv}}' $0 0; exit $?",
        bus.address()
    );
    let admit = |pid: i32| {
        Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script])
            .arg(pid.to_string())
            .output()
            .unwrap()
    };
    let refused = admit(outside.pid());
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("another pid namespace"), "{text}");
    assert!(text.contains("AdmitPidfd"), "{text}");
    let own = admit(0);
    assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stderr));
}
