//! The reply index of each turn, as a table.

use longhaul_model::scripted::{ScriptLoop, reply_index};

/// Returns the indexes of the first `turns` turns, as text.
fn reply_order(replies: usize, round: Option<(usize, usize, u32)>, turns: u32) -> String {
    let round = round.map(|(from, to, times)| ScriptLoop { from, to, times });
    let indexes = (1..=turns).map(|turn| reply_index(turn, replies, round).to_string());
    indexes.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_turn_gets_the_reply_at_its_index() {
    let table = [
        (1, None, "0 0 0"),
        (3, None, "0 1 2 2 2"),
        (4, Some((0, 2, 3)), "0 1 0 1 0 1 2 3 3"),
        (4, Some((1, 3, 2)), "0 1 2 1 2 3 3"),
        (4, Some((2, 3, 3)), "0 1 2 2 2 3 3"),
        (3, Some((0, 3, 2)), "0 1 2 0 1 2 2 2"),
        (3, Some((0, 1, 1)), "0 1 2 2"),
        (1, Some((0, 1, 5)), "0 0 0 0 0 0 0"),
    ];
    for (replies, round, expected) in table {
        let turns = expected.split(' ').count() as u32;
        let order = reply_order(replies, round, turns);
        assert_eq!(order, expected, "{replies} replies, loop {round:?}");
    }
}

#[test]
fn turn_zero_gets_the_first_reply() {
    assert_eq!(reply_index(0, 3, None), 0);
}
