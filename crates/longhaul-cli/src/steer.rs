//! `longhaul steer`: a message to a run in flight, and what became of it.
//!
//! Never: silence. A message is queued, read, or not read and why.

use clap::{Args, ValueEnum};
use longhaul_api::run::RunView;
use longhaul_api::steer::{SteerState, SteerView};
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::RunId;
use longhaul_core::time::Timestamp;
use serde_json::json;

use crate::client::RunClient;
use crate::event_printer::first_line;
use crate::format::format_duration;
use crate::{output, resolve};

/// More than this is no message; the engine's own bound is far below.
const TEXT_BYTES_MAX: u64 = 1024 * 1024;

/// How a run says that its next turn is under way; a view has no other word for it.
const MODEL_CALL_PHRASE: &str = "asks the model, turn";

const EXAMPLES: &str = "Examples:
  longhaul steer @last \"Keep the old cookie name for one more release\"
  longhaul steer run_01k3qv9 --interrupt \"Stop, wrong file\"
  git diff | longhaul steer run_01k3qv9 -        the message from stdin
  longhaul steer run_01k3qv9 --status            what became of what was sent";

/// Writes to a run.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Steer {
    /// The run: its id, the last six letters of it, or @last
    run: String,
    /// What to tell it; `-` reads it from stdin
    #[arg(required_unless_present = "status")]
    text: Vec<String>,
    /// When it is to be read
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    delivery: DeliveryArg,
    /// Now, cutting off what runs: the same as --delivery interrupt
    #[arg(long, conflicts_with = "delivery")]
    interrupt: bool,
    /// What became of the messages that were sent before
    #[arg(long, conflicts_with_all = ["text", "delivery", "interrupt"])]
    status: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// When a message is to be read.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
#[value(rename_all = "snake_case")]
enum DeliveryArg {
    /// When the calls of this turn are done
    #[default]
    AfterBatch,
    /// Before the next call begins; calls not begun are skipped
    BeforeNextTool,
    /// Now: what runs is cut off
    Interrupt,
    /// When the run would end
    FollowUp,
}

impl From<DeliveryArg> for Delivery {
    fn from(when: DeliveryArg) -> Self {
        match when {
            DeliveryArg::AfterBatch => Self::AfterBatch,
            DeliveryArg::BeforeNextTool => Self::BeforeNextTool,
            DeliveryArg::Interrupt => Self::Interrupt,
            DeliveryArg::FollowUp => Self::FollowUp,
        }
    }
}

impl Steer {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        resolve::with_run(&self.run, async |client, run| match self.status {
            true => self.print_status(client, run).await,
            false => self.send(client, run).await,
        })
    }

    async fn send(&self, client: &RunClient, run: RunId) -> anyhow::Result<()> {
        let text = output::text_or_stdin(&self.text, TEXT_BYTES_MAX, "the message")?;
        let delivery = match self.interrupt {
            true => Delivery::Interrupt,
            false => self.delivery.into(),
        };
        let steer = client.steer(run, text, delivery).await?;
        if self.json {
            let receipt = json!({
                "id": steer, "run": run, "status": "queued", "delivery": delivery,
            });
            return output::stdout_json(&receipt);
        }
        let view = client.show(run).await?;
        let now = first_line(&view.now);
        output::stdout_text(&format!(
            "Queued for {run}. {now} {}",
            delivery_text(&view, delivery)
        ))?;
        output::stdout_text(&format!("{steer}   Was it read? longhaul steer {run} --status"))?;
        if !client.has_driver().await? {
            output::stderr_line(&format!("Nobody drives it now: longhaul watch {run}"));
        }
        Ok(())
    }

    async fn print_status(&self, client: &RunClient, run: RunId) -> anyhow::Result<()> {
        let steers = client.list_steers(run).await?;
        if self.json {
            return output::json_list(&steers);
        }
        if steers.is_empty() {
            output::stderr_line(&format!("Nothing was sent to {run}."));
        }
        let now = client.store_time().await?;
        let tell = |steer| output::stdout_text(&status_text(steer, now));
        steers.iter().try_for_each(tell)
    }
}

/// When a message that was queued now will be read.
fn delivery_text(run: &RunView, delivery: Delivery) -> String {
    // The turn that is asked for now is not completed yet, and comes before.
    let next = match run.now.contains(MODEL_CALL_PHRASE) {
        true => run.turns + 2,
        false => run.turns + 1,
    };
    match delivery {
        Delivery::AfterBatch => {
            format!("Delivered before turn {next}; sooner with --interrupt.")
        }
        Delivery::BeforeNextTool => {
            format!("Delivered before the next call begins, in turn {next} at the latest.")
        }
        Delivery::Interrupt => "Delivered at once; what runs is cut off.".to_owned(),
        Delivery::FollowUp => "Delivered when it would end.".to_owned(),
    }
}

/// What became of a message.
fn status_text(steer: &SteerView, now: Timestamp) -> String {
    let id = steer.id;
    let text = first_line(&steer.text);
    let after = steer.after_s.map_or_else(String::new, |seconds| {
        let span = longhaul_core::time::Millis((seconds * 1_000.0) as u64);
        format!(", {} after you sent it", format_duration(span))
    });
    match (steer.status, steer.between, &steer.why) {
        (SteerState::Delivered, Some([0, _]), _) => {
            format!("{id}  delivered before turn 1{after}: {text}")
        }
        (SteerState::Delivered, Some([before, next]), _) => {
            format!("{id}  delivered between turns {before} and {next}{after}: {text}")
        }
        (_, _, Some(why)) => format!("{id}  not delivered: {why}: {text}"),
        (SteerState::Queued, ..) => {
            let since = steer.sent_at.map_or_else(String::new, |sent| {
                format!(" since {}", format_duration(now.since(sent)))
            });
            format!("{id}  queued{since}: {text}")
        }
        (SteerState::Delivered, None, None) => format!("{id}  delivered{after}: {text}"),
        (SteerState::Dropped, _, None) => format!("{id}  dropped{after}: {text}"),
        (SteerState::Withdrawn, _, None) => format!("{id}  withdrawn{after}: {text}"),
    }
}
