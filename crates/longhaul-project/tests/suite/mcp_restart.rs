//! An MCP server of a project whose program or entry in `.mcp.json` has changed and is trusted is
//! started again before its next call.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::port::tool::{RunClaimId, Tool, ToolContext};
use longhaul_core::time::{Clock, Timestamp};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::services::ExternalToolSource;
use longhaul_project::assemble::mcp_servers;
use longhaul_project::assemble::mcp_tools::{McpClient, McpTools};
use longhaul_project::config::load;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::settings::Config;
use longhaul_project::mcp::file::McpFile;
use longhaul_project::trust::decisions::TrustDecisions;
use longhaul_project::trust::item::TrustItem;
use serde_json::json;

/// A stdio server with one tool, which answers with a name and is described by the first argument.
const SERVER: &str = r#"
import json, sys
TOOL = {"name": "customer", "description": sys.argv[1], "inputSchema": {"type": "object"}}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    if request["method"] == "initialize":
        answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "orders", "version": "1"}}
    elif request["method"] == "tools/list":
        answer["result"] = {"tools": [TOOL]}
    elif request["method"] == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": "NAME"}]}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
"#;

fn write_project(root: &Path, name: &str, description: &str) {
    fs::write(root.join("orders.py"), SERVER.replace("NAME", name)).unwrap();
    let server = json!({ "command": "python3", "args": ["orders.py", description] });
    let file = json!({ "mcpServers": { "orders": server } });
    fs::write(root.join(".mcp.json"), file.to_string()).unwrap();
}

fn trust(config: &Config) {
    let item = TrustItem::for_mcp_servers(&McpFile::load(config)).unwrap();
    let decisions = TrustDecisions::new(config);
    decisions.record_trust(&[&item], Timestamp::from_micros(1)).unwrap();
}

fn claim(epoch: u64) -> RunClaimId {
    RunClaimId { run: RunId::from_bits(7), epoch: Epoch(epoch) }
}

async fn customer(tool: &Arc<dyn Tool>) -> String {
    let ctx = ToolContext::new(RunId::from_bits(7), CallId { turn: 1, index: 1 }, Epoch(1));
    let output = tool.call(json!({}), &ctx).await.unwrap();
    format!("{:?}", output.content)
}

#[tokio::test]
async fn a_trusted_change_of_a_server_applies_to_its_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::write(root.join("longhaul.toml"), "").unwrap();
    let home = Some(root.join("home"));
    let process_env = ProcessEnv { cwd: root.to_owned(), home, ..ProcessEnv::default() };
    let config = load::load(&process_env, &[]).unwrap();
    write_project(root, "Ada", "old");
    let file = McpFile::load(&config);
    let create_client = {
        let config = config.clone();
        move |file: &McpFile| -> Arc<dyn McpClient> {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            mcp_servers::new_client(&config, file, &clock)
        }
    };
    let client = create_client(&file);
    let error = client.list_server_tools("orders", None, claim(1)).await.unwrap_err();
    assert!(error.contains("is not started: `.mcp.json` is not trusted yet"), "{error}");
    trust(&config);
    let tools = client.list_server_tools("orders", None, claim(1)).await.unwrap();
    let mcp_tools =
        McpTools::new(&config, file, Arc::clone(&client)).with_client_factory(create_client);
    let load = async |epoch| {
        let found = ExternalToolSource::load_tools(&mcp_tools, "mcp:orders", claim(epoch)).await;
        found.unwrap().map(|tools| tools[0].spec().description.clone())
    };
    assert!(load(2).await.unwrap().contains("old"));
    assert!(customer(&tools[0]).await.contains("Ada"));

    write_project(root, "Grace", "old");
    // A run that started before goes on with the trusted program; no other run starts.
    assert!(customer(&tools[0]).await.contains("Ada"));
    let error = load(3).await.unwrap_err();
    assert!(error.contains("has changed since it was trusted (orders.py)"), "{error}");
    trust(&config);
    load(3).await.unwrap();
    assert!(customer(&tools[0]).await.contains("Grace"));

    write_project(root, "Grace", "new");
    assert!(load(4).await.unwrap().contains("old"));
    trust(&config);
    assert!(load(5).await.unwrap().contains("new"));
    mcp_tools.close_mcp_clients().await;
}
