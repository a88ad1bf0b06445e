//! `longhaul config`: what is set, by whom, and where it is read.
//!
//! Never: shows a password or changes a file.

use clap::{Args, Subcommand};
use longhaul::config::secrets;
use longhaul::config::settings::{Config as LoadedConfig, StoreUrl};
use longhaul::config::value::Value;
use serde_json::{Map, json};

use crate::{environment, output, sanitize};

const SHOW_EXAMPLES: &str = "Examples:
  longhaul config show             every setting that holds
  longhaul config show --origin    and who said so
  longhaul config show --json      as one JSON object
  LONGHAUL_WORKER_LEASE=30s longhaul config show --origin";

const PATH_EXAMPLES: &str = "Examples:
  longhaul config path             the folders and files that are used
  longhaul config path --json      as one JSON object";

/// What is set, and where it is read.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Prints every setting that holds
    #[command(after_help = SHOW_EXAMPLES)]
    Show(Show),
    /// Prints the folders and files that are used
    #[command(after_help = PATH_EXAMPLES)]
    Path(Path),
}

/// Prints every setting that holds.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Say who set each: a flag, the environment, a file with its line, or nobody
    #[arg(long)]
    origin: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the folders and files that are used.
#[derive(Debug, Args)]
pub(crate) struct Path {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Config {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Show(show) => show.run(),
            Self::Path(path) => path.run(),
        }
    }
}

impl Show {
    fn run(&self) -> anyhow::Result<()> {
        let config = environment::load_config(&environment::process_env()?)?;
        for note in secrets::notes(&config) {
            output::stderr_line(&format!("note: {note}"));
        }
        let lines = setting_rows(&config);
        if self.json {
            let pairs = lines.into_iter().map(|(path, value, origin)| {
                let value =
                    if self.origin { json!({ "value": value, "origin": origin }) } else { value };
                (path, value)
            });
            return output::stdout_json(&json!(pairs.collect::<Map<_, _>>()));
        }
        let said =
            |(path, value, _): &(String, serde_json::Value, String)| format!("{path} = {value}");
        let width = lines.iter().map(|line| said(line).chars().count()).max().unwrap_or(0);
        for line in &lines {
            let text = said(line);
            // The project's file names them as well as it sets them.
            output::stdout_line(&sanitize::line(&if self.origin {
                format!("{text:width$}  # {}", line.2)
            } else {
                text
            }))?;
        }
        Ok(())
    }
}

/// Path, value and origin of every setting, the store's address among them.
fn setting_rows(config: &LoadedConfig) -> Vec<(String, serde_json::Value, String)> {
    let mut lines: Vec<_> = config
        .settings
        .iter()
        .map(|(path, setting)| {
            let origin = setting.origin.to_string();
            (path.clone(), setting.value.redacted_json(), origin)
        })
        .collect();
    if !config.settings.contains_key("store.url") {
        let value = Value::Text(store_url(config)).redacted_json();
        lines.push(("store.url".to_owned(), value, "default".to_owned()));
        lines.sort_by(|a, b| a.0.cmp(&b.0));
    }
    lines
}

fn store_url(config: &LoadedConfig) -> String {
    match config.store_url() {
        StoreUrl::Sqlite(path) => {
            let path = path.path();
            let path = path.strip_prefix(&config.root).unwrap_or(&path);
            format!("sqlite:{}", path.display())
        }
        StoreUrl::Postgres(url) => url,
    }
}

impl Path {
    fn run(&self) -> anyhow::Result<()> {
        let here = environment::process_env()?;
        // A broken file must not hide where it lies.
        let root = here.project_root().unwrap_or(&here.cwd).to_path_buf();
        let file = root.join(longhaul::config::process_env::CONFIG_FILE_NAME);
        let user = here.user_file();
        let data = environment::load_config(&here).map(|config| config.data_folder());
        let there = |path: &std::path::Path| path.is_file();
        if self.json {
            output::stdout_json(&json!({
                "root": root,
                "in_project": here.project_root().is_some(),
                "project_file": { "path": file, "exists": there(&file) },
                "user_file": user.as_ref().map(|path| json!({ "path": path, "exists": there(path) })),
                "data": data.as_ref().ok(),
            }))?;
            return data.map(|_| ());
        }
        let missing = |path: &std::path::Path| if there(path) { "" } else { "  (not there)" };
        let no_project = if here.project_root().is_some() { "" } else { "  (no project)" };
        let line = |name: &str, path: &std::path::Path, more: &str| {
            output::stdout_line(&sanitize::line(&format!("{name:14}{}{more}", path.display())))
        };
        line("root", &root, no_project)?;
        line("project file", &file, missing(&file))?;
        if let Some(user) = user {
            line("user file", &user, missing(&user))?;
        }
        line("data", &data?, "")
    }
}
