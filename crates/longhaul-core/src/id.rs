//! Ids and names: typed, prefixed, sortable by time as text and as numbers.
//!
//! Never: makes an id up. New ids are handed in by the caller, or derived from
//! an id that exists and a time that was handed in.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::raw::Hash;
use crate::text_macros::{debug_as_display, serde_as_text};
use crate::time::Timestamp;

/// What is wrong with a text that should be an id or a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The prefix is missing or another kind's.
    #[error("`{text}` is not an id that starts with `{prefix}_`")]
    Prefix {
        /// What was given.
        text: String,
        /// What it should begin with.
        prefix: &'static str,
    },
    /// The suffix is not 26 characters of our alphabet.
    #[error("`{text}` does not end in the 26 letters and digits of an id")]
    Suffix {
        /// What was given.
        text: String,
    },
    /// A name is empty, too long or holds control characters.
    #[error("a {kind} has 1 to {max} bytes and no control characters")]
    Name {
        /// Which kind of name.
        kind: &'static str,
        /// The bound.
        max: usize,
    },
}

/// Crockford's alphabet in lower case: no i, l, o, u, and it sorts like the number.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const SUFFIX_LEN: usize = 26;

fn encode(bits: u128) -> String {
    (0..SUFFIX_LEN)
        .rev()
        .map(|digit| char::from(ALPHABET[(bits >> (digit * 5)) as usize & 31]))
        .collect()
}

fn decode(suffix: &str) -> Option<u128> {
    // 26 digits of 5 bits are 130: the first digit holds the top three bits.
    if suffix.len() != SUFFIX_LEN || suffix.as_bytes()[0] > b'7' {
        return None;
    }
    suffix.bytes().try_fold(0_u128, |bits, byte| {
        let digit = ALPHABET.iter().position(|letter| *letter == byte)?;
        Some(bits << 5 | digit as u128)
    })
}

/// 48 bits of milliseconds, then 80 bits from what the id belongs to: the
/// layout of a version 7 UUID without its six fixed bits, so both sort alike.
fn derived_bits(parent: u128, salt: &str, now: Timestamp) -> u128 {
    let digest = Sha256::new().chain_update(parent.to_be_bytes()).chain_update(salt).finalize();
    let tail = digest.iter().take(10).fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    (u128::from(now.as_millis()) & 0xffff_ffff_ffff) << 80 | tail
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// What every id of this kind begins with, before the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// The id made of these bits (a version 7 UUID, outside of tests).
            pub const fn from_bits(bits: u128) -> Self {
                Self(bits)
            }

            /// The id as a number.
            pub const fn bits(self) -> u128 {
                self.0
            }

            /// The id as sixteen bytes that sort like the id.
            pub const fn bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }

            /// The id from its sixteen bytes.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(u128::from_be_bytes(bytes))
            }

            /// The id that belongs to `parent` and `salt`: the same arguments
            /// give the same id, so a decision that is repeated names the same thing.
            pub fn derive(parent: u128, salt: &str, now: Timestamp) -> Self {
                Self(derived_bits(parent, salt, now))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}_{}", $prefix, encode(self.0))
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let suffix = text
                    .strip_prefix($prefix)
                    .and_then(|rest| rest.strip_prefix('_'))
                    .ok_or_else(|| IdError::Prefix { text: text.into(), prefix: $prefix })?;
                decode(suffix).map(Self).ok_or_else(|| IdError::Suffix { text: text.into() })
            }
        }

        debug_as_display!($name);
        serde_as_text!($name);
    )+};
}

ids! {
    /// One execution of an agent on a task.
    RunId = "run";
    /// A durable wait token.
    GateId = "gate";
    /// A sandbox.
    SandboxId = "sbx";
    /// A worker, new at every boot.
    WorkerId = "wrk";
    /// A message for a run in flight.
    SteerId = "steer";
    /// Something that is due at a time.
    TimerId = "timer";
    /// Runs that were submitted together.
    BatchId = "batch";
    /// A remembered approval.
    RuleId = "rule";
    /// Something that an agent wrote down.
    NoteId = "note";
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $what:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and takes a name: 1 to 256 bytes, no control characters.
            pub fn new(text: impl AsRef<str>) -> Result<Self, IdError> {
                let text = text.as_ref();
                if text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
                    return Err(IdError::Name { kind: $what, max: NAME_BYTES_MAX });
                }
                Ok(Self(text.into()))
            }

            /// The name nearest to a stranger's text: cut to length, without
            /// control characters, and never empty.
            pub fn lossy(text: &str) -> Self {
                let clean = text.chars().filter(|letter| !letter.is_control());
                let mut name = String::new();
                for letter in clean {
                    if name.len() + letter.len_utf8() > NAME_BYTES_MAX {
                        break;
                    }
                    name.push(letter);
                }
                Self(if name.is_empty() { "unnamed".into() } else { name.into() })
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        serde_as_text!($name);
    )+};
}

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 256;

names! {
    /// An agent's name.
    AgentName = "agent name";
    /// A tool's name as we call it.
    ToolName = "tool name";
    /// A key whose runs go strictly one after another.
    LaneKey = "lane";
    /// A conversation whose memory successive runs share.
    ThreadKey = "thread";
    /// Whom or what a thread's memory is about.
    ResourceKey = "resource";
    /// A named queue of tasks.
    InboxName = "inbox";
    /// What a key is called.
    KeyName = "key name";
}
/// The longest name of a tool that every wire takes, in letters.
const WIRE_NAME_MAX: usize = 64;

impl ToolName {
    /// The name as models are told it: letters, digits, `_` and `-`, at most 64, and
    /// no two alike. `mcp:server/tool` is `mcp__server__tool`; where letters are lost,
    /// six digits of a hash stand for them.
    pub fn wire_name(&self) -> Cow<'_, str> {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        if self.0.chars().all(fits) && self.0.len() <= WIRE_NAME_MAX {
            return Cow::Borrowed(&self.0);
        }
        let parts = self.0.strip_prefix("mcp:").and_then(|rest| rest.split_once('/'));
        let joined = match parts {
            Some((server, tool)) => format!("mcp__{server}__{tool}"),
            None => self.0.to_string(),
        };
        // Where the seam is must be seen, or `a/_b` would be `a_/b`.
        let seam = |(server, tool): (&str, &str)| {
            !server.contains("__") && !server.ends_with('_') && !tool.starts_with('_')
        };
        if parts.is_some_and(seam) && joined.chars().all(fits) && joined.len() <= WIRE_NAME_MAX {
            return Cow::Owned(joined);
        }
        let hash = Hash::digest(self.0.as_bytes()).to_string();
        let plain = |letter: char| if fits(letter) { letter } else { '_' };
        let cut: String = joined.chars().take(WIRE_NAME_MAX - 7).map(plain).collect();
        Cow::Owned(format!("{cut}_{}", &hash[..6]))
    }
}

/// A place in a journal. The first event has 1; 0 stands before everything.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first event.
    pub const START: Self = Self(0);

    /// The place `count` events later. No journal is so long that it ends
    /// there, but a stranger may name any place.
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// The next place.
    pub const fn next(self) -> Self {
        self.plus(1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fence: rises at every claim and never falls.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A tool call of a run, by our own count: `t3.1` is the first call of turn 3.
/// Providers' ids are kept beside it, because some repeat or omit them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The turn, from 1.
    pub turn: u32,
    /// The place in the reply, from 1.
    pub index: u16,
}

impl CallId {
    /// What a tool with an idempotency key is given: the same at every attempt.
    pub fn idempotency_key(self, run: RunId) -> String {
        format!("{run}:{self}")
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{}", self.turn, self.index)
    }
}

impl FromStr for CallId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let parts = text.strip_prefix('t').and_then(|rest| rest.split_once('.'));
        parts
            .and_then(|(turn, index)| {
                Some(Self { turn: turn.parse().ok()?, index: index.parse().ok()? })
            })
            .filter(|call| call.to_string() == text)
            .ok_or_else(|| IdError::Suffix { text: text.into() })
    }
}

debug_as_display!(CallId);
serde_as_text!(CallId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_names_of_tools_are_valid_and_unique() {
        let long = format!("mcp:server/{}", "x".repeat(80));
        let mut seen = std::collections::BTreeSet::new();
        for (name, wire) in [
            ("vault_read", "vault_read"),
            ("mcp:github/list_issues", "mcp__github__list_issues"),
            ("mcp:a/b__c", "mcp__a__b__c"),
            ("mcp:a__b/c", "mcp__a__b__c_9747a7"),
            ("mcp:a_/b", "mcp__a___b_3daec8"),
            ("mcp:a/_b", "mcp__a___b_5bf847"),
            ("mcp:a.b/c/d", "mcp__a_b__c_d_b3371a"),
            ("a:b", "a_b_6783a3"),
            (&long, "mcp__server__xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_151d80"),
        ] {
            let name = ToolName::new(name).unwrap();
            assert_eq!(name.wire_name(), wire, "{name}");
            assert!(name.wire_name().len() <= WIRE_NAME_MAX);
            assert!(seen.insert(name.wire_name().into_owned()), "{name}");
        }
    }
}
