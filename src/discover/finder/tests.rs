use super::super::made_up::Tree;
use super::super::scan::tests::{node, rules};
use super::*;
use crate::core::model::{Priority, Standing};

const RUN: &str = "[[discover]]\nname = 'run'\nuser = 0\ncommand = 'run (?<id>\\w+)'\nid = '${id}'\n\
                   standing = 'opportunistic'\npriority = 3\n";
const YARD: &str = "[[discover]]\nname = 'yard'\ncgroup = '/yard/(?<id>[^/]+)'\nid = '${id}'\n";

fn finder(tree: &Tree, text: &str) -> RuleFinder {
    RuleFinder::with_rules(node(tree), rules(text))
}

fn at(seconds: u64) -> BootTime {
    BootTime(Duration::from_secs(seconds))
}

fn task(number: u64) -> TaskId {
    TaskId { number, epoch: 1 }
}

fn refused(message: &str) -> Result<TaskId, CommandError> {
    Err(CommandError::new(ErrorKind::FailedPrecondition, message))
}

/// Two passes: what is new has to be seen twice.
fn find(finder: &mut RuleFinder, seconds: u64) -> Vec<DiscoveredTask> {
    find_hinted(finder, &Hints::default(), seconds)
}

fn find_hinted(finder: &mut RuleFinder, hints: &Hints, seconds: u64) -> Vec<DiscoveredTask> {
    assert_eq!(finder.pass(hints, at(seconds)), []);
    assert!(finder.wants_pass_soon());
    let found = finder.pass(hints, at(seconds));
    assert!(!finder.wants_pass_soon());
    found
}

#[test]
fn what_a_rule_says_is_reported() {
    let tree = Tree::new();
    tree.process(50, 7).command(&["run", "a"]);
    let found = find(&mut finder(&tree, RUN), 1).remove(0);
    assert_eq!((found.process.pid.raw(), found.process.start_ticks), (50, 7));
    assert_eq!(found.labels.name.unwrap().as_str(), "a");
    assert_eq!(
        (found.standing, found.priority),
        (Some(Standing::Opportunistic), Some(Priority(3)))
    );
    assert!(matches!(found.attach, Attach::Descendants { .. }));
    assert_eq!(found.finder.to_string(), "rule run");
}

#[test]
fn each_is_reported_once() {
    let tree = Tree::new();
    tree.process(50, 7).command(&["run", "a"]);
    tree.process(51, 8).command(&["run", "b"]);
    let mut finder = finder(&tree, RUN);
    let found = find(&mut finder, 1);
    assert_eq!(found.len(), 2);
    assert_eq!(finder.pass(&Hints::default(), at(2)), [], "their answers are to come");
    finder.answered(found[0].process, Ok(task(1)));
    let there = CommandError::new(ErrorKind::AlreadyExists(task(2)), "it is a task");
    finder.answered(found[1].process, Err(there));
    for second in 3..1000 {
        assert_eq!(finder.pass(&Hints::default(), at(second)), []);
    }
    tree.remove(50);
    tree.remove(51);
    finder.pass(&Hints::default(), at(1000));
    assert!(finder.proposals.is_empty() && finder.asked.is_empty());
    tree.process(50, 9).command(&["run", "a"]);
    assert_eq!(find(&mut finder, 1001).len(), 1, "another process");
}

#[test]
fn what_is_refused_is_reported_again_after_growing_pauses() {
    let tree = Tree::new();
    tree.process(50, 7).command(&["run", "a"]);
    let mut finder = finder(&tree, RUN);
    let process = find(&mut finder, 0)[0].process;
    finder.answered(process, refused("too many"));
    let mut proposed = Vec::new();
    for second in 1..2000 {
        if !finder.pass(&Hints::default(), at(second)).is_empty() {
            proposed.push(second);
            finder.answered(process, refused("too many"));
        }
    }
    let pauses: Vec<u64> = proposed.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(proposed[0], 1);
    assert_eq!(pauses[..9], [2, 4, 8, 16, 32, 64, 128, 256, 300]);
    assert!(pauses[9..].iter().all(|&pause| pause == 300), "{pauses:?}");
}

#[test]
fn a_group_is_one_task_while_anybody_stays_in_it() {
    let tree = Tree::new();
    tree.process(50, 7).cgroup("/yard/a");
    let mut finder = finder(&tree, YARD);
    let found = find(&mut finder, 1).remove(0);
    assert_eq!(found.attach, Attach::InPlace { cgroup: "/yard/a".into() });
    finder.answered(found.process, Ok(task(1)));
    tree.process(51, 8).cgroup("/yard/a");
    assert_eq!(finder.pass(&Hints::default(), at(2)), []);
    tree.remove(50);
    for second in 3..10 {
        assert_eq!(finder.pass(&Hints::default(), at(second)), [], "51 is of the same group");
    }
    tree.remove(51);
    tree.process(52, 9).cgroup("/yard/a");
    assert_eq!(find(&mut finder, 11).len(), 1, "no process is left of those before");
}

#[test]
fn a_group_that_empties_is_forgotten() {
    let tree = Tree::new();
    tree.process(50, 7).cgroup("/yard/a");
    let mut finder = finder(&tree, YARD);
    let process = find(&mut finder, 1)[0].process;
    tree.remove(50);
    finder.pass(&Hints::default(), at(2));
    assert!(finder.proposals.is_empty() && finder.asked.is_empty());
    finder.answered(process, Ok(task(1)));
    assert!(finder.proposals.is_empty(), "an answer that comes too late changes nothing");
}

#[test]
fn a_thousand_that_start_at_once_are_reported_in_the_order_of_their_start() {
    let tree = Tree::new();
    for pid in 1000..2000 {
        tree.process(pid, 5000 - pid as u64).command(&["run", &format!("t{pid}")]);
    }
    let mut finder = finder(&tree, RUN);
    let found = find(&mut finder, 1);
    assert_eq!(found.len(), 1000);
    assert!(found.is_sorted_by_key(|found| found.process.start_ticks));
    for found in &found {
        finder.answered(found.process, Ok(task(found.process.start_ticks)));
    }
    assert_eq!(finder.pass(&Hints::default(), at(2)), []);
}

#[test]
fn a_list_that_cannot_be_read_changes_nothing() {
    let tree = Tree::new();
    tree.process(50, 7).command(&["run", "a"]);
    let mut finder = finder(&tree, RUN);
    let process = find(&mut finder, 1)[0].process;
    finder.answered(process, Ok(task(1)));
    let (path, aside) = (tree.path().to_owned(), tree.path().with_extension("aside"));
    std::fs::rename(&path, &aside).unwrap();
    assert_eq!(finder.pass(&Hints::default(), at(2)), []);
    assert_eq!(finder.complained.len(), 1);
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!(finder.pass(&Hints::default(), at(3)), [], "it is known still");
}

#[test]
fn what_a_scheduler_says_of_a_task_goes_before_its_rule() {
    let tree = Tree::new();
    tree.process(50, 7).cgroup("/yard/a");
    tree.process(51, 8).cgroup("/yard/b");
    let rule = format!("{YARD}standing = 'opportunistic'\npriority = 3\n");
    let (mut finder, mut hints) = (finder(&tree, &rule), Hints::default());
    let hint = |priority, opportunistic| Hint {
        container: String::from("a"),
        priority,
        opportunistic,
        ..Hint::default()
    };
    hints.insert(hint(Some(Priority(9)), None));
    let found = find_hinted(&mut finder, &hints, 1);
    let hinted = |found: &DiscoveredTask| (found.standing, found.priority);
    assert_eq!(hinted(&found[0]), (Some(Standing::Opportunistic), Some(Priority(9))));
    assert_eq!(hinted(&found[1]), (Some(Standing::Opportunistic), Some(Priority(3))));
    for (number, found) in [1, 2].into_iter().zip(&found) {
        finder.answered(found.process, Ok(task(number)));
    }
    assert_eq!(finder.pass(&hints, at(2)), []);
    hints.insert(hint(Some(Priority(9)), Some(false)));
    let again = finder.pass(&hints, at(3));
    assert_eq!(again.len(), 1, "the other one is what it was");
    assert_eq!(again[0].process, found[0].process);
    assert_eq!(hinted(&again[0]), (Some(Standing::Slot), Some(Priority(9))));
    finder.answered(again[0].process, Ok(task(1)));
    hints.insert(hint(Some(Priority(9)), Some(false)));
    assert_eq!(finder.pass(&hints, at(4)), [], "nothing new");
    // Released meanwhile: it is proposed once more, and not again.
    hints.insert(hint(Some(Priority(7)), Some(false)));
    let again = finder.pass(&hints, at(5));
    finder.answered(again[0].process, refused("it was released"));
    assert_eq!(finder.pass(&hints, at(10_000)), [], "what was released is left alone");
    assert!(again[0].again && !found[0].again, "nor may it be made a task anew");
    // What the loop cannot take just now is not lost.
    hints.insert(hint(Some(Priority(6)), Some(false)));
    let again = finder.pass(&hints, at(10_001));
    let busy = CommandError::new(ErrorKind::Unavailable, "it is being released");
    finder.answered(again[0].process, Err(busy));
    assert_eq!(finder.pass(&hints, at(10_002)), again);
}

#[test]
fn what_is_reported_of_a_name_that_a_process_chose_changes_nothing() {
    let tree = Tree::new();
    tree.process(50, 7).command(&["run", "a"]);
    let (mut finder, mut hints) = (finder(&tree, RUN), Hints::default());
    let priority = Some(Priority(9));
    hints.insert(Hint { container: String::from("a"), priority, ..Hint::default() });
    assert_eq!(find_hinted(&mut finder, &hints, 1)[0].priority, Some(Priority(3)));
}
