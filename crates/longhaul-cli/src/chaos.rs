//! `longhaul chaos`: kills workers in the middle of their work and checks that nothing is lost or
//! repeated.
//!
//! Invariant: the project's own store is never touched, because everything happens in a copy of the
//! project.

mod kills;
mod project;
mod sandboxes;
mod verify;

use std::path::PathBuf;

use clap::Args;
use longhaul::project::{ProjectRuntime, open_runtime};
use longhaul_core::id::InboxName;
use longhaul_core::time::Clock as _;
use longhaul_engine::Task;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::check::SHELL_TOOL;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::tools::registry::RegisteredTool;
use longhaul_project::trust::items::needs_trust_for_shell;
use longhaul_store::OpenMode;
use serde::Serialize;

use crate::chaos::kills::{KillArgs, KillLog, KillLoop, RecoveryTimes};
use crate::chaos::project::{BUILT_IN_AGENT, PROBE_PREFIX, SANDBOX_AGENT, ScratchProject};
use crate::chaos::verify::{Findings, Invariant, ModelCallCounts, Violation, verify_runs};
use crate::error::CliError;
use crate::exit::Exit;
use crate::format::format_name_counts;
use crate::runtime::InterruptListener;
use crate::store_access::store_open_options;
use crate::task_args::InputFormatArgs;
use crate::{output, runtime};

/// Tools whose effects stay in the temporary folder.
const LOCAL_TOOLS: &[&str] = &["vault_read", "vault_write", "vault_list", "read_output"];

/// Maximum number of violations, and of incomplete runs, that are printed.
const SHOWN_MAX: usize = 10;

const EXAMPLES: &str = "Examples:
  longhaul chaos                                20 runs of 12 turns, 50 kills
  longhaul chaos writer \"Summarise the notes\"    the same test with your own agent
  longhaul chaos --kills 200 --seed 7 --keep    longer, repeatable, keeps the folder
  longhaul chaos --sandbox                      the runs work in sandboxes, which needs bubblewrap

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
    #[command(flatten)]
    format: InputFormatArgs,
    #[command(flatten)]
    kills: KillArgs,
    /// Use a built-in agent that also runs commands in a sandbox of the provider `local`
    #[arg(long, conflicts_with = "agent")]
    sandbox: bool,
    /// Keep the temporary folder with the runs
    #[arg(long)]
    keep: bool,
    /// Do not ask for confirmation, even if a real model is called or tools have effects outside
    /// the temporary folder
    #[arg(long)]
    yes: bool,
}

impl ChaosCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let scratch = match &self.agent {
            Some(agent) => ScratchProject::copy_of_current(agent)?,
            None => ScratchProject::built_in()?,
        };
        // Only the workers drive runs, not this process.
        let options = store_open_options(OpenMode::Outsider);
        let runtime = open_runtime(scratch.config.clone(), options)?;
        let built_in = if self.sandbox { SANDBOX_AGENT } else { BUILT_IN_AGENT };
        let agent = self.agent.as_deref().unwrap_or(built_in);
        self.check_agent(&runtime, agent)?;
        let inboxes = runtime.config.worker_settings().inboxes;
        let task = Task {
            input: self.format.parse_input(&self.input.join(" "))?,
            inbox: inboxes.first().map(InboxName::new).transpose()?,
            submitter: Some("chaos".to_owned()),
            ..Task::new(agent, "")
        };
        let KillArgs { runs, kills, seed, json } = self.kills;
        if !json {
            output::eprint_line(&format!(
                "{agent}: {runs} runs, {kills} kills, seed {seed}, in a temporary folder"
            ));
        }
        let start = SystemClock.monotonic_time();
        let result = runtime::block_on(async {
            let mut interrupts = InterruptListener::listen()?;
            tokio::select! {
                biased;
                result = KillLoop::run(&scratch, &runtime, self.kills, task) => result.map(Some),
                // Dropping the kill loop kills and reaps its worker.
                () = interrupts.next_signal() => Ok(None),
            }
        });
        let Some((log, journals)) = result? else { return Ok(Exit::Interrupted) };
        let mut findings = verify_runs(&journals, &scratch.read_effects()?);
        findings.runs.submitted = log.runs.len();
        let duration_ms = SystemClock.monotonic_time().minus(start).0;
        let has_passed = findings.has_test_passed() && log.sandbox_problems.is_empty();
        let verdict = if has_passed { "passed" } else { "failed" };
        let folder = (self.keep || !has_passed).then(|| scratch.folder.keep());
        let agent = agent.to_owned();
        let scorecard = Scorecard { verdict, agent, seed, log, findings, duration_ms, folder };
        output::show_text(json, &scorecard, Scorecard::as_text)?;
        Ok(if has_passed { Exit::Done } else { Exit::RunFailed })
    }

    /// Fails if there is no such agent, or if it has real effects and the user does not confirm
    /// the test. Neither silence nor a missing terminal counts as a yes.
    fn check_agent(&self, runtime: &ProjectRuntime, name: &str) -> anyhow::Result<()> {
        let loaded = runtime.loaded.find_loaded_agent(name).map_err(|error| {
            CliError::usage_error(error.to_string()).with_hint("all agents", "longhaul agents")
        })?;
        let warnings = effects_outside_test(runtime, &loaded.agent);
        if warnings.is_empty() || self.yes {
            return Ok(());
        }
        let warnings = warnings.join("\n  ");
        output::eprint_line(&format!("`{name}` would have real effects:\n  {warnings}"));
        if output::confirms("Start anyway? [y/N]") {
            return Ok(());
        }
        Err(CliError::usage_error("the chaos run was not started")
            .with_exit_code(Exit::NotAllowed)
            .with_hint("start anyway", format!("longhaul chaos --yes {name} ..."))
            .with_hint("or use the built-in project", "longhaul chaos")
            .into())
    }
}

/// Describes each real model and each tool of the agent that may have effects outside the test.
fn effects_outside_test(runtime: &ProjectRuntime, agent: &Agent) -> Vec<String> {
    let aliases = runtime.config.model_aliases();
    let services = runtime.longhaul.services();
    let mut models = agent.models.clone();
    if models.is_empty() {
        // A key in the environment is enough to choose a real model by default.
        let default = services.models.resolve_model_name(None).map(|model| model.name);
        models.extend(default.ok().or(aliases.default));
    }
    let models = models.iter().map(|name| aliases.aliases.get(name).unwrap_or(name));
    let real_models = models
        .filter(|name| !name.starts_with("scripted/"))
        .map(|name| format!("{name} is a real model; after a kill its calls may be repeated"));
    let is_local = |tool: &str| {
        // A control tool only asks a person, waits or ends the run.
        LOCAL_TOOLS.contains(&tool)
            || tool == SHELL_TOOL && !needs_trust_for_shell(agent)
            || tool.starts_with(PROBE_PREFIX)
            || services.tools.find_tool(tool).is_some_and(RegisteredTool::is_control)
    };
    let external_tools = agent.tools.iter().filter(|tool| !is_local(tool));
    let external_tools =
        external_tools.map(|tool| format!("{tool} may have effects outside the temporary folder"));
    real_models.chain(external_tools).collect()
}

/// The results of a chaos test. In JSON it has the fields of its parts.
#[derive(Debug, Serialize)]
struct Scorecard {
    verdict: &'static str,
    agent: String,
    seed: u64,
    #[serde(flatten)]
    log: KillLog,
    #[serde(flatten)]
    findings: Findings,
    duration_ms: u64,
    /// Path of the temporary folder, if it was kept.
    folder: Option<PathBuf>,
}

impl Scorecard {
    fn as_text(&self) -> String {
        let Self { seed, log, findings, .. } = self;
        let Findings { runs, recoveries, once_calls, pure_repeats, keyed_repeats, .. } = findings;
        let (submitted, completed) = (runs.submitted, runs.completed);
        let (failed, other) = (runs.failed.len(), runs.other.len());
        let KillLog { kills, restarts, sandboxes, sandbox_problems, .. } = log;
        let RecoveryTimes { median, worst, .. } = log.recovery_ms;
        let ModelCallCounts { total, repeated } = findings.model_calls;
        let settled: Vec<_> = findings.in_doubt.iter().map(|call| call.settled_by.into()).collect();
        let (in_doubt, settled) = (settled.len(), format_name_counts(&settled));
        let mut text = format!(
            "  runs                                         {submitted} submitted, {completed} completed, {failed} failed, {other} cancelled or not ended
  kills with SIGKILL                           {kills}
  worker restarts                              {restarts}
  runs recovered from a dead worker            {recoveries}
  recovery, start to first event               median {median} ms, worst {worst} ms
  model calls                                  {total} made, {repeated} repeated
  allowed repeats                              {pure_repeats} pure calls, {keyed_repeats} keyed calls with the same key
  once calls                                   {once_calls}
  in doubt, and reported as such               {in_doubt}  {settled}
  sandboxes                                    {sandboxes} used, {} problems
",
            sandbox_problems.len()
        );
        for (invariant, label) in Invariant::ALL {
            let count = findings.violation_counts.get(&invariant).copied().unwrap_or_default();
            let result = if count == 0 { "ok" } else { "BROKEN" };
            text.push_str(&format!("  {label:<44} {count}  {result}\n"));
        }
        text.push_str(&match self.verdict == "passed" {
            true => format!("\nAll guarantees held (seed {seed}, {} s).", self.duration_ms / 1_000),
            false => format!("\nA guarantee was violated (seed {seed})."),
        });
        if log.stalled {
            text.push_str(" The last worker wrote nothing for three minutes with work left.");
        }
        for Violation { run, call, message, .. } in findings.violations.iter().take(SHOWN_MAX) {
            let call = call.map_or(String::new(), |call| format!(" {call}"));
            text.push_str(&format!("\n  {run}{call}: {message}"));
        }
        for problem in sandbox_problems.iter().take(SHOWN_MAX) {
            text.push_str(&format!("\n  {problem}"));
        }
        for run in runs.failed.iter().chain(&runs.other).take(SHOWN_MAX) {
            text.push_str(&format!("\n  {run} did not complete"));
        }
        if let Some(folder) = &self.folder {
            let folder = folder.display();
            text.push_str(&format!("\nInspect a run:  cd {folder} && longhaul show RUN --events"));
        }
        text
    }
}
