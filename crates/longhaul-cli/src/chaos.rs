//! `longhaul chaos`: kills workers in the middle of their work and checks that nothing is lost or
//! repeated.
//!
//! Invariant: the project's own store is never touched, because everything happens in a copy of the
//! project.

mod effects;
mod kills;
mod project;
mod scorecard;
mod verify;

use clap::Args;
use longhaul::project::ProjectRuntime;
use longhaul_core::id::InboxName;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock as _;
use longhaul_engine::Task;
use longhaul_engine::agent::Agent;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::tools::registry::RegisteredTool;
use tokio::signal::unix::{SignalKind, signal};

use crate::chaos::effects::{PROBE_PREFIX, read_effects};
use crate::chaos::kills::{ChaosPlan, KillLoop, read_journals};
use crate::chaos::project::{BUILT_IN_AGENT, ScratchProject};
use crate::chaos::scorecard::Scorecard;
use crate::chaos::verify::verify_runs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::{output, runtime};

/// Tools whose effects stay in the temporary folder.
const LOCAL_TOOLS: &[&str] = &["vault_read", "vault_write", "vault_list", "read_output"];

const EXAMPLES: &str = "Examples:
  longhaul chaos                                20 runs of 12 turns, 50 kills
  longhaul chaos writer \"Summarise the notes\"    the same test with your own agent
  longhaul chaos --kills 200 --seed 7 --keep    longer, repeatable, keeps the folder

Agents, skills, scripts and longhaul.toml are copied to a temporary folder with a store of its own;
your own runs are never touched. In-doubt calls are settled with the records in the probe file,
approvals are given. Everything that needs trust must be trusted in your project (`longhaul trust`)
or by LONGHAUL_TRUST=1. Exit codes: 0 all guarantees held, 1 one was violated, 2 usage,
6 your agent needs something untrusted, or it uses a real model or tools with outside effects and was not confirmed.";

/// Arguments of `longhaul chaos`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ChaosCommand {
    /// Agent to run; by default a built-in agent in a built-in project
    agent: Option<String>,
    /// Task of every run: text, or one JSON value
    input: Vec<String>,
    /// Number of runs to submit
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    runs: u64,
    /// Number of times that a worker is killed
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    kills: u64,
    /// Seed of the random kill times; by default a new seed
    #[arg(long)]
    seed: Option<u64>,
    /// Keep the temporary folder with the runs
    #[arg(long)]
    keep: bool,
    /// Do not ask for confirmation, even if a real model is called or tools have effects outside
    /// the temporary folder
    #[arg(long)]
    yes: bool,
    /// Print the scorecard as one JSON object
    #[arg(long)]
    json: bool,
}

impl ChaosCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let scratch = match &self.agent {
            Some(agent) => ScratchProject::copy_of_current(agent)?,
            None => ScratchProject::built_in()?,
        };
        let Some(mut scorecard) = self.kill_and_verify(&scratch)? else {
            return Ok(Exit::Interrupted);
        };
        let has_passed = scorecard.findings.has_test_passed();
        scorecard.folder = (self.keep || !has_passed).then(|| scratch.keep_folder());
        output::show(self.json, &scorecard, |scorecard| output::print_line(&scorecard.as_text()))?;
        Ok(if has_passed { Exit::Done } else { Exit::RunFailed })
    }

    /// Runs the kill loop and verifies the journals. `None` means that the user stopped the loop.
    fn kill_and_verify(&self, scratch: &ScratchProject) -> anyhow::Result<Option<Scorecard>> {
        let runtime = scratch.open_runtime()?;
        let plan = self.plan(&runtime)?;
        self.check_agent(&runtime, &plan)?;
        runtime::block_on(async {
            let start = SystemClock.monotonic_nanos();
            let mut sigterm = signal(SignalKind::terminate())?;
            let log = tokio::select! {
                biased;
                log = KillLoop::new(scratch, &runtime, &plan).run() => log?,
                // Dropping the kill loop kills and reaps its worker.
                _ = tokio::signal::ctrl_c() => return Ok(None),
                _ = sigterm.recv() => return Ok(None),
            };
            let duration_ms = (SystemClock.monotonic_nanos() - start) / 1_000_000;
            let effects = read_effects(scratch.effects_file().as_deref())?;
            let mut findings = verify_runs(&read_journals(&runtime, &log).await?, &effects);
            findings.runs.submitted = log.runs.len();
            Ok(Some(Scorecard {
                verdict: if findings.has_test_passed() { "passed" } else { "failed" },
                agent: plan.task.agent.unwrap_or_default(),
                seed: plan.seed,
                log,
                findings,
                duration_ms,
                folder: None,
            }))
        })
    }

    fn plan(&self, runtime: &ProjectRuntime) -> anyhow::Result<ChaosPlan> {
        let inboxes = runtime.config.worker_settings().inboxes;
        let text = self.input.join(" ");
        // A JSON object or list is passed on as JSON.
        let json = RawJson::parse(text.trim()).ok();
        let json = json.filter(|_| text.trim_start().starts_with(['{', '[']));
        Ok(ChaosPlan {
            task: Task {
                input: json.unwrap_or_else(|| RawJson::from_serialize(&text)),
                inbox: inboxes.first().map(InboxName::new).transpose()?,
                submitter: Some("chaos".to_owned()),
                ..Task::new(self.agent.as_deref().unwrap_or(BUILT_IN_AGENT), "")
            },
            runs: self.runs,
            kills: self.kills,
            seed: self.seed.unwrap_or_else(|| SystemClock.monotonic_nanos() % 1_000_000),
            quiet: self.json,
        })
    }

    /// Fails if there is no such agent, or if it has real effects and the user does not confirm
    /// the test. Neither silence nor a missing terminal counts as a yes.
    fn check_agent(&self, runtime: &ProjectRuntime, plan: &ChaosPlan) -> anyhow::Result<()> {
        let name = plan.task.agent.as_deref().unwrap_or_default();
        let loaded = runtime.loaded.find_loaded_agent(name).map_err(|error| {
            CliError::usage_error(error.to_string()).with_hint("all agents", "longhaul agents")
        })?;
        let warnings = effects_outside_test(runtime, &loaded.agent);
        if !warnings.is_empty() && !self.yes {
            output::eprint_line(&format!("`{name}` would have real effects:"));
            for warning in &warnings {
                output::eprint_line(&format!("  {warning}"));
            }
            if !output::confirms("Start anyway? [y/N]") {
                return Err(CliError::usage_error("the chaos run was not started")
                    .with_exit_code(Exit::NotAllowed)
                    .with_hint("start anyway", format!("longhaul chaos --yes {name} ..."))
                    .with_hint("or use the built-in project", "longhaul chaos")
                    .into());
            }
        }
        if !self.json {
            let ChaosPlan { runs, kills, seed, .. } = plan;
            output::eprint_line(&format!(
                "{name}: {runs} runs, {kills} kills, seed {seed}, in a temporary folder"
            ));
        }
        Ok(())
    }
}

/// Describes each real model and each tool of the agent that may have effects outside the test.
fn effects_outside_test(runtime: &ProjectRuntime, agent: &Agent) -> Vec<String> {
    let models = runtime.config.model_aliases();
    let services = runtime.longhaul.services();
    let model_names: Vec<String> = match agent.models.as_slice() {
        // A key in the environment is enough to choose a real model by default.
        [] => match services.models.resolve_model_name(None) {
            Ok(model) => vec![model.name],
            Err(_) => models.default.iter().cloned().collect(),
        },
        names => names.to_vec(),
    };
    let real_models = model_names
        .iter()
        .map(|name| models.aliases.get(name).unwrap_or(name))
        .filter(|name| !name.starts_with("scripted/"))
        .map(|name| format!("{name} is a real model; after a kill its calls may be repeated"));
    let is_local = |tool: &str| {
        // A control tool only asks a person, waits or ends the run.
        LOCAL_TOOLS.contains(&tool)
            || tool.starts_with(PROBE_PREFIX)
            || services.tools.find_tool(tool).is_some_and(RegisteredTool::is_control)
    };
    let tools = agent.tools.iter().filter(|tool| !is_local(tool));
    let external_tools =
        tools.map(|tool| format!("{tool} may have effects outside the temporary folder"));
    real_models.chain(external_tools).collect()
}
