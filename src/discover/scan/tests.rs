use super::*;
use crate::config::Config;
use crate::discover::made_up::Tree;

pub(crate) const DAEMON: i32 = 900;

pub(crate) fn node(tree: &Tree) -> Node {
    Node { proc: tree.proc(), daemon: Pid::new(DAEMON).unwrap(), lrs_root: Some("/lrs".into()) }
}

pub(crate) fn rules(text: &str) -> Vec<Rule> {
    Config::from_toml(text, std::path::Path::new("lrs.toml")).unwrap().discover
}

const RUN: &str =
    "[[discover]]\nname = 'run'\nuser = [7, 0]\ncommand = 'run (?<id>\\w+)'\nid = '${id}'\n";
const YARD: &str = "[[discover]]\nname = 'yard'\ncgroup = '/yard/(?<id>[^/]+)'\nid = '${id}'\n";

fn scan(tree: &Tree, text: &str) -> Scan {
    Scan::new(node(tree), rules(text))
}

/// Pid and name of each candidate, after enough passes for all to be steady.
fn found(scan: &mut Scan) -> Vec<(i32, String)> {
    scan.pass().unwrap();
    scan.pass().unwrap();
    names(scan)
}

fn names(scan: &Scan) -> Vec<(i32, String)> {
    let candidates = scan.candidates();
    assert!(candidates.iter().all(|candidate| candidate.steady));
    let name = |c: &Candidate| c.labels.name.as_ref().map_or_else(String::new, Label::to_string);
    candidates.iter().map(|c| (c.process.pid.raw(), name(c))).collect()
}

fn one(pid: i32, name: &str) -> Vec<(i32, String)> {
    vec![(pid, name.to_owned())]
}

#[test]
fn some_are_never_proposed() {
    let tree = Tree::new();
    let run = ["run", "x"];
    tree.process(1, 0).command(&run);
    tree.process(50, 5).command(&run).kernel();
    tree.process(51, 5).command(&run).ended();
    tree.process(DAEMON, 5).command(&run);
    tree.process(901, 6).command(&run).parent(DAEMON);
    tree.process(52, 5).command(&run).user(8);
    tree.process(53, 5).command(&run).cgroup("/lrs/task-1");
    tree.process(54, 5).command(&run).cgroup("/lrs");
    tree.process(55, 5).command(&run).cgroup("/lrsx").user(7);
    assert_eq!(found(&mut scan(&tree, RUN)), one(55, "x"));
}

#[test]
fn some_groups_are_never_managed_in_place() {
    let tree = Tree::new();
    for (pid, path) in [(50, "/"), (51, "/lrs"), (52, "/lrs/a"), (53, "/a")] {
        tree.process(pid, 5).cgroup(path);
    }
    let any = "[[discover]]\nname = 'x'\ncgroup = '/.*'\nid = 'x'";
    assert_eq!(found(&mut scan(&tree, any)), one(53, "x"));
    let mut deep = node(&tree);
    deep.lrs_root = Some("/a/b/lrs".into());
    assert_eq!(found(&mut Scan::new(deep, rules(any))), [(51, "x".into())], "/a holds the root");
}

#[test]
fn the_topmost_of_one_task_stands_for_it() {
    let tree = Tree::new();
    tree.process(60, 10).command(&["sh", "-c", "run a; run b"]);
    tree.process(61, 11).command(&["sh", "-c", "other"]).parent(60);
    tree.process(62, 12).command(&["run", "a"]).parent(61);
    tree.process(63, 13).command(&["run", "b"]).parent(61);
    let mut scan = scan(&tree, RUN);
    assert_eq!(
        found(&mut scan),
        [(60, "a".into()), (63, "b".into())],
        "another id is another task"
    );
    tree.process(60, 10).cgroup("/lrs/task-1");
    for _ in 0..TURN {
        scan.pass().unwrap();
    }
    assert_eq!(scan.candidates().len(), 1, "the child belongs to a task that is placed");
    assert_eq!(names(&scan), one(63, "b"));
}

#[test]
fn who_inherits_the_number_of_a_parent_is_none() {
    let tree = Tree::new();
    tree.process(60, 50).command(&["run", "a"]);
    tree.process(62, 12).command(&["run", "a"]).parent(60);
    assert_eq!(found(&mut scan(&tree, RUN)), [(62, "a".into()), (60, "a".into())]);
}

#[test]
fn circles_of_parents_end() {
    let tree = Tree::new();
    tree.process(60, 10).command(&["x"]).parent(61);
    tree.process(61, 10).command(&["x"]).parent(60);
    tree.process(62, 11).command(&["run", "a"]).parent(61);
    assert_eq!(found(&mut scan(&tree, RUN)), one(62, "a"));
}

#[test]
fn the_oldest_in_a_group_stands_for_it() {
    let tree = Tree::new();
    tree.process(70, 10).cgroup("/yard/a/deep");
    tree.process(71, 12).cgroup("/yard/a");
    tree.process(72, 11).cgroup("/yard/a");
    tree.process(73, 13).cgroup("/yard/b/deep/er");
    let mut scan = scan(&tree, YARD);
    assert_eq!(found(&mut scan), [(72, "a".into()), (73, "b".into())]);
    let group = scan.candidates()[0].group.clone().unwrap();
    assert_eq!(group.path, "/yard/a");
    assert_eq!(group.members.len(), 3);
}

#[test]
fn what_is_between_fork_and_exec_is_not_steady() {
    let tree = Tree::new();
    tree.process(80, 10).command(&["run", "a"]);
    let mut scan = scan(&tree, RUN);
    scan.pass().unwrap();
    assert!(!scan.candidates()[0].steady);
    tree.process(80, 10).command(&["run", "b"]);
    scan.pass().unwrap();
    assert!(!scan.candidates()[0].steady, "it has changed");
    scan.pass().unwrap();
    assert_eq!(names(&scan), one(80, "b"));
}

#[test]
fn a_late_exec_is_noticed_within_a_turn() {
    let tree = Tree::new();
    tree.process(80, 10).command(&["sh"]);
    let mut scan = scan(&tree, RUN);
    for _ in 0..=YOUNG {
        scan.pass().unwrap();
    }
    tree.process(80, 10).command(&["run", "b"]);
    for _ in 0..=TURN {
        scan.pass().unwrap();
    }
    assert_eq!(names(&scan), one(80, "b"));
}

#[test]
fn a_number_used_again_is_another_process() {
    let tree = Tree::new();
    tree.process(80, 10).command(&["run", "a"]);
    let mut scan = scan(&tree, RUN);
    assert_eq!(found(&mut scan), one(80, "a"));
    let first = scan.candidates()[0].process;
    tree.remove(80);
    scan.pass().unwrap();
    assert!(scan.candidates().is_empty() && !scan.has(first));
    tree.process(80, 90).command(&["run", "c"]);
    assert_eq!(found(&mut scan), one(80, "c"));
    assert!(!scan.has(first));
}

#[test]
fn who_vanishes_while_read_is_neither_found_nor_an_error() {
    let tree = Tree::new();
    for (pid, file) in [(80, "stat"), (81, "cmdline"), (82, "cgroup"), (83, "status")] {
        tree.process(pid, 10).command(&["run", "a"]);
        std::fs::remove_file(tree.path().join(format!("{pid}/{file}"))).unwrap();
    }
    let mut scan = scan(&tree, RUN);
    assert_eq!(found(&mut scan), []);
    assert_eq!(scan.trouble(), []);
}

#[test]
fn an_unreadable_file_is_reported() {
    let tree = Tree::new();
    tree.process(80, 10).raw("stat", b"nonsense");
    tree.process(81, 10);
    std::fs::remove_file(tree.path().join("81/cmdline")).unwrap();
    std::fs::create_dir(tree.path().join("81/cmdline")).unwrap();
    tree.process(82, 10).command(&["run", "a"]);
    let mut scan = scan(&tree, RUN);
    assert_eq!(found(&mut scan), one(82, "a"), "the others are found all the same");
    let mut paths: Vec<String> = scan
        .trouble()
        .iter()
        .map(|t| t.path.file_name().unwrap().to_string_lossy().into())
        .collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths, ["cmdline", "stat"]);
}

#[test]
fn a_thousand_idle_processes_are_read_one_in_32() {
    let tree = Tree::new();
    for pid in 1000..2000 {
        tree.process(pid, 10).command(&["run", &format!("t{pid}")]);
    }
    let mut scan = scan(&tree, RUN);
    scan.pass().unwrap();
    assert_eq!(scan.read, 1000);
    for _ in 0..YOUNG {
        scan.pass().unwrap();
    }
    assert_eq!(scan.candidates().len(), 1000);
    let mut read = 0;
    for _ in 0..TURN {
        scan.pass().unwrap();
        assert!((31..=32).contains(&scan.read), "{}", scan.read);
        read += scan.read;
    }
    assert_eq!(read, 1000, "each once a turn");
}

/// The shipped rules, on trees of the shape their schedulers make.
mod shipped {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
    const ALLOC: &str = "0aa51fc6-7a0b-4b4d-a8a1-a32ad0c3dd5d";

    /// Rule, main process, group, name, job and kind of each task.
    fn tasks(tree: &Tree) -> Vec<[String; 6]> {
        let mut scan = scan(tree, &crate::config::example_rules());
        scan.pass().unwrap();
        scan.pass().unwrap();
        let show = |label: Option<Label>| label.map_or_else(|| "-".to_owned(), |l| l.to_string());
        let rules = scan.rules();
        scan.candidates()
            .into_iter()
            .map(|task| {
                [
                    rules[task.rule].name.to_string(),
                    task.process.pid.to_string(),
                    task.group.map_or_else(|| "-".to_owned(), |group| group.path),
                    show(task.labels.name),
                    show(task.labels.job),
                    show(task.labels.kind),
                ]
            })
            .collect()
    }

    #[test]
    fn slurm_on_either_version() {
        let tree = Tree::new();
        let scope = "/system.slice/slurmstepd.scope";
        tree.process(100, 1).command(&["/usr/sbin/slurmd"]).cgroup("/system.slice/slurmd.service");
        tree.process(101, 2)
            .command(&["slurmstepd", "infinity"])
            .cgroup(&format!("{scope}/system"));
        tree.process(102, 3).cgroup(&format!("{scope}/job_42/step_extern/user/task_special"));
        tree.process(103, 4).cgroup(&format!("{scope}/job_42/step_batch/slurm"));
        tree.process(104, 5).cgroup(&format!("{scope}/job_42/step_0/user/task_0"));
        tree.process(105, 6).cgroup("/system.slice/n1_slurmstepd.scope/job_43/step_0/user/task_0");
        tree.process(106, 7).cgroup("4:cpuacct,cpu:/slurm/uid_1000/job_44/step_0/task_0\n0::/x\n");
        tree.process(107, 8).cgroup("4:cpuacct,cpu:/slurm_n1/uid_1000/job_45/step_0\n");
        let forged = "/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_46";
        tree.process(108, 9).cgroup(forged);
        // The sleep of the extern step alone, on v2 and v1, and beside what is the job's.
        tree.process(109, 10).cgroup(&format!("{scope}/job_47/step_extern/user/task_0"));
        tree.process(110, 11).cgroup("4:cpuacct,cpu:/slurm/uid_1000/job_48/step_extern/task_0\n");
        tree.process(111, 12).cgroup(&format!("{scope}/job_49/step_extern/user/task_0"));
        tree.process(112, 13).cgroup(&format!("{scope}/job_49/step_0/user/task_0"));
        let job = |pid: i32, group: &str, name: &str| {
            ["slurm", &pid.to_string(), group, name, name, "-"].map(str::to_owned)
        };
        assert_eq!(
            tasks(&tree),
            [
                job(102, "/system.slice/slurmstepd.scope/job_42", "slurm-42"),
                job(105, "/system.slice/n1_slurmstepd.scope/job_43", "slurm-43"),
                job(106, "/slurm/uid_1000/job_44", "slurm-44"),
                job(107, "/slurm_n1/uid_1000/job_45", "slurm-45"),
                job(112, "/system.slice/slurmstepd.scope/job_49", "slurm-49"),
            ]
        );
    }

    #[test]
    fn htcondor() {
        let tree = Tree::new();
        tree.process(100, 1).command(&["condor_startd"]).cgroup("/system.slice/condor.service");
        tree.process(101, 2).cgroup("4:cpu,cpuacct:/htcondor/condor_execute_slot1_1@node\n");
        tree.process(102, 3).cgroup("/system.slice/condor.service/htcondor/slot1_2@node/below");
        let slot = |pid: i32, group: &str, name: &str| {
            ["htcondor", &pid.to_string(), group, name, "htcondor", "-"].map(str::to_owned)
        };
        assert_eq!(
            tasks(&tree),
            [
                slot(101, "/htcondor/condor_execute_slot1_1@node", "condor_execute_slot1_1@node"),
                slot(102, "/system.slice/condor.service/htcondor/slot1_2@node", "slot1_2@node"),
            ]
        );
    }

    #[test]
    fn nomad_of_either_layout() {
        let tree = Tree::new();
        let env = ["PATH=/bin", "NOMAD_JOB_NAME=etl"];
        for (pid, slice) in [(100, ""), (101, "share.slice/"), (102, "reserve.slice/")] {
            let group = format!("/nomad.slice/{slice}{ALLOC}.load.scope");
            tree.process(pid, pid as u64).environment(&env).cgroup(&group);
        }
        tree.process(103, 200).cgroup(&format!("/nomad.slice/share.slice/{ALLOC}.x.scope"));
        let found = tasks(&tree);
        assert_eq!(found.len(), 3, "one is no job's: {found:?}");
        for ([rule, _, group, name, job, kind], slice) in
            found.iter().zip(["", "share.slice/", "reserve.slice/"])
        {
            assert_eq!(*group, format!("/nomad.slice/{slice}{ALLOC}.load.scope"));
            assert_eq!(*name, format!("{ALLOC}.load"));
            assert_eq!([rule.as_str(), job, kind], ["nomad", "etl", "load"]);
        }
    }

    #[test]
    fn kubernetes_by_container() {
        let tree = Tree::new();
        let (under, dash) = (ALLOC.replace('-', "_"), ALLOC);
        let pod =
            format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under}.slice");
        let guaranteed = format!("/kubepods.slice/kubepods-pod{under}.slice");
        let groups = [
            format!("{pod}/cri-containerd-{ID}.scope"),
            format!("{guaranteed}/crio-{ID}.scope"),
            format!("{guaranteed}/docker-{OTHER}.scope"),
            format!("/kubepods/besteffort/pod{dash}/{ID}"),
            format!("/kubepods/pod{dash}/{OTHER}"),
        ];
        for (index, group) in groups.iter().enumerate() {
            let pid = 100 + index as i32;
            tree.process(pid, pid as u64).command(&["app"]).cgroup(&format!("{group}/inner"));
        }
        tree.process(200, 200)
            .command(&["/pause"])
            .cgroup(&format!("{pod}/cri-containerd-{OTHER}.scope"));
        tree.process(201, 201)
            .command(&["conmon"])
            .cgroup(&format!("{guaranteed}/crio-conmon-{ID}.scope"));
        tree.process(202, 202).command(&["x"]).cgroup(&pod);
        tree.process(203, 203)
            .command(&["/usr/bin/kubelet"])
            .cgroup("/system.slice/kubelet.service");
        let found = tasks(&tree);
        assert_eq!(found.len(), groups.len() + 1, "{found:?}");
        for (task, group) in found.iter().zip(&groups) {
            assert_eq!((task[0].as_str(), &task[2]), ("kubernetes", group));
            assert!(task[3] == ID || task[3] == OTHER, "{task:?}");
            assert!(task[4] == under || task[4] == dash, "{task:?}");
        }
        assert_eq!(found[groups.len()][..2], ["kubernetes-pause".to_owned(), "200".to_owned()]);
    }

    #[test]
    fn a_program_of_one_account() {
        let tree = Tree::new();
        let render = ["/opt/bin/render", "--scene", "s1", "--frame", "17"];
        tree.process(100, 1).command(&render).user(1500).cgroup("/user.slice/a.scope");
        tree.process(101, 2).command(&render).user(1501);
        assert_eq!(
            tasks(&tree),
            [["render", "100", "-", "s1/17", "s1", "frame"].map(str::to_owned)]
        );
    }
}

/// The processes there are.
mod real {
    use std::io::Write as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A shell with `mark` in its command line that waits for a line before it does `then`.
    fn waiting(mark: &str, then: &str) -> Child {
        Command::new("sh")
            .args(["-c", &format!("read line; {then}"), mark])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn scan(mark: &str) -> Scan {
        let uid = rustix::process::geteuid().as_raw();
        let text = format!(
            "[[discover]]\nname = 'x'\nuser = {uid}\ncommand = '{mark}-(?<id>\\w+)'\nid = '${{id}}'"
        );
        // The daemon is another process: children of its own are never found.
        let node =
            Node { proc: Proc::default(), daemon: Pid::new(i32::MAX).unwrap(), lrs_root: None };
        Scan::new(node, rules(&text))
    }

    #[test]
    fn a_process_is_found_and_its_end_noticed() {
        let mark = format!("lrs-scan-{}", std::process::id());
        let mut child = waiting(&format!("{mark}-one"), ":");
        let pid = child.id() as i32;
        let mut scan = scan(&mark);
        assert_eq!(found(&mut scan), one(pid, "one"));
        let process = scan.candidates()[0].process;
        child.stdin.take();
        child.wait().unwrap();
        scan.pass().unwrap();
        assert!(scan.candidates().is_empty() && !scan.has(process));
    }

    #[test]
    fn an_exec_changes_the_task() {
        let mark = format!("lrs-exec-{}", std::process::id());
        let then = "exec sh -c 'echo; read line' \"${0%one}two\"";
        let mut child = waiting(&format!("{mark}-one"), then);
        let pid = child.id() as i32;
        let mut scan = scan(&mark);
        assert_eq!(found(&mut scan), one(pid, "one"));
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"\n").unwrap();
        let mut answer = [0];
        std::io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut answer).unwrap();
        assert_eq!(found(&mut scan), one(pid, "two"));
        drop(stdin);
        child.wait().unwrap();
    }

    /// What the incremental scan rests on.
    #[test]
    fn the_kernel_gives_each_process_an_inode_of_its_own() {
        let inode = |pid: u32| {
            let list = Proc::default().list().unwrap();
            list.iter().find(|listed| listed.pid.raw() == pid as i32).map(|listed| listed.inode)
        };
        let mut child = waiting("x", ":");
        let mine = inode(std::process::id()).unwrap();
        let its = inode(child.id()).unwrap();
        assert_ne!(mine, its);
        assert_eq!(inode(child.id()), Some(its));
        child.stdin.take();
        child.wait().unwrap();
        assert_eq!(inode(child.id()), None);
    }

    #[test]
    #[ignore = "a measurement: starts 1,000 processes; run with --nocapture"]
    fn what_a_pass_costs() {
        if std::env::var_os("LRS_TEST_MEASURE").is_none() {
            println!("SKIPPED: a measurement; set LRS_TEST_MEASURE to take it");
            return;
        }
        let mark = format!("lrs-cost-{}", std::process::id());
        let mut children: Vec<Child> =
            (0..1000).map(|n| waiting(&format!("{mark}-{n}"), ":")).collect();
        let mut scan = scan(&mark);
        let time = |scan: &mut Scan| {
            let begin = crate::clock::boot_time();
            scan.pass().unwrap();
            let candidates = scan.candidates().len();
            (crate::clock::boot_time().since(begin), scan.read, candidates)
        };
        let first = time(&mut scan);
        for _ in 0..YOUNG {
            time(&mut scan);
        }
        let mut idle: Vec<_> = (0..TURN).map(|_| time(&mut scan)).collect();
        idle.sort_by_key(|(took, ..)| *took);
        println!("first pass {first:?}; idle, median {:?}, longest {:?}", idle[16], idle[31]);
        children.iter_mut().for_each(|child| drop(child.stdin.take()));
        children.iter_mut().for_each(|child| drop(child.wait()));
        assert!(idle.iter().all(|(_, read, found)| *read < 200 && *found == 1000), "{idle:?}");
    }
}
