//! `longhaul mcp logout`: forgets the login at a server, and has it taken back there.
//!
//! Never: keeps a login because it could not be taken back, or asks a server that
//! nobody trusts.

use clap::Args;
use longhaul::assemble::mcp_servers;
use longhaul::assemble::mcp_tools::resolve_servers;
use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::trust::decisions::Decisions;
use longhaul::trust::item::TrustItem;
use longhaul_mcp::{LogoutOutcome, Servers};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupts::Interrupts;
use crate::mcp::login::login_error;
use crate::mcp::report::load_project;
use crate::{environment, output, runtime};

#[derive(Debug, Args)]
pub(crate) struct Logout {
    /// Which server of .mcp.json
    #[arg(value_name = "SERVER")]
    name: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Logout {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (config, file) = load_project()?;
        let all = |why: String| CliError::usage(why).hint("all servers", "longhaul mcp ls");
        file.find(&self.name).map_err(all)?;
        let name = &self.name;
        match resolve_servers(&config, &file).get(name) {
            Some(Ok(_)) => {}
            Some(Err(why)) => {
                let words = format!("which address `{name}` has is not known: {why}");
                return Err(all(words).into());
            }
            None => return Err(all(format!("the server `{name}` is switched off")).into()),
        }
        let servers = mcp_servers::servers(&config, &file, &environment::system_clock());
        let may_ask = is_trusted(&config, &file);
        runtime::current_thread()?.block_on(async {
            let mut interrupts = Interrupts::listen()?;
            tokio::select! {
                biased;
                gone = self.log_out(&servers, may_ask) => gone,
                () = interrupts.next() => {
                    output::stderr_line("Stopped; its login is still kept here.");
                    Ok(Exit::Interrupted)
                }
            }
        })
    }

    async fn log_out(&self, servers: &Servers, may_ask: bool) -> anyhow::Result<Exit> {
        let gone = servers.logout(&self.name, may_ask).await.map_err(login_error)?;
        match self.json {
            true => output::stdout_json(&to_json(&self.name, &gone))?,
            false => output::stdout_text(&format!("{}: {}", self.name, describe_outcome(&gone)))?,
        }
        Ok(Exit::Done)
    }
}

/// Whether what the project says of its servers may be acted on.
fn is_trusted(config: &Config, file: &McpFile) -> bool {
    let item = TrustItem::mcp(file);
    item.is_none_or(|item| Decisions::new(config).check(&item).is_ok())
}

const NOT_TRUSTED_REASON: &str = ".mcp.json is not trusted, so nobody was asked";
const NO_REVOCATION_REASON: &str = "it offers no way to take it back";

fn describe_outcome(gone: &LogoutOutcome) -> String {
    match gone {
        LogoutOutcome::NotLoggedIn => "there was no login".to_owned(),
        LogoutOutcome::Revoked => "its login is forgotten, and taken back there".to_owned(),
        LogoutOutcome::RevocationUnsupported => {
            format!("its login is forgotten here; {NO_REVOCATION_REASON}")
        }
        LogoutOutcome::RevocationSkipped => {
            format!(
                "its login is forgotten here; it was not taken back there: {NOT_TRUSTED_REASON}"
            )
        }
        LogoutOutcome::RevocationFailed { reason: why } => {
            format!("its login is forgotten here; it could not be taken back there: {why}")
        }
    }
}

/// What became of it, for programs.
fn to_json(name: &str, gone: &LogoutOutcome) -> Value {
    let (forgotten, revoked, why) = match gone {
        LogoutOutcome::NotLoggedIn => (false, false, None),
        LogoutOutcome::Revoked => (true, true, None),
        LogoutOutcome::RevocationUnsupported => (true, false, Some(NO_REVOCATION_REASON)),
        LogoutOutcome::RevocationSkipped => (true, false, Some(NOT_TRUSTED_REASON)),
        LogoutOutcome::RevocationFailed { reason: why } => (true, false, Some(why.as_str())),
    };
    json!({ "server": name, "removed": forgotten, "revoked": revoked, "reason": why })
}
