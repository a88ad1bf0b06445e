//! `longhaul signal`: reports that an event has happened to every run that waits for it by name.

use clap::Args;
use longhaul_api::gate::SignalBody;
use longhaul_api::operations::SEND_SIGNAL;
use longhaul_core::raw::RawJson;

use crate::client::connect::with_client;
use crate::error::CliError;
use crate::{output, resolve, task_args};

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul signal deployed                          to all runs that wait for `deployed`
  longhaul signal deployed --payload '{\"build\": 7}'  with data for the model
  longhaul signal deployed --run @last              to one run only

A run waits for a signal in the tool `wait`, with the name in `signal`, or at a gate that a program
raised with the name as a tag. A signal for which no run waits is not kept: exit code 2.";

/// Arguments of `longhaul signal`.
#[derive(Debug, Args)]
pub(crate) struct SignalCommand {
    /// Name of the event that has happened
    name: String,
    /// Data for the model, as JSON
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Note for the model
    #[arg(long)]
    note: Option<String>,
    /// Only this run: its id, the last characters of the id, or @last
    #[arg(long)]
    run: Option<String>,
    /// Print the completed gates as one JSON object
    #[arg(long)]
    json: bool,
}

impl SignalCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let payload = self.payload.as_deref().map(parse_payload).transpose()?;
        with_client(async |client| {
            let run = match &self.run {
                Some(run) => Some(resolve::resolve_run_id(client, run).await?),
                None => None,
            };
            let (name, note) = (self.name.clone(), self.note.clone());
            let body = SignalBody { name, run, payload, note };
            let gates = client.send(SEND_SIGNAL.at(()).body(&body)).await?.data;
            output::show(self.json, &serde_json::json!({ "data": gates }), |_| {
                gates.iter().try_for_each(|gate| {
                    output::print_line(&format!("{} goes on: {}", gate.run, gate.id))
                })
            })
        })
    }
}

fn parse_payload(text: &str) -> anyhow::Result<RawJson> {
    Ok(task_args::parse_json(text)
        .map_err(|error| CliError::usage_error(format!("--payload is not valid JSON: {error}")))?)
}
