//! What users make the daemon hold by requests they do not finish and answers they do not read,
//! be it in its own memory or in the kernel's.
//!
//! Limits: what the kernel charges for socket buffers is not read, for the memory controller of
//! a test machine may be anybody's. The tests count the bytes that a socket takes instead; with
//! the number of connections that is a bound.

use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;

use lrs::publish::Snapshot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::flood::half_ask;
use crate::*;

const THIRD: u32 = 4_000_003;
const ADMIT: &str = "/lrs.v1.Shaper/Admit";
const LIST_TASKS: &str = "/lrs.v1.Shaper/ListTasks";

async fn get_status(client: &mut ShaperClient<Channel>) -> Result<(), Status> {
    soon(client.get_status(proto::GetStatusRequest {})).await.map(drop)
}

/// The refusal of the next call of `client`, once there is one.
async fn refusal(client: &mut ShaperClient<Channel>) -> Status {
    until(async || match get_status(client).await {
        Err(refused) => Ok(refused),
        Ok(()) => Err(()),
    })
    .await
}

fn with_tasks(snapshot: &mut Snapshot, count: u64) {
    for number in 1..=count {
        snapshot.tasks.insert(task_id(number), task(number).into());
    }
}

/// What there is to read once the daemon has closed; nothing is read before.
fn left_by_the_daemon(connection: &mut UnixStream) -> usize {
    let mut closed = [PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::empty())];
    let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
    assert_eq!(poll(&mut closed, Some(&patience)).unwrap(), 1, "still open after 30 s");
    let mut taken = Vec::new();
    match connection.read_to_end(&mut taken) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => taken.len(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and cgroups"]
async fn half_sent_requests_count_for_their_user_and_end() {
    /// HEADERS, and its flag END_STREAM (RFC 9113, 6.2).
    const HEADERS: u8 = 1;
    const END: u8 = 1;
    let limits = Limits { first_words: Duration::from_secs(2), ..Limits::default() };
    let mut bench = bench(limits, 0);
    let mut attackers = Vec::new();
    for _ in 0..4 {
        let mut connection = connection(&bench, USER);
        half_ask(&mut connection, ADMIT, 65_000, 10, 40).unwrap();
        attackers.push(connection);
    }
    let mut user = user(&bench, USER).await;
    let refused = refusal(&mut user).await;
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("half sent"), "{refused}");
    get_status(&mut crate::user(&bench, OTHER).await).await.unwrap();
    get_status(&mut bench.client().await).await.unwrap();
    until(async || get_status(&mut user).await).await;
    // Every one of the calls was answered, and nothing was done.
    for connection in attackers {
        connection.set_nonblocking(true).unwrap();
        let mut connection = tokio::net::UnixStream::from_std(connection).unwrap();
        let mut ended = 0;
        while ended < 40 {
            let mut head = [0; 9];
            soon(connection.read_exact(&mut head)).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            soon(connection.read_exact(&mut vec![0; length as usize])).await.unwrap();
            ended += usize::from(head[3] == HEADERS && head[4] & END != 0);
        }
    }
    assert!(bench.commands.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and cgroups"]
async fn many_uids_share_a_limit_and_root_has_none() {
    let limits = Limits { streams: 2, all_streams: 3, ..Limits::default() };
    let bench = bench(limits, 0);
    let mut root = bench.client().await;
    let mut users =
        [user(&bench, USER).await, user(&bench, OTHER).await, user(&bench, THIRD).await];
    let mut held = Vec::new();
    for of_user in [0, 0, 1] {
        held.push(watch_status(&mut users[of_user]).await.unwrap());
    }
    let refused = watch_status(&mut users[2]).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("all users"), "{refused}");
    held.push(watch_status(&mut root).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and cgroups"]
async fn a_socket_takes_little_of_what_a_user_does_not_read() {
    let limits = Limits { slow_reader: Duration::from_millis(300), ..Limits::default() };
    let bench = bench(limits, 0);
    bench.publish(|snapshot| with_tasks(snapshot, 40));
    // Less than 1 MiB in all, so that nothing is refused.
    let mut attackers: Vec<_> = (0..8).map(|_| connection(&bench, USER)).collect();
    for connection in &mut attackers {
        ask(connection, LIST_TASKS, &[], 8, HUGE).unwrap();
    }
    for connection in &mut attackers {
        let taken = left_by_the_daemon(connection);
        assert!(taken <= 12 << 10, "{taken} bytes");
    }
    get_status(&mut user(&bench, USER).await).await.unwrap();
}

#[tokio::test]
#[ignore = "needs root and cgroups"]
async fn a_unary_answer_that_is_not_taken_closes_its_connection() {
    let limits = Limits { slow_reader: Duration::from_millis(300), ..Limits::default() };
    let bench = bench(limits, 0);
    bench.publish(|snapshot| with_tasks(snapshot, 40));
    let mut connection = connection(&bench, USER);
    // One byte is enough for HTTP/2 to take all of the answer, and the call is over.
    ask(&mut connection, LIST_TASKS, &[], 1, 1).unwrap();
    connection.set_nonblocking(true).unwrap();
    let mut connection = tokio::net::UnixStream::from_std(connection).unwrap();
    let mut all = Vec::new();
    soon(connection.read_to_end(&mut all)).await.unwrap();
    assert!(all.len() < 1 << 10, "{} bytes", all.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and cgroups"]
async fn all_connections_of_users_at_their_worst_fit_below_the_limit_of_the_service() {
    let descriptors = getrlimit(Resource::Nofile).maximum;
    let most = Rlimit { current: descriptors, maximum: descriptors };
    setrlimit(Resource::Nofile, most).unwrap();
    let bench = bench(Limits::default(), 0);
    let mut probe = user(&bench, 4_000_004).await;
    get_status(&mut probe).await.unwrap();
    let before = memory(std::process::id(), "VmRSS");
    let mut attackers = Vec::new();
    let mut step = async |uids: &[u32], attack: &dyn Fn(&mut UnixStream)| {
        for uid in uids {
            for _ in 0..512 {
                let mut connection = connection(&bench, *uid);
                attack(&mut connection);
                attackers.push(connection);
            }
        }
        // A new connection is accepted behind the others, and a user's calls are behind theirs.
        get_status(&mut bench.client().await).await.unwrap();
        for _ in 0..10 {
            get_status(&mut probe).await.unwrap();
        }
        memory(std::process::id(), "VmRSS").saturating_sub(before)
    };
    // The daemon may close on what is too much, which is as well.
    let half = step(&[USER], &|c| drop(half_ask(c, ADMIT, 65_000, 60_000, 2))).await;
    let heads = step(&[OTHER, OTHER, THIRD], &|c| drop(ask(c, "/x/y", &[], 600, 0))).await;
    println!("half sent: {half} KiB; with unread heads: {heads} KiB");
    assert!(half < 48 << 10, "{half} KiB");
    assert!(heads < 192 << 10, "{heads} KiB");
}
