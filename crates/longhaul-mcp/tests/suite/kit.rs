//! What the tests of servers share: specs, a clock that never lets anybody wait,
//! and somebody who hears how far a call is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::message::Part;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Progress, Stay, Tool, ToolContext, ToolFailure};
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_mcp::{ServerSpec, Servers, Way};
use serde_json::Value;
use tokio::sync::mpsc;

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run to work for.
pub(super) const RUN: Stay = Stay {
    run: RunId::from_bits(7),
    epoch: Epoch(1),
};

/// Waits for something, but not for ever.
pub(super) async fn soon<T>(work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.expect("it takes too long")
}

/// A clock by which every wait is over at once, and remembered.
#[derive(Debug, Default)]
pub(super) struct Hasty(Mutex<(Timestamp, Vec<u64>)>);

impl Hasty {
    /// The waits so far, in milliseconds.
    pub(super) fn waits(&self) -> Vec<u64> {
        self.0.lock().unwrap().1.clone()
    }

    /// Lets time pass.
    pub(super) fn pass(&self, span: Millis) {
        let mut inner = self.0.lock().unwrap();
        inner.0 = inner.0.plus(span);
    }
}

#[async_trait]
impl Clock for Hasty {
    fn now(&self) -> Timestamp {
        self.0.lock().unwrap().0
    }

    async fn sleep(&self, span: Millis) {
        let mut inner = self.0.lock().unwrap();
        inner.1.push(span.0);
        inner.0 = inner.0.plus(span);
    }
}

/// Passes on what it hears.
#[derive(Debug)]
struct Ear(mpsc::UnboundedSender<(Option<u8>, String)>);

impl Progress for Ear {
    fn report(&self, percent: Option<u8>, message: &str) {
        _ = self.0.send((percent, message.to_owned()));
    }
}

pub(super) type Told = mpsc::UnboundedReceiver<(Option<u8>, String)>;

/// What surrounds a call, and what it says of its progress.
pub(super) fn around() -> (ToolContext, Told) {
    let (ear, told) = mpsc::unbounded_channel();
    let mut around = ToolContext::new(RUN.run, CallId { turn: 1, index: 1 }, RUN.epoch);
    around.progress = Arc::new(Ear(ear));
    (around, told)
}

/// The folder with what the judges lean on.
pub(super) fn packages() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let said = std::env::var_os("LONGHAUL_JUDGES").filter(|said| !said.is_empty());
    let folder = here.join(said.map_or_else(|| "target/judges".into(), PathBuf::from));
    let shown = folder.display();
    assert!(
        folder.join("stamp").is_file(),
        "the judges are not ready in {shown}: run scripts/judges"
    );
    folder
}

/// A server that is started.
pub(super) fn stdio(name: &str, command: &Path, args: &[&str]) -> ServerSpec {
    ServerSpec {
        name: name.to_owned(),
        way: Way::Stdio {
            command: command.to_str().unwrap().to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: BTreeMap::new(),
            cwd: None,
        },
        per_run: false,
        timeout: ServerSpec::TIMEOUT,
    }
}

/// A server at an address.
pub(super) fn at(name: &str, url: &str, headers: &[(&str, &str)]) -> ServerSpec {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    ServerSpec {
        name: name.to_owned(),
        way: Way::Http {
            url: url.to_owned(),
            headers: headers.iter().map(owned).collect(),
            login: None,
        },
        per_run: false,
        timeout: ServerSpec::TIMEOUT,
    }
}

/// A server written in Python, of the environment of the judges.
pub(super) fn python(name: &str, args: &[&str]) -> ServerSpec {
    stdio(name, &packages().join("python/bin/python"), args)
}

/// A server that misbehaves, with a folder of its own.
pub(super) fn hostile(mode: &str, folder: &Path) -> ServerSpec {
    let judges = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/judges");
    let program = judges.join("hostile_mcp.py");
    let args = [
        "-B",
        program.to_str().unwrap(),
        mode,
        folder.to_str().unwrap(),
    ];
    python(mode, &args)
}

/// Adds to what a server sees of an environment.
pub(super) fn with_env(mut spec: ServerSpec, name: &str, value: &str) -> ServerSpec {
    if let Way::Stdio { env, .. } = &mut spec.way {
        env.insert(name.to_owned(), value.to_owned());
    }
    spec
}

/// One server, alone.
pub(super) fn alone(spec: ServerSpec) -> (Servers, Arc<Hasty>) {
    let clock = Arc::new(Hasty::default());
    (Servers::new(vec![spec], clock.clone()), clock)
}

/// A tool of a server.
pub(super) async fn tool(servers: &Servers, name: &str) -> Arc<dyn Tool> {
    let server = servers.names().remove(0);
    let mut tools = soon(servers.tools(&server, Some(name), RUN)).await.unwrap();
    assert_eq!(tools.len(), 1);
    tools.remove(0)
}

/// Calls a tool of a server.
pub(super) async fn call(
    servers: &Servers,
    name: &str,
    input: Value,
) -> Result<String, ToolFailure> {
    let tool = tool(servers, name).await;
    let (around, _told) = around();
    soon(tool.call(input, &around))
        .await
        .map(|output| text(&output))
}

/// All words of an output.
pub(super) fn text(output: &ToolOutput) -> String {
    let words = output.content.iter().map(|part| match part {
        Part::Text(text) => text.to_string(),
        Part::Image(image) => format!("{image:?}"),
    });
    words.collect::<Vec<_>>().join("\n")
}

/// The names and classes of what a server has.
pub(super) async fn classes(servers: &Servers) -> BTreeMap<String, EffectClass> {
    let server = servers.names().remove(0);
    let tools = soon(servers.tools(&server, None, RUN)).await.unwrap();
    let class = |tool: &Arc<dyn Tool>| tool.class(&Value::Null);
    let named = |tool: Arc<dyn Tool>| (tool.card().name.as_str().to_owned(), class(&tool));
    tools.into_iter().map(named).collect()
}

/// How many lines a file has.
pub(super) fn lines(folder: &Path, file: &str) -> usize {
    let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    text.lines().count()
}
