//! `longhaul mcp check`: starts the servers that are trusted, all at once, and
//! lists their tools.
//!
//! Never: a server that nobody trusts, and never waits without an end.

use std::time::Duration;

use clap::Args;
use futures_util::{StreamExt as _, stream};
use longhaul::assemble::mcp_client::{McpCheckError, McpClient, ServerReport};
use longhaul::assemble::{mcp_servers, mcp_tools, slow_notice};
use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::trust::decisions::Decisions;
use longhaul::trust::item::TrustItem;
use longhaul_core::policy::effect::EffectClass;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::exit::Exit;
use crate::mcp::report::{load_project, print_no_servers, print_remarks};
use crate::style::{Styler, Tone};
use crate::table::{Cell, table_lines};
use crate::trust::confirm;
use crate::{environment, output, runtime, sanitize};

/// So long is waited for one server. It may be greeted twice, half a minute each, and
/// why that came to nothing is worth more than that it took long.
const CHECK_TIMEOUT: Duration = Duration::from_secs(75);

/// So many are asked at once.
const CONCURRENCY: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Only these; without, all that are not disabled
    #[arg(value_name = "SERVER")]
    names: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What came of asking one.
struct CheckResult {
    name: String,
    outcome: Result<ServerReport, CheckFailure>,
}

/// Why one did not answer.
struct CheckFailure {
    exit: Exit,
    message: String,
    needs_login: bool,
}

impl Check {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (config, file) = load_project()?;
        if let Some(problem) = file.problems.first() {
            return Err(CliError::usage(problem.to_string())
                .hint("see all that is wrong", "longhaul mcp ls")
                .into());
        }
        let names = self.selected_names(&file)?;
        if names.is_empty() {
            print_no_servers(&file);
            if self.json {
                output::stdout_json(&json!({ "checks": [] }))?;
            }
            return Ok(Exit::Done);
        }
        check_trust(&config, &file)?;
        let checks = runtime::multi_thread()?.block_on(check_servers(&config, &file, names));
        let troubles = checks.iter().filter_map(|one| one.outcome.as_ref().err());
        let exits: Vec<Exit> = troubles.map(|trouble| trouble.exit).collect();
        // What is to be mended comes before what may pass.
        let exit = match exits.contains(&Exit::Usage) {
            true => Some(Exit::Usage),
            false => exits.first().copied(),
        };
        if self.json {
            let list = checks.iter().map(to_json);
            output::stdout_json(&json!({ "checks": list.collect::<Value>() }))?;
        } else {
            for one in &checks {
                print_result(one)?;
            }
            print_remarks(&file);
        }
        Ok(exit.unwrap_or(Exit::Done))
    }

    /// Who is asked.
    fn selected_names(&self, file: &McpFile) -> anyhow::Result<Vec<String>> {
        if self.names.is_empty() {
            let used = file.servers.iter().filter(|server| !server.disabled);
            return Ok(used.map(|server| server.name.clone()).collect());
        }
        for name in &self.names {
            file.find(name)
                .map_err(|why| CliError::usage(why).hint("all servers", "longhaul mcp ls"))?;
        }
        Ok(self.names.clone())
    }
}

/// Asks the person at the terminal, if there is one; nobody else can be asked.
pub(crate) fn check_trust(config: &Config, file: &McpFile) -> anyhow::Result<()> {
    let Some(item) = TrustItem::mcp(file) else {
        return Ok(());
    };
    let decisions = Decisions::new(config);
    if decisions.check(&item).is_err() && output::is_interactive() {
        confirm::ask(&decisions, &[&item])?;
    }
    decisions.check(&item).map_err(|why| {
        CliError::usage(why)
            .with_exit(Exit::NotAllowed)
            .hint("look at it and decide", "longhaul trust")
            .hint("see what it names", "longhaul mcp ls")
            .into()
    })
}

async fn check_servers(config: &Config, file: &McpFile, names: Vec<String>) -> Vec<CheckResult> {
    let line = mcp_servers::client(config, file, &environment::system_clock());
    let served = mcp_tools::McpTools::new(config, file.clone(), line.clone());
    let asked = names.into_iter().map(|name| {
        let (served, line) = (&served, &*line);
        async move {
            let outcome = match served.check_usable(&name) {
                Err(why) => {
                    Err(CheckFailure { exit: Exit::Usage, message: why, needs_login: false })
                }
                Ok(()) => check_server(line, &name).await,
            };
            CheckResult { name, outcome }
        }
    });
    let checks = stream::iter(asked).buffered(CONCURRENCY).collect().await;
    served.close().await;
    checks
}

async fn check_server(line: &dyn McpClient, name: &str) -> Result<ServerReport, CheckFailure> {
    output::stderr_line(&format!("{name}: starting ..."));
    let most = CHECK_TIMEOUT.as_secs();
    let asked = slow_notice::wait_with_notice(
        tokio::time::timeout(CHECK_TIMEOUT, line.check(name)),
        || {
            output::stderr_line(&format!(
                "{name}: no answer yet; it is waited for, {most} s at most"
            ));
        },
    );
    let asked = asked.await;
    let late = || {
        Err(McpCheckError { message: format!("no whole answer in {most} s"), needs_login: false })
    };
    let asked = asked.unwrap_or_else(|_| late());
    asked.map_err(|McpCheckError { message: why, needs_login }| CheckFailure {
        exit: Exit::Busy,
        message: why,
        needs_login,
    })
}

const fn class_name(class: EffectClass) -> &'static str {
    match class {
        EffectClass::Pure => "pure",
        EffectClass::Keyed => "keyed",
        EffectClass::Once => "once",
        EffectClass::Session => "session",
    }
}

fn print_result(one: &CheckResult) -> anyhow::Result<()> {
    let paint = Styler::for_stdout();
    let report = match &one.outcome {
        Ok(report) => report,
        Err(trouble) => {
            let bad = paint.apply(Tone::Bad, "failed");
            return output::stdout_line(&format!(
                "{}  {bad}: {}",
                one.name,
                sanitize::text(&trouble.message)
            ));
        }
    };
    let many = match report.tools.len() {
        1 => "1 tool".to_owned(),
        many => format!("{many} tools"),
    };
    let good = paint.apply(Tone::Good, "ok");
    let said = format!(
        ", {} ms, {} {}, protocol {}, {many}",
        report.duration.0, report.name, report.version, report.protocol
    );
    output::stdout_line(&format!("{}  {good}{}", one.name, sanitize::line(&said)))?;
    let rows: Vec<Vec<Cell>> = report
        .tools
        .iter()
        .map(|tool| {
            let name = format!("  {}", tool.name);
            vec![Cell::new(name), Cell::new(class_name(tool.class))]
        })
        .collect();
    if !rows.is_empty() {
        for line in table_lines(&["  TOOL", "CLASS"], &rows, paint) {
            output::stdout_line(&line)?;
        }
    }
    for note in &report.notes {
        output::stderr_line(&format!("note: {}: {note}", one.name));
    }
    Ok(())
}

fn to_json(one: &CheckResult) -> Value {
    match &one.outcome {
        Ok(report) => {
            let tools = report.tools.iter().map(|tool| {
                json!({
                    "name": tool.name,
                    "class": class_name(tool.class),
                })
            });
            json!({
                "server": one.name,
                "ok": true,
                "name": report.name,
                "version": report.version,
                "protocol": report.protocol,
                "tools": tools.collect::<Value>(),
                "notes": report.notes,
                "duration_ms": report.duration.0,
                "message": null,
                "needs_login": false,
            })
        }
        Err(trouble) => json!({
            "server": one.name,
            "ok": false,
            "tools": [],
            "notes": [],
            "message": trouble.message,
            "needs_login": trouble.needs_login,
        }),
    }
}
