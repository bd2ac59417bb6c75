//! The invariants, and what the world outside the core believes.

use std::cmp::Reverse;

use super::*;

/// What the world outside the core believes, from effects alone.
#[derive(Default)]
pub(super) struct World {
    pub(super) attaching: BTreeSet<TaskId>,
    pub(super) reserved: BTreeSet<ReservationId>,
    pub(super) waiting: BTreeSet<Ticket>,
    pub(super) answered: BTreeSet<Ticket>,
    pub(super) levels: BTreeMap<TaskId, Level>,
    /// Frozen groups.
    iced: BTreeSet<TaskId>,
    /// CPU time and switches.
    used: BTreeMap<TaskId, (Duration, u64)>,
    last_seq: u64,
    /// Since the last cycle.
    pub(super) ahead: AheadOfCycle,
}

/// What happened since a cycle.
#[derive(Default)]
pub(super) struct AheadOfCycle {
    pub(super) opened: u32,
    ended: u32,
    pub(super) most_active: u32,
}

impl AheadOfCycle {
    pub(super) fn check(&self) {
        let most = self.most_active + self.ended;
        assert!(self.opened <= most, "{} slots of {most} opened ahead of the cycle", self.opened);
    }
}

impl World {
    /// The counters of a task that computed so long, in so many bursts.
    pub(super) fn uses(&mut self, id: TaskId, ms: u64, bursts: u64) -> (Duration, u64) {
        let (cpu, voluntary) = self.used.entry(id).or_default();
        *cpu += Duration::from_millis(ms);
        *voluntary += bursts;
        (*cpu, *voluntary)
    }

    pub(super) fn absorb(&mut self, shaper: &mut Shaper) {
        // What comes of an input ends with it; here functions of the core are called alone.
        shaper.thaw_what_may_not_be(Moment::default());
        loop {
            let step = shaper.take_step();
            if step.is_empty() {
                break;
            }
            self.carry_out(step, shaper);
        }
    }

    pub(super) fn carry_out(&mut self, step: Step, shaper: &mut Shaper) {
        let Step { thaw, weights, records, events, forget, jobs, answers } = step;
        for id in thaw {
            // Twice would be to thaw what others froze.
            assert!(self.iced.remove(&id), "{id} was not frozen");
        }
        self.levels.extend(weights);
        assert!(records.is_disjoint(&forget), "stored and forgotten at once");
        for record in records {
            match record {
                Record::Task(id) => assert!(shaper.stored_task(id).is_some()),
                Record::Reservation(id) => {
                    assert!(shaper.reservation(id).is_some());
                    self.reserved.insert(id);
                }
            }
        }
        let mut withdrawn = BTreeSet::new();
        for event in events {
            if event.kind == EventKind::Withdrawn {
                let id: Option<ReservationId> =
                    event.task.as_deref().and_then(|id| id.parse().ok());
                assert!(withdrawn.insert(id.expect("of a reservation")), "withdrawn twice");
            }
            assert_eq!(event.seq, self.last_seq + 1, "sequence numbers have no gaps");
            self.last_seq = event.seq;
            self.ahead.ended += u32::from(event.kind == EventKind::Completed);
        }
        for record in forget {
            if let Record::Reservation(id) = record {
                // That of an admission that fails comes back, and may yield in the same step.
                let is_stored = self.reserved.remove(&id);
                assert!(is_stored || withdrawn.contains(&id), "ended twice");
            }
        }
        for job in jobs {
            match job {
                Job::Prepare { task, ticket } => {
                    self.attaching.insert(task);
                    assert!(self.answered.insert(ticket), "served twice");
                    // Only of one that waited.
                    self.waiting.remove(&ticket);
                    shaper.prepared(task, Ready::default());
                }
                Job::Attach(id) => assert!(self.attaching.contains(&id)),
                Job::Remove { task, .. } => {
                    assert!(shaper.task(task.id).is_none(), "removed while it is there");
                }
                Job::Park { .. } => unreachable!("these requests do not park"),
                Job::Freeze(id) => {
                    self.iced.insert(id);
                }
                Job::Watch(_)
                | Job::Refuse { .. }
                | Job::Figures(_)
                | Job::PrepareBooked(_)
                | Job::Reattach(_)
                | Job::Repair { .. }
                | Job::Release(_) => {}
            }
        }
        for (ticket, reply) in answers {
            assert_eq!(reply, Reply::TimedOut);
            assert!(self.waiting.remove(&ticket), "an unknown waiter timed out");
            assert!(self.answered.insert(ticket), "served before");
        }
    }
}

pub(super) fn check(shaper: &Shaper, world: &World) {
    let slots = shaper.slots();
    let frozen: BTreeSet<TaskId> = shaper.ladder().frozen().collect();
    for (id, task) in shaper.tasks() {
        assert_eq!(task.frozen, world.iced.contains(&id), "{id}: the record and the group");
        assert_eq!(task.frozen, frozen.contains(&id), "{id}: the record and the rule");
        let may = task.tier() == Tier::Passive && task.is_placed() && !shaper.draining();
        assert!(may || !task.frozen, "{id} is frozen and should run");
    }
    assert!(slots.active_used() <= slots.active_capacity, "active tasks exceed A");
    assert!(
        slots.active_used() + slots.active_reserved() <= slots.active_capacity,
        "active slots promised twice"
    );
    assert!(slots.passive_in_use() <= slots.passive_capacity, "capacity below what is in use");
    assert!(slots.passive_capacity >= slots.base, "capacity below base");
    assert!(
        slots.passive_capacity <= slots.passive_max.max(slots.passive_in_use()),
        "expanded beyond the maximum"
    );
    let passive_waits = slots.best_passive().is_some() || slots.best_running_overflow().is_some();
    assert!(
        !(passive_waits && slots.active_used() < slots.active_capacity),
        "a passive task waits while an active slot is free or only promised"
    );
    if let (Some((best, _)), Some((worst, _))) = (slots.best_passive(), slots.worst_active()) {
        assert!(!best.outranks(worst), "priorities are inverted");
    }
    let is = |opportunistic, seats: &[Seat]| {
        shaper.tasks().any(|(_, t)| t.opportunistic == opportunistic && seats.contains(&t.seat))
    };
    let waits = shaper.tasks().any(|(_, task)| {
        let passive = matches!(task.seat, Seat::Passive | Seat::Overflow);
        !task.opportunistic && task.halted.is_none() && passive
    });
    assert!(!(waits && is(true, &[Seat::Active])), "an opportunistic task keeps another waiting");
    let beyond = is(false, &[Seat::Overflow]);
    assert!(!(beyond && is(true, &[Seat::Passive])), "an opportunistic task keeps a slot");
    let counted = shaper.tasks().filter(|(_, task)| task.seat == Seat::Active);
    let lowest =
        counted.map(|(_, t)| if t.opportunistic { Priority(i32::MIN) } else { t.priority });
    assert_eq!(shaper.lowest_active_priority(), lowest.min());
    assert!(slots.overflow() == 0 || slots.passive_free() == 0, "overflow beside a free slot");
    if shaper.active_offered() + shaper.passive_offered() > 0 {
        assert_eq!(shaper.waiting(), 0, "a request waits beside an offered slot");
    }
    // What is shown of the queue is all of it in order, also in pages.
    let queue: Vec<_> = shaper.queue().map(|waiting| waiting.ticket()).collect();
    assert_eq!(queue.len(), shaper.waiting());
    let priorities = shaper.queue().map(|waiting| Reverse(waiting.request.priority));
    assert!(priorities.is_sorted());
    for (index, ticket) in queue.iter().enumerate() {
        assert_eq!(shaper.waiting_of(*ticket).map(|(before, _)| before), Some(index));
        let mark = Some(shaper.mark(index as u32 + 1, *ticket));
        let next = shaper.queue_behind(mark).next().map(|waiting| waiting.ticket());
        assert_eq!(next.as_ref(), queue.get(index + 1));
    }
    let waits = shaper.expected_waits(at(1).boot);
    assert!(waits.len() <= queue.len() && waits.is_sorted());
    // The sets and the table say the same.
    assert_eq!(shaper.disagreement(), None);
    let mut seats: BTreeMap<&str, u32> = BTreeMap::new();
    for (id, task) in shaper.tasks() {
        let seat = match task.seat {
            Seat::Active => "active",
            Seat::Passive => "passive",
            Seat::Overflow => "overflow",
            Seat::Slotless => "slotless",
            Seat::Arriving => "arriving",
        };
        *seats.entry(seat).or_default() += 1;
        let attaching = task.is_attaching();
        assert_eq!(attaching, world.attaching.contains(&id));
        assert!(attaching || task.seat != Seat::Arriving, "in place, and without a seat");
        if let Some(level) = world.levels.get(&id) {
            assert_eq!(Some(*level), shaper.level(id), "the applier was sent another tier");
        }
    }
    let seat = |name| seats.get(name).copied().unwrap_or(0);
    assert_eq!(seat("active"), slots.active_used());
    assert_eq!(seat("passive"), slots.passive_used());
    assert_eq!(seat("overflow"), slots.overflow());
    assert_eq!(
        world.reserved.len() as u32,
        slots.active_reserved() + slots.passive_reserved(),
        "reservations promised and held differ"
    );
    assert_eq!(shaper.waiting(), world.waiting.len());
    assert_eq!(shaper.swaps_for_cpus(), [], "another choice uses more CPUs");
    let loans = shaper.loans();
    assert!(loans.borrowers().len() <= loans.lent(), "more slots are borrowed than lent");
    for id in loans.borrowers() {
        let task = shaper.task(*id).expect("a borrower that ended");
        assert_eq!((task.seat, task.halted), (Seat::Passive, None), "{id} borrows");
        assert!(!task.frozen && !shaper.lane().has(*id), "{id} borrows");
    }
    let lends = |task: &Task| loans.lends(task.id);
    let active = shaper.tasks().filter(|(_, task)| task.seat == Seat::Active);
    assert_eq!(
        active.filter(|(_, task)| lends(task)).count(),
        loans.lent(),
        "only active ones lend"
    );
    for id in shaper.lane().members() {
        let level = world.levels.get(&id);
        assert!(
            level.is_some_and(|level| is_in_lane(*level)),
            "{id} is in the lane, and the applier does not know"
        );
    }
}
