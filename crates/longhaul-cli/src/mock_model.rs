//! `longhaul mock-model`: serves scripted replies over the Anthropic and OpenAI APIs, for testing
//! adapters and SDKs without an API key. The mock contacts no other server and ignores API keys.

mod script_folder;
mod server;

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

use axum::serve::ListenerExt as _;
use clap::Args;
use longhaul_core::time::Millis;
use longhaul_model::mock::{FaultSettings, MockProvider, RecurringFailure, ScriptSource as _};
use serde_json::json;

use crate::error::fail;
use crate::exit::Exit;
use crate::format::{count_with_noun, parse_duration};
use crate::mock_model::script_folder::ScriptFolder;
use crate::runtime::{InterruptListener, wait_for_parent_exit};
use crate::server::{bind_listener, local_url, raise_open_file_limit};
use crate::{environment, output, runtime};

/// Default address of the mock. Browsers and Node refuse to connect to some ports, such as 4190.
const LISTEN_DEFAULT: &str = "127.0.0.1:4191";

const EXAMPLES: &str = "Examples:
  longhaul mock-model                              serves scripts/*.yaml at http://127.0.0.1:4191
  longhaul mock-model --scripts tests/replies      another folder of scripts
  longhaul mock-model --listen 127.0.0.1:0 --json  any free port; its URL as JSON on stdout
  longhaul mock-model --latency 200ms --token-delay 20ms
  longhaul mock-model --fail-status 529 --fail-every 5 --cut-every 7

  curl http://127.0.0.1:4191/v1/chat/completions -d \\
    '{\"model\": \"tidy\", \"messages\": [{\"role\": \"user\", \"content\": \"the garden\"}]}'

The model of a request names the script: `tidy` and `scripted/tidy` mean scripts/tidy.yaml, which
is reloaded when it changes. The number of assistant messages in the request decides which
reply is next; the header `x-longhaul-turn: N` overrides it. An `error:` of the script fails
the same request the given number of times; then it is answered.

  POST /v1/messages            Anthropic Messages
  POST /v1/responses           OpenAI Responses
  POST /v1/chat/completions    OpenAI Chat Completions
  GET  /v1/models              the scripts
  GET  /livez
  GET  /stats                  number of requests, bytes of their bodies, and CPU time

The header `x-longhaul-fault` makes one request fail: status=503, cut, stall, garbage or error.
Any key is accepted, and none is needed. SIGTERM and Ctrl-C stop it with exit code 0.";

/// Arguments of `longhaul mock-model`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MockModelCommand {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "HOST:PORT", default_value = LISTEN_DEFAULT)]
    listen: String,
    /// Folder of the scripts with the replies; by default `scripts` in the project
    #[arg(long, value_name = "DIR")]
    scripts: Option<PathBuf>,
    /// Delay before the first byte of a reply, such as 50ms
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    latency: Millis,
    /// Delay between the events of a stream, such as 5ms
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    token_delay: Millis,
    /// HTTP status code of failing requests
    #[arg(
        long,
        value_name = "STATUS",
        default_value_t = 529,
        value_parser = clap::value_parser!(u16).range(400..600),
        requires = "fail_every"
    )]
    fail_status: u16,
    /// Fail every N-th request, with a Retry-After header
    #[arg(long, value_name = "N")]
    fail_every: Option<NonZeroU64>,
    /// Break off every N-th stream in the middle, and close its connection
    #[arg(long, value_name = "N")]
    cut_every: Option<NonZeroU64>,
    /// Print the URL as one JSON object on stdout, and nothing else
    #[arg(long)]
    json: bool,
    /// Stop when stdin is closed: for programs that start the mock and may crash
    #[arg(long, hide = true)]
    until_eof: bool,
}

impl MockModelCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let folder = match &self.scripts {
            Some(folder) => ScriptFolder::new(folder.clone()),
            None => {
                let process_env = environment::current_process_env()?;
                ScriptFolder::for_project(environment::load_config_quietly(&process_env)?.root)
            }
        };
        let path = folder.path().display();
        if folder.is_outside_project() {
            let message = format!("`{path}` is a symlink that leads out of the project");
            return fail(message, "name a folder", "longhaul mock-model --scripts DIR");
        }
        if !folder.path().is_dir() {
            let message = format!("there is no script folder `{path}`");
            return fail(message, "name another one", "longhaul mock-model --scripts DIR");
        }
        raise_open_file_limit();
        let (listener, address) = bind_listener(&self.listen, "mock-model")?;
        let folder = Arc::new(folder);
        let status = self.fail_status;
        let faults = FaultSettings {
            latency: self.latency,
            token_delay: self.token_delay,
            failure: self.fail_every.map(|every| RecurringFailure { status, every }),
            cut_every: self.cut_every,
        };
        let mock = MockProvider::new(Arc::clone(&folder) as _, faults);
        runtime::build_multi_thread_tokio()?.block_on(async {
            let mut interrupts = InterruptListener::listen()?;
            listener.set_nonblocking(true)?;
            // Sends small events at once.
            let listener = tokio::net::TcpListener::from_std(listener)?.tap_io(|stream| {
                _ = stream.set_nodelay(true);
            });
            self.print_url_and_usage(&folder, address)?;
            tokio::select! {
                result = axum::serve(listener, server::router(mock)) => result?,
                () = interrupts.next_signal() => {}
                () = wait_for_parent_exit(self.until_eof) => {}
            }
            Ok(Exit::Done)
        })
    }

    /// Prints the mock's URL and how to use it with SDKs.
    fn print_url_and_usage(
        &self,
        folder: &ScriptFolder,
        address: SocketAddr,
    ) -> anyhow::Result<()> {
        let (url, names) = (local_url(address), folder.script_names());
        if !address.ip().is_loopback() {
            output::eprint_line("warning: other machines can reach this mock, and it needs no key");
        }
        let data =
            json!({ "message": "ready", "url": url, "pid": std::process::id(), "models": names });
        if self.json {
            return output::print_json(&data);
        }
        let (scripts, path) = (count_with_noun(names.len(), "script"), folder.path().display());
        output::eprint_line(&format!(
            "mock-model is ready at {url} with {scripts} of {path}; no AI is called
  Anthropic SDK  ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=any
  OpenAI SDK     OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=any
  Longhaul       [providers.mock] api = \"anthropic\", base_url = \"{url}\"; model: mock/NAME"
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ports that `fetch` refuses, from the table "bad port" of the WHATWG Fetch standard.
    const BAD_PORTS: &[u16] = &[
        0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95,
        101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179,
        389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601,
        636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566,
        6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
    ];

    #[test]
    fn default_port_can_be_fetched_by_browsers_and_node() {
        let address: SocketAddr = LISTEN_DEFAULT.parse().unwrap();
        assert!(!BAD_PORTS.contains(&address.port()), "{address}");
        assert!(EXAMPLES.contains(&format!("http://{address}")), "{EXAMPLES}");
    }
}
