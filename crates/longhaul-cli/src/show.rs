//! `longhaul show`: prints one run, its conversation or its journal. The command changes nothing
//! and needs no worker.

use clap::Args;
use longhaul_api::operations::SHOW_TRANSCRIPT;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{RunId, Seq};

use crate::client::Client;
use crate::driver_status::explain_run_status_with_label;
use crate::event_printer::{EventPrinter, format_time_of_day};
use crate::{output, resolve, run_page, run_tree, sanitize, transcript};

/// Number of events that are read at a time.
const PAGE_SIZE: usize = 500;

/// Maximum number of characters printed of the data of an event that has no description.
const EVENT_CHARS_MAX: usize = 80;

const EXAMPLES: &str = "Examples:
  longhaul show @last
  longhaul show run_01k3qv9 --json | jq '{status, reason, now, turns, cost_usd}'
  longhaul show run_01k3qv9 --transcript     the conversation
  longhaul show run_01k3qv9 --events         the journal, one line per event
  longhaul show run_01k3qv9 --tree           the run and its child runs";

/// Arguments of `longhaul show`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowRunCommand {
    /// Run to show: its id, the last six characters of the id, or @last
    run: String,
    /// Print JSON: one object, or one line per event with --events
    #[arg(long)]
    json: bool,
    /// Print the run's conversation with the model
    #[arg(long, conflicts_with = "events")]
    transcript: bool,
    /// Print the run's journal, one line per event
    #[arg(long)]
    events: bool,
    /// Print the run with the runs below it, which it or its child runs have started
    #[arg(long, conflicts_with_all = ["events", "transcript"])]
    tree: bool,
}

impl ShowRunCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        resolve::with_resolved_run(&self.run, async |client, run| {
            match (self.events, self.transcript, self.tree) {
                (true, ..) => self.print_events(client, run).await,
                (_, true, _) => self.print_transcript(client, run).await,
                (.., true) => run_tree::print_run_tree(client, run, self.json).await,
                (false, false, false) => self.print_run(client, run).await,
            }
        })
    }

    async fn print_run(&self, client: &Client, run: RunId) -> anyhow::Result<()> {
        let view = client.get_run(run).await?;
        if self.json {
            return output::print_json(&view);
        }
        let (explanation, label) = explain_run_status_with_label(client, &view).await?;
        for line in run_page::render_run_page(&view, &explanation, &label) {
            output::print_line(&line)?;
        }
        Ok(())
    }

    async fn print_transcript(&self, client: &Client, run: RunId) -> anyhow::Result<()> {
        let transcript = client.send(SHOW_TRANSCRIPT.at(run)).await?;
        if self.json {
            return output::print_json(&transcript);
        }
        transcript::render_transcript(&transcript)
            .iter()
            .try_for_each(|part| output::print_text(part))
    }

    async fn print_events(&self, client: &Client, run: RunId) -> anyhow::Result<()> {
        let mut printer = EventPrinter::default();
        let mut after = Seq::START;
        loop {
            let entries = client.read_events(run, after, PAGE_SIZE).await?;
            let Some(last_entry) = entries.last() else {
                return Ok(());
            };
            after = last_entry.seq;
            for entry in &entries {
                match self.json {
                    true => output::print_json(&entry.to_envelope()?)?,
                    false => output::print_text(&event_line(&mut printer, entry)?)?,
                }
            }
        }
    }
}

fn event_line(printer: &mut EventPrinter, entry: &JournalEntry) -> anyhow::Result<String> {
    let text = match printer.describe_event(entry) {
        Some(text) => text,
        None => sanitize::truncate(entry.to_envelope()?.data.as_str(), EVENT_CHARS_MAX),
    };
    let (seq, at, kind) = (entry.seq.0, format_time_of_day(entry.at), entry.event.kind());
    let line = format!("{seq:>5}  {at}  {kind:<20} {}", sanitize::sanitize_line(&text));
    Ok(line.trim_end().to_owned())
}
