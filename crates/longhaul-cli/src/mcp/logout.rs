//! `longhaul mcp logout`: forgets the login at a server, and has it taken back there.
//!
//! Never: keeps a login because it could not be taken back, or asks a server that
//! nobody trusts.

use clap::Args;
use longhaul::assemble::clients;
use longhaul::assemble::supplies::ready;
use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::trust::decisions::Decisions;
use longhaul::trust::item::Item;
use longhaul_mcp::{Forgotten, Servers};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupts::Interrupts;
use crate::mcp::login::failed;
use crate::mcp::report::project;
use crate::{here, runtime, say};

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
        let (config, file) = project()?;
        let all = |why: String| CliError::usage(why).hint("all servers", "longhaul mcp ls");
        file.find(&self.name).map_err(all)?;
        let name = &self.name;
        match ready(&config, &file).get(name) {
            Some(Ok(_)) => {}
            Some(Err(why)) => {
                let words = format!("which address `{name}` has is not known: {why}");
                return Err(all(words).into());
            }
            None => return Err(all(format!("the server `{name}` is switched off")).into()),
        }
        let servers = clients::servers(&config, &file, &here::system_clock());
        let may_ask = is_trusted(&config, &file);
        runtime::small()?.block_on(async {
            let mut interrupts = Interrupts::listen()?;
            tokio::select! {
                biased;
                gone = self.log_out(&servers, may_ask) => gone,
                () = interrupts.next() => {
                    say::talk("Stopped; its login is still kept here.");
                    Ok(Exit::Interrupted)
                }
            }
        })
    }

    async fn log_out(&self, servers: &Servers, may_ask: bool) -> anyhow::Result<Exit> {
        let gone = servers.logout(&self.name, may_ask).await.map_err(failed)?;
        match self.json {
            true => say::json(&shown(&self.name, &gone))?,
            false => say::words(&format!("{}: {}", self.name, said(&gone)))?,
        }
        Ok(Exit::Done)
    }
}

/// Whether what the project says of its servers may be acted on.
fn is_trusted(config: &Config, file: &McpFile) -> bool {
    let item = Item::mcp(file);
    item.is_none_or(|item| Decisions::new(config).check(&item).is_ok())
}

const UNASKED: &str = ".mcp.json is not trusted, so nobody was asked";
const NO_WAY: &str = "it offers no way to take it back";

fn said(gone: &Forgotten) -> String {
    match gone {
        Forgotten::Nothing => "there was no login".to_owned(),
        Forgotten::TakenBack => "its login is forgotten, and taken back there".to_owned(),
        Forgotten::NoWay => format!("its login is forgotten here; {NO_WAY}"),
        Forgotten::Unasked => {
            format!("its login is forgotten here; it was not taken back there: {UNASKED}")
        }
        Forgotten::Here { why } => {
            format!("its login is forgotten here; it could not be taken back there: {why}")
        }
    }
}

/// What became of it, for programs.
fn shown(name: &str, gone: &Forgotten) -> Value {
    let (forgotten, revoked, why) = match gone {
        Forgotten::Nothing => (false, false, None),
        Forgotten::TakenBack => (true, true, None),
        Forgotten::NoWay => (true, false, Some(NO_WAY)),
        Forgotten::Unasked => (true, false, Some(UNASKED)),
        Forgotten::Here { why } => (true, false, Some(why.as_str())),
    };
    json!({ "server": name, "forgotten": forgotten, "revoked": revoked, "why": why })
}
