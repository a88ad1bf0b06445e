//! `longhaul doctor`: checks what the runs of this folder need on this machine: the store, the
//! server, the agent files, models, MCP servers, sandboxes, the clock and the disk.
//!
//! The command changes no run and contacts no model provider. Trusted MCP servers are started.

mod external;
mod finding;
mod machine;

use std::collections::BTreeMap;

use longhaul_core::policy::effect_facts::ANY_HOST;
use longhaul_core::port::sandbox::{Isolation, Sandboxes};
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::config::SandboxConfig;
use longhaul_project::agents::loaded_agents::{AgentSource, LoadedAgents};
use longhaul_project::assemble::sandboxes::sandbox_registry;
use longhaul_project::assemble::sqlite_store_path;
use longhaul_project::config::load::{self, SettingOverride};
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::settings::Config;
use serde_json::json;

use crate::doctor::finding::{Finding, FindingStatus, agent_names};
use crate::exit::Exit;
use crate::format::count_with_noun;
use crate::style::{Styler, TextTone};
use crate::table::JsonArgs;
use crate::{environment, output, runtime, sanitize};

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul doctor            all checks, each with its fix; exit code 1 for a problem
  longhaul doctor --json     as one JSON object
  longhaul agents check      every problem of every agent file
  longhaul models check      contacts the model providers
  longhaul db check          reads the whole store";

/// Provider whose level is always shown.
const LOCAL_PROVIDER: &str = "local";

/// Arguments of `longhaul doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorCommand {
    #[command(flatten)]
    output: JsonArgs,
}

impl DoctorCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        // The variables of `.env` count, because the commands that execute runs use them too.
        let process_env =
            environment::add_dotenv_variables_if_valid(environment::current_process_env()?);
        let config = environment::load_config(&process_env)?;
        let loaded = environment::load_agents(&config)?;
        let mut findings = vec![check_store(&config), machine::check_server()];
        findings.extend([check_agents(&loaded), external::check_models(&config, &loaded)]);
        findings.extend(external::check_mcp_servers(&config, &loaded)?);
        findings.extend(check_sandboxes(&process_env, &loaded)?);
        findings.extend([machine::check_clock(), machine::check_disk(&config)]);
        let is_healthy = !findings.iter().any(|one| one.status == FindingStatus::Problem);
        let data = json!({ "ok": is_healthy, "checks": findings });
        output::show(self.output.json, &data, |_| findings.iter().try_for_each(print_finding))?;
        Ok(if is_healthy { Exit::Done } else { Exit::RunFailed })
    }
}

fn print_finding(finding: &Finding) -> anyhow::Result<()> {
    let (sign, tone) = match finding.status {
        FindingStatus::Ok => ("✓", TextTone::Good),
        FindingStatus::Warning => ("!", TextTone::NeedsPerson),
        FindingStatus::Problem => ("✗", TextTone::Bad),
    };
    let sign = Styler::for_stdout().apply_tone(tone, sign);
    let texts = std::iter::once(&finding.message).chain(&finding.notes);
    // Names of agents and paths are untrusted.
    let texts: Vec<String> = texts.map(|text| sanitize::sanitize_text(text)).collect();
    let mut lines = texts.iter().flat_map(|text| text.lines());
    let first = lines.next().unwrap_or_default();
    output::print_line(&format!("{sign} {:<9}{first}", finding.name))?;
    lines.try_for_each(|line| output::print_line(&format!("{:11}{line}", "")))
}

/// Says where the store is and which process executes its runs.
fn check_store(config: &Config) -> Finding {
    let name = "store";
    let describe = || -> anyhow::Result<String> {
        let file = sqlite_store_path(config)?;
        let at = file.strip_prefix(&config.root).unwrap_or(&file).display();
        if !file.try_exists()? {
            return Ok(format!("{at} does not exist yet; the first task creates the store"));
        }
        let driver = longhaul_store::driver_process_description(&file)?;
        let driver = driver.map_or_else(
            || "no process executes its runs now: start `longhaul worker`".to_owned(),
            |driver| format!("its runs are executed by {driver}"),
        );
        Ok(format!("{at}; {driver}"))
    };
    match describe() {
        Ok(message) => Finding::new(name, FindingStatus::Ok, message),
        Err(error) => {
            let message = format!("{error:#}; see `longhaul config show --origin`");
            Finding::new(name, FindingStatus::Problem, message)
        }
    }
}

fn check_agents(loaded: &LoadedAgents) -> Finding {
    let own = loaded.agents.iter().filter(|one| one.source != AgentSource::BuiltIn);
    let usable = count_with_noun(own.count(), "agent");
    let problems = loaded.problems.len() + loaded.missing_references.len();
    let (status, message) = match problems {
        0 => (FindingStatus::Ok, format!("{usable}, no problems")),
        _ => (
            FindingStatus::Problem,
            format!(
                "{usable}, {}: see them with `longhaul agents check`",
                count_with_noun(problems, "problem")
            ),
        ),
    };
    Finding::new("agents", status, message)
}

/// Checks the provider `local`, and those that agents of the project use.
fn check_sandboxes(
    process_env: &ProcessEnv,
    loaded: &LoadedAgents,
) -> anyhow::Result<Vec<Finding>> {
    // The local provider tries out a sandbox in its folder. The folder of the project is left alone,
    // because its author may have replaced it by a link.
    let temp = tempfile::tempdir()?;
    let data = SettingOverride {
        name: "doctor".to_owned(),
        setting_path: "data".to_owned(),
        value: temp.path().display().to_string(),
    };
    let config = load::load(process_env, &[data])?;
    let registry = sandbox_registry(&config, &environment::system_clock());
    let default = &registry.settings().provider;
    let mut users: BTreeMap<&str, Vec<&Agent>> = BTreeMap::from([(LOCAL_PROVIDER, Vec::new())]);
    let own = loaded.agents.iter().filter(|one| one.source != AgentSource::BuiltIn);
    for agent in own.map(|one| &one.agent) {
        if let Some(sandbox) = agent.sandbox_config() {
            users.entry(sandbox.provider.as_ref().unwrap_or(default)).or_default().push(agent);
        }
    }
    runtime::block_on(async {
        let mut findings = Vec::new();
        for (name, agents) in users {
            // A provider that does not exist is a problem of the agent files.
            if let Ok(provider) = registry.find_provider(name) {
                findings.push(check_provider(&**provider, &agents).await);
            }
        }
        Ok(findings)
    })
}

/// Says how well a provider isolates, and whether that is enough for the agents that use it.
async fn check_provider(provider: &dyn Sandboxes, agents: &[&Agent]) -> Finding {
    let name = provider.name();
    let status = provider.status().await;
    let users = match agents {
        [] => "no agent of this project uses it".to_owned(),
        _ => format!("used by {}", agent_names(agents)),
    };
    let mut notes = status.notes;
    let message = match &status.isolation {
        Ok(level) => format!("`{name}`: isolation `{}`, {users}", level.as_str()),
        Err(reason) => {
            notes.insert(0, reason.clone());
            format!("`{name}`: not available, {users}")
        }
    };
    let reaches_every_host = |agent: &&Agent| {
        let sandbox = agent.sandbox_config();
        sandbox.is_some_and(|sandbox| sandbox.reachable_hosts() == [ANY_HOST])
    };
    let is_refused = |agent: &&Agent| {
        let min = agent.sandbox_config().map(SandboxConfig::min_isolation).unwrap_or_default();
        match status.isolation {
            Ok(level) => !level.is_at_least(min),
            // Without isolation, programs can't be kept from the network.
            Err(_) => min.is_at_least(Isolation::Landlock) || !reaches_every_host(agent),
        }
    };
    let refused: Vec<&Agent> = agents.iter().filter(|one| is_refused(one)).copied().collect();
    let open: Vec<&Agent> = agents.iter().filter(|one| reaches_every_host(one)).copied().collect();
    if name == LOCAL_PROVIDER && !open.is_empty() {
        notes.push(format!(
            "`network: host`: programs in the sandboxes of these agents reach the servers of this \
             machine that listen on loopback only: {}",
            agent_names(&open)
        ));
    }
    if !refused.is_empty() {
        notes.push(format!(
            "the sandbox of these agents is refused, because they need more isolation: {}",
            agent_names(&refused)
        ));
    }
    let status = match (refused.is_empty(), status.isolation.is_ok()) {
        (false, _) => FindingStatus::Problem,
        (true, true) => FindingStatus::Ok,
        (true, false) => FindingStatus::Warning,
    };
    Finding { name: "sandbox", status, message, notes }
}
