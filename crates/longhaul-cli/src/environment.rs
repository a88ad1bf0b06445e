//! Environment of this command: current folder, environment variables, home folder and
//! configuration.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use longhaul_core::time::Clock;
use longhaul_engine::clock::SystemClock;
use longhaul_project::agents::loaded_agents::LoadedAgents;
use longhaul_project::assemble::{self, built_in_tool_registry};
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::settings::{CRASH_PROBE_FILE_VAR, Config};
use longhaul_project::config::{dotenv, load};
use longhaul_tool::FileLocation;

use crate::output;

/// Variables that a project's `.env` must not set, because they decide what is trusted, which
/// addresses tools may reach and where conversations and keys are sent.
const RESERVED_VARS: [&str; 8] = [
    "LONGHAUL_TRUST",
    "LONGHAUL_OUTBOUND_ALLOW",
    "LONGHAUL_TOOLS_SEND_MESSAGE_DELIVER",
    CRASH_PROBE_FILE_VAR,
    "OLLAMA_HOST",
    "DAYTONA_API_URL",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
];

/// Returns the current folder, the environment variables and the home folder.
pub(crate) fn current_process_env() -> anyhow::Result<ProcessEnv> {
    let cwd = std::env::current_dir()
        .context("the current folder can't be read; change to another one")?;
    Ok(longhaul_project::process::process_env_in_folder(cwd))
}

/// Returns the name of the person who runs this command, as shown in journals, such as `cli:anna`. The
/// name is not authenticated: every user who can write the store can use any name.
pub(crate) fn caller_name() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    let sanitized: String = user.chars().filter(|c| !c.is_control()).take(64).collect();
    if sanitized.is_empty() { "cli".to_owned() } else { format!("cli:{sanitized}") }
}

/// Adds the variables of the project's `.env` that are not set in the environment.
pub(crate) fn add_dotenv_variables(mut process_env: ProcessEnv) -> anyhow::Result<ProcessEnv> {
    let root = load_config_quietly(&process_env)?.root;
    let file = root.join(dotenv::FILE_NAME);
    let dotenv_file = dotenv::load(&root);
    let dotenv_file =
        dotenv_file.map_err(|error| anyhow::anyhow!("`{}`: {error}", file.display()))?;
    // The line is not quoted in the error: it may hold a secret.
    if dotenv_file.is_malformed {
        anyhow::bail!("`{}` has a line that is not NAME=VALUE", file.display());
    }
    for (name, value) in dotenv_file.values {
        // Commands that don't read this file must find the same store.
        if ["LONGHAUL_STORE", "LONGHAUL_DATA"].contains(&name.as_str()) {
            anyhow::bail!(
                "`{}` sets {name}, but only some commands read that file: set it in longhaul.toml or in the real environment",
                file.display()
            );
        }
        // The file is part of the project, and a project must not grant trust to itself.
        if RESERVED_VARS.contains(&name.as_str()) {
            anyhow::bail!(
                "`{}` sets {name}, which decides what is trusted: set it in the real environment, and delete that line",
                file.display()
            );
        }
        if !process_env.env.contains_key(&name) {
            process_env.from_dotenv.insert(name.clone());
            process_env.env.insert(name, value);
        }
    }
    Ok(process_env)
}

/// Adds the variables of the project's `.env`, and ignores an invalid `.env`. For commands that do
/// not use the values themselves: the process that uses them reports the error.
pub(crate) fn add_dotenv_variables_if_valid(process_env: ProcessEnv) -> ProcessEnv {
    add_dotenv_variables(process_env.clone()).unwrap_or(process_env)
}

pub(crate) fn system_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// Writes a file unless it exists already, and returns whether it was written. Symlinks are not
/// followed.
pub(crate) fn write_new_file(file: &FileLocation, text: &str) -> std::io::Result<bool> {
    file.create_and_open_parent_with_file_name()?;
    match fs::OpenOptions::new().write(true).create_new(true).open(file.path()) {
        Ok(mut file) => file.write_all(text.as_bytes()).map(|()| true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Loads the project's agents. Paths in the result are relative to the project root.
pub(crate) fn load_agents(config: &Config) -> anyhow::Result<LoadedAgents> {
    let tools = built_in_tool_registry(config, &system_clock())?;
    Ok(assemble::load_agents(config, &tools, Path::new("")))
}

/// Loads the configuration and prints notes about it to stderr.
pub(crate) fn load_config(process_env: &ProcessEnv) -> anyhow::Result<Config> {
    let config = load_config_quietly(process_env)?;
    print_notes(&config);
    Ok(config)
}

/// Prints the notes about the configuration to stderr.
pub(crate) fn print_notes(config: &Config) {
    for note in &config.notes {
        output::eprint_line(&format!("note: {note}"));
    }
}

/// Loads the configuration without printing notes about it.
pub(crate) fn load_config_quietly(process_env: &ProcessEnv) -> anyhow::Result<Config> {
    load::load(process_env, &[]).map_err(|error| {
        let error_count = error.errors.len();
        let noun = if error_count == 1 { "an error" } else { "errors" };
        anyhow::anyhow!("{noun} in the configuration:\n{error}\n`longhaul config path` lists the files that are read")
    })
}
