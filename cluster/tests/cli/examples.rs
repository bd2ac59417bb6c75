//! The examples, which are part of this program: that they are built, and what they print.

#[path = "../../examples/own_policy.rs"]
#[allow(dead_code, reason = "main is the example's")]
mod own_policy;
#[path = "../../examples/living_cluster.rs"]
#[allow(dead_code, reason = "main is the example's")]
mod scheduler;

#[test]
fn an_own_policy_is_planned_and_compared_with_the_shipped_ones() {
    let text = own_policy::run().unwrap();
    assert!(
        text.starts_with("13 tasks of two-racks.json start, the first: of the smallest job"),
        "{text}"
    );
    let mean = |policy: &str| -> f64 {
        let row = text.lines().find(|line| line.starts_with(&format!("| {policy} |"))).unwrap();
        row.split('|').nth(2).unwrap().split_whitespace().next().unwrap().parse().unwrap()
    };
    assert!(mean("smallest-first") < mean("fifo") / 2.0, "{text}");
}

#[test]
fn a_scheduler_is_restarted_and_goes_on() {
    let at = |time: &str, what: &str| format!("{time} s: {what}");
    let near = "its turn, and input on the node";
    assert_eq!(
        scheduler::run().unwrap(),
        [
            at("0", &format!("m0 starts on a: {near}")),
            at("0", &format!("m1 starts on a: {near}")),
            at("10", "m2 starts on b: its turn, has waited long enough"),
            at("20", &format!("m3 starts on a: {near}")),
            at("30", "m2 is lost with its node"),
        ]
    );
}
