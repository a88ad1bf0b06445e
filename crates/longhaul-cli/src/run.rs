//! `longhaul run`: submits a task and follows its run to the end; drives the run if no worker is
//! running.
//!
//! Invariant: the exit code is 0 only if the run completed.

use clap::Args;
use longhaul::agents::loaded_agents::LoadedAgents;
use longhaul::assemble::ProjectRuntime;
use longhaul::config::process_env::ProcessEnv;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;

use crate::client::RunClient;
use crate::client::connect::{connect_or_create_store, find_named_or_local_server};
use crate::ephemeral::{self, EphemeralArgs};
use crate::event_printer::format_time_of_day;
use crate::exit::Exit;
use crate::follow::{FinalOutputFormat, FollowOptions, FollowOutcome, RunFollower};
use crate::format::parse_duration;
use crate::interrupts::InterruptListener;
use crate::local_worker::LocalWorker;
use crate::record_replay::{CassetteArgs, record_without_driving_error};
use crate::store_access::open_as_driver_or_observer;
use crate::submit::prepare_task;
use crate::takeover::DriverTakeover;
use crate::task_args::TaskArgs;
use crate::trust::confirm;
use crate::{environment, output, runtime};

const EXAMPLES: &str = "Examples:
  longhaul run writer \"Summarise README.md in five lines\"
  longhaul run writer - < task.txt              the task from stdin
  longhaul run writer \"...\" --record=first      record model calls to .longhaul/cassettes/first.jsonl
  longhaul run writer \"...\" --replay first      replay it without calling a model
  longhaul run writer \"...\" --ephemeral         keep nothing: no store, no journal, no lock
  longhaul run writer \"...\" --no-input --json   for scripts: one JSON object, exit 3 if a person is needed

Exit codes: 0 completed, 1 failed, 2 usage, 3 waits for a person, 4 stopped by a limit,
5 busy, 6 not allowed, 7 cancelled, 124 --timeout passed, 130 detached";

/// Arguments of `longhaul run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunTaskCommand {
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    follow: FollowArgs,
    #[command(flatten)]
    record_replay: CassetteArgs,
    #[command(flatten)]
    ephemeral: EphemeralArgs,
}

/// Command-line options for following a run.
#[derive(Debug, Args)]
pub(crate) struct FollowArgs {
    /// Print JSON: `run` prints the run as one object at the end, `watch` prints one line per event
    #[arg(long)]
    json: bool,
    /// Never prompt at the terminal: exit with 3 if the run waits for a person
    #[arg(long)]
    no_input: bool,
    /// Stop following the run after this time, such as 10m; the run continues. A running call is
    /// awaited, for up to 30 s more
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) timeout: Option<Millis>,
    /// Print no progress, only the result
    #[arg(long, short)]
    quiet: bool,
}

impl FollowArgs {
    pub(crate) fn follow_options(&self) -> FollowOptions {
        FollowOptions {
            silent: self.quiet || self.json,
            as_json: false,
            stop_at_person: self.no_input,
            is_only_client: false,
            final_output: match self.json {
                true => FinalOutputFormat::Json,
                false => FinalOutputFormat::Text,
            },
        }
    }

    /// Returns the options for following a run. With `--json`, each event is printed as a line of
    /// JSON.
    pub(crate) fn event_stream_options(&self) -> FollowOptions {
        let options = self.follow_options();
        match self.json {
            true => {
                FollowOptions { as_json: true, final_output: FinalOutputFormat::Nothing, ..options }
            }
            false => options,
        }
    }
}

impl RunTaskCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let timeout = self.follow.timeout;
        if self.ephemeral.is_enabled() {
            return self.run_ephemeral(timeout);
        }
        // Errors are reported before anything is created on disk.
        let server = find_named_or_local_server()?;
        let process_env = environment::current_process_env()?;
        let process_env = match server {
            Some(_) => environment::add_dotenv_if_valid(process_env),
            None => environment::add_dotenv_variables(process_env)?,
        };
        if self.record_replay.is_recording() && server.is_some() {
            return Err(record_without_driving_error().into());
        }
        let mut task_args = self.task.clone();
        if let Some(model) = self.record_replay.replay_model_from_args(&process_env)? {
            task_args.set_model(model);
        }
        let mut prepared = prepare_task(&task_args, server.as_ref(), &process_env)?;
        let agents = prepared.agents.take();
        let task = prepared.into_task_printing_notes(self.follow.quiet);
        let options = self.follow.follow_options();
        if let (None, Some(agents)) = (&server, &agents) {
            let unattended = options.silent || options.stop_at_person;
            self.ask_for_trust(agents, &process_env, unattended)?;
        }
        let listening = match self.record_replay.is_recording() {
            true => Some(self.record_replay.open_store_for_recording(&process_env)?),
            false => None,
        };
        let opened = match (&server, &listening) {
            (Some(_), _) | (None, Some(_)) => None,
            (None, None) => Some(open_as_driver_or_observer(&process_env)?),
        };
        let local = match &listening {
            Some(listening) => Some((&listening.runtime, true)),
            None => opened.as_ref().map(|opened| opened.runtime_with_driver_flag(options.silent)),
        };
        let client: RunClient = match (server, local) {
            (_, Some((runtime, _))) => RunClient::for_local_store(&runtime.longhaul),
            (server, None) => connect_or_create_store(server)?,
        };
        runtime::build_multi_thread()?.block_on(async {
            let interrupts = InterruptListener::listen()?;
            let run = client.submit_task(task).await?;
            if !options.silent {
                output::eprint_line(&format!("{run}  {}", self.task.agent_name()));
            }
            if let Some(listening) = &listening {
                listening.begin_cassette(run, self.task.agent_name()).await?;
            }
            let followed = FollowedRun {
                client: &client,
                run,
                after: Seq::START,
                driven_runtime: local.and_then(|(runtime, drives)| drives.then_some(runtime)),
                takeover: DriverTakeover::new(local, &process_env),
                timeout,
            };
            let exit = followed.follow_to_end(options, interrupts).await?;
            if let Some(listening) = &listening {
                listening.finish_cassette(options.silent)?;
            }
            Ok(exit)
        })
    }

    /// Asks on a terminal whether the project's code is trusted. A refusal is not an error here: the
    /// run itself waits for trust and says so.
    fn ask_for_trust(
        &self,
        agents: &LoadedAgents,
        process_env: &ProcessEnv,
        unattended: bool,
    ) -> anyhow::Result<()> {
        let config = environment::load_config_quietly(process_env)?;
        let agent = Some(self.task.agent_name());
        _ = confirm::ask_for_trust_before_run((&config, agents), agent, unattended)?;
        Ok(())
    }
}

impl RunTaskCommand {
    /// Runs the task on an in-memory store, which is lost when this command ends.
    fn run_ephemeral(&self, timeout: Option<Millis>) -> anyhow::Result<Exit> {
        let options = FollowOptions { is_only_client: true, ..self.follow.follow_options() };
        let quiet = self.follow.quiet;
        let opened = self.ephemeral.prepare_run(&self.task, &self.record_replay, quiet);
        let (runtime, task) = opened?;
        let client = RunClient::for_local_store(&runtime.longhaul);
        runtime::build_multi_thread()?.block_on(async {
            let interrupts = InterruptListener::listen()?;
            let run = client.submit_task(task).await?;
            if !options.silent {
                let agent = self.task.agent_name();
                output::eprint_line(&format!("{run}  {agent}  (ephemeral, nothing is stored)"));
            }
            let followed = FollowedRun {
                client: &client,
                run,
                after: Seq::START,
                driven_runtime: Some(&runtime),
                takeover: None,
                timeout,
            };
            followed.follow_to_end(options, interrupts).await
        })
    }
}

/// A run that this command follows, and how the run is driven.
pub(crate) struct FollowedRun<'a> {
    pub(crate) client: &'a RunClient,
    pub(crate) run: RunId,
    pub(crate) after: Seq,
    /// The project, if this process drives its runs. `None` means that another process drives them.
    pub(crate) driven_runtime: Option<&'a ProjectRuntime>,
    /// Lets this command drive the run when its driver is gone. `None` if this command drives
    /// already or must not drive.
    pub(crate) takeover: Option<DriverTakeover<'a>>,
    pub(crate) timeout: Option<Millis>,
}

/// Prints the name of an MCP server whenever the run waits long for that server.
fn print_slow_server_names(runtime: &ProjectRuntime, options: FollowOptions) {
    if options.silent || options.as_json {
        return;
    }
    runtime.mcp_tools.set_slow_server_callback(|server| {
        let now = format_time_of_day(SystemClock.now());
        output::eprint_line(&format!("{now}  waiting   for the MCP server `{server}` to answer"));
    });
}

/// Why this command stopped following the run.
enum FollowEndReason {
    Followed(FollowOutcome),
    /// No process drives the run any more.
    DriverGone,
    TimedOut,
    Interrupted,
}

impl FollowEndReason {
    /// Returns the exit code if this command stopped following a run that continues.
    const fn detached_exit(&self) -> Option<Exit> {
        match self {
            Self::TimedOut => Some(Exit::TimedOut),
            Self::Interrupted | Self::Followed(FollowOutcome::Detached) => Some(Exit::Interrupted),
            Self::Followed(FollowOutcome::Ended | FollowOutcome::NeedsPerson)
            | Self::DriverGone => None,
        }
    }
}

impl FollowedRun<'_> {
    /// Follows the run, drives it if necessary, and returns the exit code.
    pub(crate) async fn follow_to_end(
        &self,
        options: FollowOptions,
        mut interrupts: InterruptListener,
    ) -> anyhow::Result<Exit> {
        let mut worker = None;
        if let Some(runtime) = self.driven_runtime {
            worker = Some(LocalWorker::start(runtime, self.run).await?);
            print_slow_server_names(runtime, options);
        }
        let mut follower = RunFollower::new(self.client, self.run, self.after, options).await?;
        let mut inherited = None;
        let end = loop {
            let end = tokio::select! {
                biased;
                end = self.wait_for_follow_end(&mut follower, &mut worker) => end,
                () = interrupts.next_signal() => Ok(FollowEndReason::Interrupted),
            };
            let (Ok(FollowEndReason::DriverGone), Some(takeover)) = (&end, self.takeover) else {
                break end;
            };
            if let Some(runtime) = takeover.try_take_over_driving(options.silent)? {
                print_slow_server_names(&runtime, options);
                worker = Some(LocalWorker::start(&runtime, self.run).await?);
                inherited = Some(runtime);
            }
        };
        let drives = inherited.as_ref().or(self.driven_runtime);
        // The result is printed before the worker stops, because stopping may wait for other runs.
        let is_over = matches!(end, Ok(FollowEndReason::Followed(FollowOutcome::Ended)));
        if is_over {
            self.print_final_output(options.final_output).await?;
        }
        match worker {
            Some(worker) if options.is_only_client => worker.abort().await?,
            Some(worker) => worker.stop(&mut interrupts).await?,
            None => {}
        }
        let end = end?;
        if !is_over {
            let printed = self.print_final_output(options.final_output).await;
            // When detaching, an unreachable server is only reported.
            match (printed, end.detached_exit()) {
                (Err(error), Some(exit)) => {
                    output::print_error(&error);
                    return Ok(exit);
                }
                (printed, _) => printed?,
            }
        }
        self.report_follow_end(end, options, drives).await
    }

    /// Prints the run's final output to stdout, in the given format.
    async fn print_final_output(&self, format: FinalOutputFormat) -> anyhow::Result<()> {
        let view = self.client.get_run(self.run).await?;
        match (format, &view.output) {
            (FinalOutputFormat::Json, _) => output::print_json(&view),
            (FinalOutputFormat::Text, Some(output)) => output::print_untrusted_text(&output.text),
            (FinalOutputFormat::Text, None) | (FinalOutputFormat::Nothing, _) => Ok(()),
        }
    }

    /// Prints why following the run ended, and returns the exit code.
    async fn report_follow_end(
        &self,
        end: FollowEndReason,
        options: FollowOptions,
        driven_runtime: Option<&ProjectRuntime>,
    ) -> anyhow::Result<Exit> {
        let view = self.client.get_run(self.run).await?;
        let run = self.run;
        let notify = |message: String| {
            if !options.silent {
                output::eprint_line(&message);
            }
        };
        Ok(match end {
            FollowEndReason::Followed(FollowOutcome::Ended) | FollowEndReason::DriverGone => {
                Exit::from_run(&view)
            }
            FollowEndReason::Followed(FollowOutcome::NeedsPerson) if options.is_only_client => {
                let why = self.client.explain_run(run).await?;
                output::eprint_line(&ephemeral::cannot_wait_message(&why.message));
                Exit::from_run(&view)
            }
            FollowEndReason::Followed(FollowOutcome::NeedsPerson) => {
                let why = self.client.explain_run(run).await?;
                let message = format!("{run}: {}   {}", why.message, why.command);
                match options.stop_at_person {
                    true => notify(message),
                    // Printed even if silent: the user did not ask to stop here.
                    false => output::eprint_line(&message),
                }
                Exit::from_run(&view)
            }
            // The run ended while the worker stopped.
            FollowEndReason::TimedOut
            | FollowEndReason::Interrupted
            | FollowEndReason::Followed(FollowOutcome::Detached)
                if view.status.is_terminal() =>
            {
                Exit::from_run(&view)
            }
            FollowEndReason::TimedOut
            | FollowEndReason::Followed(FollowOutcome::Detached)
            | FollowEndReason::Interrupted
                if options.is_only_client =>
            {
                notify(ephemeral::STOPPED_MESSAGE.to_owned());
                end.detached_exit().unwrap_or(Exit::Interrupted)
            }
            FollowEndReason::TimedOut => {
                notify(self.detached_message(view.status.as_str(), driven_runtime).await?);
                Exit::TimedOut
            }
            FollowEndReason::Followed(FollowOutcome::Detached) | FollowEndReason::Interrupted => {
                notify(self.detached_message(view.status.as_str(), driven_runtime).await?);
                Exit::Interrupted
            }
        })
    }

    async fn wait_for_follow_end(
        &self,
        follower: &mut RunFollower<'_>,
        worker: &mut Option<LocalWorker>,
    ) -> anyhow::Result<FollowEndReason> {
        let over = async {
            match self.timeout {
                Some(timeout) => SystemClock.sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        // A driver has no other driver to take over from.
        let takeover = self.takeover.filter(|_| worker.is_none());
        let orphaned = async {
            match takeover {
                Some(takeover) => takeover.wait_until_no_driver().await,
                None => std::future::pending().await,
            }
        };
        let worker_error = async {
            match worker {
                Some(worker) => worker.wait_for_failure().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            followed = follower.follow() => followed.map(FollowEndReason::Followed),
            error = worker_error => Err(error),
            left = orphaned => left.map(|()| FollowEndReason::DriverGone),
            () = over => Ok(FollowEndReason::TimedOut),
        }
    }

    /// Describes what happens to a run after this command has stopped following it.
    async fn detached_message(
        &self,
        status: &str,
        driven_runtime: Option<&ProjectRuntime>,
    ) -> anyhow::Result<String> {
        let run = self.run;
        let Some(runtime) = driven_runtime else {
            return Ok(format!(
                "Detached. The run continues ({status}).   Follow again: longhaul watch {run}   Stop it: longhaul cancel {run}"
            ));
        };
        let row = runtime.longhaul.run_row(run).await?;
        let last = row.last_seq;
        Ok(format!("The run is saved at event {last}. Continue it: longhaul watch {run}"))
    }
}
