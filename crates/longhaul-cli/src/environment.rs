//! Where this command was started: the one place that reads the process's surroundings.
//!
//! Never: interprets them; the library does that.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use longhaul::agents::loaded_agents::LoadedAgents;
use longhaul::assemble::{self, tool_registry};
use longhaul::config::process_env::ProcessEnv;
use longhaul::config::settings::{CRASH_PROBE_FILE_VAR, Config};
use longhaul::config::{dotenv, load};
use longhaul_core::time::Clock;
use longhaul_engine::clock::SystemClock;

use crate::output;

/// Variables that decide what is trusted, what is open to tools and where conversations go.
const RESERVED_VARS: [&str; 7] = [
    "LONGHAUL_TRUST",
    "LONGHAUL_OUTBOUND_ALLOW",
    "LONGHAUL_TOOLS_SEND_MESSAGE_DELIVER",
    CRASH_PROBE_FILE_VAR,
    "OLLAMA_HOST",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
];

/// The real folder, environment and home.
pub(crate) fn process_env() -> anyhow::Result<ProcessEnv> {
    let cwd =
        std::env::current_dir().context("the current folder can't be found, go to another")?;
    Ok(longhaul::process::process_env(cwd))
}

/// The same, with what stands in the project's `.env` where nothing else sets it.
pub(crate) fn with_dotenv(mut here: ProcessEnv) -> anyhow::Result<ProcessEnv> {
    let root = load_config_quietly(&here)?.root;
    let file = root.join(dotenv::FILE_NAME);
    let read = dotenv::load(&root);
    let read = read.map_err(|why| anyhow::anyhow!("`{}` {why}", file.display()))?;
    // What is wrong is not quoted: a line may hold a secret.
    if read.is_malformed {
        anyhow::bail!("`{}` has a line that is no NAME=VALUE", file.display());
    }
    for (name, value) in read.values {
        // Commands that don't read this file must find the same store.
        if ["LONGHAUL_STORE", "LONGHAUL_DATA"].contains(&name.as_str()) {
            anyhow::bail!(
                "`{}` sets {name}, and only some commands read that file: set it in longhaul.toml, or in the real environment",
                file.display()
            );
        }
        // The file comes with the project, and a project can't vouch for itself.
        if RESERVED_VARS.contains(&name.as_str()) {
            anyhow::bail!(
                "`{}` sets {name}, which decides what is trusted: set it in the real environment, and delete that line",
                file.display()
            );
        }
        if !here.env.contains_key(&name) {
            here.from_dotenv.insert(name.clone());
            here.env.insert(name, value);
        }
    }
    Ok(here)
}

/// The same for whoever hands something to a server: only the server knows
/// whether it has read that file, and looks for itself.
pub(crate) fn with_dotenv_if_valid(here: ProcessEnv) -> ProcessEnv {
    with_dotenv(here.clone()).unwrap_or(here)
}

/// The machine's clock.
pub(crate) fn system_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// The agents of a project, with paths from its top.
pub(crate) fn load_agents(config: &Config) -> anyhow::Result<LoadedAgents> {
    let tools = tool_registry(config, &system_clock())?;
    Ok(assemble::load_agents(config, &tools, Path::new("")))
}

/// The configuration that holds here, and what there is to say about it.
pub(crate) fn load_config(here: &ProcessEnv) -> anyhow::Result<Config> {
    let config = load_config_quietly(here)?;
    for note in &config.notes {
        output::stderr_line(&format!("note: {note}"));
    }
    Ok(config)
}

/// The same without a word.
pub(crate) fn load_config_quietly(here: &ProcessEnv) -> anyhow::Result<Config> {
    load::load(here, &[]).map_err(|error| {
        let faults = error.errors.len();
        let many = if faults == 1 { "a fault" } else { "faults" };
        anyhow::anyhow!("{many} in the configuration:\n{error}\n`longhaul config path` lists the files that are read")
    })
}
