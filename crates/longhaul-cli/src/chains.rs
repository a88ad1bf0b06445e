//! `longhaul chains`: lists, shows and checks chains.

use anyhow::bail;
use clap::{Args, Subcommand};
use longhaul_core::chain::ChainStepSpec;
use longhaul_core::suggest::most_similar_name;
use longhaul_project::chains::{LoadedChain, LoadedChains};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::format::count_with_noun;
use crate::table::{self, ListOr};
use crate::{environment, output, sanitize};

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul chains                      all chains and their steps
  longhaul chains show full-pipeline   the steps of one chain, with their conditions
  longhaul chains check                every problem of every file as file:line:column
  longhaul run --chain full-pipeline \"Add a flag --dry-run\"";

/// Arguments of `longhaul chains`.
pub(crate) type ChainsCommand = ListOr<ListChainsCommand, ChainsSubcommand>;

#[derive(Debug, Subcommand)]
pub(crate) enum ChainsSubcommand {
    /// Lists all chains with their steps
    Ls(ListChainsCommand),
    /// Prints the steps of one chain
    Show(ShowChainCommand),
    /// Checks chain files and reports every problem as file:line:column
    Check(CheckChainsCommand),
}

/// Arguments of `longhaul chains ls`.
#[derive(Debug, Args)]
pub(crate) struct ListChainsCommand {
    /// Print the chains as one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of `longhaul chains show`.
#[derive(Debug, Args)]
pub(crate) struct ShowChainCommand {
    /// Name of the chain
    name: String,
    /// Print the chain as one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of `longhaul chains check`.
#[derive(Debug, Args)]
pub(crate) struct CheckChainsCommand {
    /// Check only the chain with this name
    name: Option<String>,
    /// Print the problems as one JSON object
    #[arg(long)]
    json: bool,
}

impl ChainsCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let process_env = environment::current_process_env()?;
        let config = environment::load_config(&process_env)?;
        let loaded = environment::load_agents(&config)?.chains;
        match &self.command {
            None => self.list.print_chain_list(&loaded),
            Some(ChainsSubcommand::Ls(ls)) => ls.print_chain_list(&loaded),
            Some(ChainsSubcommand::Show(show)) => show.print_chain_steps(&loaded),
            Some(ChainsSubcommand::Check(check)) => check.print_chain_problems(&loaded),
        }
    }
}

impl ListChainsCommand {
    fn print_chain_list(&self, loaded: &LoadedChains) -> anyhow::Result<()> {
        if self.json {
            let chains: Value = loaded.chains.iter().map(chain_to_json).collect();
            return output::print_json(&json!({ "chains": chains }));
        }
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
    }
}

impl ShowChainCommand {
    fn print_chain_steps(&self, loaded: &LoadedChains) -> anyhow::Result<()> {
        let chain = find_chain(loaded, &self.name)?;
        if self.json {
            return output::print_json(&chain_to_json(chain));
        }
        let mut lines = vec![format!("{}  {}", chain.name, chain.path.display())];
        lines.extend(chain.spec.description.clone());
        for (number, step) in (1..).zip(&chain.spec.steps) {
            lines.push(format!("{number}. {}", chain_step_text(step)));
        }
        for line in lines {
            output::print_text(&sanitize::sanitize_line(&line))?;
        }
        Ok(())
    }
}

impl CheckChainsCommand {
    fn print_chain_problems(&self, loaded: &LoadedChains) -> anyhow::Result<()> {
        let problems: Vec<_> = match &self.name {
            None => loaded.problems.iter().collect(),
            Some(name) => loaded.problems_of_chain(name).collect(),
        };
        if let Some(name) = &self.name
            && problems.is_empty()
        {
            find_chain(loaded, name)?;
        }
        if self.json {
            output::print_json(&json!({ "problems": problems }))?;
        } else {
            for problem in &problems {
                output::print_text(&problem.to_string())?;
            }
        }
        if !problems.is_empty() {
            let count = count_with_noun(problems.len(), "problem");
            bail!("{count}; a chain with problems can't be run");
        }
        output::eprint_line("chains without problems");
        Ok(())
    }
}

/// Returns the chain with this name. The error of a chain with problems lists the problems.
pub(crate) fn find_chain<'a>(
    loaded: &'a LoadedChains,
    name: &str,
) -> anyhow::Result<&'a LoadedChain> {
    if let Some(found) = loaded.chains.iter().find(|one| one.name == name) {
        return Ok(found);
    }
    let problems: Vec<String> = loaded.problems_of_chain(name).map(ToString::to_string).collect();
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
