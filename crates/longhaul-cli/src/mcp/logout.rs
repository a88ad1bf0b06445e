//! `longhaul mcp logout`: deletes the login for an MCP server and revokes it at the server. The
//! login is deleted even if it can't be revoked, and an untrusted server is not contacted.

use clap::Args;
use longhaul::assemble::mcp_servers;
use longhaul::assemble::mcp_tools::resolve_enabled_servers;
use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::trust::decisions::TrustDecisions;
use longhaul::trust::item::TrustItem;
use longhaul_mcp::{LogoutOutcome, McpServers};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupts::InterruptListener;
use crate::mcp::login::login_error;
use crate::mcp::report::load_config_and_mcp_file;
use crate::{environment, output, runtime};

#[derive(Debug, Args)]
pub(crate) struct LogoutCommand {
    /// Name of the server in .mcp.json
    #[arg(value_name = "SERVER")]
    name: String,
    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
}

impl LogoutCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (config, file) = load_config_and_mcp_file()?;
        let error_with_hint = |message: String| {
            CliError::usage_error(message).with_hint("all servers", "longhaul mcp ls")
        };
        file.find_server(&self.name).map_err(error_with_hint)?;
        let name = &self.name;
        match resolve_enabled_servers(&config, &file).get(name) {
            Some(Ok(_)) => {}
            Some(Err(reason)) => {
                let message = format!("the address of the server `{name}` is unknown: {reason}");
                return Err(error_with_hint(message).into());
            }
            None => return Err(error_with_hint(format!("the server `{name}` is disabled")).into()),
        }
        let servers = mcp_servers::create_mcp_servers(&config, &file, &environment::system_clock());
        let may_contact_server = is_mcp_file_trusted(&config, &file);
        runtime::build_single_thread_tokio()?.block_on(async {
            let mut interrupts = InterruptListener::listen()?;
            tokio::select! {
                biased;
                outcome = self.log_out(&servers, may_contact_server) => outcome,
                () = interrupts.next_signal() => {
                    output::eprint_line("Stopped; the login is still stored here.");
                    Ok(Exit::Interrupted)
                }
            }
        })
    }

    async fn log_out(
        &self,
        servers: &McpServers,
        may_contact_server: bool,
    ) -> anyhow::Result<Exit> {
        let outcome = servers.logout(&self.name, may_contact_server).await.map_err(login_error)?;
        match self.json {
            true => output::print_json(&to_json(&self.name, &outcome))?,
            false => output::print_text(&format!(
                "{}: {}",
                self.name,
                describe_logout_outcome(&outcome)
            ))?,
        }
        Ok(Exit::Done)
    }
}

/// Returns whether the project's `.mcp.json` is trusted.
fn is_mcp_file_trusted(config: &Config, file: &McpFile) -> bool {
    let item = TrustItem::for_mcp_servers(file);
    item.is_none_or(|item| TrustDecisions::new(config).check_trusted(&item).is_ok())
}

const NOT_TRUSTED_REASON: &str = ".mcp.json is not trusted, so the server was not contacted";
const NO_REVOCATION_REASON: &str = "the server does not support revocation";

fn describe_logout_outcome(outcome: &LogoutOutcome) -> String {
    match outcome {
        LogoutOutcome::NotLoggedIn => "there was no login".to_owned(),
        LogoutOutcome::Revoked => "the login is deleted, and revoked at the server".to_owned(),
        LogoutOutcome::RevocationUnsupported => {
            format!("the login is deleted on this machine; {NO_REVOCATION_REASON}")
        }
        LogoutOutcome::RevocationSkipped => {
            format!(
                "the login is deleted on this machine, but not revoked at the server: \
                 {NOT_TRUSTED_REASON}"
            )
        }
        LogoutOutcome::RevocationFailed { reason } => {
            format!(
                "the login is deleted on this machine, but can't be revoked at the server: {reason}"
            )
        }
    }
}

fn to_json(server_name: &str, outcome: &LogoutOutcome) -> Value {
    let (is_removed, is_revoked, reason) = match outcome {
        LogoutOutcome::NotLoggedIn => (false, false, None),
        LogoutOutcome::Revoked => (true, true, None),
        LogoutOutcome::RevocationUnsupported => (true, false, Some(NO_REVOCATION_REASON)),
        LogoutOutcome::RevocationSkipped => (true, false, Some(NOT_TRUSTED_REASON)),
        LogoutOutcome::RevocationFailed { reason } => (true, false, Some(reason.as_str())),
    };
    json!({ "server": server_name, "removed": is_removed, "revoked": is_revoked, "reason": reason })
}
