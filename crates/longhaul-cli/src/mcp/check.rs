//! `longhaul mcp check`: starts the trusted MCP servers concurrently, with a timeout, and lists
//! their tools. An untrusted server is never started.

use clap::Args;
use longhaul_project::config::settings::Config;
use longhaul_project::mcp::file::McpFile;
use longhaul_project::trust::decisions::TrustDecisions;
use longhaul_project::trust::item::TrustItem;
use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::exit::Exit;
use crate::format::{count_with_noun, json_text};
use crate::mcp::ask::{ServerCheckResult, check_mcp_servers};
use crate::mcp::report::{
    find_server, load_config_and_mcp_file, print_problems_and_notes, print_why_no_servers,
};
use crate::style::{Styler, TextTone};
use crate::table;
use crate::trust::confirm;
use crate::{output, runtime, sanitize};

#[derive(Debug, Args)]
pub(crate) struct CheckServersCommand {
    /// Check only these servers; by default all that are not disabled
    #[arg(value_name = "SERVER")]
    names: Vec<String>,
    /// Print the results as one JSON object
    #[arg(long)]
    json: bool,
}

impl CheckServersCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (config, file) = load_config_and_mcp_file()?;
        if let Some(problem) = file.problems.first() {
            return fail(problem.to_string(), "see all problems", "longhaul mcp ls");
        }
        for name in &self.names {
            find_server(&file, name)?;
        }
        let mut names = self.names.clone();
        if names.is_empty() {
            let enabled = file.servers.iter().filter(|server| !server.disabled);
            names.extend(enabled.map(|server| server.name.clone()));
        }
        let checks = match names.is_empty() {
            true => {
                print_why_no_servers(&file);
                Vec::new()
            }
            false => {
                require_mcp_file_trust(&config, &file)?;
                let checks = check_mcp_servers(&config, &file, names);
                runtime::build_multi_thread_tokio()?.block_on(checks)
            }
        };
        let list = checks.iter().map(to_json).collect::<Value>();
        output::show(self.json, &json!({ "checks": list }), |_| {
            checks.iter().try_for_each(print_check_result)?;
            if !checks.is_empty() {
                print_problems_and_notes(&file);
            }
            Ok(())
        })?;
        let failures = checks.iter().filter_map(|one| one.outcome.as_ref().err());
        // Errors that the user has to fix take precedence over transient ones.
        let exit = failures.map(|(exit, _)| *exit).max_by_key(|exit| *exit == Exit::Usage);
        Ok(exit.unwrap_or(Exit::Done))
    }
}

/// Fails if `.mcp.json` is not trusted. If there is a terminal, asks the person there first.
pub(crate) fn require_mcp_file_trust(config: &Config, file: &McpFile) -> anyhow::Result<()> {
    let Some(item) = TrustItem::for_mcp_servers(file) else {
        return Ok(());
    };
    let decisions = TrustDecisions::new(config);
    if decisions.check_trusted(&item).is_err() && output::is_interactive() {
        confirm::ask_for_trust(&decisions, &[&item])?;
    }
    decisions.check_trusted(&item).map_err(|reason| {
        CliError::not_trusted(reason).with_hint("see what it names", "longhaul mcp ls").into()
    })
}

fn print_check_result(result: &ServerCheckResult) -> anyhow::Result<()> {
    let (styler, name) = (Styler::for_stdout(), &result.name);
    let report = match &result.outcome {
        Ok(report) => report,
        Err((_, failure)) => {
            let failed = styler.apply_tone(TextTone::Bad, "failed");
            let message = sanitize::sanitize_text(&failure.message);
            return output::print_line(&format!("{name}  {failed}: {message}"));
        }
    };
    let tool_count = count_with_noun(report.tools.len(), "tool");
    let status = styler.apply_tone(TextTone::Good, "ok");
    let summary = format!(
        ", {} ms, {} {}, protocol {}, {tool_count}",
        report.duration.0, report.name, report.version, report.protocol
    );
    output::print_line(&format!("{name}  {status}{}", sanitize::sanitize_line(&summary)))?;
    if !report.tools.is_empty() {
        let rows = report
            .tools
            .iter()
            .map(|tool| table::row(&[&format!("  {}", tool.name), &json_text(&json!(tool.class))]));
        table::print_table(&["  TOOL", "CLASS"], rows)?;
    }
    for note in &report.notes {
        output::eprint_line(&format!("note: {name}: {note}"));
    }
    Ok(())
}

fn to_json(result: &ServerCheckResult) -> Value {
    match &result.outcome {
        Ok(report) => {
            let tools = report.tools.iter();
            let tools = tools.map(|tool| json!({ "name": tool.name, "class": tool.class }));
            json!({
                "server": result.name, "ok": true, "name": report.name, "version": report.version,
                "protocol": report.protocol, "tools": tools.collect::<Value>(),
                "notes": report.notes, "duration_ms": report.duration.0, "message": null,
                "needs_login": false,
            })
        }
        Err((_, failure)) => json!({
            "server": result.name, "ok": false, "tools": [], "notes": [],
            "message": failure.message, "needs_login": failure.needs_login,
        }),
    }
}
