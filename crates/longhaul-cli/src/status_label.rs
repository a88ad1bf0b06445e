//! How a run stands, as a sign and words: the sign helps the eye, the words say it.
//!
//! Never: a sign or a colour without words.

use longhaul_core::status::Status;

use crate::style::Tone;

/// A status as lists and pages show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatusLabel {
    /// Such as `▲ waiting: you`.
    pub(crate) text: String,
    /// How it looks.
    pub(crate) tone: Tone,
}

/// How a run stands.
pub(crate) fn status_label(status: Status, reason: Option<&str>) -> StatusLabel {
    let (sign, words, tone) = match (status, reason) {
        (Status::Waiting, Some("approval" | "question")) => {
            ("▲", "waiting: you".to_owned(), Tone::NeedsPerson)
        }
        (Status::Waiting, Some("budget")) => ("▲", "waiting: budget".to_owned(), Tone::NeedsPerson),
        (Status::Waiting, Some(reason)) => {
            let words = format!("waiting: {}", reason.replace('_', " "));
            ("○", words, Tone::Dim)
        }
        (Status::Waiting, None) => ("○", "waiting".to_owned(), Tone::Dim),
        (Status::Blocked, _) => ("▲", "blocked: you".to_owned(), Tone::NeedsPerson),
        (Status::Pending, _) => ("○", "pending".to_owned(), Tone::Dim),
        (Status::Running, _) => ("●", "running".to_owned(), Tone::Busy),
        (Status::Paused, _) => ("‖", "paused".to_owned(), Tone::NeedsPerson),
        (Status::Completed, _) => ("✓", "completed".to_owned(), Tone::Good),
        (Status::Failed, _) => ("✗", "failed".to_owned(), Tone::Bad),
        (Status::Cancelled, _) => ("–", "cancelled".to_owned(), Tone::Dim),
    };
    StatusLabel { text: format!("{sign} {words}"), tone }
}

/// How a run stands that only goes on when somebody drives, while nobody does.
pub(crate) fn undriven_label(status: Status) -> StatusLabel {
    StatusLabel { text: format!("○ {}: nobody drives", status.as_str()), tone: Tone::Dim }
}
