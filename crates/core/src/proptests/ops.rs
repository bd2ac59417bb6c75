//! What may happen to a shaper, at random, and how it is done.

use super::world::{AheadOfCycle, World};
use super::*;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Request {
        uid: u32,
        priority: i32,
        wait: Option<Option<u64>>,
        job: u8,
    },
    Discover {
        priority: i32,
        standing: Standing,
        job: u8,
    },
    Redeem {
        pick: usize,
        priority: Option<i32>,
    },
    Attached {
        pick: usize,
    },
    AttachFailed {
        pick: usize,
    },
    Reserve {
        uid: u32,
        priority: i32,
        ttl: Option<u64>,
    },
    Cancel {
        pick: usize,
    },
    End {
        picks: Vec<usize>,
    },
    Release {
        pick: usize,
    },
    SetPriority {
        pick: usize,
        priority: i32,
    },
    SetJobPriority {
        job: u8,
        priority: i32,
    },
    SetStanding {
        pick: usize,
        standing: Standing,
    },
    AddLabels {
        pick: usize,
        job: u8,
    },
    ForgetWaiter {
        pick: usize,
    },
    /// Others froze or stopped it, or let it go on.
    Halt {
        pick: usize,
        halt: Option<Halt>,
    },
    FreezeRoot {
        frozen: bool,
    },
    Drain,
    Resume,
    Cycle {
        cpus: Option<u32>,
        e: f64,
        w: f64,
        s: f64,
        available: Option<u64>,
    },
    Ramp {
        e: f64,
        w: f64,
        available: Option<u64>,
    },
    Expire,
    Configure {
        active: Option<u32>,
        passive: Option<u32>,
        max: Option<u32>,
        expand: bool,
        probe: bool,
        complement: bool,
        lane: bool,
        lend: bool,
    },
    Resident {
        pick: usize,
        bytes: u64,
    },
    /// Each computed so many milliseconds, in so many bursts.
    Bursts {
        ms: u64,
        bursts: u64,
    },
    /// Active ones slept for a cycle.
    Sleep {
        pick: usize,
        odd: bool,
    },
    /// It may use these of the first three CPUs; all: every CPU.
    Pin {
        pick: usize,
        cpus: u8,
    },
    /// Each task that is looked at used so many milliseconds.
    CpuLook {
        ms: Option<u64>,
    },
    Restart,
    Live {
        pick: usize,
        what: u8,
        flag: bool,
    },
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let priority = || prop_oneof![Just(0), -2..3i32, Just(i32::MIN), Just(i32::MAX)];
    let standing = || {
        prop_oneof![Just(Standing::Slot), Just(Standing::Opportunistic), Just(Standing::Slotless)]
    };
    let wait = prop::option::of(prop::option::of(0..60u64));
    let pick = || 0..64usize;
    prop_oneof![
        7 => (0..3u32, priority(), wait, 0..3u8)
            .prop_map(|(uid, priority, wait, job)| Op::Request { uid, priority, wait, job }),
        3 => (priority(), standing(), 0..3u8)
            .prop_map(|(priority, standing, job)| Op::Discover { priority, standing, job }),
        3 => (pick(), prop::option::of(priority()))
            .prop_map(|(pick, priority)| Op::Redeem { pick, priority }),
        6 => pick().prop_map(|pick| Op::Attached { pick }),
        1 => pick().prop_map(|pick| Op::AttachFailed { pick }),
        3 => (0..3u32, priority(), prop::option::of(0..60u64))
            .prop_map(|(uid, priority, ttl)| Op::Reserve { uid, priority, ttl }),
        1 => pick().prop_map(|pick| Op::Cancel { pick }),
        6 => prop::collection::vec(pick(), 1..3).prop_map(|picks| Op::End { picks }),
        1 => pick().prop_map(|pick| Op::Release { pick }),
        2 => (pick(), priority()).prop_map(|(pick, priority)| Op::SetPriority { pick, priority }),
        1 => (0..3u8, priority())
            .prop_map(|(job, priority)| Op::SetJobPriority { job, priority }),
        2 => (pick(), standing())
            .prop_map(|(pick, standing)| Op::SetStanding { pick, standing }),
        1 => (pick(), 0..3u8).prop_map(|(pick, job)| Op::AddLabels { pick, job }),
        1 => pick().prop_map(|pick| Op::ForgetWaiter { pick }),
        3 => (pick(), prop_oneof![Just(None), Just(Some(Halt::Frozen)), Just(Some(Halt::Stopped))])
            .prop_map(|(pick, halt)| Op::Halt { pick, halt }),
        2 => prop::bool::weighted(0.2).prop_map(|frozen| Op::FreezeRoot { frozen }),
        1 => Just(Op::Drain),
        2 => Just(Op::Resume),
        6 => (prop::option::of(0..6u32), prop_oneof![0.0..1.0f64, Just(0.95)], 0.0..0.5f64, 0.0..0.3f64,
              prop::option::of(0..2000u64))
            .prop_map(|(cpus, e, w, s, available)| Op::Cycle { cpus, e, w, s, available }),
        3 => (0.0..1.0f64, 0.0..0.5f64, prop::option::of(0..2000u64))
            .prop_map(|(e, w, available)| Op::Ramp { e, w, available }),
        2 => Just(Op::Expire),
        1 => (prop::option::of(1..6u32), prop::option::of(0..6u32), prop::option::of(0..9u32),
              any::<[bool; 5]>())
            .prop_map(|(active, passive, max, [expand, probe, complement, lane, lend])| Op::Configure {
                active, passive, max, expand, probe, complement, lane, lend,
            }),
        2 => (pick(), 0..300u64).prop_map(|(pick, bytes)| Op::Resident { pick, bytes }),
        20 => (1..60u64, 10..200u64).prop_map(|(ms, bursts)| Op::Bursts { ms, bursts }),
        4 => (pick(), any::<bool>()).prop_map(|(pick, odd)| Op::Sleep { pick, odd }),
        6 => (pick(), 1..8u8).prop_map(|(pick, cpus)| Op::Pin { pick, cpus }),
        3 => prop::option::of(0..60u64).prop_map(|ms| Op::CpuLook { ms }),
        1 => Just(Op::Restart),
        9 => (pick(), 0..11u8, any::<bool>())
            .prop_map(|(pick, what, flag)| Op::Live { pick, what, flag }),
    ]
}

pub(super) fn step(shaper: &mut Shaper, world: &mut World, op: Op, now: Moment) {
    let reservations = || world.reserved.iter().copied();
    match op {
        Op::Discover { priority, standing, job } => {
            let asked = Request { labels: labels(job), ..found(priority, standing) };
            let answer = shaper.ask(asked, None, now);
            let Ok(Answer::Placed(id)) = answer else { panic!("refused what runs: {answer:?}") };
            assert_eq!(shaper.task(id).unwrap().standing(), standing);
        }
        Op::SetStanding { pick, standing } => {
            if let Some(id) = nth(shaper.tasks().map(|(id, _)| id), pick) {
                shaper.set_standing(id, standing, now);
                assert_eq!(shaper.task(id).unwrap().standing(), standing);
            }
        }
        Op::Halt { pick, halt } => {
            if let Some(id) = nth(shaper.tasks().map(|(id, _)| id), pick) {
                shaper.halted(vec![(id, halt)], now);
            }
        }
        Op::FreezeRoot { frozen } => {
            shaper.root_frozen(frozen.then(|| "others froze it".to_owned()), now);
        }
        Op::AddLabels { pick, job } => {
            if let Some(id) = nth(shaper.tasks().map(|(id, _)| id), pick) {
                shaper.add_labels(id, labels(job));
            }
        }
        Op::Request { uid, priority, wait, job } => {
            let patience = wait.map(|wait| Patience {
                first_requested: now.wall,
                deadline: wait.map(|s| now.boot.after(Duration::from_secs(s))),
                parks: false,
            });
            let active_offered = shaper.active_offered();
            let offered = active_offered + shaper.passive_offered();
            let by_member = uid != 0;
            let asked = Request { uid, by_member, labels: labels(job), ..request(priority) };
            match shaper.ask(asked, patience, now) {
                Ok(Answer::Waiting(id)) => {
                    // What is above P0 on saturated CPUs is for tasks that wait, and closes now.
                    let kept = active_offered == 0 && shaper.opening.saturated;
                    assert!(offered == 0 || kept, "made to wait beside an offered slot");
                    world.waiting.insert(id);
                }
                Ok(Answer::Placed(_)) => assert!(offered > 0, "placed without an offer"),
                Err(_) => assert_eq!(offered, 0),
            }
        }
        Op::Redeem { pick, priority } => {
            if let Some(id) = nth(reservations(), pick) {
                let used = Request {
                    reservation: Some(id),
                    priority: priority.map(Priority),
                    ..request(0)
                };
                let expired = shaper.reservation(id).is_none_or(|r| r.expires <= now.boot);
                match shaper.ask(used, None, now) {
                    Ok(_) => assert!(!expired),
                    Err(Refusal::RootFrozen(_)) => assert!(shaper.why_root_frozen().is_some()),
                    Err(refusal) => assert_eq!(refusal, Refusal::ReservationEnded(id)),
                }
            }
        }
        Op::Attached { pick } => {
            if let Some(id) = nth(world.attaching.iter().copied(), pick) {
                world.attaching.remove(&id);
                shaper.attached(id, now);
            }
        }
        Op::AttachFailed { pick } => {
            if let Some(id) = nth(world.attaching.iter().copied(), pick) {
                world.attaching.remove(&id);
                world.levels.remove(&id);
                shaper.attach_failed(id, "test", now);
            }
        }
        Op::Reserve { uid, priority, ttl } => {
            let offered = shaper.active_offered() + shaper.passive_offered();
            let ttl = ttl.map(Duration::from_secs);
            let answer = shaper.promised(uid, Labels::default(), Priority(priority), ttl, now);
            assert_eq!(answer.is_ok(), offered > 0, "free is what Reserve would grant");
        }
        Op::Cancel { pick } => {
            if let Some(id) = nth(reservations(), pick) {
                shaper.check_reservation(id).expect("it exists");
                shaper.cancel_reservation(id, now);
            }
        }
        Op::End { picks } => {
            let running = shaper.tasks().filter(|(_, t)| !t.is_attaching());
            let running: Vec<_> = running.map(|(id, _)| id).collect();
            if !running.is_empty() {
                let ids: BTreeSet<_> =
                    picks.into_iter().map(|pick| running[pick % running.len()]).collect();
                let completed = shaper.totals().completed + ids.len() as u64;
                let ids: Vec<_> = ids.into_iter().collect();
                shaper.vacate(&ids, now);
                let last = |id| {
                    (
                        id,
                        if now.boot.0.as_secs().is_multiple_of(2) {
                            Last::Away
                        } else {
                            Last::Unread
                        },
                    )
                };
                shaper.completed(ids.into_iter().map(last).collect(), now);
                assert_eq!(shaper.totals().completed, completed);
            }
        }
        Op::Release { pick } => {
            let running = shaper.tasks().filter(|(_, t)| !t.is_attaching());
            if let Some(id) = nth(running.map(|(id, _)| id), pick) {
                shaper.released(id, now);
            }
        }
        Op::Live { pick, what, flag } => {
            let running = shaper.tasks().filter(|(_, t)| !t.is_attaching());
            if let Some(task) = nth(running.map(|(id, _)| id), pick) {
                let found = vec!["cpu.weight is 7, should be 100".to_owned()];
                let denied = NotMoved::Denied { reason: "test".into(), occupied: flag };
                let limit = (pick == 0).then(|| "a limit".to_owned());
                let released = shaper.totals().released;
                let releasing = shaper.task(task).unwrap().is_releasing();
                let input = match what {
                    0 => Input::Release(task),
                    1 => Input::ReleaseFailed(task),
                    2 if releasing => Input::Released(task),
                    3 | 2 => Input::Outside { task, found_in: "/".into(), limit, occupied: flag },
                    4 => Input::Reattached { task, result: Ok(()) },
                    5 => Input::Reattached { task, result: Err(denied) },
                    6 => Input::Drifted { task, found, fits: flag },
                    7 => Input::Repaired { task, found, result: Ok(()) },
                    8 => Input::Entered { task, error: "uid 7 is in it".into() },
                    9 => Input::MainExited(task),
                    _ => {
                        let Task { uid, labels, .. } = shaper.task(task).unwrap().clone();
                        let exit = Exit::Status(u8::from(flag));
                        Input::Exited { task, uid, labels, exit }
                    }
                };
                let step = shaper.handle(input, now);
                let gone = u64::from(shaper.task(task).is_none());
                assert_eq!(shaper.totals().released, released + gone);
                world.carry_out(step, shaper);
            }
        }
        Op::SetPriority { pick, priority } => {
            if let Some(id) = nth(shaper.tasks().map(|(id, _)| id), pick) {
                shaper.set_priority(id, Priority(priority), now);
            }
        }
        Op::SetJobPriority { job, priority } => {
            if let Some(job) = labels(job).job {
                shaper.set_job_priority(&job, None, Priority(priority), now);
            }
        }
        Op::ForgetWaiter { pick } => {
            if let Some(id) = nth(world.waiting.iter().copied(), pick) {
                world.waiting.remove(&id);
                world.answered.insert(id);
                shaper.abandon(id);
            }
        }
        Op::Drain => shaper.drain(now),
        Op::Resume => shaper.resume(now),
        Op::Cycle { cpus, e, w, s, available } => {
            let cpu = CpuShares {
                effective: Share::clamped(e),
                iowait: Share::clamped(w),
                steal: Share::clamped(s),
            };
            let memory = available.map(|available| Memory::of_node(Bytes(available), Bytes(2000)));
            // What is under pressure here is as random as the CPU.
            let memory_full = available.map(|_| Share::clamped(s));
            let swap_growth = available.map(|_| 100.0 * (w - 0.5));
            let cpu = Some(cpu);
            world.absorb(shaper);
            world.ahead = AheadOfCycle::default();
            // So is a quota above the tasks.
            let quota = (w > 0.5).then_some(4.0 * e);
            let cpus = cpus.map(|cpus| UsableCpus::new(cpus, quota));
            let node =
                Measured { cpus, cpu, memory, memory_full, swap_growth, ..Measured::default() };
            shaper.cycle(&node, now);
        }
        Op::Ramp { e, w, available } => {
            let (effective, iowait) = (Share::clamped(e), Share::clamped(w));
            let cpu = CpuShares { effective, iowait, ..CpuShares::default() };
            let memory = available.map(|available| Memory::of_node(Bytes(available), Bytes(2000)));
            let resident = available.map(|available| Bytes(available / 4));
            let (may, before) = (shaper.ramps_from().is_some(), shaper.slots().passive_capacity);
            let node = Measured { cpu: Some(cpu), memory, ..Measured::default() };
            shaper.ramp(&node, resident, now);
            let after = shaper.slots().passive_capacity;
            assert!(after == before || may && after > before, "{before} slots became {after}");
            let ahead = &mut world.ahead;
            ahead.opened += after - before;
            ahead.most_active = ahead.most_active.max(shaper.slots().active_capacity);
            ahead.check();
        }
        Op::Expire => shaper.expire(now),
        Op::Configure { active, passive, max, expand, probe, complement, lane, lend } => {
            let formula = if probe { Formula::Probe } else { Formula::Lrs };
            let order = if complement { QueueOrder::Complement } else { QueueOrder::Fit };
            let mut all = Policy { formula, order, ..Policy::simulated() };
            if let Some(guard) = &mut all.guard {
                guard.freeze = FreezePolicy {
                    headroom_after: Duration::ZERO,
                    headroom_dry_run: probe,
                    freeze_after: Duration::from_secs(3),
                    freeze_dry_run: false,
                    hold: Duration::from_secs(1),
                    longest: Duration::from_secs(60),
                };
            }
            let lane_share = Share::clamped(if lane { 0.05 } else { 0.0 });
            let policy =
                Policy { active, passive, passive_max: max, expand, lane_share, lend, ..all };
            shaper.set_policy(policy, now);
        }
        Op::Resident { pick, bytes } => {
            if let Some(id) = nth(shaper.tasks().map(|(id, _)| id), pick) {
                let sample = TaskSample { resident: Some(Bytes(bytes)), ..TaskSample::default() };
                shaper.read(now.boot, Reading { task: id, due: false, sample });
            }
        }
        Op::Bursts { ms, bursts } => {
            let all: Vec<_> = shaper.tasks().map(|(id, _)| id).collect();
            for task in all {
                let (ran, voluntary) = world.uses(task, ms, bursts);
                let thread = ThreadCounters { ran, voluntary, ..ThreadCounters::default() };
                let (cpu, thread) = (Some(ran), Some(thread));
                let sample = TaskSample { cpu, thread, ..used(0) };
                shaper.read(now.boot, Reading { task, due: true, sample });
            }
        }
        Op::Sleep { pick, odd } => {
            let active = shaper.tasks().filter(|(_, task)| task.seat == Seat::Active);
            let sleeps = |id: &TaskId| odd && id.number % 2 == 1;
            let mut sleepers: Vec<_> = active.map(|(id, _)| id).filter(sleeps).collect();
            sleepers.extend(nth(shaper.tasks().map(|(id, _)| id), pick));
            for task in sleepers {
                let pressure = Some(TaskPressure::default());
                let sample =
                    TaskSample { cpu: Some(world.uses(task, 0, 0).0), pressure, ..used(0) };
                shaper.read(now.boot, Reading { task, due: true, sample });
            }
        }
        Op::Pin { pick, cpus } => {
            if let Some(id) = nth(shaper.tasks().map(|(id, _)| id), pick) {
                let set: CpuSet = (0..3).filter(|cpu| cpus & (1 << cpu) != 0).collect();
                shaper.pinned.insert(id, set);
                shaper.pinned.retain(|_, set| set.len() < 3);
                shaper.rearrange(now);
            }
        }
        Op::CpuLook { ms } => {
            let members: Vec<_> = shaper.looked_at().collect();
            let look = |id| (id, ms.map(|ms| world.uses(id, ms, 0).0));
            let counters = members.into_iter().map(look).collect();
            let step = shaper.handle(Input::CpuLooked(counters), now);
            world.carry_out(step, shaper);
        }
        Op::Restart => {
            // Waiters ask again and half-done admissions are the loop's to finish; here they
            // end with the old daemon.
            world.absorb(shaper);
            *shaper = restart(shaper);
            shaper.restored(Due::default(), now);
            shaper.expire(now);
            world.attaching.clear();
            world.waiting.clear();
            world.ahead = AheadOfCycle::default();
            let alive: BTreeSet<_> = shaper.tasks().map(|(id, _)| id).collect();
            world.levels.retain(|id, _| alive.contains(id));
            // A daemon that starts compares the weights of all tasks with their tiers.
            world.levels.values_mut().for_each(|level| *level = level.tier().into());
        }
    }
}

fn nth<T: Copy>(items: impl Iterator<Item = T>, pick: usize) -> Option<T> {
    let items: Vec<T> = items.collect();
    (!items.is_empty()).then(|| items[pick % items.len()])
}

fn labels(job: u8) -> Labels {
    let job = (job > 0).then(|| Label::new(&format!("job-{job}")).unwrap());
    Labels { job, ..Labels::default() }
}

fn restart(shaper: &Shaper) -> Shaper {
    let restored = Restored {
        tasks: shaper
            .tasks()
            .filter(|(_, task)| !task.is_attaching())
            .map(|(_, task)| Task { halted: None, ..task.clone() })
            .collect(),
        called_off: Vec::new(),
        reservations: shaper.reservations().map(|(id, r)| (id, r.clone())).collect(),
        jobs: shaper.jobs().iter().map(|(key, _, f)| (key.clone(), f.clone())).collect(),
        totals: shaper.totals(),
        counters: shaper.counters(),
        draining_since: shaper.draining_since(),
        gather_until: None,
        passive_capacity: Some(shaper.slots().passive_capacity),
    };
    Shaper::new(shaper.policy().clone(), 2, restored)
}
