//! `longhaul run`: submits a task and follows it to its end, driving if nobody does.
//!
//! Never: exit code 0 for a run that did not complete.

use clap::Args;
use longhaul::assemble::ProjectRuntime;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;

use crate::client::RunClient;
use crate::client::connect::{connect_or_create, find_server};
use crate::ephemeral::{self, EphemeralArgs};
use crate::event_printer::time_of_day;
use crate::exit::Exit;
use crate::follow::{FinalOutput, FollowEnd, FollowOptions, Follower};
use crate::format::parse_duration;
use crate::interrupts::Interrupts;
use crate::local_worker::LocalWorker;
use crate::record_replay::{CassetteArgs, not_driving_error};
use crate::store_access::drive_or_observe;
use crate::submit::prepare;
use crate::takeover::Takeover;
use crate::task_args::TaskArgs;
use crate::trust::confirm;
use crate::{environment, output, runtime};

const EXAMPLES: &str = "Examples:
  longhaul run writer \"Summarise README.md in five lines\"
  longhaul run writer - < task.txt              the task from stdin
  longhaul run writer \"...\" --record=first      keep what the model said: .longhaul/cassettes/first.jsonl
  longhaul run writer \"...\" --replay first      the same conversation again, asking nobody
  longhaul run writer \"...\" --ephemeral         keep nothing: no store, no journal, no lock
  longhaul run writer \"...\" --no-input --json   for scripts: one JSON object, exit 3 if a person is needed

Exit codes: 0 completed, 1 failed, 2 usage, 3 waits for a person, 4 stopped by a limit,
5 busy, 6 not allowed, 7 cancelled, 124 --timeout passed, 130 detached";

/// Submits a task and follows it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    follow: FollowArgs,
    #[command(flatten)]
    record_replay: CassetteArgs,
    #[command(flatten)]
    ephemeral: EphemeralArgs,
}

/// How a run is followed.
#[derive(Debug, Args)]
pub(crate) struct FollowArgs {
    /// Print JSON: the run as one object at the end, or where facts are followed a line for each
    #[arg(long)]
    json: bool,
    /// Ask nobody: a run that waits for a person ends this command with 3
    #[arg(long)]
    no_input: bool,
    /// Follow no longer than this, such as 10m; the run goes on. A call under way is waited for, up
    /// to half a minute more
    #[arg(long, value_name = "SPAN", value_parser = parse_duration)]
    pub(crate) timeout: Option<Millis>,
    /// Tell nothing on the way
    #[arg(long, short)]
    quiet: bool,
}

impl FollowArgs {
    pub(crate) fn options(&self) -> FollowOptions {
        FollowOptions {
            silent: self.quiet || self.json,
            as_json: false,
            stop_at_person: self.no_input,
            is_only_client: false,
            final_output: match self.json {
                true => FinalOutput::Json,
                false => FinalOutput::Text,
            },
        }
    }

    /// The same for a stream: with `--json` each fact is a line.
    pub(crate) fn stream_options(&self) -> FollowOptions {
        let manner = self.options();
        match self.json {
            true => FollowOptions { as_json: true, final_output: FinalOutput::Nothing, ..manner },
            false => manner,
        }
    }
}

impl Run {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let timeout = self.follow.timeout;
        if self.ephemeral.is_enabled() {
            return self.run_ephemeral(timeout);
        }
        // What can't be done is said before anything is made on disk.
        let server = find_server()?;
        let here = environment::process_env()?;
        let here = match server {
            Some(_) => environment::with_dotenv_if_valid(here),
            None => environment::with_dotenv(here)?,
        };
        if self.record_replay.is_recording() && server.is_some() {
            return Err(not_driving_error().into());
        }
        let mut asked = self.task.clone();
        if let Some(model) = self.record_replay.replay_model(&here)? {
            asked.set_model(model);
        }
        let mut prepared = prepare(&asked, server.as_ref(), &here)?;
        let agents = prepared.agents.take();
        let task = prepared.into_task(self.follow.quiet);
        let manner = self.follow.options();
        if let (None, Some(agents)) = (&server, &agents) {
            // Whoever says no is told by the run, which waits for it.
            let config = environment::load_config_quietly(&here)?;
            let nobody = manner.silent || manner.stop_at_person;
            _ = confirm::ask_before_run((&config, agents), Some(self.task.agent()), nobody)?;
        }
        let listening = match self.record_replay.is_recording() {
            true => Some(self.record_replay.start_recording(&here)?),
            false => None,
        };
        let opened = match (&server, &listening) {
            (Some(_), _) | (None, Some(_)) => None,
            (None, None) => Some(drive_or_observe(&here)?),
        };
        let looked = match &listening {
            Some(listening) => Some((&listening.runtime, true)),
            None => opened.as_ref().map(|opened| opened.runtime(manner.silent)),
        };
        let client: RunClient = match (server, looked) {
            (_, Some((house, _))) => RunClient::local(&house.longhaul),
            (server, None) => connect_or_create(server)?,
        };
        runtime::multi_thread()?.block_on(async {
            let interrupts = Interrupts::listen()?;
            let run = client.submit(task).await?;
            if !manner.silent {
                output::stderr_line(&format!("{run}  {}", self.task.agent()));
            }
            if let Some(listening) = &listening {
                listening.begin_run(run, self.task.agent()).await?;
            }
            let followed = FollowedRun {
                client: &client,
                run,
                after: Seq::START,
                driven_runtime: looked.and_then(|(house, drives)| drives.then_some(house)),
                takeover: Takeover::new(looked, &here),
                timeout,
            };
            let exit = followed.run_to_end(manner, interrupts).await?;
            if let Some(listening) = &listening {
                listening.finish(manner.silent)?;
            }
            Ok(exit)
        })
    }
}

impl Run {
    /// The same over a store that is forgotten when this command ends.
    fn run_ephemeral(&self, timeout: Option<Millis>) -> anyhow::Result<Exit> {
        let manner = FollowOptions { is_only_client: true, ..self.follow.options() };
        let quiet = self.follow.quiet;
        let opened = self.ephemeral.open(&self.task, &self.record_replay, quiet);
        let (house, task) = opened?;
        let client = RunClient::local(&house.longhaul);
        runtime::multi_thread()?.block_on(async {
            let interrupts = Interrupts::listen()?;
            let run = client.submit(task).await?;
            if !manner.silent {
                let agent = self.task.agent();
                output::stderr_line(&format!("{run}  {agent}  (nothing of it is kept)"));
            }
            let followed = FollowedRun {
                client: &client,
                run,
                after: Seq::START,
                driven_runtime: Some(&house),
                takeover: None,
                timeout,
            };
            followed.run_to_end(manner, interrupts).await
        })
    }
}

/// A run to be followed by this command.
pub(crate) struct FollowedRun<'a> {
    pub(crate) client: &'a RunClient,
    pub(crate) run: RunId,
    pub(crate) after: Seq,
    /// The store that this process is to drive, when nobody else does.
    pub(crate) driven_runtime: Option<&'a ProjectRuntime>,
    /// Whoever takes over when the driver is gone, if this command may.
    pub(crate) takeover: Option<Takeover<'a>>,
    pub(crate) timeout: Option<Millis>,
}

/// Whoever follows is told which server of tools keeps the run waiting.
fn report_slow_servers(house: &ProjectRuntime, manner: FollowOptions) {
    if manner.silent || manner.as_json {
        return;
    }
    house.mcp_tools.on_slow(|server| {
        let now = time_of_day(SystemClock.now());
        output::stderr_line(&format!("{now}  waiting   for the MCP server `{server}` to answer"));
    });
}

/// Why following came to an end.
enum EndReason {
    Followed(FollowEnd),
    /// Nobody drives it any more.
    DriverGone,
    TimedOut,
    Interrupted,
}

impl EndReason {
    /// How the command ends for whoever leaves a run that goes on.
    const fn detached_exit(&self) -> Option<Exit> {
        match self {
            Self::TimedOut => Some(Exit::TimedOut),
            Self::Interrupted | Self::Followed(FollowEnd::Detached) => Some(Exit::Interrupted),
            Self::Followed(FollowEnd::Ended | FollowEnd::NeedsPerson) | Self::DriverGone => None,
        }
    }
}

impl FollowedRun<'_> {
    /// Follows, drives if need be, and says how it ended.
    pub(crate) async fn run_to_end(
        &self,
        manner: FollowOptions,
        mut interrupts: Interrupts,
    ) -> anyhow::Result<Exit> {
        let mut driving = None;
        if let Some(house) = self.driven_runtime {
            driving = Some(LocalWorker::start(house, self.run).await?);
            report_slow_servers(house, manner);
        }
        let mut follower = Follower::new(self.client, self.run, self.after, manner).await?;
        let mut inherited = None;
        let end = loop {
            let end = tokio::select! {
                biased;
                end = self.wait(&mut follower, &mut driving) => end,
                () = interrupts.next() => Ok(EndReason::Interrupted),
            };
            let (Ok(EndReason::DriverGone), Some(heir)) = (&end, self.takeover) else {
                break end;
            };
            if let Some(house) = heir.take_over(manner.silent)? {
                report_slow_servers(&house, manner);
                driving = Some(LocalWorker::start(&house, self.run).await?);
                inherited = Some(house);
            }
        };
        let drives = inherited.as_ref().or(self.driven_runtime);
        // What is there is handed over before other runs are let go of.
        let is_over = matches!(end, Ok(EndReason::Followed(FollowEnd::Ended)));
        if is_over {
            self.print_final_output(manner.final_output).await?;
        }
        match driving {
            Some(driving) if manner.is_only_client => driving.abort().await?,
            Some(driving) => driving.stop(&mut interrupts).await?,
            None => {}
        }
        let end = end?;
        if !is_over {
            let said = self.print_final_output(manner.final_output).await;
            // A server that is away is no reason to keep whoever leaves.
            match (said, end.detached_exit()) {
                (Err(error), Some(exit)) => {
                    output::print_error(&error);
                    return Ok(exit);
                }
                (said, _) => said?,
            }
        }
        self.exit_code(end, manner, drives).await
    }

    /// What is printed on stdout.
    async fn print_final_output(&self, word: FinalOutput) -> anyhow::Result<()> {
        let view = self.client.show(self.run).await?;
        match (word, &view.output) {
            (FinalOutput::Json, _) => output::stdout_json(&view),
            (FinalOutput::Text, Some(output)) => output::print_result(&output.text),
            (FinalOutput::Text, None) | (FinalOutput::Nothing, _) => Ok(()),
        }
    }

    /// How the command ends, and what is said about it.
    async fn exit_code(
        &self,
        end: EndReason,
        manner: FollowOptions,
        drives: Option<&ProjectRuntime>,
    ) -> anyhow::Result<Exit> {
        let view = self.client.show(self.run).await?;
        let run = self.run;
        let talk = |words: String| {
            if !manner.silent {
                output::stderr_line(&words);
            }
        };
        Ok(match end {
            EndReason::Followed(FollowEnd::Ended) | EndReason::DriverGone => Exit::from_run(&view),
            EndReason::Followed(FollowEnd::NeedsPerson) if manner.is_only_client => {
                let why = self.client.why(run).await?;
                output::stderr_line(&ephemeral::cannot_wait_message(&why.message));
                Exit::from_run(&view)
            }
            EndReason::Followed(FollowEnd::NeedsPerson) => {
                let why = self.client.why(run).await?;
                let words = format!("{run}: {}   {}", why.message, why.command);
                match manner.stop_at_person {
                    true => talk(words),
                    // Nobody asked for it to end here.
                    false => output::stderr_line(&words),
                }
                Exit::from_run(&view)
            }
            // It ended while it was let go of.
            EndReason::TimedOut
            | EndReason::Interrupted
            | EndReason::Followed(FollowEnd::Detached)
                if view.status.is_terminal() =>
            {
                Exit::from_run(&view)
            }
            EndReason::TimedOut
            | EndReason::Followed(FollowEnd::Detached)
            | EndReason::Interrupted
                if manner.is_only_client =>
            {
                talk(ephemeral::STOPPED_MESSAGE.to_owned());
                end.detached_exit().unwrap_or(Exit::Interrupted)
            }
            EndReason::TimedOut => {
                talk(self.detached_message(view.status.as_str(), drives).await?);
                Exit::TimedOut
            }
            EndReason::Followed(FollowEnd::Detached) | EndReason::Interrupted => {
                talk(self.detached_message(view.status.as_str(), drives).await?);
                Exit::Interrupted
            }
        })
    }

    async fn wait(
        &self,
        follower: &mut Follower<'_>,
        driving: &mut Option<LocalWorker>,
    ) -> anyhow::Result<EndReason> {
        let over = async {
            match self.timeout {
                Some(span) => SystemClock.sleep(span).await,
                None => std::future::pending().await,
            }
        };
        // Who drives has nobody to take over from.
        let heir = self.takeover.filter(|_| driving.is_none());
        let orphaned = async {
            match heir {
                Some(heir) => heir.driver_gone().await,
                None => std::future::pending().await,
            }
        };
        let broke = async {
            match driving {
                Some(driving) => driving.wait_for_failure().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            followed = follower.follow() => followed.map(EndReason::Followed),
            error = broke => Err(error),
            left = orphaned => left.map(|()| EndReason::DriverGone),
            () = over => Ok(EndReason::TimedOut),
        }
    }

    /// What becomes of a run that is no longer followed.
    async fn detached_message(
        &self,
        status: &str,
        drives: Option<&ProjectRuntime>,
    ) -> anyhow::Result<String> {
        let run = self.run;
        let Some(house) = drives else {
            return Ok(format!(
                "Detached. The run goes on ({status}).   Follow again: longhaul watch {run}   Stop it: longhaul cancel {run}"
            ));
        };
        let row = house.longhaul.run_row(run).await?;
        let last = row.last_seq;
        Ok(format!("saved at event {last}, nothing runs now: longhaul watch {run} goes on"))
    }
}
