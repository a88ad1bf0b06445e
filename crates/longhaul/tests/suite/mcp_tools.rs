//! Tests of the MCP tools that runs receive: trust, missing servers and error messages.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul::assemble::mcp_client::{McpCheckError, McpClient, McpServerReport};
use longhaul::assemble::mcp_servers;
use longhaul::assemble::mcp_tools::McpTools;
use longhaul::config::load;
use longhaul::config::process_env::ProcessEnv;
use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::trust::decisions::TrustDecisions;
use longhaul::trust::item::TrustItem;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{Epoch, RunId, ToolName};
use longhaul_core::port::tool::{RunClaimId, Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::time::{Clock, Timestamp};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::services::ExternalToolSource;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const MCP_FILE: &str = r#"{"mcpServers": {
  "github": {"command": "npx"},
  "poor": {"command": "npx", "env": {"A": "${MISSING}"}},
  "off": {"command": "npx", "disabled": true},
  "lost": {"command": "npx"}
}}"#;

#[derive(Debug)]
struct UncallableTool(ToolSpec);

#[async_trait]
impl Tool for UncallableTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, _: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Err(ToolFailure::new("never called"))
    }
}

fn tool(name: &str, schema: Value) -> Arc<dyn Tool> {
    Arc::new(UncallableTool(ToolSpec {
        name: ToolName::new(name).unwrap(),
        description: String::new(),
        schema,
        can_verify: false,
        in_doubt: None,
        timeout: None,
    }))
}

/// A client that records its calls.
#[derive(Debug, Default)]
struct RecordingClient(Mutex<Vec<String>>);

/// A client that records its calls and never finishes closing.
#[derive(Debug, Default)]
struct NeverClosingClient(RecordingClient);

#[async_trait]
impl McpClient for NeverClosingClient {
    async fn list_server_tools(
        &self,
        server: &str,
        name: Option<&str>,
        claim_id: RunClaimId,
    ) -> Result<Vec<Arc<dyn Tool>>, String> {
        self.0.list_server_tools(server, name, claim_id).await
    }

    async fn check_server(&self, server: &str) -> Result<McpServerReport, McpCheckError> {
        self.0.check_server(server).await
    }

    async fn close_connections_of_run_claim(&self, claim_id: RunClaimId) {
        self.0.close_connections_of_run_claim(claim_id).await;
    }

    async fn close_all_connections(&self) {
        self.0.close_all_connections().await;
        std::future::pending().await
    }

    async fn wait_for_token_refreshes(&self) {
        self.0.wait_for_token_refreshes().await;
    }
}

impl RecordingClient {
    fn record(&self, entry: String) {
        self.0.lock().unwrap().push(entry);
    }
}

#[async_trait]
impl McpClient for RecordingClient {
    async fn list_server_tools(
        &self,
        server: &str,
        name: Option<&str>,
        _claim: RunClaimId,
    ) -> Result<Vec<Arc<dyn Tool>>, String> {
        self.record(format!("{server} {name:?}"));
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

    async fn check_server(&self, _server: &str) -> Result<McpServerReport, McpCheckError> {
        Err(McpCheckError { message: "not used in this test".to_owned(), needs_login: false })
    }

    async fn close_connections_of_run_claim(&self, _claim: RunClaimId) {
        self.record("let go".to_owned());
    }

    async fn close_all_connections(&self) {
        self.record("close".to_owned());
    }

    async fn wait_for_token_refreshes(&self) {
        self.record("settle".to_owned());
    }
}

fn config(root: &Path) -> Config {
    fs::write(root.join("longhaul.toml"), "").unwrap();
    let here =
        ProcessEnv { cwd: root.to_owned(), home: Some(root.join("home")), ..ProcessEnv::default() };
    load::load(&here, &[]).unwrap()
}

#[tokio::test]
async fn a_run_gets_the_tools_of_trusted_servers() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    fs::write(folder.path().join(".mcp.json"), MCP_FILE).unwrap();
    let file = McpFile::load(&config);
    let client = Arc::new(RecordingClient::default());
    let served = McpTools::new(&config, file.clone(), Arc::clone(&client) as Arc<dyn McpClient>);
    let run = RunClaimId { run: RunId::from_bits(7), epoch: Epoch(1) };
    let refused = async |name: &str| {
        let found = ExternalToolSource::load_tools(&served, name, run).await;
        found.expect(name).unwrap_err()
    };
    assert!(ExternalToolSource::load_tools(&served, "vault_read", run).await.is_none());
    let why = refused("mcp:github").await;
    assert!(why.contains("is not trusted yet") && why.contains("`longhaul trust`"), "{why}");
    assert_eq!(client.0.lock().unwrap().len(), 0);
    // A decision takes effect at once.
    let decisions = TrustDecisions::new(&config);
    let item = TrustItem::for_mcp_servers(&file).unwrap();
    decisions.record_trust(&[&item], Timestamp::from_micros(1)).unwrap();
    let found = ExternalToolSource::load_tools(&served, "mcp:github", run).await.unwrap().unwrap();
    let names: Vec<&str> = found.iter().map(|one| one.spec().name.as_str()).collect();
    assert_eq!(names, ["mcp:github/search"]);
    let found = ExternalToolSource::load_tools(&served, "mcp:github/search", run).await;
    assert_eq!(found.unwrap().unwrap().len(), 1);
    for (name, expected) in [
        ("mcp:github/broken", "its input schema is invalid"),
        ("mcp:githup", "Did you mean `github`?"),
        ("mcp:x", "The servers are: github, poor, off, lost."),
        ("mcp:off", "is disabled"),
        ("mcp:poor/x", "the variable MISSING is not set"),
        ("mcp:lost", "it ended at once. Run `longhaul mcp check lost`."),
    ] {
        let why = refused(name).await;
        assert!(why.contains(expected), "{name}: {why}");
        assert!(why.contains("`longhaul mcp "), "{name}: {why}");
    }
    decisions.revoke_all_and_count().unwrap();
    assert!(refused("mcp:github").await.contains("`longhaul trust`"));
    ExternalToolSource::release_tools(&served, run).await;
    served.close_mcp_clients().await;
    let client = client.0.lock().unwrap().join(", ");
    assert!(client.ends_with("let go, close, settle"), "{client}");
}

#[tokio::test]
async fn close_waits_for_token_refreshes_though_servers_do_not_stop() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    fs::write(folder.path().join(".mcp.json"), MCP_FILE).unwrap();
    let file = McpFile::load(&config);
    let lines: [Arc<NeverClosingClient>; 2] = Default::default();
    let line = |at: usize| Arc::clone(&lines[at]) as Arc<dyn McpClient>;
    let served = McpTools::new(&config, file.clone(), line(0));
    // The first client is being closed, and the second one is in use.
    served.replace_servers(file, line(1));
    served.close_mcp_clients().await;
    for line in lines {
        assert_eq!(*line.0.0.lock().unwrap(), ["close", "settle"]);
    }
}

#[tokio::test]
async fn closing_a_client_continues_when_its_waiter_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    fs::write(folder.path().join(".mcp.json"), MCP_FILE).unwrap();
    let file = McpFile::load(&config);
    let item = TrustItem::for_mcp_servers(&file).unwrap();
    let decisions = TrustDecisions::new(&config);
    decisions.record_trust(&[&item], Timestamp::from_micros(1)).unwrap();
    let old = Arc::new(NeverClosingClient::default());
    let served = McpTools::new(&config, file.clone(), Arc::clone(&old) as Arc<dyn McpClient>);
    let run = RunClaimId { run: RunId::from_bits(7), epoch: Epoch(1) };
    let found = ExternalToolSource::load_tools(&served, "mcp:github", run).await;
    found.unwrap().unwrap();
    served.replace_servers(file, Arc::new(RecordingClient::default()));
    let log = || old.0.0.lock().unwrap()[1..].to_vec();
    let closes = async {
        while log() != ["let go", "close"] {
            tokio::task::yield_now().await;
        }
    };
    // The run stops waiting in the middle of the release.
    tokio::select! {
        () = ExternalToolSource::release_tools(&served, run) => panic!("the client never finishes closing"),
        () = closes => {}
    }
    // The client is still referenced, so that `close_mcp_clients` can finish closing it.
    assert!(Arc::strong_count(&old) > 1);
    served.close_mcp_clients().await;
    assert_eq!(log(), ["let go", "close", "settle"]);
}

/// Starts a server that answers every request with 401. Returns its URL.
async fn unauthorized_server(tasks: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tasks.spawn(async move {
        let response = "HTTP/1.1 401 No\r\nwww-authenticate: Bearer\r\ncontent-length: 0\r\n\
                    connection: close\r\n\r\n";
        loop {
            let (mut line, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            _ = line.read(&mut request).await;
            _ = line.write_all(response.as_bytes()).await;
        }
    });
    url
}

#[tokio::test]
async fn a_missing_login_names_how_runs_resume() {
    let mut tasks = JoinSet::new();
    let url = unauthorized_server(&mut tasks).await;
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let mcp = json!({ "mcpServers": { "far": { "type": "http", "url": url } } });
    fs::write(folder.path().join(".mcp.json"), mcp.to_string()).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let line = mcp_servers::create_mcp_client(&config, &McpFile::load(&config), &clock);
    let run = RunClaimId { run: RunId::from_bits(7), epoch: Epoch(1) };
    let why = line.list_server_tools("far", None, run).await.unwrap_err();
    for helps in ["run `longhaul mcp login far`", "`longhaul resume`."] {
        assert!(why.contains(helps), "{why}");
    }
    assert!(line.check_server("far").await.unwrap_err().needs_login);
    line.close_all_connections().await;
}

#[tokio::test]
async fn a_replaced_client_is_closed_when_its_last_claim_is_released() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    fs::write(folder.path().join(".mcp.json"), MCP_FILE).unwrap();
    let file = McpFile::load(&config);
    let item = TrustItem::for_mcp_servers(&file).unwrap();
    let decisions = TrustDecisions::new(&config);
    decisions.record_trust(&[&item], Timestamp::from_micros(1)).unwrap();
    let lines: [Arc<RecordingClient>; 3] = Default::default();
    let line = |at: usize| Arc::clone(&lines[at]) as Arc<dyn McpClient>;
    let closed = || {
        let is_closed =
            |client: &Arc<RecordingClient>| client.0.lock().unwrap().contains(&"close".to_owned());
        lines.iter().map(is_closed).collect::<Vec<bool>>()
    };
    let served = McpTools::new(&config, file.clone(), line(0));
    let [one, other] =
        [1, 2].map(|epoch| RunClaimId { run: RunId::from_bits(7), epoch: Epoch(epoch) });
    for claim_id in [one, other] {
        let found = ExternalToolSource::load_tools(&served, "mcp:github", claim_id).await;
        found.unwrap().unwrap();
    }
    served.replace_servers(file.clone(), line(1));
    let found = ExternalToolSource::load_tools(&served, "mcp:github", other).await;
    found.unwrap().unwrap();
    ExternalToolSource::release_tools(&served, one).await;
    assert_eq!(closed(), [false, false, false]);
    ExternalToolSource::release_tools(&served, other).await;
    assert_eq!(closed(), [true, false, false]);
    assert!(lines[0].0.lock().unwrap().ends_with(&["close".to_owned(), "settle".to_owned()]));
    // A client without users is closed as soon as it is replaced.
    served.replace_servers(file, line(2));
    while !closed()[1] {
        tokio::task::yield_now().await;
    }
    assert_eq!(closed(), [true, true, false]);
    served.close_mcp_clients().await;
    assert_eq!(closed(), [true, true, true]);
}

#[tokio::test]
async fn a_missing_or_invalid_mcp_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let run = RunClaimId { run: RunId::from_bits(7), epoch: Epoch(1) };
    for (text, expected) in
        [(None, "There is no `.mcp.json`"), (Some("{"), ".mcp.json:1:1: EOF while parsing")]
    {
        if let Some(text) = text {
            fs::write(folder.path().join(".mcp.json"), text).unwrap();
        }
        let line = Arc::new(RecordingClient::default());
        let served = McpTools::new(&config, McpFile::load(&config), line);
        let found = ExternalToolSource::load_tools(&served, "mcp:github", run).await;
        let why = found.unwrap().unwrap_err();
        assert!(why.contains(expected), "{why}");
        assert!(ExternalToolSource::load_tools(&served, "vault_read", run).await.is_none());
    }
}
