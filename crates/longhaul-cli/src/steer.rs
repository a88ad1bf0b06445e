//! `longhaul steer`: sends a message to a run, changes or withdraws a message that is not delivered
//! yet, and shows whether messages were delivered.

use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use longhaul_api::operations::{UPDATE_STEER, WITHDRAW_STEER};
use longhaul_api::run::RunView;
use longhaul_api::steer::{SteerChange, SteerState, SteerView};
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::{RunId, SteerId};
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;

use crate::client::Client;
use crate::error::fail;
use crate::event_printer::first_line;
use crate::format::{format_duration, name_parser};
use crate::{output, resolve};

/// Maximum length of a message read from stdin, in bytes. The engine's own limit is far lower.
const TEXT_BYTES_MAX: u64 = 1024 * 1024;

/// Text in a run's current activity (`now`) while a model call is in flight. The run's view has no
/// other field that shows this.
const MODEL_CALL_PHRASE: &str = "calling the model, turn";

/// Minimum number of characters at the end of an id that identify it.
const ID_CHARS_MIN: usize = 6;

const EXAMPLES: &str = "Examples:
  longhaul steer @last \"Keep the old cookie name for one more release\"
  longhaul steer run_01k3qv9 --interrupt \"Stop, wrong file\"
  git diff | longhaul steer run_01k3qv9 -        the message from stdin
  longhaul steer run_01k3qv9 --status            status of the messages sent
  longhaul steer run_01k3qv9 --edit steer_01k3r2 \"Keep both names\"
  longhaul steer run_01k3qv9 --withdraw steer_01k3r2

A message can be changed and withdrawn until it is delivered.";

/// Arguments of `longhaul steer`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SteerRunCommand {
    /// Run to send the message to: its id, four or more of its first or last characters, or @last
    run: String,
    /// Text of the message; `-` reads it from stdin
    #[arg(required_unless_present_any = ["status", "withdraw"])]
    text: Vec<String>,
    /// When to deliver the message; without this option after the calls of the current turn
    #[arg(long, value_parser = delivery_parser(), value_name = "WHEN")]
    delivery: Option<SteerDelivery>,
    /// Deliver the message now and abort running calls: the same as --delivery interrupt
    #[arg(long, conflicts_with = "delivery")]
    interrupt: bool,
    /// Replace the text of a message that is not delivered yet, and its delivery if that is given
    #[arg(long, value_name = "ID")]
    edit: Option<String>,
    /// Withdraw a message that is not delivered yet
    #[arg(long, value_name = "ID", conflicts_with_all = ["text", "delivery", "interrupt", "edit"])]
    withdraw: Option<String>,
    /// Show the delivery status of messages sent before
    #[arg(long, conflicts_with_all = ["text", "delivery", "interrupt", "edit", "withdraw"])]
    status: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

fn delivery_parser() -> impl TypedValueParser<Value = SteerDelivery> {
    name_parser([
        PossibleValue::new("after_batch").help("Deliver when the calls of this turn are done"),
        PossibleValue::new("before_next_tool")
            .help("Deliver before the next call starts; calls that have not started are skipped"),
        PossibleValue::new("interrupt").help("Deliver now and abort running calls"),
        PossibleValue::new("follow_up").help("Deliver only when the run would otherwise end"),
    ])
}

impl SteerRunCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        resolve::with_resolved_run(&self.run, async |client, run| {
            if self.status {
                let steers = list_messages(client, run).await?;
                if self.json {
                    return output::print_json_list(&steers);
                }
                if steers.is_empty() {
                    output::eprint_line(&format!("No messages were sent to {run}."));
                }
                let now = client.store_time().await?;
                let print_status = |steer| output::print_text(&delivery_status_text(steer, now));
                return steers.iter().try_for_each(print_status);
            }
            match (&self.edit, &self.withdraw) {
                (Some(id), _) => {
                    let (text, delivery) = self.read_text_and_delivery()?;
                    let steer = find_message(client, run, id).await?.id;
                    let change = SteerChange { text: Some(text), delivery };
                    client.send(UPDATE_STEER.at((run, steer)).body(&change)).await?;
                    self.print_changed_message(client, run, steer).await
                }
                (None, Some(id)) => {
                    let steer = find_message(client, run, id).await?.id;
                    client.send(WITHDRAW_STEER.at((run, steer))).await?;
                    self.print_changed_message(client, run, steer).await
                }
                (None, None) => self.send_message(client, run).await,
            }
        })
    }

    /// Returns the text of the message, and its delivery if an option sets it.
    fn read_text_and_delivery(&self) -> anyhow::Result<(String, Option<SteerDelivery>)> {
        let text = output::join_args_or_read_stdin(&self.text, TEXT_BYTES_MAX, "the message")?;
        let delivery = match self.interrupt {
            true => Some(SteerDelivery::Interrupt),
            false => self.delivery,
        };
        Ok((text, delivery))
    }

    async fn print_changed_message(
        &self,
        client: &Client,
        run: RunId,
        id: SteerId,
    ) -> anyhow::Result<()> {
        let steer = find_message(client, run, &id.to_string()).await?;
        if self.json {
            return output::print_json(&steer);
        }
        let now = client.store_time().await?;
        output::print_text(&delivery_status_text(&steer, now))
    }

    async fn send_message(&self, client: &Client, run: RunId) -> anyhow::Result<()> {
        let (text, delivery) = self.read_text_and_delivery()?;
        let delivery = delivery.unwrap_or_default();
        // The message wakes a parked run, which then no longer says what it waited for.
        let before = client.get_run(run).await?;
        let receipt = client.steer_run(run, text, delivery).await?;
        if self.json {
            return output::print_json(&receipt);
        }
        // An ended run of a chain stands for the newest run of the chain.
        let (run, steer) = (receipt.run, receipt.id);
        let after = client.get_run(run).await?;
        let before = if before.id == run { before } else { after.clone() };
        // Read after the run: a message that is still queued is not in the turn that runs.
        let steers = client.list_steers(run).await?;
        let message = steers.iter().find(|message| message.id == steer);
        output::print_text(&match message.and_then(|message| message.between) {
            Some([_, turn]) => format!("Delivered to {run}, before turn {turn}."),
            None => {
                // What the run did, or what it waited for before the message.
                let is_parked =
                    matches!(before.status, Status::Waiting | Status::Blocked | Status::Paused);
                let activity = if is_parked { &before.now } else { &after.now };
                let note = receipt
                    .note
                    .unwrap_or_else(|| expected_delivery_text(&before, &after, delivery));
                format!("Queued for {run}. {} {note}", first_line(activity))
            }
        })?;
        output::print_text(&format!(
            "{steer}   Was the message read? longhaul steer {run} --status"
        ))?;
        if !client.has_process_driving_runs().await? {
            output::eprint_line(&format!(
                "No worker drives the run now. To drive it: longhaul watch {run}"
            ));
        }
        Ok(())
    }
}

/// Returns the messages to a run. If the run has ended and belongs to a chain, these are followed by
/// the messages to the newest run of the chain, which may have been sent through the ended run.
async fn list_messages(client: &Client, run: RunId) -> anyhow::Result<Vec<SteerView>> {
    let mut steers = client.list_steers(run).await?;
    let view = client.get_run(run).await?;
    let newest = view.newest_run_in_chain();
    if view.status.is_terminal() && newest != run {
        steers.extend(client.list_steers(newest).await?);
    }
    Ok(steers)
}

/// Finds the message to a run with this id, or whose id ends with this text.
async fn find_message(client: &Client, run: RunId, id: &str) -> anyhow::Result<SteerView> {
    let mut steers = list_messages(client, run).await?;
    steers.retain(|steer| id.len() >= ID_CHARS_MIN && steer.id.to_string().ends_with(id));
    match (steers.pop(), steers.is_empty()) {
        (Some(steer), true) => Ok(steer),
        (found, _) => {
            let count_text = if found.is_none() { "no message" } else { "more than one message" };
            let message = format!("{run} has {count_text} with the id `{id}`");
            fail(message, "list the messages", format!("longhaul steer {run} --status"))
        }
    }
}

/// Describes when a message that is queued now will be delivered. `before` and `after` are the run as
/// it was read before and after the message was queued.
fn expected_delivery_text(before: &RunView, after: &RunView, delivery: SteerDelivery) -> String {
    // The turn of a model call in flight is not counted yet, and comes before the delivery.
    let turn = match after.now.contains(MODEL_CALL_PHRASE) {
        true => after.turns + 2,
        false => after.turns + 1,
    };
    let wait = before.reason.as_deref().filter(|_| before.status == Status::Waiting);
    let is_held =
        before.status == Status::Paused || matches!(wait, Some("cap" | "budget" | "budget_held"));
    let when = match (delivery, before.status) {
        _ if wait == Some("message") => format!("at once, before turn {turn}."),
        (SteerDelivery::FollowUp, _) => "only when the run would otherwise end.".to_owned(),
        _ if is_held => {
            format!("before turn {turn}, when the run continues: longhaul why {}", after.id)
        }
        (SteerDelivery::AfterBatch, Status::Pending) => format!("before turn {turn}."),
        (SteerDelivery::AfterBatch, _) => {
            format!("before turn {turn}, or sooner with --interrupt.")
        }
        (SteerDelivery::BeforeNextTool, _) => {
            format!("before the next call starts, in turn {turn} at the latest.")
        }
        (SteerDelivery::Interrupt, Status::Running) => {
            "at once; running calls are aborted.".to_owned()
        }
        (SteerDelivery::Interrupt, _) => "at once.".to_owned(),
    };
    format!("Will be delivered {when}")
}

/// Describes the delivery status of a message.
fn delivery_status_text(steer: &SteerView, now: Timestamp) -> String {
    let delay_note = steer.after_s.map_or_else(String::new, |seconds| {
        let duration = longhaul_core::time::Millis((seconds * 1_000.0) as u64);
        format!(", {} after you sent the message", format_duration(duration))
    });
    let status = match (steer.status, steer.between, &steer.why) {
        (SteerState::Delivered, Some([0, _]), _) => format!("delivered before turn 1{delay_note}"),
        (SteerState::Delivered, Some([before, next]), _) => {
            format!("delivered between turns {before} and {next}{delay_note}")
        }
        (_, _, Some(reason)) => format!("not delivered: {reason}"),
        (SteerState::Queued, ..) => {
            let age = steer.sent_at.map(|sent_at| format_duration(now.duration_since(sent_at)));
            format!("queued{}", age.map(|age| format!(" for {age}")).unwrap_or_default())
        }
        (SteerState::Delivered, None, None) => format!("delivered{delay_note}"),
        (SteerState::Dropped, _, None) => format!("dropped{delay_note}"),
        (SteerState::Withdrawn, _, None) => format!("withdrawn{delay_note}"),
    };
    format!("{}  {status}: {}", steer.id, first_line(&steer.text))
}
