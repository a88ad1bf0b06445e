//! The tools that the servers of `.mcp.json` bring, under names such as
//! `mcp:github` and `mcp:github/search`.
//!
//! Never: a server that nobody trusts, and never a reason without what helps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use longhaul_core::port::tool::Stay;
use longhaul_engine::ports::Supplies;
use longhaul_engine::toolbox::Equipped;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::assemble::line::Line;
use crate::assemble::slow::Slow;
use crate::config::settings::Config;
use crate::mcp::file::McpFile;
use crate::mcp::filled::Filled;
use crate::mcp::name::{EVERY, FILE_NAME, named};
use crate::trust::decisions::Decisions;
use crate::trust::item::Item;

/// So long is waited for servers to close when everything ends.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// A server of the file, and how it is started; the error says why it can't be.
pub type Ready = BTreeMap<String, Result<Filled, String>>;

/// The servers of a project.
#[derive(Debug)]
pub struct Served {
    config: Config,
    decisions: Decisions,
    now: Mutex<Arc<State>>,
    /// Those of before: runs that began with them go on with them.
    before: Mutex<Vec<Arc<State>>>,
    closing: Mutex<Closing>,
    slow: Slow,
}

/// Lines that nobody needs any more, on their way to an end.
#[derive(Debug, Default)]
struct Closing {
    lines: Vec<Arc<dyn Line>>,
    tasks: JoinSet<()>,
}

/// The file as it was read, and the line to its servers.
#[derive(Debug)]
struct State {
    file: McpFile,
    ready: Ready,
    line: Arc<dyn Line>,
    /// Who asked for tools on this line and has not let go.
    stays: Mutex<BTreeSet<Stay>>,
}

impl State {
    fn new(file: McpFile, ready: Ready, line: Arc<dyn Line>) -> Arc<Self> {
        Arc::new(Self {
            file,
            ready,
            line,
            stays: Mutex::default(),
        })
    }

    fn stays(&self) -> MutexGuard<'_, BTreeSet<Stay>> {
        self.stays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every server that is not switched off, with its variables filled in.
pub fn ready(config: &Config, file: &McpFile) -> Ready {
    // What `.env` says counts as it was when the file was looked at.
    let env = config.env.refiled(&file.filed);
    let used = file.servers.iter().filter(|server| !server.disabled);
    let filled = used.map(|server| {
        let filled = Filled::of(server, &env, &config.root);
        (server.name.clone(), filled)
    });
    filled.collect()
}

impl Served {
    /// The servers of this file, asked over this line.
    pub fn new(config: &Config, file: McpFile, line: Arc<dyn Line>) -> Self {
        let ready = ready(config, &file);
        Self {
            config: config.clone(),
            decisions: Decisions::new(config),
            now: Mutex::new(State::new(file, ready, line)),
            before: Mutex::default(),
            closing: Mutex::default(),
            slow: Slow::default(),
        }
    }

    /// Whoever waits for a server that does not answer soon is told by this.
    pub fn when_slow(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        self.slow.tell(tell);
    }

    /// The file that counts now.
    pub fn file(&self) -> McpFile {
        self.now().file.clone()
    }

    fn now(&self) -> Arc<State> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&now)
    }

    /// The line for this stay. Noted before anybody can put another in its place, so
    /// that it is not closed meanwhile.
    fn line_for(&self, stay: Stay) -> Arc<dyn Line> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.stays().insert(stay);
        Arc::clone(&now.line)
    }

    /// Whether the server of this name may be started and can be.
    ///
    /// # Errors
    /// Why not, in a sentence that says what to do.
    pub fn may(&self, name: &str) -> Result<(), String> {
        let state = self.now();
        if state.file.find(name)?.disabled {
            return Err(format!(
                "The server `{name}` is switched off in `{FILE_NAME}`. \
                 Take `disabled` out there, and look with `longhaul mcp ls`."
            ));
        }
        if let Some(Err(why)) = state.ready.get(name) {
            return Err(format!(
                "The server `{name}` of `{FILE_NAME}` can't be started: {why}. \
                 Look with `longhaul mcp ls`."
            ));
        }
        self.trusted(&state.file)
    }

    fn trusted(&self, file: &McpFile) -> Result<(), String> {
        let item = Item::mcp(file);
        item.map_or(Ok(()), |item| self.decisions.check(&item))
    }

    /// The file as it stands now, where it is another than the one in use; the
    /// error says why it can't take its place.
    pub fn news(&self) -> Option<Result<McpFile, String>> {
        let file = McpFile::of(&self.config);
        if file == self.now().file {
            return None;
        }
        if let Some(problem) = file.problems.first() {
            return Some(Err(problem.to_string()));
        }
        Some(self.trusted(&file).map(|()| file))
    }

    /// From now on this file counts, and this line. The one of before is closed when
    /// nobody needs it any more.
    pub fn take(&self, file: McpFile, line: Arc<dyn Line>) {
        self.put(file, line);
        // Nobody waits here: they end on their own.
        drop(self.end_unneeded());
    }

    fn put(&self, file: McpFile, line: Arc<dyn Line>) {
        let ready = ready(&self.config, &file);
        let state = State::new(file, ready, line);
        // Whoever lets go meanwhile finds it in one place or the other.
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        before.push(std::mem::replace(&mut *now, state));
    }

    /// Begins to end the lines that nobody needs any more, and says of each when it has
    /// ended. Whoever does not wait for that cuts nothing off, and a close of all still
    /// finds them.
    fn end_unneeded(&self) -> Vec<oneshot::Receiver<()>> {
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        while closing.tasks.try_join_next().is_some() {}
        if closing.tasks.is_empty() {
            closing.lines.clear();
        }
        let begin = |line: Arc<dyn Line>| {
            let (tell, told) = oneshot::channel();
            closing.lines.push(Arc::clone(&line));
            closing.tasks.spawn(async move {
                end(&*line).await;
                // Nobody may wait for it any more.
                _ = tell.send(());
            });
            told
        };
        self.unneeded().into_iter().map(begin).collect()
    }

    /// Takes out the lines of before that nobody needs any more.
    fn unneeded(&self) -> Vec<Arc<dyn Line>> {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let unneeded = before.extract_if(.., |state| state.stays().is_empty());
        unneeded.map(|state| Arc::clone(&state.line)).collect()
    }

    /// All whose lines are open.
    fn states(&self) -> Vec<Arc<State>> {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        before.iter().cloned().chain([self.now()]).collect()
    }

    /// Closes everything, and waits no longer than it must. A server that does not end
    /// is left alone; what must come to its end, on any line, has its own time for that.
    pub async fn close(&self) {
        let (closing, states) = {
            // Whoever lets go meanwhile finds a line in one place or the other, and so do we.
            let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut *closing), self.states())
        };
        close_all(closing, &states).await;
    }

    /// Replaces the connections at once; the returned future closes the old ones.
    pub fn restart(&self, file: McpFile, line: Arc<dyn Line>) -> impl Future<Output = ()> + use<> {
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        self.put(file, line);
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let (closing, states) = (std::mem::take(&mut *closing), std::mem::take(&mut *before));
        async move { close_all(closing, &states).await }
    }

    async fn tools(
        &self,
        server: &str,
        tool: Option<&str>,
        stay: Stay,
    ) -> Result<Vec<Equipped>, String> {
        self.may(server)?;
        let line = self.line_for(stay);
        let asked = self.slow.wait(server, line.tools(server, tool, stay)).await;
        let tools = asked.map_err(|why| {
            let stop = match why.ends_with(['.', '?', '!']) {
                true => "",
                false => ".",
            };
            format!(
                "The server `{server}` of `{FILE_NAME}` can't be used: {why}{stop} \
                 Look with `longhaul mcp check {server}`."
            )
        })?;
        let mut equipped = Vec::new();
        for tool in tools {
            let name = tool.card().name.clone();
            match Equipped::new(tool) {
                Ok(tool) => equipped.push(tool),
                Err(why) => tracing::warn!(server, tool = %name, "left out: {why}"),
            }
        }
        match (equipped.is_empty(), tool) {
            (true, Some(tool)) => Err(format!(
                "The tool `{tool}` of the server `{server}` can't be used: its input schema is \
                 broken. Look with `longhaul mcp check {server}`."
            )),
            (_, Some(_) | None) => Ok(equipped),
        }
    }

    /// The tools of every server that is not switched off.
    async fn all(&self, stay: Stay) -> Result<Vec<Equipped>, String> {
        let state = self.now();
        // Nobody knows who all are.
        if let Some(why) = state.file.unusable() {
            return Err(format!("{why}."));
        }
        let used = state.file.servers.iter().filter(|server| !server.disabled);
        let asked = join_all(used.map(|server| self.tools(&server.name, None, stay))).await;
        let tools: Result<Vec<_>, String> = asked.into_iter().collect();
        Ok(tools?.into_iter().flatten().collect())
    }
}

#[async_trait]
impl Supplies for Served {
    async fn find(&self, name: &str, stay: Stay) -> Option<Result<Vec<Equipped>, String>> {
        Some(match named(name)? {
            (EVERY, None) => self.all(stay).await,
            (server, tool) => self.tools(server, tool, stay).await,
        })
    }

    async fn let_go(&self, stay: Stay) {
        let states = self.states();
        join_all(states.iter().map(|state| state.line.let_go(stay))).await;
        for state in &states {
            state.stays().remove(&stay);
        }
        // An error says that a close of all has taken it over.
        join_all(self.end_unneeded()).await;
    }
}

async fn close_all(closing: Closing, states: &[Arc<State>]) {
    let Closing {
        mut lines,
        mut tasks,
    } = closing;
    let all = async {
        join_all(states.iter().map(|state| state.line.close())).await;
        while tasks.join_next().await.is_some() {}
    };
    if tokio::time::timeout(CLOSE_MAX, all).await.is_err() {
        tracing::warn!("some servers of tools did not end in time, and are left to the system");
    }
    lines.extend(states.iter().map(|state| Arc::clone(&state.line)));
    join_all(lines.iter().map(|line| line.settle())).await;
}

/// Ends a line: when it is dropped after that, nothing is cut off.
async fn end(line: &dyn Line) {
    line.close().await;
    line.settle().await;
}
