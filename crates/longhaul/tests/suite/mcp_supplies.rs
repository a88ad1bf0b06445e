//! The tools of servers as runs get them: who is trusted, who is there, and what
//! is said where something is missing.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul::assemble::clients;
use longhaul::assemble::line::{Line, Report, Unheard};
use longhaul::assemble::supplies::Served;
use longhaul::config::load;
use longhaul::config::settings::Config;
use longhaul::config::surroundings::Surroundings;
use longhaul::mcp::file::McpFile;
use longhaul::trust::decisions::Decisions;
use longhaul::trust::item::Item;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{Epoch, RunId, ToolName};
use longhaul_core::port::tool::{Stay, Tool, ToolCard, ToolContext, ToolFailure};
use longhaul_core::time::{Clock, Timestamp};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::ports::Supplies;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const MCP: &str = r#"{"mcpServers": {
  "github": {"command": "npx"},
  "poor": {"command": "npx", "env": {"A": "${MISSING}"}},
  "off": {"command": "npx", "disabled": true},
  "lost": {"command": "npx"}
}}"#;

#[derive(Debug)]
struct Said(ToolCard);

#[async_trait]
impl Tool for Said {
    fn card(&self) -> &ToolCard {
        &self.0
    }

    async fn call(&self, _: Value, _: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Err(ToolFailure::new("never called"))
    }
}

fn tool(name: &str, schema: Value) -> Arc<dyn Tool> {
    Arc::new(Said(ToolCard {
        name: ToolName::new(name).unwrap(),
        description: String::new(),
        schema,
        verifies: false,
        in_doubt: None,
        timeout: None,
    }))
}

/// Writes down who was asked.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

/// The same, but it never closes.
#[derive(Debug, Default)]
struct Stays(Heard);

#[async_trait]
impl Line for Stays {
    async fn tools(
        &self,
        server: &str,
        name: Option<&str>,
        stay: Stay,
    ) -> Result<Vec<Arc<dyn Tool>>, String> {
        self.0.tools(server, name, stay).await
    }

    async fn check(&self, server: &str) -> Result<Report, Unheard> {
        self.0.check(server).await
    }

    async fn let_go(&self, stay: Stay) {
        self.0.let_go(stay).await;
    }

    async fn close(&self) {
        self.0.close().await;
        std::future::pending().await
    }

    async fn settle(&self) {
        self.0.settle().await;
    }
}

impl Heard {
    fn note(&self, said: String) {
        self.0.lock().unwrap().push(said);
    }
}

#[async_trait]
impl Line for Heard {
    async fn tools(
        &self,
        server: &str,
        name: Option<&str>,
        _stay: Stay,
    ) -> Result<Vec<Arc<dyn Tool>>, String> {
        self.note(format!("{server} {name:?}"));
        match (server, name) {
            ("lost", _) => Err("it ended at once.".to_owned()),
            (_, None) => Ok(vec![
                tool("mcp:github/search", json!({ "type": "object" })),
                tool("mcp:github/broken", json!({ "type": 7 })),
            ]),
            (_, Some("broken")) => Ok(vec![tool("mcp:github/broken", json!({ "type": 7 }))]),
            (_, Some(_)) => Ok(vec![tool("mcp:github/search", json!({ "type": "object" }))]),
        }
    }

    async fn check(&self, _server: &str) -> Result<Report, Unheard> {
        Err(Unheard {
            why: "not asked here".to_owned(),
            needs_login: false,
        })
    }

    async fn let_go(&self, _stay: Stay) {
        self.note("let go".to_owned());
    }

    async fn close(&self) {
        self.note("close".to_owned());
    }

    async fn settle(&self) {
        self.note("settle".to_owned());
    }
}

fn config(root: &Path) -> Config {
    fs::write(root.join("longhaul.toml"), "").unwrap();
    let here = Surroundings {
        cwd: root.to_owned(),
        home: Some(root.join("home")),
        ..Surroundings::default()
    };
    load::load(&here, &[]).unwrap()
}

#[tokio::test]
async fn a_run_gets_the_tools_of_whom_a_person_trusts() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    fs::write(folder.path().join(".mcp.json"), MCP).unwrap();
    let file = McpFile::of(&config);
    let heard = Arc::new(Heard::default());
    let served = Served::new(&config, file.clone(), Arc::clone(&heard) as Arc<dyn Line>);
    let run = Stay {
        run: RunId::from_bits(7),
        epoch: Epoch(1),
    };
    let refused = async |name: &str| {
        let found = Supplies::find(&served, name, run).await;
        found.expect(name).unwrap_err()
    };
    assert!(Supplies::find(&served, "vault_read", run).await.is_none());
    let why = refused("mcp:github").await;
    assert!(
        why.contains("is not trusted yet") && why.contains("`longhaul trust`"),
        "{why}"
    );
    assert_eq!(heard.0.lock().unwrap().len(), 0);
    // A decision that is made meanwhile counts at once.
    let decisions = Decisions::new(&config);
    let item = Item::mcp(&file).unwrap();
    decisions
        .trust(&[&item], Timestamp::from_micros(1))
        .unwrap();
    let found = Supplies::find(&served, "mcp:github", run)
        .await
        .unwrap()
        .unwrap();
    let names: Vec<&str> = found.iter().map(|one| one.card().name.as_str()).collect();
    assert_eq!(names, ["mcp:github/search"]);
    let found = Supplies::find(&served, "mcp:github/search", run).await;
    assert_eq!(found.unwrap().unwrap().len(), 1);
    for (name, says) in [
        ("mcp:github/broken", "its input schema is broken"),
        ("mcp:githup", "Did you mean `github`?"),
        ("mcp:x", "There are: github, poor, off, lost."),
        ("mcp:off", "switched off"),
        ("mcp:poor/x", "the variable MISSING is not set"),
        (
            "mcp:lost",
            "it ended at once. Look with `longhaul mcp check lost`.",
        ),
    ] {
        let why = refused(name).await;
        assert!(why.contains(says), "{name}: {why}");
        assert!(why.contains("`longhaul mcp "), "{name}: {why}");
    }
    decisions.revoke().unwrap();
    assert!(refused("mcp:github").await.contains("`longhaul trust`"));
    Supplies::let_go(&served, run).await;
    served.close().await;
    let heard = heard.0.lock().unwrap().join(", ");
    assert!(heard.ends_with("let go, close, settle"), "{heard}");
}

#[tokio::test]
async fn what_must_not_be_cut_off_is_waited_for_though_servers_do_not_end() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    fs::write(folder.path().join(".mcp.json"), MCP).unwrap();
    let file = McpFile::of(&config);
    let lines: [Arc<Stays>; 2] = Default::default();
    let line = |at: usize| Arc::clone(&lines[at]) as Arc<dyn Line>;
    let served = Served::new(&config, file.clone(), line(0));
    // One is on its way to its end, and one is in use.
    served.take(file, line(1));
    served.close().await;
    for line in lines {
        assert_eq!(*line.0.0.lock().unwrap(), ["close", "settle"]);
    }
}

#[tokio::test]
async fn a_line_that_nobody_waits_for_any_more_is_not_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    fs::write(folder.path().join(".mcp.json"), MCP).unwrap();
    let file = McpFile::of(&config);
    let item = Item::mcp(&file).unwrap();
    let decisions = Decisions::new(&config);
    decisions
        .trust(&[&item], Timestamp::from_micros(1))
        .unwrap();
    let old = Arc::new(Stays::default());
    let served = Served::new(&config, file.clone(), Arc::clone(&old) as Arc<dyn Line>);
    let run = Stay {
        run: RunId::from_bits(7),
        epoch: Epoch(1),
    };
    let found = Supplies::find(&served, "mcp:github", run).await;
    found.unwrap().unwrap();
    served.take(file, Arc::new(Heard::default()));
    let heard = || old.0.0.lock().unwrap()[1..].to_vec();
    let closes = async {
        while heard() != ["let go", "close"] {
            tokio::task::yield_now().await;
        }
    };
    // The run has waited long enough, and stops in the middle of it.
    tokio::select! {
        () = Supplies::let_go(&served, run) => panic!("it never closes"),
        () = closes => {}
    }
    // It is still held, and whoever ends everything finds it.
    assert!(Arc::strong_count(&old) > 1);
    served.close().await;
    assert_eq!(heard(), ["let go", "close", "settle"]);
}

/// Somebody who lets nobody in: where they are.
async fn closed_door(tasks: &mut JoinSet<()>) -> String {
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", door.local_addr().unwrap());
    tasks.spawn(async move {
        let said = "HTTP/1.1 401 No\r\nwww-authenticate: Bearer\r\ncontent-length: 0\r\n\
                    connection: close\r\n\r\n";
        loop {
            let (mut line, _) = door.accept().await.unwrap();
            let mut asked = [0; 4096];
            _ = line.read(&mut asked).await;
            _ = line.write_all(said.as_bytes()).await;
        }
    });
    url
}

#[tokio::test]
async fn a_login_that_is_missing_says_how_runs_go_on() {
    let mut tasks = JoinSet::new();
    let url = closed_door(&mut tasks).await;
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let mcp = json!({ "mcpServers": { "far": { "type": "http", "url": url } } });
    fs::write(folder.path().join(".mcp.json"), mcp.to_string()).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let line = clients::line(&config, &McpFile::of(&config), &clock);
    let run = Stay {
        run: RunId::from_bits(7),
        epoch: Epoch(1),
    };
    let why = line.tools("far", None, run).await.unwrap_err();
    for helps in ["run `longhaul mcp login far`", "`longhaul answer`."] {
        assert!(why.contains(helps), "{why}");
    }
    assert!(line.check("far").await.unwrap_err().needs_login);
    line.close().await;
}

#[tokio::test]
async fn a_line_of_before_is_closed_when_the_last_who_found_tools_on_it_lets_go() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    fs::write(folder.path().join(".mcp.json"), MCP).unwrap();
    let file = McpFile::of(&config);
    let item = Item::mcp(&file).unwrap();
    let decisions = Decisions::new(&config);
    decisions
        .trust(&[&item], Timestamp::from_micros(1))
        .unwrap();
    let lines: [Arc<Heard>; 3] = Default::default();
    let line = |at: usize| Arc::clone(&lines[at]) as Arc<dyn Line>;
    let closed = || {
        let is_closed = |heard: &Arc<Heard>| heard.0.lock().unwrap().contains(&"close".to_owned());
        lines.iter().map(is_closed).collect::<Vec<bool>>()
    };
    let served = Served::new(&config, file.clone(), line(0));
    let [one, other] = [1, 2].map(|epoch| Stay {
        run: RunId::from_bits(7),
        epoch: Epoch(epoch),
    });
    for stay in [one, other] {
        let found = Supplies::find(&served, "mcp:github", stay).await;
        found.unwrap().unwrap();
    }
    served.take(file.clone(), line(1));
    let found = Supplies::find(&served, "mcp:github", other).await;
    found.unwrap().unwrap();
    Supplies::let_go(&served, one).await;
    assert_eq!(closed(), [false, false, false]);
    Supplies::let_go(&served, other).await;
    assert_eq!(closed(), [true, false, false]);
    assert!(
        lines[0]
            .0
            .lock()
            .unwrap()
            .ends_with(&["close".to_owned(), "settle".to_owned()])
    );
    // One that nobody needs at all is closed when another takes its place.
    served.take(file, line(2));
    while !closed()[1] {
        tokio::task::yield_now().await;
    }
    assert_eq!(closed(), [true, true, false]);
    served.close().await;
    assert_eq!(closed(), [true, true, true]);
}

#[tokio::test]
async fn without_a_file_or_with_a_broken_one_the_sentence_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let run = Stay {
        run: RunId::from_bits(7),
        epoch: Epoch(1),
    };
    for (text, says) in [
        (None, "There is no `.mcp.json`"),
        (Some("{"), ".mcp.json:1:1: EOF while parsing"),
    ] {
        if let Some(text) = text {
            fs::write(folder.path().join(".mcp.json"), text).unwrap();
        }
        let line = Arc::new(Heard::default());
        let served = Served::new(&config, McpFile::of(&config), line);
        let found = Supplies::find(&served, "mcp:github", run).await;
        let why = found.unwrap().unwrap_err();
        assert!(why.contains(says), "{why}");
        assert!(Supplies::find(&served, "vault_read", run).await.is_none());
    }
}
