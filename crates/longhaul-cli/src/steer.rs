//! `longhaul steer`: sends a message to a run, and shows whether messages were delivered.

use clap::{Args, ValueEnum};
use longhaul_api::run::RunView;
use longhaul_api::steer::{SteerState, SteerView};
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::RunId;
use longhaul_core::time::Timestamp;
use serde_json::json;

use crate::client::RunClient;
use crate::event_printer::first_line;
use crate::format::format_duration;
use crate::{output, resolve};

/// Maximum length of a message read from stdin, in bytes. The engine's own limit is far lower.
const TEXT_BYTES_MAX: u64 = 1024 * 1024;

/// Text in a run's current activity (`now`) while a model call is in flight. The run's view has no
/// other field that shows this.
const MODEL_CALL_PHRASE: &str = "calling the model, turn";

const EXAMPLES: &str = "Examples:
  longhaul steer @last \"Keep the old cookie name for one more release\"
  longhaul steer run_01k3qv9 --interrupt \"Stop, wrong file\"
  git diff | longhaul steer run_01k3qv9 -        the message from stdin
  longhaul steer run_01k3qv9 --status            status of the messages sent";

/// Arguments of `longhaul steer`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SteerCommand {
    /// Run to send the message to: its id, the last six characters of the id, or @last
    run: String,
    /// Text of the message; `-` reads it from stdin
    #[arg(required_unless_present = "status")]
    text: Vec<String>,
    /// When to deliver the message
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    delivery: DeliveryArg,
    /// Deliver the message now and abort running calls: the same as --delivery interrupt
    #[arg(long, conflicts_with = "delivery")]
    interrupt: bool,
    /// Show the delivery status of messages sent before
    #[arg(long, conflicts_with_all = ["text", "delivery", "interrupt"])]
    status: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// When a message to a run is delivered.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
#[value(rename_all = "snake_case")]
enum DeliveryArg {
    /// Deliver when the calls of this turn are done
    #[default]
    AfterBatch,
    /// Deliver before the next call starts; calls that have not started are skipped
    BeforeNextTool,
    /// Deliver now and abort running calls
    Interrupt,
    /// Deliver only when the run would otherwise end
    FollowUp,
}

impl From<DeliveryArg> for SteerDelivery {
    fn from(delivery: DeliveryArg) -> Self {
        match delivery {
            DeliveryArg::AfterBatch => Self::AfterBatch,
            DeliveryArg::BeforeNextTool => Self::BeforeNextTool,
            DeliveryArg::Interrupt => Self::Interrupt,
            DeliveryArg::FollowUp => Self::FollowUp,
        }
    }
}

impl SteerCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        resolve::with_resolved_run(&self.run, async |client, run| match self.status {
            true => self.print_delivery_status(client, run).await,
            false => self.send_message(client, run).await,
        })
    }

    async fn send_message(&self, client: &RunClient, run: RunId) -> anyhow::Result<()> {
        let text = output::join_args_or_read_stdin(&self.text, TEXT_BYTES_MAX, "the message")?;
        let delivery = match self.interrupt {
            true => SteerDelivery::Interrupt,
            false => self.delivery.into(),
        };
        let steer = client.steer_run(run, text, delivery).await?;
        if self.json {
            let receipt = json!({
                "id": steer, "run": run, "status": "queued", "delivery": delivery,
            });
            return output::print_json(&receipt);
        }
        let view = client.get_run(run).await?;
        let now = first_line(&view.now);
        output::print_text(&format!(
            "Queued for {run}. {now} {}",
            expected_delivery_text(&view, delivery)
        ))?;
        output::print_text(&format!(
            "{steer}   Was the message read? longhaul steer {run} --status"
        ))?;
        if !client.has_driver().await? {
            output::eprint_line(&format!("No worker drives the run now: longhaul watch {run}"));
        }
        Ok(())
    }

    async fn print_delivery_status(&self, client: &RunClient, run: RunId) -> anyhow::Result<()> {
        let steers = client.list_steers(run).await?;
        if self.json {
            return output::print_json_list(&steers);
        }
        if steers.is_empty() {
            output::eprint_line(&format!("No messages were sent to {run}."));
        }
        let now = client.store_time().await?;
        let tell = |steer| output::print_text(&delivery_status_text(steer, now));
        steers.iter().try_for_each(tell)
    }
}

/// Describes when a message that is queued now will be delivered.
fn expected_delivery_text(run: &RunView, delivery: SteerDelivery) -> String {
    // The turn of a model call in flight is not counted yet, and comes before the delivery.
    let next = match run.now.contains(MODEL_CALL_PHRASE) {
        true => run.turns + 2,
        false => run.turns + 1,
    };
    match delivery {
        SteerDelivery::AfterBatch => {
            format!("Will be delivered before turn {next}, or sooner with --interrupt.")
        }
        SteerDelivery::BeforeNextTool => {
            format!("Will be delivered before the next call starts, in turn {next} at the latest.")
        }
        SteerDelivery::Interrupt => {
            "Will be delivered at once; running calls are aborted.".to_owned()
        }
        SteerDelivery::FollowUp => {
            "Will be delivered only when the run would otherwise end.".to_owned()
        }
    }
}

/// Describes the delivery status of a message.
fn delivery_status_text(steer: &SteerView, now: Timestamp) -> String {
    let id = steer.id;
    let text = first_line(&steer.text);
    let after = steer.after_s.map_or_else(String::new, |seconds| {
        let duration = longhaul_core::time::Millis((seconds * 1_000.0) as u64);
        format!(", {} after you sent the message", format_duration(duration))
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
                format!(" since {}", format_duration(now.duration_since(sent)))
            });
            format!("{id}  queued{since}: {text}")
        }
        (SteerState::Delivered, None, None) => format!("{id}  delivered{after}: {text}"),
        (SteerState::Dropped, _, None) => format!("{id}  dropped{after}: {text}"),
        (SteerState::Withdrawn, _, None) => format!("{id}  withdrawn{after}: {text}"),
    }
}
