//! `longhaul mock-model`: the scripts of a project over the wires of Anthropic
//! and OpenAI, for adapters and SDKs that have no key.
//!
//! Never: asks anybody, or looks at a key. What it says stands in a file.

mod counts;
mod response;
mod route;
mod script_folder;
mod server;

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use longhaul_core::time::Millis;
use longhaul_model::mock::{Faults, MockProvider, RecurringFailure, ScriptSource as _};
use serde_json::json;

use crate::error::CliError;
use crate::exit::Exit;
use crate::format::parse_duration;
use crate::interrupts::Interrupts;
use crate::mock_model::script_folder::ScriptFolder;
use crate::mock_model::server::MockServer;
use crate::parent_watch::parent_gone;
use crate::server::{local_url, raise_file_limit};
use crate::{environment, output, runtime};

const EXAMPLES: &str = "Examples:
  longhaul mock-model                              plays scripts/*.yaml at http://127.0.0.1:4190
  longhaul mock-model --scripts tests/replies      another folder of scripts
  longhaul mock-model --listen 127.0.0.1:0 --json  any free port; its address as JSON on stdout
  longhaul mock-model --latency 200ms --token-delay 20ms
  longhaul mock-model --fail-status 529 --fail-every 5 --cut-every 7

  curl http://127.0.0.1:4190/v1/chat/completions -d \\
    '{\"model\": \"tidy\", \"messages\": [{\"role\": \"user\", \"content\": \"the garden\"}]}'

The model of a request names the script: `tidy` and `scripted/tidy` are scripts/tidy.yaml, which
is read again when it changes. How many messages of the assistant's are in the request says which
reply is next; the header `x-longhaul-turn: N` says it outright. An `error:` of the script fails
the same request so many times, and then it is answered.

  POST /v1/messages            Anthropic Messages
  POST /v1/responses           OpenAI Responses
  POST /v1/chat/completions    OpenAI Chat Completions
  GET  /v1/models              the scripts
  GET  /livez
  GET  /stats                  how many questions and bytes of them came, and the CPU time they took

The header `x-longhaul-fault` spoils one request: status=503, cut, stall, garbage or error.
Any key is accepted, and none as well. SIGTERM and Ctrl-C end it with 0.";

/// Plays scripts as Anthropic and OpenAI would speak them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MockModel {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4190")]
    listen: String,
    /// The folder of scripts; unless it is said, the project's `scripts`
    #[arg(long, value_name = "DIR")]
    scripts: Option<PathBuf>,
    /// Wait so long before the first byte of a reply, such as 50ms
    #[arg(long, value_name = "SPAN", default_value = "0s", value_parser = parse_duration)]
    latency: Millis,
    /// Wait so long between the events of a stream, such as 5ms
    #[arg(long, value_name = "SPAN", default_value = "0s", value_parser = parse_duration)]
    token_delay: Millis,
    /// What requests fail with
    #[arg(
        long,
        value_name = "STATUS",
        default_value_t = 529,
        value_parser = clap::value_parser!(u16).range(400..600),
        requires = "fail_every"
    )]
    fail_status: u16,
    /// Every N-th request fails, and says when to try again
    #[arg(long, value_name = "N")]
    fail_every: Option<NonZeroU64>,
    /// Every N-th stream is cut off in the middle, and the connection with it
    #[arg(long, value_name = "N")]
    cut_every: Option<NonZeroU64>,
    /// Say where it is as one JSON object on stdout, and nothing to people
    #[arg(long)]
    json: bool,
    /// Stop when stdin is closed: for programs that start it and may die
    #[arg(long, hide = true)]
    until_eof: bool,
}

impl MockModel {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let folder = self.script_folder()?;
        if folder.leaves_project() {
            let shown = folder.path().display();
            let words = format!("`{shown}` is a link that leads out of the project");
            return Err(CliError::usage(words)
                .hint("name a folder", "longhaul mock-model --scripts DIR")
                .into());
        }
        if !folder.path().is_dir() {
            let shown = folder.path().display();
            let words = format!("there is no folder of scripts at `{shown}`");
            return Err(CliError::usage(words)
                .hint("name another", "longhaul mock-model --scripts DIR")
                .into());
        }
        raise_file_limit();
        let (listener, address) = self.bind()?;
        let folder = Arc::new(folder);
        let mock = MockProvider::new(Arc::clone(&folder) as _, self.faults());
        runtime::multi_thread()?.block_on(async {
            let mut interrupts = Interrupts::listen()?;
            let door = MockServer::new(listener, mock)?;
            self.print_ready(&folder, address)?;
            tokio::select! {
                () = door.serve() => {}
                () = interrupts.next() => {}
                () = parent_gone(self.until_eof) => {}
            }
            Ok(Exit::Done)
        })
    }

    fn script_folder(&self) -> anyhow::Result<ScriptFolder> {
        match &self.scripts {
            Some(folder) => Ok(ScriptFolder::new(folder.clone())),
            None => {
                let here = environment::process_env()?;
                Ok(ScriptFolder::for_project(environment::load_config_quietly(&here)?.root))
            }
        }
    }

    fn faults(&self) -> Faults {
        let status = self.fail_status;
        Faults {
            latency: self.latency,
            token_delay: self.token_delay,
            failure: self.fail_every.map(|every| RecurringFailure { status, every }),
            cut_every: self.cut_every,
        }
    }

    fn bind(&self) -> anyhow::Result<(TcpListener, SocketAddr)> {
        let at = &self.listen;
        let bound = TcpListener::bind(at).and_then(|listener| {
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        bound.map_err(|error| {
            let exit = match error.kind() == std::io::ErrorKind::AddrInUse {
                true => Exit::Busy,
                false => Exit::Usage,
            };
            let words = format!("nothing can listen at {at}: {error}");
            let command = "longhaul mock-model --listen 127.0.0.1:0";
            let failure = CliError::usage(words).hint("take any free port", command);
            failure.with_exit(exit).into()
        })
    }

    /// Says where it is, and how to get there.
    fn print_ready(&self, folder: &ScriptFolder, address: SocketAddr) -> anyhow::Result<()> {
        let (url, names) = (local_url(address), folder.names());
        if !address.ip().is_loopback() {
            output::stderr_line(
                "warning: other machines can reach this mock, and it asks nobody for a key",
            );
        }
        if self.json {
            let pid = std::process::id();
            let ready = json!({ "message": "ready", "url": url, "pid": pid, "models": names });
            return output::stdout_json(&ready);
        }
        let (count, shown) = (names.len(), folder.path().display());
        let scripts = if count == 1 { "script" } else { "scripts" };
        output::stderr_line(&format!(
            "mock-model is ready at {url} with {count} {scripts} of {shown}; no AI is asked"
        ));
        for (who, how) in [
            ("Anthropic SDK", format!("ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=any")),
            ("OpenAI SDK", format!("OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=any")),
            (
                "Longhaul",
                format!(
                    "[providers.mock] api = \"anthropic\", base_url = \"{url}\"; model: mock/NAME"
                ),
            ),
        ] {
            output::stderr_line(&format!("  {who:<14} {how}"));
        }
        Ok(())
    }
}
