use proptest::prelude::*;

use super::*;
use crate::model::Tier;
use crate::task::Attachment;

fn plan(ratio: u32, active_capacity: u32, passive_max: u32) -> WeightPlan {
    WeightPlan { ratio, active_capacity, passive_max }
}

#[test]
fn the_default_plan() {
    let plan = plan(100, 2, 8);
    assert_eq!(CPU_SHARES.pair(&plan), Pair { active: 1024, passive: 2 });
    assert_eq!(CPU_WEIGHT.pair(&plan), Pair { active: 400, passive: 1 });
    assert_eq!(CPU_SHARES.pair_beside_idle(&plan).active, 1200);
    assert_eq!(CPU_WEIGHT.pair_beside_idle(&plan).active, 118, "118 * 1024 / 100 >= 400 * 3");
    assert_eq!(IO_BFQ_WEIGHT.pair(&plan), Pair { active: 1000, passive: 2 });
    assert_eq!(IO_WEIGHT.pair(&plan), Pair { active: 400, passive: 1 });
    for scale in [CPU_SHARES, CPU_WEIGHT, IO_BFQ_WEIGHT, BLKIO_BFQ_WEIGHT, IO_WEIGHT] {
        assert_eq!(scale.shortfall(&plan, false), None);
        assert_eq!(scale.shortfall(&plan, true), None);
    }
}

#[test]
fn a_mild_ratio_does_not_hold_the_passive_tier_back_further_than_asked() {
    assert_eq!(CPU_SHARES.pair(&plan(10, 4, 4)), Pair { active: 1024, passive: 102 });
    assert_eq!(CPU_WEIGHT.pair(&plan(1, 4, 4)), Pair { active: 100, passive: 100 });
}

#[test]
fn impossible_plans_are_reported() {
    let plan = plan(10_000, 1, 4);
    assert_eq!(CPU_WEIGHT.pair(&plan), Pair { active: 10_000, passive: 1 });
    let text = CPU_WEIGHT.shortfall(&plan, false).unwrap();
    assert!(text.contains("cpu.weight") && text.contains("2500.0:1"), "{text}");
    let idle = CPU_WEIGHT.shortfall(&plan, true).unwrap();
    assert!(idle.contains("8533.3:1"), "{idle}");
    assert!(IO_BFQ_WEIGHT.shortfall(&plan, true).unwrap().contains("250.0:1"));
    assert_eq!(CPU_SHARES.shortfall(&plan, true), None, "3 * 40000 is below 262144");
}

#[test]
fn the_owners_weight_is_a_floor() {
    let pair = CPU_WEIGHT.pair(&plan(100, 2, 8));
    assert_eq!(pair.beside(Some(900), true).active, 900);
    assert_eq!(pair.beside(Some(900), false).active, 900);
    assert_eq!(pair.beside(Some(100), false).active, 100, "a member's is never raised");
    assert_eq!(pair.beside(Some(3), true), pair);
    assert_eq!(pair.beside(Some(0), true), pair);
    assert_eq!(pair.beside(None, true).of(Tier::Passive), 1);
}

#[test]
fn the_lane_has_a_tenth_of_the_active_weight_and_no_less_than_passive_tasks() {
    let plan_of_two = plan(100, 2, 8);
    assert_eq!(CPU_SHARES.pair_beside_idle(&plan_of_two).of(Level::Lane), 120);
    assert_eq!(CPU_WEIGHT.pair_beside_idle(&plan_of_two).of(Level::Lane), 12);
    assert_eq!(CPU_SHARES.pair_beside_idle(&plan_of_two).of(Level::SlowLane), 24);
    assert_eq!(CPU_WEIGHT.pair_beside_idle(&plan_of_two).of(Level::SlowLane), 2);
    assert_eq!(CPU_WEIGHT.pair(&plan(1, 4, 4)).of(Level::SlowLane), 100);
    assert_eq!(CPU_WEIGHT.pair(&plan_of_two).of(Level::Lane), 40);
    assert_eq!(CPU_WEIGHT.pair(&plan(1, 4, 4)).of(Level::Lane), 100);
    assert_eq!(CPU_SHARES.pair(&plan_of_two).beside(Some(2), true).of(Level::Lane), 102);
}

#[test]
fn root_weight() {
    let plan = plan(100, 500, 500);
    assert_eq!(CPU_WEIGHT.root(&plan, None), 10_000);
    assert_eq!(CPU_WEIGHT.root(&plan, Some(700)), 700);
    assert_eq!(CPU_SHARES.root(&plan, None), 262_144, "500 * 1024 is out of range");
    assert_eq!(CPU_SHARES.root(&plan, Some(100)), 1024, "neutral stays neutral");
    assert_eq!(CPU_SHARES.root(&plan, Some(700)), 7168);
    assert_eq!(CPU_SHARES.root(&plan, Some(1)), 10);
}

#[test]
fn a_root_weight_is_short_only_where_the_converted_one_is() {
    let plan = plan(100, 2, 8);
    for wanted in [1, 100, 300, 10_000] {
        assert_eq!(CPU_SHARES.root_shortfall(&plan, Some(wanted)), None, "{wanted}");
        assert_eq!(CPU_WEIGHT.root_shortfall(&plan, Some(wanted)), None, "{wanted}");
    }
    assert_eq!(CPU_SHARES.root_shortfall(&plan, None), None);
    let text = CPU_SHARES.root_shortfall(&plan, Some(30_000)).unwrap();
    assert!(text.contains("307200") && text.contains("262144 is used"), "{text}");
}

proptest! {
    /// Every plan stays in range, and keeps the promise or says that it does not.
    #[test]
    fn promise_or_report(
        ratio in 0..=u32::MAX, active in 0..=u32::MAX, passive in 0..=u32::MAX, idle: bool
    ) {
        check(plan(ratio, active, passive), idle)?;
    }

    #[test]
    fn promise_or_report_in_the_documented_ranges(
        ratio in 1..=10_000u32, active in 1..=512u32, passive in 1..=4096u32, idle: bool
    ) {
        check(plan(ratio, active, passive), idle)?;
    }
}

fn check(plan: WeightPlan, idle: bool) -> Result<(), TestCaseError> {
    let k = u128::from(plan.passive_max).div_ceil(u128::from(plan.active_capacity.max(1))).max(1);
    let factor = u128::from(plan.ratio.max(1)) * k;
    for scale in [CPU_SHARES, CPU_WEIGHT, IO_BFQ_WEIGHT, BLKIO_BFQ_WEIGHT, IO_WEIGHT] {
        let is_cpu = scale == CPU_SHARES || scale == CPU_WEIGHT;
        let pair = if idle { scale.pair_beside_idle(&plan) } else { scale.pair(&plan) };
        for weight in [pair.active, pair.passive] {
            prop_assert!((scale.min..=scale.max).contains(&weight), "{scale:?} {pair:?}");
        }
        prop_assert!(pair.active >= scale.neutral);
        // What the kernel counts, on the scale of cpu.shares.
        let kernel = |weight: u64| match scale.file {
            "cpu.weight" => (u128::from(weight) * 1024 + 50) / 100,
            _ => u128::from(weight),
        };
        let (active, passive) = match idle && is_cpu {
            true => (kernel(pair.active), 3),
            false => (u128::from(pair.active), u128::from(pair.passive)),
        };
        let kept = active >= factor * passive;
        prop_assert_eq!(kept, scale.shortfall(&plan, idle).is_none(), "{:?} {:?}", scale, pair);
        let root = scale.root(&plan, None);
        prop_assert!((scale.min..=scale.max).contains(&root));
    }
    Ok(())
}

#[test]
fn the_least_weight_is_distinguished_from_all_others() {
    let is_least = |file: &str, value: &str| {
        has_least_cpu_weight(&GroupRecord {
            attachment: Attachment::InPlace,
            path: "/a".to_owned(),
            inode: 1,
            origin: [].into(),
            found: vec![
                ("cpu.idle".to_owned(), "0".to_owned()),
                (file.to_owned(), value.to_owned()),
            ],
            elsewhere: Vec::new(),
            for_member: false,
        })
    };
    assert!(is_least("cpu.shares", "2") && is_least("cpu.weight", "1"));
    assert!(!is_least("cpu.shares", "1024") && !is_least("cpu.weight", "100"));
    assert!(!is_least("cpu.weight", "2") && !is_least("io.weight", "1"));
    assert!(!is_least("cpu.weight", "0"), "what an idle group shows");
}

#[test]
fn numbers_come_with_or_without_the_word_default() {
    assert_eq!(number("100"), Some(100));
    assert_eq!(number("default 100"), Some(100));
    assert_eq!(number("max"), None);
    assert_eq!(number(""), None);
}
