//! The status label of a run: a symbol, text and a colour. The symbol and the colour only repeat
//! what the text says.

use longhaul_core::status::Status;

use crate::style::TextTone;

/// A run's status as shown in lists and on pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatusLabel {
    /// Symbol and text of the label, such as `▲ waiting: you`.
    pub(crate) text: String,
    /// Meaning of the label, which decides its colour.
    pub(crate) tone: TextTone,
}

/// Returns the label for a run's status and the reason of that status.
pub(crate) fn status_label(status: Status, reason: Option<&str>) -> StatusLabel {
    let (symbol, text, tone) = match (status, reason) {
        (Status::Waiting, Some("approval" | "question")) => {
            ("▲", "waiting: you".to_owned(), TextTone::NeedsPerson)
        }
        (Status::Waiting, Some("budget")) => {
            ("▲", "waiting: budget".to_owned(), TextTone::NeedsPerson)
        }
        (Status::Waiting, Some(reason)) => {
            let text = format!("waiting: {}", reason.replace('_', " "));
            ("○", text, TextTone::Dim)
        }
        (Status::Waiting, None) => ("○", "waiting".to_owned(), TextTone::Dim),
        (Status::Blocked, _) => ("▲", "blocked: you".to_owned(), TextTone::NeedsPerson),
        (Status::Pending, _) => ("○", "pending".to_owned(), TextTone::Dim),
        (Status::Running, _) => ("●", "running".to_owned(), TextTone::Busy),
        (Status::Paused, _) => ("‖", "paused".to_owned(), TextTone::NeedsPerson),
        (Status::Completed, _) => ("✓", "completed".to_owned(), TextTone::Good),
        (Status::Failed, _) => ("✗", "failed".to_owned(), TextTone::Bad),
        (Status::Cancelled, _) => ("–", "cancelled".to_owned(), TextTone::Dim),
    };
    StatusLabel { text: format!("{symbol} {text}"), tone }
}

/// Returns the label for a run that needs a worker to continue while no worker drives it.
pub(crate) fn no_driver_label(status: Status) -> StatusLabel {
    StatusLabel { text: format!("○ {}: no worker", status.as_str()), tone: TextTone::Dim }
}
