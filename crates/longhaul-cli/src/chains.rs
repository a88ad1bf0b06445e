//! `longhaul chains`: lists, shows and checks chains.

use anyhow::bail;
use clap::Subcommand;
use longhaul_core::chain::ChainStepSpec;
use longhaul_core::suggest::most_similar_name;
use longhaul_project::chains::{LoadedChain, LoadedChains};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::format::count_with_noun;
use crate::table::{self, JsonArgs, ListOr};
use crate::{environment, output, sanitize};

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul chains                      all chains and their steps
  longhaul chains show full-pipeline   the steps of one chain, with their conditions
  longhaul chains check                every problem of every file as file:line:column
  longhaul run --chain full-pipeline \"Add a flag --dry-run\"";

/// Arguments of `longhaul chains`.
pub(crate) type ChainsCommand = ListOr<JsonArgs, ChainsSubcommand>;

#[derive(Debug, Subcommand)]
pub(crate) enum ChainsSubcommand {
    /// Lists all chains with their steps
    Ls(JsonArgs),
    /// Prints the steps of one chain
    Show {
        /// Name of the chain
        name: String,
        /// Print the chain as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Checks chain files and reports every problem as file:line:column
    Check {
        /// Check only the chain with this name
        name: Option<String>,
        /// Print the problems as one JSON object
        #[arg(long)]
        json: bool,
    },
}

impl ChainsCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let process_env = environment::current_process_env()?;
        let config = environment::load_config(&process_env)?;
        let loaded = environment::load_agents(&config)?.chains;
        match &self.command {
            None => print_chain_list(&loaded, self.list.json),
            Some(ChainsSubcommand::Ls(list)) => print_chain_list(&loaded, list.json),
            Some(ChainsSubcommand::Show { name, json }) => {
                output::show(*json, &chain_to_json(find_chain(&loaded, name)?), |_| {
                    print_chain_steps(find_chain(&loaded, name)?)
                })
            }
            Some(ChainsSubcommand::Check { name, json }) => {
                print_chain_problems(&loaded, name.as_deref(), *json)
            }
        }
    }
}

fn print_chain_list(loaded: &LoadedChains, json: bool) -> anyhow::Result<()> {
    let chains: Value = loaded.chains.iter().map(chain_to_json).collect();
    output::show(json, &json!({ "chains": chains }), |_| {
        let rows = loaded.chains.iter().map(|chain| {
            let steps: Vec<&str> = chain.spec.steps.iter().map(ChainStepSpec::step_name).collect();
            table::row(&[&chain.name, &source(chain), &steps.join(" > ")])
        });
        table::print_table(&[], rows)?;
        if !loaded.problems.is_empty() {
            let count = loaded.problems.len();
            output::eprint_line(&format!(
                "problems in chain files: {count}   longhaul chains check"
            ));
        }
        Ok(())
    })
}

fn print_chain_steps(chain: &LoadedChain) -> anyhow::Result<()> {
    let mut lines = vec![format!("{}  {}", chain.name, chain.path.display())];
    lines.extend(chain.spec.description.clone());
    for (number, step) in (1..).zip(&chain.spec.steps) {
        lines.push(format!("{number}. {}", chain_step_text(step)));
    }
    lines.iter().try_for_each(|line| output::print_text(&sanitize::sanitize_line(line)))
}

fn print_chain_problems(
    loaded: &LoadedChains,
    name: Option<&str>,
    json: bool,
) -> anyhow::Result<()> {
    let problems: Vec<_> = match name {
        None => loaded.problems.iter().collect(),
        Some(name) => loaded.problems_of(name).collect(),
    };
    if let (Some(name), true) = (name, problems.is_empty()) {
        find_chain(loaded, name)?;
    }
    output::show(json, &json!({ "problems": problems }), |_| {
        problems.iter().try_for_each(|problem| output::print_text(&problem.to_string()))
    })?;
    if !problems.is_empty() {
        let count = count_with_noun(problems.len(), "problem");
        bail!("{count}; a chain with problems can't be run");
    }
    output::eprint_line("chains without problems");
    Ok(())
}

/// Returns the chain with this name. The error of a chain with problems lists the problems.
pub(crate) fn find_chain<'a>(
    loaded: &'a LoadedChains,
    name: &str,
) -> anyhow::Result<&'a LoadedChain> {
    if let Some(found) = loaded.chains.iter().find(|one| one.name == name) {
        return Ok(found);
    }
    let problems: Vec<String> = loaded.problems_of(name).map(ToString::to_string).collect();
    if !problems.is_empty() {
        let message = format!("the chain `{name}` can't be used:\n{}", problems.join("\n"));
        let error = CliError::usage_error(message);
        return Err(error.with_hint("all problems", "longhaul chains check").into());
    }
    let names = loaded.chains.iter().map(|one| one.name.as_str());
    let suggestion = most_similar_name(name, names).map(str::to_owned);
    Err(longhaul_engine::Error::ChainNotFound { name: name.to_owned(), suggestion }.into())
}

const fn source(chain: &LoadedChain) -> &'static str {
    match chain.built_in {
        true => "built-in",
        false => "project",
    }
}

fn chain_step_text(step: &ChainStepSpec) -> String {
    let name = match &step.name {
        Some(name) => format!("{name} ({})", step.agent),
        None => step.agent.clone(),
    };
    let mut parts = vec![name, step.condition.as_str().to_owned()];
    if step.auto_approve {
        parts.push("its result is approved automatically".to_owned());
    }
    if let Some(repeat) = &step.repeat {
        let (from, until, max) = (&repeat.from, repeat.until.as_str(), repeat.max);
        parts.push(format!("then back to the step {from} until {until}, at most {max} times"));
    }
    parts.join(" · ")
}

fn chain_to_json(chain: &LoadedChain) -> Value {
    json!({
        "name": chain.name,
        "source": source(chain),
        "path": chain.path,
        "description": chain.spec.description,
        "steps": chain.spec.steps,
    })
}
