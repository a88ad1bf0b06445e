//! `longhaul show`: one run, whole: a page for people, an object for programs.
//!
//! Never: changes anything, and needs no driver.

use clap::Args;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{RunId, Seq};

use crate::client::RunClient;
use crate::driver_status::explain_with_label;
use crate::event_printer::{EventPrinter, time_of_day};
use crate::{output, resolve, run_page, sanitize, transcript};

/// So many events are read at once.
const PAGE_SIZE: usize = 500;

/// So many letters of an event that has no words of its own.
const EVENT_CHARS_MAX: usize = 80;

const EXAMPLES: &str = "Examples:
  longhaul show @last
  longhaul show run_01k3qv9 --json | jq '{status, reason, now, turns, cost_usd}'
  longhaul show run_01k3qv9 --transcript     what was said
  longhaul show run_01k3qv9 --events         what happened, a line for each fact";

/// Shows a run.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Show {
    /// The run: its id, the last six letters of it, or @last
    run: String,
    /// Print JSON: one object, with --events a line for each
    #[arg(long)]
    json: bool,
    /// The conversation with the model
    #[arg(long, conflicts_with = "events")]
    transcript: bool,
    /// The journal
    #[arg(long)]
    events: bool,
}

impl Show {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        resolve::with_run(&self.run, async |client, run| match (self.events, self.transcript) {
            (true, _) => self.print_events(client, run).await,
            (_, true) => self.print_transcript(client, run).await,
            (false, false) => self.print_run(client, run).await,
        })
    }

    async fn print_run(&self, client: &RunClient, run: RunId) -> anyhow::Result<()> {
        let view = client.show(run).await?;
        if self.json {
            return output::stdout_json(&view);
        }
        let (why, stands) = explain_with_label(client, &view).await?;
        for line in run_page::render(&view, &why, &stands) {
            output::stdout_line(&line)?;
        }
        Ok(())
    }

    async fn print_transcript(&self, client: &RunClient, run: RunId) -> anyhow::Result<()> {
        let transcript = client.transcript(run).await?;
        if self.json {
            return output::stdout_json(&transcript);
        }
        transcript::render(&transcript).iter().try_for_each(|part| output::stdout_text(part))
    }

    async fn print_events(&self, client: &RunClient, run: RunId) -> anyhow::Result<()> {
        let mut teller = EventPrinter::default();
        let mut after = Seq::START;
        loop {
            let entries = client.events(run, after, PAGE_SIZE).await?;
            let Some(last) = entries.last() else {
                return Ok(());
            };
            after = last.seq;
            for entry in &entries {
                match self.json {
                    true => output::stdout_json(&entry.to_envelope()?)?,
                    false => output::stdout_text(&event_line(&mut teller, entry)?)?,
                }
            }
        }
    }
}

fn event_line(teller: &mut EventPrinter, entry: &Entry) -> anyhow::Result<String> {
    let words = match teller.describe(entry) {
        Some(words) => words,
        None => sanitize::truncate(entry.to_envelope()?.data.as_str(), EVENT_CHARS_MAX),
    };
    let (seq, at, kind) = (entry.seq.0, time_of_day(entry.at), entry.event.kind());
    let line = format!("{seq:>5}  {at}  {kind:<20} {}", sanitize::line(&words));
    Ok(line.trim_end().to_owned())
}
