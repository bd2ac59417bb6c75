//! Who comes when: settings take turns, so that what drifts over hours hits all of them.
//!
//! Limit: neighbours stay neighbours, and the ends of the list meet only when it has turned.

/// The order of `count` settings in a round: turned by one every other round, and backwards in
/// those between, so that each comes first, and each both before and after each other.
pub fn order(count: usize, round: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.rotate_left(round as usize / 2 % count.max(1));
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn no_setting_always_follows_the_same_one() {
        assert_eq!(order(3, 0), [0, 1, 2]);
        assert_eq!(order(3, 1), [2, 1, 0]);
        assert_eq!(order(3, 2), [1, 2, 0]);
        assert_eq!(order(3, 3), [0, 2, 1]);
        for count in [2, 4, 7, 10] {
            let first = |setting| {
                (0..2 * count).filter(move |&round| order(count, round as u32)[0] == setting)
            };
            assert!((0..count).all(|setting| first(setting).count() == 2), "{count} settings");
        }
        assert_eq!(order(1, 5), [0]);
        assert!(order(0, 5).is_empty());
    }
}
