//! `longhaul config`: shows the settings, where each one is set, and the files that are read. The
//! command shows no secrets and changes nothing.

use std::path::PathBuf;

use clap::Subcommand;
use longhaul_project::config::secrets;
use longhaul_project::config::settings::{Config as LoadedConfig, StoreUrl};
use longhaul_project::config::value::SettingValue;
use serde_json::{Map, json};

use crate::{environment, output, sanitize};

const SHOW_EXAMPLES: &str = "Examples:
  longhaul config show             every setting in effect
  longhaul config show --origin    and where each is set
  longhaul config show --json      as one JSON object
  LONGHAUL_WORKER_LEASE=30s longhaul config show --origin";

const PATH_EXAMPLES: &str = "Examples:
  longhaul config path             the folders and files in use
  longhaul config path --json      as one JSON object";

/// The subcommands of `longhaul config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Prints the value of every setting
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Show where each setting is set: a flag, the environment, a file with its line, or the
        /// default
        #[arg(long)]
        origin: bool,
        /// Print the settings as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Prints the folders and files that are used
    #[command(after_help = PATH_EXAMPLES)]
    Path {
        /// Print the paths as one JSON object
        #[arg(long)]
        json: bool,
    },
}

impl ConfigCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Show { origin, json } => print_settings(*origin, *json),
            Self::Path { json } => print_config_paths(*json),
        }
    }
}

fn print_settings(shows_origin: bool, json: bool) -> anyhow::Result<()> {
    let config = environment::load_config(&environment::current_process_env()?)?;
    for note in secrets::unredactable_secret_warnings(&config) {
        output::eprint_line(&format!("note: {note}"));
    }
    let lines = shown_settings(&config);
    if json {
        let pairs = lines.into_iter().map(|(path, value, origin)| {
            let value =
                if shows_origin { json!({ "value": value, "origin": origin }) } else { value };
            (path, value)
        });
        return output::print_json(&json!(pairs.collect::<Map<_, _>>()));
    }
    let setting_line =
        |(path, value, _): &(String, serde_json::Value, String)| format!("{path} = {value}");
    let width = lines.iter().map(|line| setting_line(line).chars().count()).max().unwrap_or(0);
    for line in &lines {
        let (text, origin) = (setting_line(line), &line.2);
        // Setting names come from the project's file too, so they are untrusted.
        output::print_line(&sanitize::sanitize_line(&if shows_origin {
            format!("{text:width$}  # {origin}")
        } else {
            text
        }))?;
    }
    Ok(())
}

/// Returns the name (such as `store.url`), value and origin of every setting, including the store's
/// URL.
fn shown_settings(config: &LoadedConfig) -> Vec<(String, serde_json::Value, String)> {
    let mut lines: Vec<_> = config
        .settings
        .iter()
        .map(|(path, setting)| {
            let origin = setting.origin.to_string();
            (path.clone(), setting.value.redacted_json(), origin)
        })
        .collect();
    if !config.settings.contains_key("store.url") {
        let url = match config.store_url() {
            StoreUrl::Sqlite(path) => {
                let path = path.path();
                format!("sqlite:{}", path.strip_prefix(&config.root).unwrap_or(&path).display())
            }
            StoreUrl::Postgres(url) => url,
        };
        let value = SettingValue::Json(url.into()).redacted_json();
        lines.push(("store.url".to_owned(), value, "default".to_owned()));
        lines.sort_by(|a, b| a.0.cmp(&b.0));
    }
    lines
}

fn print_config_paths(json: bool) -> anyhow::Result<()> {
    let process_env = environment::current_process_env()?;
    let in_project = process_env.project_root().is_some();
    // The path of an invalid file is printed too.
    let root = process_env.project_root().unwrap_or(&process_env.cwd).to_path_buf();
    let file = root.join(longhaul_project::config::process_env::CONFIG_FILE_NAME);
    let user_file = process_env.user_config_file();
    let data = environment::load_config(&process_env).map(|config| config.data_folder());
    if json {
        let file_json = |path: &PathBuf| json!({ "path": path, "exists": path.is_file() });
        output::print_json(&json!({
            "root": root, "in_project": in_project, "project_file": file_json(&file),
            "user_file": user_file.as_ref().map(file_json), "data": data.as_ref().ok(),
        }))?;
        return data.map(|_| ());
    }
    let line = |name: &str, path: &PathBuf, note: &str| {
        let line = format!("{name:14}{}{note}", path.display());
        output::print_line(&sanitize::sanitize_line(&line))
    };
    let missing_note = |path: &PathBuf| if path.is_file() { "" } else { "  (missing)" };
    line("root", &root, if in_project { "" } else { "  (no project)" })?;
    line("project file", &file, missing_note(&file))?;
    if let Some(user_file) = user_file {
        line("user file", &user_file, missing_note(&user_file))?;
    }
    line("data", &data?, "")
}
