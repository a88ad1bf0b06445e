//! Helpers of the server tests: specs, a clock whose sleeps return at once, and a receiver of
//! progress.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::message::Part;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Progress, RunClaimId, Tool, ToolContext, ToolFailure};
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_mcp::{McpServers, ServerSpec, ServerTransport};
use serde_json::Value;
use tokio::sync::mpsc;

/// Timeout of every wait in these tests.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The claim that calls are made for.
pub(super) const RUN: RunClaimId = RunClaimId { run: RunId::from_bits(7), epoch: Epoch(1) };

/// Awaits a future with a timeout.
pub(super) async fn within_timeout<T>(work: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(TIMEOUT, work).await;
    result.expect("timed out")
}

/// A clock whose sleeps return at once and are recorded.
#[derive(Debug, Default)]
pub(super) struct SkippingClock(Mutex<(Timestamp, Vec<u64>)>);

impl SkippingClock {
    /// Returns the durations of all sleeps so far in milliseconds.
    pub(super) fn sleeps(&self) -> Vec<u64> {
        self.0.lock().unwrap().1.clone()
    }

    pub(super) fn advance(&self, duration: Millis) {
        let mut inner = self.0.lock().unwrap();
        inner.0 = inner.0.plus(duration);
    }
}

#[async_trait]
impl Clock for SkippingClock {
    fn now(&self) -> Timestamp {
        self.0.lock().unwrap().0
    }

    async fn sleep(&self, duration: Millis) {
        let mut inner = self.0.lock().unwrap();
        inner.1.push(duration.0);
        inner.0 = inner.0.plus(duration);
    }
}

/// Sends reported progress to a channel.
#[derive(Debug)]
struct ChannelProgress(mpsc::UnboundedSender<(Option<u8>, String)>);

impl Progress for ChannelProgress {
    fn report(&self, percent: Option<u8>, message: &str) {
        _ = self.0.send((percent, message.to_owned()));
    }
}

pub(super) type ProgressReceiver = mpsc::UnboundedReceiver<(Option<u8>, String)>;

/// Returns the context of a call, and the receiver of its progress.
pub(super) fn tool_context() -> (ToolContext, ProgressReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut ctx = ToolContext::new(RUN.run, CallId { turn: 1, index: 1 }, RUN.epoch);
    ctx.progress = Arc::new(ChannelProgress(sender));
    (ctx, receiver)
}

/// Returns the directory of the installed external programs.
pub(super) fn packages() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let configured =
        std::env::var_os("LONGHAUL_INTEROP_DIR").filter(|configured| !configured.is_empty());
    let folder = root.join(configured.map_or_else(|| "target/interop".into(), PathBuf::from));
    let path = folder.display();
    assert!(
        folder.join("stamp").is_file(),
        "the interop programs are not installed in {path}: run scripts/interop"
    );
    folder
}

pub(super) fn stdio_spec(name: &str, command: &Path, args: &[&str]) -> ServerSpec {
    ServerSpec {
        name: name.to_owned(),
        transport: ServerTransport::Stdio {
            command: command.to_str().unwrap().to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: BTreeMap::new(),
            cwd: None,
        },
        per_run: false,
        timeout: ServerSpec::TIMEOUT,
    }
}

pub(super) fn http_spec(name: &str, url: &str, headers: &[(&str, &str)]) -> ServerSpec {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    ServerSpec {
        name: name.to_owned(),
        transport: ServerTransport::Http {
            url: url.to_owned(),
            headers: headers.iter().map(owned).collect(),
            login: None,
        },
        per_run: false,
        timeout: ServerSpec::TIMEOUT,
    }
}

/// Returns the spec of a Python server in the installed environment.
pub(super) fn python_spec(name: &str, args: &[&str]) -> ServerSpec {
    stdio_spec(name, &packages().join("python/bin/python"), args)
}

/// Returns the spec of a server that misbehaves and has a directory of its own.
pub(super) fn hostile_spec(mode: &str, folder: &Path) -> ServerSpec {
    let interop_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop");
    let program = interop_dir.join("hostile_mcp.py");
    let args = ["-B", program.to_str().unwrap(), mode, folder.to_str().unwrap()];
    python_spec(mode, &args)
}

/// Adds an environment variable to a spec.
pub(super) fn with_env(mut spec: ServerSpec, name: &str, value: &str) -> ServerSpec {
    if let ServerTransport::Stdio { env, .. } = &mut spec.transport {
        env.insert(name.to_owned(), value.to_owned());
    }
    spec
}

pub(super) fn single_server(spec: ServerSpec) -> (McpServers, Arc<SkippingClock>) {
    let clock = Arc::new(SkippingClock::default());
    (McpServers::new(vec![spec], clock.clone()), clock)
}

/// Returns a tool of the only server.
pub(super) async fn tool(servers: &McpServers, name: &str) -> Arc<dyn Tool> {
    let server = servers.server_names().remove(0);
    let mut tools = within_timeout(servers.server_tools(&server, Some(name), RUN)).await.unwrap();
    assert_eq!(tools.len(), 1);
    tools.remove(0)
}

/// Calls a tool of the only server.
pub(super) async fn call(
    servers: &McpServers,
    name: &str,
    input: Value,
) -> Result<String, ToolFailure> {
    let tool = tool(servers, name).await;
    let (ctx, _progress) = tool_context();
    within_timeout(tool.call(input, &ctx)).await.map(|output| text(&output))
}

pub(super) fn text(output: &ToolOutput) -> String {
    let texts = output.content.iter().map(|part| match part {
        Part::Text(text) => text.to_string(),
        Part::Image(image) => format!("{image:?}"),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns the names and effect classes of a server's tools.
pub(super) async fn classes(servers: &McpServers) -> BTreeMap<String, EffectClass> {
    let server = servers.server_names().remove(0);
    let tools = within_timeout(servers.server_tools(&server, None, RUN)).await.unwrap();
    let class = |tool: &Arc<dyn Tool>| tool.class(&Value::Null);
    let name_and_class = |tool: Arc<dyn Tool>| (tool.spec().name.as_str().to_owned(), class(&tool));
    tools.into_iter().map(name_and_class).collect()
}

/// Returns the number of lines of a file.
pub(super) fn lines(folder: &Path, file: &str) -> usize {
    let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    text.lines().count()
}
