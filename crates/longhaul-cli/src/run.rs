//! `longhaul run`: submits a task and follows its run to the end; drives (executes) the run if no
//! worker is running.
//!
//! Invariant: the exit code is 0 only if the run completed, or has a result and stays open for
//! messages.

use clap::Args;
use longhaul::project::{ProjectRuntime, open_runtime_in_memory};
use longhaul_api::task::Task;
use longhaul_core::id::Seq;
use longhaul_core::time::Millis;
use longhaul_engine::agent::Agent;
use longhaul_store::OpenMode;

use crate::client::Client;
use crate::client::connect::{connect_or_create_store, find_configured_or_local_server};
use crate::error::fail;
use crate::exit::Exit;
use crate::follow::{FollowOutput, RunFollowOptions};
use crate::followed_run::FollowedRun;
use crate::format::parse_duration;
use crate::record_replay::{CassetteArgs, RecordingSession};
use crate::runtime::InterruptListener;
use crate::store_access::{open_store_as_driver_or_observer, store_open_options};
use crate::submit::prepare_task;
use crate::task_args::TaskArgs;
use crate::trust::confirm;
use crate::{environment, output, runtime};

const EXAMPLES: &str = "Examples:
  longhaul run writer \"Summarise README.md in five lines\"
  longhaul run writer - < task.txt              the task from stdin
  longhaul run --chain full-pipeline \"...\"       plan, implement, review, fix
  longhaul run --chain full-pipeline --step review \"...\"   one step alone
  longhaul run --chain full-pipeline --repo https://github.com/o/r \"...\"   in a sandbox, to a pull request
  longhaul run writer \"...\" --record=first      record model calls in a cassette
  longhaul run writer \"...\" --replay first      replay it without calling a model
  longhaul run writer \"...\" --ephemeral         keep nothing: no store, no journal, no lock
  longhaul run writer \"...\" --no-input --json   for scripts: one JSON object

The command drives its own run, with the runs that it starts, and no others: `longhaul worker`,
`dev` and `serve` drive all. Without a terminal it exits with 3 when a person is needed or the
provider is unavailable, and with 4 at a budget or a spend cap; the run keeps waiting.

Exit codes: 0 completed, 1 failed, 2 usage, 3 waits for a person or the provider,
4 stopped by a limit, 5 busy or its server is gone, 6 not allowed, 7 cancelled,
124 --timeout passed, 130 detached";

/// Arguments of `longhaul run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunTaskCommand {
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    follow: RunFollowArgs,
    /// If nobody can be asked at a terminal, wait until a person answers elsewhere, the provider is
    /// available again or the spend cap has room, instead of exiting with 3 or 4
    #[arg(long, conflicts_with_all = ["no_input", "ephemeral"])]
    wait: bool,
    #[command(flatten)]
    record_replay: CassetteArgs,
    /// Store nothing: no store, no journal, no lock. Files that tools write are kept
    #[arg(long, conflicts_with_all = ["record", "thread", "inbox", "idempotency_key"])]
    ephemeral: bool,
}

/// Command-line options for following a run.
#[derive(Debug, Args)]
pub(crate) struct RunFollowArgs {
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
    /// Print calls and their results whole
    #[arg(long, short, conflicts_with_all = ["quiet", "json"])]
    verbose: bool,
}

impl RunFollowArgs {
    pub(crate) fn follow_options(&self) -> RunFollowOptions {
        RunFollowOptions {
            silent: self.quiet || self.json,
            stop_at_person: self.no_input,
            is_only_client: false,
            verbose: self.verbose,
            output: match self.json {
                true => FollowOutput::Json,
                false => FollowOutput::Text,
            },
        }
    }

    /// Returns the options for following a run. With `--json`, each event is printed as a line of
    /// JSON.
    pub(crate) fn follow_options_with_json_events(&self) -> RunFollowOptions {
        let mut options = self.follow_options();
        if self.json {
            options.output = FollowOutput::Events;
        }
        options
    }
}

impl RunTaskCommand {
    /// Returns the options for following the run. If nobody can be asked, following stops when a
    /// person is needed, unless `--wait` is set.
    fn follow_options(&self) -> RunFollowOptions {
        let mut options = self.follow.follow_options();
        let can_ask = !options.silent && output::is_interactive();
        options.stop_at_person |= !can_ask && !self.wait;
        options.is_only_client = self.ephemeral;
        options
    }

    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let CassetteArgs { record, replay, .. } = &self.record_replay;
        let uses_cassette = record.is_some() || replay.is_some();
        if self.task.chain.is_some() && (self.ephemeral || uses_cassette) {
            let message = "a chain can't be recorded, replayed or run with --ephemeral";
            return fail(message, "run it in the store", "longhaul run --chain NAME ...");
        }
        if self.ephemeral {
            return self.run_ephemeral();
        }
        // Errors are reported before anything is created on disk.
        let server = find_configured_or_local_server()?;
        let process_env = environment::current_process_env()?;
        let process_env = match server {
            Some(_) => environment::add_dotenv_variables_if_valid(process_env),
            None => environment::add_dotenv_variables(process_env)?,
        };
        if record.is_some() && server.is_some() {
            let message =
                "--record works only if this process drives the run, but another one does";
            let hint = "longhaul export RUN --cassette";
            return fail(message, "export it when it has ended", hint);
        }
        let mut task_args = self.task.clone();
        if let Some(model) = self.record_replay.replay_model_from_args(&process_env)? {
            task_args.model = Some(model);
        }
        let mut prepared = prepare_task(&task_args, server.as_ref(), &process_env)?;
        let project = prepared.project.take().filter(|_| server.is_none());
        let task = prepared.print_notes_and_take_task(self.follow.quiet);
        let options = self.follow_options();
        if let Some((config, agents)) = &project {
            let unattended = options.silent || options.stop_at_person;
            // A chain may need what any of its agents needs. A refusal is not an error here: the
            // run itself waits for trust and says so.
            let agent = Some(self.task.agent_name()).filter(|name| !name.is_empty());
            _ = confirm::ask_for_trust_before_run((config, agents), agent, unattended)?;
        }
        let (mut recording, mut opened_store) = (None, None);
        if record.is_some() {
            recording = Some(self.record_replay.open_store_for_recording(&process_env)?);
        } else if let Some((config, agents)) = project {
            opened_store = Some(open_store_as_driver_or_observer(config, agents, options.silent)?);
        }
        let recording_runtime = recording.as_ref().map(|recording| &recording.runtime);
        let local_runtime = recording_runtime.or(opened_store.as_ref());
        let client: Client = match local_runtime {
            Some(runtime) => Client::for_store(runtime)?,
            None => connect_or_create_store(server)?,
        };
        let run = self.submit_and_follow(task, &client, local_runtime, recording.as_ref());
        runtime::build_multi_thread_tokio()?.block_on(run)
    }

    async fn submit_and_follow(
        &self,
        task: Task,
        client: &Client,
        runtime: Option<&ProjectRuntime>,
        recording: Option<&RecordingSession>,
    ) -> anyhow::Result<Exit> {
        let options = self.follow_options();
        let interrupts = InterruptListener::listen()?;
        let run = client.submit_task(task).await?;
        if !options.silent {
            let note = if self.ephemeral { "  (ephemeral, nothing is stored)" } else { "" };
            let name = self.task.chain.as_deref().unwrap_or_else(|| self.task.agent_name());
            output::eprint_line(&format!("{run}  {name}{note}"));
        }
        if let Some(recording) = recording {
            recording.begin_cassette(run, self.task.agent_name()).await?;
        }
        let followed_run = FollowedRun {
            client,
            run,
            after: Seq::START,
            runtime,
            // Another driver would not record its model calls, and can't reach an ephemeral run.
            keeps_lock: recording.is_some() || self.ephemeral,
            timeout: self.follow.timeout,
        };
        let exit = followed_run.follow_to_end(options, interrupts).await?;
        if let Some(recording) = recording {
            recording.finish_cassette(options.silent)?;
        }
        Ok(exit)
    }

    /// Runs the task on an in-memory store, which is lost when this command ends.
    fn run_ephemeral(&self) -> anyhow::Result<Exit> {
        let process_env = environment::add_dotenv_variables(environment::current_process_env()?)?;
        let mut args = self.task.clone();
        if let Some(model) = self.record_replay.replay_model_from_args(&process_env)? {
            args.model = Some(model);
        }
        let task = prepare_task(&args, None, &process_env)?;
        let task = task.print_notes_and_take_task(self.follow.quiet);
        let config = environment::load_config(&process_env)?;
        let runtime = open_runtime_in_memory(config, store_open_options(OpenMode::Driver))?;
        if let Ok(agent) = runtime.longhaul.get_agent(args.agent_name()) {
            // A key of an effect that happens at most once over all runs needs the store.
            longhaul::ephemeral::check_no_effect_keys(&agent).or_else(|error| {
                let command = format!("longhaul run {} ...", agent.name);
                fail(error.to_string(), "run the agent in the store", command)
            })?;
            // Nobody could send a follow-up message.
            runtime.longhaul.register(Agent { keep_open: None, ..(*agent).clone() });
        }
        let client = Client::for_store(&runtime)?;
        let run = self.submit_and_follow(task, &client, Some(&runtime), None);
        runtime::build_multi_thread_tokio()?.block_on(run)
    }
}
