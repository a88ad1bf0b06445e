//! Selects the reply of a turn.
//!
//! Invariant: the selected reply depends only on the turn and the script. No state is kept, so
//! crashes and compaction can't change the order of replies.

/// A loop in a script: a range of replies that is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptLoop {
    /// Index of the first repeated reply, from 0.
    pub from: usize,
    /// Index after the last repeated reply.
    pub to: usize,
    /// Number of times that the range is played in total.
    pub times: u32,
}

/// Returns the index, from 0, of the reply for the given turn, counted from 1. After the last reply
/// of the script, that reply repeats.
pub fn reply_index(turn: u32, reply_count: usize, script_loop: Option<ScriptLoop>) -> usize {
    let turn_index = u64::from(turn.saturating_sub(1));
    let index = match script_loop {
        None => turn_index,
        Some(script_loop) => reply_index_in_loop(turn_index, script_loop),
    };
    let last = reply_count.saturating_sub(1);
    usize::try_from(index).map_or(last, |index| index.min(last))
}

fn reply_index_in_loop(turn_index: u64, script_loop: ScriptLoop) -> u64 {
    let (from, to) = (script_loop.from as u64, script_loop.to as u64);
    let length = to.saturating_sub(from);
    let Some(offset) = turn_index.checked_sub(from) else {
        return turn_index;
    };
    let rounds = length.saturating_mul(u64::from(script_loop.times));
    match offset.checked_sub(rounds) {
        None => from + offset % length,
        Some(turns_after_loop) => to.saturating_add(turns_after_loop),
    }
}
