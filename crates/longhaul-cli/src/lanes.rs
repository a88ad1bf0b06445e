//! `longhaul lanes`: lists lanes and shows, pauses or resumes one. The runs of a lane execute one at
//! a time.

use clap::{Args, Subcommand};
use longhaul_api::client::Request;
use longhaul_api::lane::LaneView;
use longhaul_api::operation::{EmptyBody, NoQuery};
use longhaul_api::operations::{LIST_LANES, PAUSE_LANE, RESUME_LANE, SHOW_LANE};
use longhaul_api::query::{LanesQuery, RunsQuery};
use longhaul_core::id::LaneKey;
use longhaul_core::status::Status;

use crate::client::connect::{with_client, with_client_if_any, with_client_or_new_store};
use crate::output;
use crate::style::TextTone;
use crate::table::{self, JsonArgs, ListOr, TableCell};

/// Maximum number of lanes, or of runs of one lane, that are listed.
const ROWS_MAX: usize = 1_000;

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul submit writer \"Go on.\" --lane docs
  longhaul lanes                  lanes that contain runs or are paused
  longhaul lanes show docs        the runs of one lane that have not ended
  longhaul lanes pause docs       no run of the lane starts; a run that has started continues
  longhaul lanes resume docs";

/// Arguments of `longhaul lanes`.
pub(crate) type LanesCommand = ListOr<JsonArgs, LanesSubcommand>;

#[derive(Debug, Subcommand)]
pub(crate) enum LanesSubcommand {
    /// Lists the lanes that contain runs or are paused
    Ls(JsonArgs),
    /// Shows a lane and its runs that have not ended, oldest first
    Show(LaneArgs),
    /// Pauses a lane: no run of it starts, and a run that has started continues
    Pause(LaneArgs),
    /// Resumes a paused lane
    Resume(LaneArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LaneArgs {
    /// Name of the lane, as in `--lane`
    lane: LaneKey,
    /// Print the lane as one JSON object
    #[arg(long)]
    json: bool,
}

impl LanesCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            None => print_lanes(&self.list),
            Some(LanesSubcommand::Ls(list)) => print_lanes(list),
            Some(LanesSubcommand::Show(lane)) => lane.show(),
            Some(LanesSubcommand::Pause(lane)) => lane.change(PAUSE_LANE.at(lane.lane.clone())),
            Some(LanesSubcommand::Resume(lane)) => lane.change(RESUME_LANE.at(lane.lane.clone())),
        }
    }
}

fn print_lanes(output: &JsonArgs) -> anyhow::Result<()> {
    let lanes = with_client_if_any(async |client| {
        client.list(LIST_LANES, LanesQuery::default(), ROWS_MAX).await
    })?;
    let note = "No lane contains a run.   Use one: longhaul submit --lane NAME";
    let titles = ["LANE", "STATUS", "WAITING", "RUN"];
    table::show_list(output.json, &lanes.unwrap_or_default(), (&titles, note), lane_row)
}

impl LaneArgs {
    fn show(&self) -> anyhow::Result<()> {
        let status = Status::ALL.into_iter().filter(|status| !status.is_terminal()).collect();
        let lane = Some(self.lane.clone());
        let query = RunsQuery { lane, status, all_runs: true, ..RunsQuery::default() };
        with_client(async |client| {
            let lane = client.send(SHOW_LANE.at(self.lane.clone())).await?;
            output::show_text(self.json, &lane, describe_lane)?;
            if self.json {
                return Ok(());
            }
            let runs = client.list_runs(query, ROWS_MAX).await?;
            let rows = runs
                .iter()
                .rev()
                .map(|run| table::row(&[&run.id, &run.agent, &run.status.as_str(), &run.now]));
            match runs.is_empty() {
                true => Ok(()),
                false => table::print_table(&["RUN", "AGENT", "STATUS", "NOW"], rows),
            }
        })
    }

    /// Sends a request that pauses or resumes the lane, and prints the lane's new state.
    fn change(&self, change: Request<NoQuery, EmptyBody, LaneView>) -> anyhow::Result<()> {
        let lane = with_client_or_new_store(async |client| client.send(change).await)?;
        output::show_text(self.json, &lane, describe_lane)
    }
}

/// Returns a sentence about the state of a lane.
fn describe_lane(lane: &LaneView) -> String {
    let LaneView { lane: name, holder: active_run, waiting, paused, .. } = lane;
    let state = match (active_run, paused) {
        (Some(active_run), false) => format!("is busy with {active_run}"),
        (None, false) => "is free".to_owned(),
        (Some(active_run), true) => format!("is paused; {active_run} continues"),
        (None, true) => "is paused".to_owned(),
    };
    format!("The lane `{name}` {state}; waiting runs: {waiting}.")
}

fn lane_row(lane: &LaneView) -> Vec<TableCell> {
    let (status, tone) = match (lane.paused, lane.busy) {
        (true, _) => ("paused", TextTone::Dim),
        (false, true) => ("busy", TextTone::Good),
        (false, false) => ("free", TextTone::Dim),
    };
    let holder = lane.holder.map(|run| run.to_string()).unwrap_or_default();
    table::row(&[&lane.lane, &TableCell::toned(status, tone), &lane.waiting, &holder])
}
