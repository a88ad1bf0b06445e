//! How long an exchange may take and how long an answer may be.
//!
//! Never: a limit on the whole time of a stream. A model may speak for as long as
//! it says something.

use std::time::Duration;

/// How long is waited and how much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For a connection.
    pub connect: Duration,
    /// For the head of an answer, and again for the first bytes of its body:
    /// some servers send the head before they have read the question.
    pub first_byte: Duration,
    /// Between two pieces of a body.
    pub idle: Duration,
    /// For something of the reply when only signs of life come, and for all of an
    /// answer that is no stream.
    pub stall: Duration,
    /// The longest answer.
    pub max_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(600),
            max_bytes: 50 * 1024 * 1024,
        }
    }
}
