//! Tests of the MCP tools that runs receive: trust, missing servers and error messages.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{Epoch, RunId, ToolName};
use longhaul_core::port::tool::{RunClaimId, Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::time::{Clock, Timestamp};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::services::ExternalToolSource;
use longhaul_project::assemble::mcp_servers;
use longhaul_project::assemble::mcp_tools::{McpCheckError, McpClient, McpServerReport, McpTools};
use longhaul_project::config::load;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::settings::Config;
use longhaul_project::mcp::file::McpFile;
use longhaul_project::trust::decisions::TrustDecisions;
use longhaul_project::trust::item::TrustItem;
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
    let process_env =
        ProcessEnv { cwd: root.to_owned(), home: Some(root.join("home")), ..ProcessEnv::default() };
    load::load(&process_env, &[]).unwrap()
}

#[tokio::test]
async fn a_run_gets_the_tools_of_trusted_servers() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    fs::write(folder.path().join(".mcp.json"), MCP_FILE).unwrap();
    let file = McpFile::load(&config);
    let client = Arc::new(RecordingClient::default());
    let mcp_tools = McpTools::new(&config, file.clone(), Arc::clone(&client) as Arc<dyn McpClient>);
    let run = RunClaimId { run: RunId::from_bits(7), epoch: Epoch(1) };
    let load_error = async |name: &str| {
        let found = ExternalToolSource::load_tools(&mcp_tools, name, run).await;
        found.expect(name).unwrap_err()
    };
    assert!(ExternalToolSource::load_tools(&mcp_tools, "vault_read", run).await.is_none());
    let error = load_error("mcp:github").await;
    assert!(error.contains("is not trusted yet") && error.contains("`longhaul trust`"), "{error}");
    assert_eq!(client.0.lock().unwrap().len(), 0);
    // A decision takes effect at once.
    let decisions = TrustDecisions::new(&config);
    let item = TrustItem::for_mcp_servers(&file).unwrap();
    decisions.record_trust(&[&item], Timestamp::from_micros(1)).unwrap();
    let found =
        ExternalToolSource::load_tools(&mcp_tools, "mcp:github", run).await.unwrap().unwrap();
    let names: Vec<&str> = found.iter().map(|one| one.spec().name.as_str()).collect();
    assert_eq!(names, ["mcp:github/search"]);
    let found = ExternalToolSource::load_tools(&mcp_tools, "mcp:github/search", run).await;
    assert_eq!(found.unwrap().unwrap().len(), 1);
    for (name, expected) in [
        ("mcp:github/broken", "its input schema is invalid"),
        ("mcp:githup", "Did you mean `github`?"),
        ("mcp:x", "The servers are: github, poor, off, lost."),
        ("mcp:off", "is disabled"),
        ("mcp:poor/x", "the variable MISSING is not set"),
        ("mcp:lost", "it ended at once. Run `longhaul mcp check lost`."),
    ] {
        let error = load_error(name).await;
        assert!(error.contains(expected), "{name}: {error}");
        assert!(error.contains("`longhaul mcp "), "{name}: {error}");
    }
    decisions.revoke_all_and_count().unwrap();
    assert!(load_error("mcp:github").await.contains("`longhaul trust`"));
    ExternalToolSource::release_tools(&mcp_tools, run).await;
    mcp_tools.close_mcp_clients().await;
    let client = client.0.lock().unwrap().join(", ");
    assert!(client.ends_with("let go, close, settle"), "{client}");
}

#[tokio::test]
async fn close_waits_for_token_refreshes_though_servers_do_not_stop() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    fs::write(folder.path().join(".mcp.json"), MCP_FILE).unwrap();
    let file = McpFile::load(&config);
    let clients: [Arc<NeverClosingClient>; 2] = Default::default();
    let client = |at: usize| Arc::clone(&clients[at]) as Arc<dyn McpClient>;
    let mcp_tools = McpTools::new(&config, file.clone(), client(0));
    // The first client is being closed, and the second one is in use.
    mcp_tools.replace_servers(file, client(1));
    mcp_tools.close_mcp_clients().await;
    for client in clients {
        assert_eq!(*client.0.0.lock().unwrap(), ["close", "settle"]);
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
    let old_client = Arc::new(NeverClosingClient::default());
    let mcp_tools =
        McpTools::new(&config, file.clone(), Arc::clone(&old_client) as Arc<dyn McpClient>);
    let run = RunClaimId { run: RunId::from_bits(7), epoch: Epoch(1) };
    let found = ExternalToolSource::load_tools(&mcp_tools, "mcp:github", run).await;
    found.unwrap().unwrap();
    mcp_tools.replace_servers(file, Arc::new(RecordingClient::default()));
    let log = || old_client.0.0.lock().unwrap()[1..].to_vec();
    let until_closed = async {
        while log() != ["let go", "close"] {
            tokio::task::yield_now().await;
        }
    };
    // The run stops waiting in the middle of the release.
    tokio::select! {
        () = ExternalToolSource::release_tools(&mcp_tools, run) => panic!("the client never finishes closing"),
        () = until_closed => {}
    }
    // The client is still referenced, so that `close_mcp_clients` can finish closing it.
    assert!(Arc::strong_count(&old_client) > 1);
    mcp_tools.close_mcp_clients().await;
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
    let file = McpFile::load(&config);
    let item = TrustItem::for_mcp_servers(&file).unwrap();
    TrustDecisions::new(&config).record_trust(&[&item], Timestamp::from_micros(1)).unwrap();
    let client = mcp_servers::new_client(&config, &file, &clock);
    let run = RunClaimId { run: RunId::from_bits(7), epoch: Epoch(1) };
    let error = client.list_server_tools("far", None, run).await.unwrap_err();
    for expected in ["run `longhaul mcp login far`", "`longhaul resume`."] {
        assert!(error.contains(expected), "{error}");
    }
    assert!(client.check_server("far").await.unwrap_err().needs_login);
    client.close_all_connections().await;
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
    let clients: [Arc<RecordingClient>; 3] = Default::default();
    let client = |at: usize| Arc::clone(&clients[at]) as Arc<dyn McpClient>;
    let closed_flags = || {
        let is_closed =
            |client: &Arc<RecordingClient>| client.0.lock().unwrap().contains(&"close".to_owned());
        clients.iter().map(is_closed).collect::<Vec<bool>>()
    };
    let mcp_tools = McpTools::new(&config, file.clone(), client(0));
    let [first_claim, second_claim] =
        [1, 2].map(|epoch| RunClaimId { run: RunId::from_bits(7), epoch: Epoch(epoch) });
    for claim_id in [first_claim, second_claim] {
        let found = ExternalToolSource::load_tools(&mcp_tools, "mcp:github", claim_id).await;
        found.unwrap().unwrap();
    }
    mcp_tools.replace_servers(file.clone(), client(1));
    let found = ExternalToolSource::load_tools(&mcp_tools, "mcp:github", second_claim).await;
    found.unwrap().unwrap();
    ExternalToolSource::release_tools(&mcp_tools, first_claim).await;
    assert_eq!(closed_flags(), [false, false, false]);
    ExternalToolSource::release_tools(&mcp_tools, second_claim).await;
    assert_eq!(closed_flags(), [true, false, false]);
    assert!(clients[0].0.lock().unwrap().ends_with(&["close".to_owned(), "settle".to_owned()]));
    // A client without users is closed as soon as it is replaced.
    mcp_tools.replace_servers(file, client(2));
    while !closed_flags()[1] {
        tokio::task::yield_now().await;
    }
    assert_eq!(closed_flags(), [true, true, false]);
    mcp_tools.close_mcp_clients().await;
    assert_eq!(closed_flags(), [true, true, true]);
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
        let client = Arc::new(RecordingClient::default());
        let mcp_tools = McpTools::new(&config, McpFile::load(&config), client);
        let found = ExternalToolSource::load_tools(&mcp_tools, "mcp:github", run).await;
        let error = found.unwrap().unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(ExternalToolSource::load_tools(&mcp_tools, "vault_read", run).await.is_none());
    }
}
