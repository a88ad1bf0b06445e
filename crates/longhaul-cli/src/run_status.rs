//! The status of a run as shown to people: a label of symbol, text and colour, and the explanation of
//! the status. Both say if no worker drives a run that needs one. The symbol and the colour only
//! repeat what the text says.

use longhaul_api::run::RunView;
use longhaul_api::transcript::RunExplanation;
use longhaul_core::status::Status;

use crate::client::Client;
use crate::style::TextTone::{self, Bad, Busy, Dim, Good, NeedsPerson};
use crate::table::TableCell;

/// A run's status as shown in lists and on pages.
#[derive(Debug, Clone)]
pub(crate) struct StatusLabel {
    /// Symbol and text of the label, such as `▲ waiting: you`.
    pub(crate) text: String,
    /// Meaning of the label, which decides its colour.
    pub(crate) tone: TextTone,
}

impl StatusLabel {
    /// Returns the label for a run's status and the reason of that status.
    pub(crate) fn new(status: Status, reason: Option<&str>) -> Self {
        let (symbol, tone) = match (status, reason) {
            (Status::Waiting, Some("approval" | "question" | "budget")) => ("▲", NeedsPerson),
            (Status::Blocked, _) => ("▲", NeedsPerson),
            (Status::Waiting | Status::Pending, _) => ("○", Dim),
            (Status::Running, _) => ("●", Busy),
            (Status::Paused, _) => ("‖", NeedsPerson),
            (Status::Completed, _) => ("✓", Good),
            (Status::Failed, _) => ("✗", Bad),
            (Status::Cancelled, _) => ("–", Dim),
        };
        let detail = match (status, reason) {
            (Status::Waiting, Some("approval" | "question")) | (Status::Blocked, _) => {
                ": you".into()
            }
            (Status::Waiting, Some(reason)) => format!(": {}", reason.replace('_', " ")),
            _ => String::new(),
        };
        Self { text: format!("{symbol} {}{detail}", status.as_str()), tone }
    }

    /// Returns the label with the whole reason: why the run waits, or the error code of a failed run.
    pub(crate) fn with_reason(status: Status, reason: Option<&str>, code: Option<&str>) -> Self {
        let label = Self::new(status, reason);
        let detail = reason.or(code).map(|reason| format!(": {}", reason.replace('_', " ")));
        let symbol = label.text.split(' ').next().unwrap_or_default();
        let text = format!("{symbol} {}{}", status.as_str(), detail.unwrap_or_default());
        Self { text, ..label }
    }

    /// Returns the label for a run that needs a worker to continue while no worker drives it.
    pub(crate) fn without_driver(status: Status) -> Self {
        Self { text: format!("○ {}: no worker", status.as_str()), tone: Dim }
    }

    pub(crate) fn cell(&self) -> TableCell {
        TableCell::toned(&self.text, self.tone)
    }
}

/// Returns an explanation of the run's status with a command to run next, and the label that is
/// printed for the status. The explanation says if no worker drives the run, because such a run makes
/// no progress even if its journal says `running`.
pub(crate) async fn explain_run_status(
    client: &Client,
    run: &RunView,
) -> anyhow::Result<(RunExplanation, StatusLabel)> {
    let mut explanation = client.explain_run(run.id).await?;
    let mut label = StatusLabel::new(run.status, run.reason.as_deref());
    if needs_driver(run.status) && !client.has_process_driving_runs().await? {
        label = StatusLabel::without_driver(run.status);
        // A run behind another one needs a driver of that other run first.
        if !matches!(run.reason.as_deref(), Some("lane" | "batch")) {
            explanation.message =
                format!("No worker drives the run now. Last known status: {}", explanation.message);
            explanation.command = format!("longhaul watch {}", run.id);
        }
    }
    Ok((explanation, label))
}

/// Returns whether a run with this status needs a worker that drives it to continue.
pub(crate) const fn needs_driver(status: Status) -> bool {
    matches!(status, Status::Pending | Status::Running)
}
