//! The ids of calls as they go out: within the providers' alphabet, and no two alike.
//!
//! Never: another id for the same call of the same conversation.

use std::collections::HashMap;

/// The longest id that is sent: the shortest that some provider takes.
const ID_MAX: usize = 64;

/// The longest id that is sent back as it came: some servers keep a seal in it.
const ORIGINAL_ID_MAX: usize = 2_048;

/// The ids that a conversation has given out, each with the message it stands in.
#[derive(Debug, Default)]
pub(crate) struct CallIds(HashMap<String, usize>);

impl CallIds {
    /// The id of a call: the one it came with where that will do, else one by
    /// the place of the call, which does not change when the request is made anew.
    pub(crate) fn assign(&mut self, came: &str, message: usize, call: usize) -> String {
        let mut id = sanitize(came, ID_MAX);
        let mut tries = 0;
        while id.is_empty() || self.0.contains_key(&id) {
            id = match tries {
                0 => format!("call_{message}_{call}"),
                _ => format!("call_{message}_{call}_{tries}"),
            };
            tries += 1;
        }
        self.0.insert(id.clone(), message);
        id
    }

    /// The id of a call that goes back to the server that made it: as it came, in
    /// whichever alphabet, but for one that is there already or is none.
    pub(crate) fn assign_original(&mut self, came: &str, message: usize, call: usize) -> String {
        let is_id = |byte: u8| byte.is_ascii_graphic();
        let fits = !came.is_empty() && came.len() <= ORIGINAL_ID_MAX && came.bytes().all(is_id);
        if !fits || self.0.contains_key(came) {
            return self.assign(came, message, call);
        }
        self.0.insert(came.to_owned(), message);
        came.to_owned()
    }

    /// Takes back what the messages from this one on were given.
    pub(crate) fn remove_from(&mut self, message: usize) {
        self.0.retain(|_, given| *given < message);
    }
}

/// The name of a tool as it may stand in a request, at most so long.
pub(crate) fn tool_name(came: &str, max: usize) -> String {
    match sanitize(came, max) {
        name if name.is_empty() => "unnamed".to_owned(),
        name => name,
    }
}

fn sanitize(came: &str, max: usize) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    came.chars().take(max).map(|letter| if fits(letter) { letter } else { '_' }).collect()
}
