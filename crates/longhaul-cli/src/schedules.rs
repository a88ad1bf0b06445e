//! `longhaul schedules`: lists, adds, changes, removes and fires schedules, which start agents at certain
//! times.

use clap::{ArgGroup, Args, Subcommand};
use longhaul_api::operations::{
    CREATE_SCHEDULE, DELETE_SCHEDULE, EDIT_SCHEDULE, LIST_SCHEDULES, PAUSE_SCHEDULE,
    RESUME_SCHEDULE, RUN_SCHEDULE,
};
use longhaul_api::path::ScheduleParam;
use longhaul_api::schedule::{NewScheduleBody, ScheduleChangeBody, ScheduleView};
use longhaul_core::schedule::{CatchUp, Overlap};
use longhaul_core::time::Millis;

use crate::client::connect::{with_client, with_client_if_any, with_client_or_new_store};
use crate::error::fill_hint;
use crate::event_printer::format_time_with_zone;
use crate::format::{format_duration, name_parser, parse_duration};
use crate::output;
use crate::style::TextTone;
use crate::table::{self, JsonArgs, ListOr, TableCell};
use crate::task_args::InputFormatArgs;

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul schedules add digest --cron \"0 9 * * MON-FRI\" --agent writer --input \"Sum up the news\"
  longhaul schedules add smith-idle --every 30s --agent smith --event idle_tick
  longhaul schedules               all schedules, with the next firing and the last run
  longhaul schedules run digest    starts a run now; the next firing stays as it is
  longhaul schedules edit digest --cron \"0 8 * * *\"
  longhaul schedules pause digest  also: resume
  longhaul schedules rm digest

Schedules fire while `dev`, `serve` or `worker` is running.";

/// Maximum number of characters of an error in the table.
const ERROR_CHARS: usize = 60;

/// Arguments of `longhaul schedules`.
pub(crate) type SchedulesCommand = ListOr<JsonArgs, SchedulesSubcommand>;

#[derive(Debug, Subcommand)]
pub(crate) enum SchedulesSubcommand {
    /// Lists all schedules, with the next firing and the last run
    Ls(JsonArgs),
    /// Adds a schedule
    Add(Box<AddScheduleCommand>),
    /// Changes a schedule; what is not given stays as it is
    Edit(Box<EditScheduleCommand>),
    /// Pauses a schedule: it does not fire
    Pause {
        /// Name of the schedule
        name: String,
    },
    /// Resumes a paused schedule; the firings during the pause are not made up for
    Resume {
        /// Name of the schedule
        name: String,
    },
    /// Removes a schedule; its runs are kept
    Rm {
        /// Name of the schedule
        name: String,
    },
    /// Starts a run of a schedule now; the next firing stays as it is
    Run {
        /// Name of the schedule
        name: String,
        /// Print the new run as one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("timing").required(true).args(["cron", "every"]))]
#[command(group = ArgGroup::new("target").required(true).args(["agent", "chain"]))]
pub(crate) struct AddScheduleCommand {
    /// Name of the schedule
    name: String,
    /// Cron pattern: minute, hour, day of the month, month and day of the week, such as
    /// "0 9 * * MON-FRI"; a sixth field in front means seconds
    #[arg(long, value_name = "PATTERN")]
    cron: Option<String>,
    /// Time zone of the cron pattern, such as Europe/Berlin; UTC if not given
    #[arg(long, value_name = "ZONE", requires = "cron")]
    tz: Option<String>,
    /// Fixed interval between two firings, such as 30s
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    every: Option<Millis>,
    /// Chain to start instead of an agent
    #[arg(long, value_name = "NAME")]
    chain: Option<String>,
    /// Agent to start; each run uses the newest version of the agent
    #[arg(long)]
    agent: Option<String>,
    /// Input of the runs; a JSON object or list is passed on as JSON
    #[arg(long, required_unless_present = "event")]
    input: Option<String>,
    #[command(flatten)]
    format: InputFormatArgs,
    /// Kind of the event that the agent receives at each firing, such as idle_tick
    #[arg(long, value_name = "KIND")]
    event: Option<String>,
    /// Lane of the runs; the lane of the agent if not given
    #[arg(long)]
    lane: Option<String>,
    /// Conversation (thread) that the runs belong to
    #[arg(long)]
    thread: Option<String>,
    /// Person or thing that the conversation is about
    #[arg(long)]
    resource: Option<String>,
    /// What happens to firings that were missed while no worker was running: skip them, start one
    /// run for all of them, or start a run for each (at most 100)
    #[arg(long, value_parser = name_parser::<CatchUp>(CatchUp::ALL.map(CatchUp::as_str)), default_value = CatchUp::Skip.as_str())]
    catch_up: CatchUp,
    /// What happens when the schedule fires while its last run has not ended: skip the firing,
    /// queue the new run, or allow both at once
    #[arg(long, value_parser = name_parser::<Overlap>(Overlap::ALL.map(Overlap::as_str)), default_value = Overlap::Skip.as_str())]
    overlap: Overlap,
    /// Print the schedule as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("new_timing").args(["cron", "every"]))]
#[command(group = ArgGroup::new("new_target").args(["agent", "chain"]))]
pub(crate) struct EditScheduleCommand {
    /// Name of the schedule
    name: String,
    /// Cron pattern, such as "0 9 * * MON-FRI"
    #[arg(long, value_name = "PATTERN")]
    cron: Option<String>,
    /// Time zone of the cron pattern, such as Europe/Berlin
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// Fixed interval between two firings, such as 30s
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    every: Option<Millis>,
    /// Chain to start
    #[arg(long, value_name = "NAME")]
    chain: Option<String>,
    /// Agent to start
    #[arg(long)]
    agent: Option<String>,
    /// Input of the runs; a JSON object or list is passed on as JSON
    #[arg(long)]
    input: Option<String>,
    #[command(flatten)]
    format: InputFormatArgs,
    /// Kind of the event that the agent receives at each firing, such as idle_tick
    #[arg(long, value_name = "KIND")]
    event: Option<String>,
    /// Lane of the runs
    #[arg(long)]
    lane: Option<String>,
    /// What happens to firings that were missed while no worker was running
    #[arg(long, value_parser = name_parser::<CatchUp>(CatchUp::ALL.map(CatchUp::as_str)))]
    catch_up: Option<CatchUp>,
    /// What happens when the schedule fires while its last run has not ended
    #[arg(long, value_parser = name_parser::<Overlap>(Overlap::ALL.map(Overlap::as_str)))]
    overlap: Option<Overlap>,
    /// Print the schedule as one JSON object
    #[arg(long)]
    json: bool,
}

impl EditScheduleCommand {
    fn edit_schedule(&self) -> anyhow::Result<()> {
        let body = ScheduleChangeBody {
            cron: self.cron.clone(),
            tz: self.tz.clone(),
            every_ms: self.every.map(|every| every.0),
            agent: self.agent.clone(),
            chain: self.chain.clone(),
            input: self.input.as_deref().map(|text| self.format.parse_input(text)).transpose()?,
            event: self.event.clone(),
            lane: self.lane.clone(),
            catch_up: self.catch_up,
            overlap: self.overlap,
        };
        let request = EDIT_SCHEDULE.at(ScheduleParam(self.name.clone())).body(&body);
        let schedule = with_client(async |client| client.send(request).await)?;
        output::show_text(self.json, &schedule, next_firing_text)
    }
}

impl SchedulesCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            None => print_schedules(&self.list),
            Some(SchedulesSubcommand::Ls(list)) => print_schedules(list),
            Some(SchedulesSubcommand::Add(add)) => add.add_schedule(),
            Some(SchedulesSubcommand::Edit(edit)) => edit.edit_schedule(),
            Some(SchedulesSubcommand::Pause { name }) => {
                let request = PAUSE_SCHEDULE.at(ScheduleParam(name.to_owned()));
                let paused = with_client(async |client| client.send(request).await)?;
                output::print_text(&next_firing_text(&paused))
            }
            Some(SchedulesSubcommand::Resume { name }) => {
                let request = RESUME_SCHEDULE.at(ScheduleParam(name.to_owned()));
                let resumed = with_client(async |client| client.send(request).await)?;
                output::print_text(&next_firing_text(&resumed))
            }
            Some(SchedulesSubcommand::Rm { name }) => {
                let request = DELETE_SCHEDULE.at(ScheduleParam(name.to_owned()));
                let removed = with_client(async |client| client.send(request).await)?;
                output::print_text(&format!("The schedule `{}` is removed.", removed.name))
            }
            Some(SchedulesSubcommand::Run { name, json }) => {
                let request = RUN_SCHEDULE.at(ScheduleParam(name.to_owned()));
                let run = with_client(async |client| client.send(request).await)?;
                output::show_text(*json, &run, |run| run.id.to_string())
            }
        }
    }
}

impl AddScheduleCommand {
    fn add_schedule(&self) -> anyhow::Result<()> {
        let body = NewScheduleBody {
            cron: self.cron.clone(),
            tz: self.tz.clone(),
            every_ms: self.every.map(|every| every.0),
            input: self.input.as_deref().map(|text| self.format.parse_input(text)).transpose()?,
            event: self.event.clone(),
            lane: self.lane.clone(),
            thread: self.thread.clone(),
            resource: self.resource.clone(),
            catch_up: self.catch_up,
            overlap: self.overlap,
            agent: self.agent.clone(),
            chain: self.chain.clone(),
            ..NewScheduleBody::new(&self.name, "")
        };
        with_client_or_new_store(async |client| {
            let created = client.send(CREATE_SCHEDULE.at(()).body(&body)).await;
            let schedule = fill_hint(created, "NAME", &self.name)?;
            output::show_text(self.json, &schedule, next_firing_text)?;
            if !self.json && !client.has_process_driving_runs().await? {
                output::eprint_line(
                    "No worker is running, so it does not fire.   Start one: longhaul worker",
                );
            }
            Ok(())
        })
    }
}

/// Returns a sentence about the next firing of a schedule.
fn next_firing_text(schedule: &ScheduleView) -> String {
    if schedule.paused {
        return format!("The schedule `{}` is paused.", schedule.name);
    }
    let next = schedule.next_at.map_or_else(|| "never".into(), format_time_with_zone);
    format!("The schedule `{}` fires next: {next}", schedule.name)
}

fn print_schedules(output: &JsonArgs) -> anyhow::Result<()> {
    let schedules =
        with_client_if_any(async |client| Ok(client.send(LIST_SCHEDULES.at(())).await?.data))?;
    let titles = ["NAME", "WHEN", "STARTS", "NEXT", "LAST RUN", "STATUS"];
    let note = "There are no schedules yet.   Add one: longhaul schedules add --help";
    table::show_list(output.json, &schedules.unwrap_or_default(), (&titles, note), schedule_row)
}

fn schedule_row(schedule: &ScheduleView) -> Vec<TableCell> {
    let timing = match (&schedule.cron, schedule.every_ms) {
        (Some(cron), _) => format!("{cron} {}", schedule.tz.as_deref().unwrap_or_default()),
        (None, every) => format!("every {}", format_duration(Millis(every.unwrap_or_default()))),
    };
    let next = schedule.next_at.map_or_else(|| "never".to_owned(), format_time_with_zone);
    let last = schedule.last_run.map_or_else(|| "-".to_owned(), |run| run.to_string());
    let status = match (&schedule.last_error, schedule.last_status) {
        _ if schedule.paused => TableCell::toned("paused", TextTone::Dim),
        (Some(error), _) => TableCell::toned(error, TextTone::Bad).with_max_chars(ERROR_CHARS),
        (None, Some(status)) => TableCell::new(status.as_str()),
        (None, None) => TableCell::new("-"),
    };
    let target = match &schedule.chain {
        Some(chain) => format!("chain {chain}"),
        None => schedule.agent.clone(),
    };
    table::row(&[&schedule.name, &timing, &target, &next, &last, &status])
}
