//! Which reply a turn gets: a pure function of the turn and the script's shape.
//!
//! Never: remembers what was said before. A crash, a memory or a compaction
//! can't move a script, because nothing is counted here.

/// Replies that are said again before the script goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loop {
    /// The first reply of the round, from 0.
    pub from: usize,
    /// The first reply after the round.
    pub to: usize,
    /// How many rounds there are in all.
    pub times: u32,
}

/// The place, from 0, of the reply that this turn, from 1, gets among `replies`.
/// Past the end the last reply repeats.
pub fn reply_index(turn: u32, replies: usize, round: Option<Loop>) -> usize {
    let step = u64::from(turn.saturating_sub(1));
    let place = match round {
        None => step,
        Some(round) => index_in_loop(step, round),
    };
    let last = replies.saturating_sub(1);
    usize::try_from(place).map_or(last, |place| place.min(last))
}

fn index_in_loop(step: u64, round: Loop) -> u64 {
    let (from, to) = (round.from as u64, round.to as u64);
    let length = to.saturating_sub(from);
    let Some(inside) = step.checked_sub(from) else {
        return step;
    };
    let rounds = length.saturating_mul(u64::from(round.times));
    match inside.checked_sub(rounds) {
        None => from + inside % length,
        Some(after) => to.saturating_add(after),
    }
}
