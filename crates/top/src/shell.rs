//! What is around the pure half: keys and signals in, answers of lrsd in, pictures out.
//!
//! All but the reading of keys is on one thread, which takes in whatever has happened and then draws once.
//! lrsd is asked at an interval, never twice at a time. A connection that breaks is made anew at the same
//! interval, so top goes on over a restart of lrsd. SIGTSTP gives the terminal back before it stops this
//! process, SIGCONT takes it over again; SIGTERM, SIGINT and SIGHUP end it as a shell expects.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use lrs_api::client::{Connection, Endpoint, all_tasks, connect};
use lrs_api::proto;
use lrs_core::units::WallTime;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, raise, sigaction};
use nix::unistd::Pid;
use tokio::signal::unix::{Signal as Incoming, SignalKind, signal};
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::{Code, Status};

use crate::ask::{Call, Rights};
use crate::figures::Answer;
use crate::screen::{Screen, give_back};
use crate::state::{Detail, Effect, Event, Look, Top};

/// How long lrsd may take to answer before it counts as away.
const PATIENCE: Duration = Duration::from_secs(10);

/// Events that may wait to be taken in.
const WAITING: usize = 64;

/// Sends a signal, TERM or KILL, to all processes of a task; answers what is to be known about it.
pub type Kill = Box<dyn Fn(&proto::Task, &str) -> Result<String, String>>;

/// What top needs of the program that it is a part of.
pub struct Host {
    /// Where lrsd listens.
    pub endpoint: Endpoint,
    /// How the client names itself.
    pub agent: &'static str,
    /// Between two answers.
    pub interval: Duration,
    /// What to show at first.
    pub filter: String,
    /// Who the caller is.
    pub rights: Rights,
    /// Whether the terminal shows colours.
    pub colour: bool,
    /// The time now.
    pub clock: fn() -> WallTime,
    /// A time as people read it.
    pub time_of: Box<dyn Fn(WallTime) -> String>,
    /// The name of a user, if there is one.
    pub user_name: fn(u32) -> Option<String>,
    /// Signals a task.
    pub kill: Kill,
}

/// Why top ended otherwise than by its user.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// stdin or stdout is a file or a pipe.
    #[error("top draws on a terminal, and standard input or output is none")]
    NoTerminal,
    /// By TERM.
    #[error("top cannot draw on this terminal: TERM is {0:?}")]
    NoCapabilities(String),
    /// It failed.
    #[error("cannot {0} the terminal: {1}")]
    Terminal(&'static str, io::Error),
    /// No thread, descriptor or signal handler is left.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// A signal came.
    #[error("signal {0}")]
    Signal(i32),
}

/// Shows the node until the user ends it. The terminal is as before when this returns.
///
/// # Errors
/// The terminal is none or fails, or a signal ended it.
pub async fn run(host: Host) -> Result<(), Problem> {
    LocalSet::new().run_until(inside(host)).await
}

async fn inside(host: Host) -> Result<(), Problem> {
    let mut signals = Signals::new().map_err(|error| Problem::System("take signals", error))?;
    let look = Look { colour: host.colour, ascii: lrs_term::takes_ascii_only() };
    let mut top = Top::new(look, host.rights, host.user_name);
    top.filter.clone_from(&host.filter);
    top.interval_seconds = host.interval.as_secs_f64();
    let host = Rc::new(host);
    let of_host = Rc::clone(&host);
    top.time_of = Box::new(move |time| (of_host.time_of)(time));
    let mut screen = Screen::open()?;
    let (events, mut happened) = channel(WAITING);
    read_keys(events.clone()).map_err(|error| Problem::System("start a thread", error))?;
    let lrsd = Rc::new(Lrsd { host, connection: RefCell::new(None), events });
    spawn_local(Rc::clone(&lrsd).watch());
    loop {
        screen.draw(&mut top)?;
        let mut next = tokio::select! {
            // Signals first: answers may come without end.
            biased;
            signal = signals.next() => {
                match signal {
                    Signal::SIGTSTP => stop(&mut screen)?,
                    Signal::SIGCONT => screen.renew()?,
                    other => return Err(Problem::Signal(other as i32)),
                }
                Some(Event::Redraw)
            }
            event = happened.recv() => event,
        };
        while let Some(event) = next {
            match top.handle(event) {
                None => {}
                Some(Effect::Quit) => return Ok(()),
                Some(Effect::Clear) => screen.renew()?,
                // To the whole job, as the terminal would; then it comes in as a signal.
                Some(Effect::Suspend) => drop(kill(Pid::from_raw(0), Signal::SIGTSTP)),
                Some(Effect::Detail(id)) => drop(spawn_local(Rc::clone(&lrsd).detail(id))),
                Some(Effect::Call(call)) => drop(spawn_local(Rc::clone(&lrsd).call(call))),
            }
            next = happened.try_recv().ok();
        }
    }
}

/// Gives the terminal back and stops; returns after SIGCONT, or at once where nothing would continue it.
fn stop(screen: &mut Screen) -> Result<(), Problem> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    give_back();
    // SAFETY: the default action runs no code, and the action before is put back as it was.
    if let Ok(before) = unsafe { sigaction(Signal::SIGTSTP, &default) } {
        let _ = raise(Signal::SIGTSTP);
        // SAFETY: as above.
        let _ = unsafe { sigaction(Signal::SIGTSTP, &before) };
    }
    screen.renew()
}

/// The signals that top acts on.
struct Signals([(Signal, Incoming); 5]);

impl Signals {
    fn new() -> io::Result<Signals> {
        let of = |one: Signal| Ok::<_, io::Error>((one, signal(SignalKind::from_raw(one as i32))?));
        Ok(Signals([
            of(Signal::SIGTSTP)?,
            of(Signal::SIGCONT)?,
            of(Signal::SIGTERM)?,
            of(Signal::SIGINT)?,
            of(Signal::SIGHUP)?,
        ]))
    }

    async fn next(&mut self) -> Signal {
        let [a, b, c, d, e] = &mut self.0;
        tokio::select! {
            _ = a.1.recv() => a.0,
            _ = b.1.recv() => b.0,
            _ = c.1.recv() => c.0,
            _ = d.1.recv() => d.0,
            _ = e.1.recv() => e.0,
        }
    }
}

/// Keys, clicks and changes of size, from a thread: reading a terminal blocks. It ends with the process.
fn read_keys(events: Sender<Event>) -> io::Result<()> {
    use crossterm::event::{Event as Input, KeyEventKind, read};
    let reader = move || {
        loop {
            let event = match read() {
                Ok(Input::Key(key)) if key.kind != KeyEventKind::Release => Event::Key(key),
                Ok(Input::Mouse(mouse)) => Event::Mouse(mouse),
                Ok(Input::Resize(..)) => Event::Redraw,
                Ok(_) => continue,
                // The terminal is gone; SIGHUP says the same.
                Err(_) => return,
            };
            if events.blocking_send(event).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("lrs-top-keys".to_owned()).spawn(reader).map(drop)
}

/// The daemon, and where its answers go.
struct Lrsd {
    host: Rc<Host>,
    /// `None`: to be made.
    connection: RefCell<Option<Connection>>,
    events: Sender<Event>,
}

impl Lrsd {
    /// Asks again and again.
    async fn watch(self: Rc<Lrsd>) {
        let mut ticks = interval(self.host.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let event = match timeout(PATIENCE, self.ask()).await {
                Ok(Ok(answer)) => Event::Answer(Box::new(answer)),
                Ok(Err(why)) => Event::Lost(why),
                Err(_) => {
                    Event::Lost(format!("lrsd did not answer within {} s", PATIENCE.as_secs()))
                }
            };
            if matches!(event, Event::Lost(_)) {
                self.connection.replace(None);
            }
            if self.events.send(event).await.is_err() {
                return;
            }
        }
    }

    async fn connected(&self) -> Result<Connection, String> {
        if let Some(connection) = self.connection.borrow().clone() {
            return Ok(connection);
        }
        let made =
            connect(&self.host.endpoint, self.host.agent).await.map_err(|e| e.to_string())?;
        self.connection.replace(Some(made.clone()));
        Ok(made)
    }

    async fn ask(&self) -> Result<Answer, String> {
        let mut lrsd = self.connected().await?;
        let answer = async {
            let status = lrsd.get_status(proto::GetStatusRequest {}).await?.into_inner();
            let tasks = all_tasks(lrsd.clone()).await?;
            let queue =
                lrsd.list_queue(proto::ListQueueRequest::default()).await?.into_inner().queue;
            Ok(Answer { at: (self.host.clock)(), status, tasks, queue })
        };
        answer.await.map_err(|status: Status| status.message().to_owned())
    }

    /// All about one task.
    async fn detail(self: Rc<Lrsd>, id: String) {
        let asked = timeout(PATIENCE, async {
            let mut lrsd = self.connected().await?;
            let mut detail = Detail { id: id.clone(), ..Detail::default() };
            match lrsd.get_task(proto::GetTaskRequest { id: id.clone() }).await {
                Ok(task) => detail.task = Some(task.into_inner()),
                Err(status) if status.code() == Code::NotFound => {
                    detail.problem = Some("it runs no more".to_owned());
                }
                Err(status) => return Err(status.message().to_owned()),
            }
            match lrsd.explain(proto::ExplainRequest { id }).await {
                Ok(story) => detail.story = story.into_inner().events,
                Err(status) => detail.problem = Some(status.message().to_owned()),
            }
            Ok(detail)
        });
        // That lrsd does not answer is found, and shown, by `watch` too.
        if let Ok(Ok(detail)) = asked.await {
            let _ = self.events.send(Event::Detail(Box::new(detail))).await;
        }
    }

    async fn call(self: Rc<Lrsd>, call: Call) {
        let done = match timeout(PATIENCE, self.carry_out(call)).await {
            Ok(done) => done,
            Err(_) => Err(format!("lrsd did not answer within {} s", PATIENCE.as_secs())),
        };
        let _ = self.events.send(Event::Done(done)).await;
    }

    async fn carry_out(&self, call: Call) -> Result<String, String> {
        let mut lrsd = self.connected().await?;
        let refused = |status: Status| status.message().to_owned();
        match call {
            Call::Priority(id, priority) => {
                let request = proto::SetPriorityRequest { id: id.clone(), priority };
                lrsd.set_priority(request).await.map_err(refused)?;
                Ok(format!("{id} has priority {priority}"))
            }
            Call::Release(id) => {
                lrsd.release(proto::ReleaseRequest { id: id.clone() }).await.map_err(refused)?;
                Ok(format!("{id} is released and goes on"))
            }
            Call::Cancel(id) => {
                let request = proto::CancelReservationRequest { id: id.clone() };
                lrsd.cancel_reservation(request).await.map_err(refused)?;
                Ok(format!("{id} is cancelled"))
            }
            Call::Kill(id, signal) => {
                let task = lrsd.get_task(proto::GetTaskRequest { id }).await.map_err(refused)?;
                (self.host.kill)(task.get_ref(), signal)
            }
        }
    }
}
