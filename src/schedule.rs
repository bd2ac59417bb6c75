//! How the kernel schedules threads: the daemon's own, and what it asks of others.

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

/// The thread computes when no other of the daemon wants to (nice 19, of this thread alone).
pub(crate) fn put_this_thread_last() {
    let me = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(me), 19) {
        // It is slower for the others, no more: a filter of system calls may refuse it.
        tracing::debug!(%error, "a thread keeps its priority, nice 19 is refused: {error}");
    }
}

/// Asks the scheduler for short turns at once instead of long ones later (sched_setattr(2);
/// sched(7): EEVDF, Linux 6.12 and later). A nice value alone does not interrupt a thread that
/// is in its turn, which lasts 3 ms or more; a shorter slice does, in groups above as well. It
/// gives no more CPU time than before. Earlier kernels ignore the slice.
pub(crate) fn shorten_slice(nice: i32) -> std::io::Result<()> {
    /// The least the kernel takes, in nanoseconds.
    const SLICE: u64 = 100_000;
    // SAFETY: sched_getscheduler(2) takes an integer; 0 is the calling thread.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        // Whoever started the daemon chose another policy for it.
        return Ok(());
    }
    let policy = libc::SCHED_OTHER as u32;
    set(0, Attributes { policy, nice, runtime: SLICE, ..Attributes::default() })
}

/// `struct sched_attr`, version 0 (include/uapi/linux/sched/types.h), which every kernel takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes {
    /// Filled in by [`set`] and the kernel.
    pub(crate) size: u32,
    pub(crate) policy: u32,
    pub(crate) flags: u64,
    pub(crate) nice: i32,
    pub(crate) priority: u32,
    /// The slice in nanoseconds; 0 is written for the kernel's own.
    pub(crate) runtime: u64,
    pub(crate) deadline: u64,
    pub(crate) period: u64,
}

/// How a thread is scheduled (sched_getattr(2)); 0 is the calling one.
pub(crate) fn get(thread: libc::pid_t) -> std::io::Result<Attributes> {
    let mut found = Attributes::default();
    let size = size_of::<Attributes>() as u32;
    // SAFETY: the kernel writes at most `size` bytes behind the pointer, which is to so many.
    let answer =
        unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut found, size, 0u32) };
    if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(found) }
}

/// Has a thread scheduled so (sched_setattr(2)).
pub(crate) fn set(thread: libc::pid_t, wanted: Attributes) -> std::io::Result<()> {
    let wanted = Attributes { size: size_of::<Attributes>() as u32, ..wanted };
    // SAFETY: the kernel reads `size` bytes behind the pointer, which is to so many.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const wanted, 0u32) };
    if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
