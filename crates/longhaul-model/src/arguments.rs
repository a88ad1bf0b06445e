//! What every wire asks of the calls in a reply.
//!
//! Never: more calls than a turn can hold.

use crate::exchange::Fault;

/// So many calls a reply may have.
const CALLS_MAX: usize = 1_024;

/// Whether a turn can hold so many calls.
pub(crate) fn check_count(calls: usize) -> Result<(), Fault> {
    match calls > CALLS_MAX {
        true => Err(Fault::TooMuch(format!(
            "a reply of more than {CALLS_MAX} calls"
        ))),
        false => Ok(()),
    }
}
