//! `longhaul mcp logout`: forgets the login at a server.
//!
//! Never: asks the server. What it gave ends by itself, or where it is taken back.

use std::sync::Arc;

use clap::Args;
use longhaul::assemble::clients;
use longhaul::assemble::supplies::ready;
use longhaul::mcp::file::McpFile;
use longhaul_core::time::Clock;
use longhaul_engine::clock::SystemClock;
use serde_json::json;

use crate::cli::exit::Exit;
use crate::cli::fail::Failure;
use crate::cli::mcp::login::failed;
use crate::cli::{here, runtime, say};

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
        let here = here::with_env_file_if_sound(here::surroundings()?);
        let config = here::config(&here)?;
        let file = McpFile::of(&config);
        let all = |why: String| Failure::usage(why).hint("all servers", "longhaul mcp ls");
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
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let servers = clients::servers(&config, &file, &clock);
        let gone = runtime::small()?.block_on(servers.logout(name));
        let gone = gone.map_err(failed)?;
        if self.json {
            let told = json!({ "server": name, "forgotten": gone });
            say::data(&told.to_string())?;
            return Ok(Exit::Done);
        }
        say::words(&match gone {
            true => format!("{name}: its login is forgotten here"),
            false => format!("{name}: there was no login"),
        })?;
        Ok(Exit::Done)
    }
}
