//! How the kernel schedules the daemon's own threads.

/// The loop must run at once when a task ends, also on a node with all CPUs busy.
///
/// SCHED_FIFO at its lowest priority. Nice -20 and a short slice keep the median at 0.2 ms, but
/// one promotion in fifty then waits 4 to 12 ms for a tick (measured, Linux 6.18); this leaves
/// 0.3 ms. It is safe: the thread sleeps nearly always and never waits by spinning, what takes
/// long is on other threads, and the kernel keeps 5 % for ordinary threads even from a faulty
/// one (sched(7), sched_rt_runtime_us). Where it is not allowed the nice value has to do.
pub(crate) fn favour_this_thread() {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `parameters` outlives the call; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } == 0 {
        return;
    }
    let error = std::io::Error::last_os_error();
    tracing::debug!(%error, "no real-time priority for the control loop, it gets nice -20: {error}");
    let me = rustix::thread::gettid();
    let nice = rustix::process::setpriority_process(Some(me), -20).map_err(Into::into);
    if let Err(error) = nice.and_then(|()| shorten_slice(-20)) {
        // Without the right (an unprivileged observer) it waits its turn like others.
        tracing::debug!(%error, "the control loop keeps the default scheduling: {error}");
    }
}

/// Asks the scheduler for short turns at once instead of long ones later (sched_setattr(2);
/// sched(7): EEVDF, Linux 6.12 and later). A nice value alone does not interrupt a thread that
/// is in its turn, which lasts 3 ms or more; a shorter slice does, in groups above as well. It
/// gives no more CPU time than before. Earlier kernels ignore the slice.
pub(crate) fn shorten_slice(nice: i32) -> std::io::Result<()> {
    /// struct sched_attr, version 0 (include/uapi/linux/sched/types.h).
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    /// The least the kernel takes, in nanoseconds.
    const SLICE: u64 = 100_000;
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime: SLICE,
        deadline: 0,
        period: 0,
    };
    // SAFETY: sched_getscheduler(2) takes an integer; 0 is the calling thread.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        // Whoever started the daemon chose another policy for it.
        return Ok(());
    }
    // SAFETY: the kernel reads `size` bytes of `attributes`, which outlives the call; 0 is the
    // calling thread.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
