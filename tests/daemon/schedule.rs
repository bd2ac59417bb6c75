//! How the kernel schedules a thread.

/// `sched_runtime` of sched_getattr(2), in nanoseconds: its slice.
pub fn slice_of(thread: i32) -> u64 {
    let mut found = std::mem::MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: sched_getattr(2) writes at most `size` bytes behind the pointer; zeroes are one, too.
    unsafe {
        let answer = libc::syscall(libc::SYS_sched_getattr, thread, found.as_mut_ptr(), size, 0u32);
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
        found.assume_init().sched_runtime
    }
}
