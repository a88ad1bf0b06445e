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

use crate::client::connect::{
    connect_or_create_store, connect_run_client, find_configured_or_local_server,
    try_connect_run_client,
};
use crate::style::TextTone;
use crate::table::{self, TableCell};
use crate::{output, runtime};

/// Maximum number of lanes, or of runs of one lane, that are listed.
const ROWS_MAX: usize = 1_000;

const EXAMPLES: &str = "Examples:
  longhaul submit writer \"Go on.\" --lane docs
  longhaul lanes                  lanes that contain runs or are paused
  longhaul lanes show docs        the runs of one lane that have not ended
  longhaul lanes pause docs       no run of the lane starts; a run that has started continues
  longhaul lanes resume docs";

/// Arguments of `longhaul lanes`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct LanesCommand {
    #[command(subcommand)]
    command: Option<LanesSubcommand>,
    #[command(flatten)]
    list: ListLanesCommand,
}

#[derive(Debug, Subcommand)]
enum LanesSubcommand {
    /// Lists the lanes that contain runs or are paused
    #[command(after_help = EXAMPLES)]
    Ls(ListLanesCommand),
    /// Shows a lane and its runs that have not ended, oldest first
    #[command(after_help = EXAMPLES)]
    Show(LaneArgs),
    /// Pauses a lane: no run of it starts, and a run that has started continues
    #[command(after_help = EXAMPLES)]
    Pause(LaneArgs),
    /// Resumes a paused lane
    #[command(after_help = EXAMPLES)]
    Resume(LaneArgs),
}

#[derive(Debug, Args)]
struct ListLanesCommand {
    /// Print the lanes as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct LaneArgs {
    /// Name of the lane, as in `--lane`
    lane: LaneKey,
    /// Print the lane as one JSON object
    #[arg(long)]
    json: bool,
}

impl LanesCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            None => self.list.print_lane_list(),
            Some(LanesSubcommand::Ls(list)) => list.print_lane_list(),
            Some(LanesSubcommand::Show(lane)) => lane.show_lane(),
            Some(LanesSubcommand::Pause(lane)) => {
                lane.change_and_print_lane(PAUSE_LANE.at(lane.lane.clone()))
            }
            Some(LanesSubcommand::Resume(lane)) => {
                lane.change_and_print_lane(RESUME_LANE.at(lane.lane.clone()))
            }
        }
    }
}

impl ListLanesCommand {
    fn print_lane_list(&self) -> anyhow::Result<()> {
        let lanes = match try_connect_run_client()? {
            Some(client) => {
                let lanes = client.list(LIST_LANES, LanesQuery::default(), ROWS_MAX);
                runtime::build_single_thread_tokio()?.block_on(lanes)?
            }
            None => Vec::new(),
        };
        if self.json {
            return output::print_json_list(&lanes);
        }
        if lanes.is_empty() {
            output::eprint_line("No lane contains a run.   Use one: longhaul submit --lane NAME");
            return Ok(());
        }
        table::print_table(&["LANE", "STATUS", "WAITING", "RUN"], lanes.iter().map(lane_row))
    }
}

impl LaneArgs {
    fn show_lane(&self) -> anyhow::Result<()> {
        let client = connect_run_client()?;
        let lane = client.send(SHOW_LANE.at(self.lane.clone()));
        let lane = runtime::build_single_thread_tokio()?.block_on(lane)?;
        if self.json {
            return output::print_json(&lane);
        }
        output::print_text(&describe_lane(&lane))?;
        let query = RunsQuery {
            lane: Some(self.lane.clone()),
            status: Status::ALL.into_iter().filter(|status| !status.is_terminal()).collect(),
            ..RunsQuery::default()
        };
        let runs = client.list_runs(query, ROWS_MAX);
        let mut runs = runtime::build_single_thread_tokio()?.block_on(runs)?;
        runs.reverse();
        let rows = runs.iter().map(|run| {
            vec![
                TableCell::new(run.id.to_string()),
                TableCell::new(&run.agent),
                TableCell::new(run.status.as_str()),
                TableCell::new(&run.now),
            ]
        });
        match runs.is_empty() {
            true => Ok(()),
            false => table::print_table(&["RUN", "AGENT", "STATUS", "NOW"], rows),
        }
    }

    /// Sends a request that pauses or resumes the lane, and prints the lane's new state.
    fn change_and_print_lane(
        &self,
        change: Request<NoQuery, EmptyBody, LaneView>,
    ) -> anyhow::Result<()> {
        let client = connect_or_create_store(find_configured_or_local_server()?)?;
        let lane = runtime::build_single_thread_tokio()?.block_on(client.send(change))?;
        match self.json {
            true => output::print_json(&lane),
            false => output::print_text(&describe_lane(&lane)),
        }
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
    vec![
        TableCell::new(&lane.lane),
        TableCell::new(status).with_tone(tone),
        TableCell::new(lane.waiting.to_string()),
        TableCell::new(lane.holder.map(|run| run.to_string()).unwrap_or_default()),
    ]
}
