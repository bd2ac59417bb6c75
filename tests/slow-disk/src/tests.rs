//! The medium as root, without a loop device on it.

use std::os::unix::fs::FileExt;

use super::*;

#[test]
#[ignore = "needs root"]
fn the_medium_keeps_what_was_written_and_is_released() {
    let (sender, released) = std::sync::mpsc::channel();
    let arm = model::Arm::new(1 << 30, Duration::ZERO);
    let is_fuse = |entry: &std::path::PathBuf| {
        std::fs::read_link(entry).is_ok_and(|file| file == Path::new("/dev/fuse"))
    };
    let mounted = medium::Medium::mount(16 << 20, arm, sender).unwrap();
    mounted.timed.store(true, std::sync::atomic::Ordering::Relaxed);
    // The file is open for direct I/O: memory and offset in whole blocks. 2 MiB is two requests.
    let mut bytes = vec![0_u8; (2 << 20) + 4096];
    let from = bytes.as_ptr().align_offset(4096);
    let block = &mut bytes[from..from + (2 << 20)];
    block.iter_mut().enumerate().for_each(|(index, byte)| *byte = (index / 4096) as u8);
    let written = block.to_vec();
    mounted.file.write_all_at(block, 1 << 20).unwrap();
    block.fill(0);
    mounted.file.read_exact_at(block, 1 << 20).unwrap();
    assert!(block == written, "what was read is not what was written");
    assert_eq!(mounted.file.metadata().unwrap().len(), 16 << 20);
    let beyond = mounted.file.write_all_at(block, 15 << 20).unwrap_err();
    assert_eq!(beyond.raw_os_error(), Some(libc::ENOSPC));
    let own = std::fs::read_dir("/proc/thread-self/fd").unwrap();
    let own: Vec<_> = own.map(|entry| entry.unwrap().path()).collect();
    assert!(!own.iter().any(is_fuse), "only the serving threads may have the FUSE device");
    drop(mounted);
    let word: Result<std::convert::Infallible, _> = released.recv();
    word.expect_err("the channel ends with the medium");
}
