//! How a run stands, as a sign and words: the sign helps the eye, the words say it.
//!
//! Never: a sign or a colour without words.

use longhaul_core::status::Status;

use crate::paint::Tone;

/// A status as lists and pages show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Such as `▲ waiting: you`.
    pub(crate) words: String,
    /// How it looks.
    pub(crate) tone: Tone,
}

/// How a run stands.
pub(crate) fn mark(status: Status, reason: Option<&str>) -> Mark {
    let (sign, words, tone) = match (status, reason) {
        (Status::Waiting, Some("approval" | "question")) => {
            ("▲", "waiting: you".to_owned(), Tone::You)
        }
        (Status::Waiting, Some("budget")) => ("▲", "waiting: budget".to_owned(), Tone::You),
        (Status::Waiting, Some(reason)) => {
            let words = format!("waiting: {}", reason.replace('_', " "));
            ("○", words, Tone::Faint)
        }
        (Status::Waiting, None) => ("○", "waiting".to_owned(), Tone::Faint),
        (Status::Blocked, _) => ("▲", "blocked: you".to_owned(), Tone::You),
        (Status::Pending, _) => ("○", "pending".to_owned(), Tone::Faint),
        (Status::Running, _) => ("●", "running".to_owned(), Tone::Busy),
        (Status::Paused, _) => ("‖", "paused".to_owned(), Tone::You),
        (Status::Completed, _) => ("✓", "completed".to_owned(), Tone::Good),
        (Status::Failed, _) => ("✗", "failed".to_owned(), Tone::Bad),
        (Status::Cancelled, _) => ("–", "cancelled".to_owned(), Tone::Faint),
    };
    Mark {
        words: format!("{sign} {words}"),
        tone,
    }
}

/// How a run stands that only goes on when somebody drives, while nobody does.
pub(crate) fn left(status: Status) -> Mark {
    Mark {
        words: format!("○ {}: nobody drives", status.as_str()),
        tone: Tone::Faint,
    }
}
