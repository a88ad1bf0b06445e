//! MCP servers with the real binary: started, checked, used by a run, and stopped with it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::cli::longhaul_in;

/// A small stdio server. It writes its process id to a file, so that its end can be verified.
const SERVER: &str = r#"
import json, os, sys
open("pids", "a").write(f"{os.getpid()}\n")
TOOLS = [
    {"name": "greet", "description": "Greets.", "inputSchema": {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}, "annotations": {"readOnlyHint": True}},
    {"name": "shout", "description": "Shouts.", "inputSchema": {"type": "object"}},
]
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked.get("method"), asked.get("params") or {}
    if "id" not in asked:
        continue
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "fake-server", "version": "1.2.3"}}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        words = f"Hello {params['arguments']['who']} with {len(os.environ['TOKEN'])} characters"
        result = {"content": [{"type": "text", "text": words}]}
    else:
        refused = {"code": -32601, "message": "Method not found"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": refused}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

const TOKEN: &str = "t0ken-s3cret";

/// A project whose agent uses the server.
fn project() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mcp = json!({ "mcpServers": {
        "fake": { "command": "python3", "args": ["server.py"], "env": { "TOKEN": "${TOKEN}" } },
        "gone": { "command": "python3", "args": ["-c", "import sys; sys.exit(3)"] },
    }});
    let agent = "---\nmodel: scripted/a\ntools: [mcp:fake]\napprove: [{ tool: \"mcp:*\", allow: true }]\n---\nYou.";
    let script = "replies:\n  - tools: [{ name: 'mcp:fake/greet', input: { who: anna } }]\n  - text: 'Done: {{ last_result }}'\n";
    for (name, text) in [
        ("longhaul.toml", ""),
        (".mcp.json", mcp.to_string().as_str()),
        ("server.py", SERVER),
        ("agents/a.md", agent),
        ("scripts/a.yaml", script),
    ] {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    folder
}

/// Runs the binary with the token, asserts the exit code and that the token is not printed.
fn run(folder: &Path, args: &[&str], code: i32) -> (String, String) {
    let output = longhaul_in(folder, args, &[("TOKEN", TOKEN)]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {out}{err}");
    assert!(!format!("{out}{err}").contains("s3cret"), "{args:?}: {out}{err}");
    (out, err)
}

/// Asserts that every started server has exited, and returns how many there were.
fn assert_all_exited(folder: &Path) -> usize {
    let pids = fs::read_to_string(folder.join("pids")).unwrap_or_default();
    for pid in pids.lines() {
        assert!(!Path::new("/proc").join(pid).exists(), "{pid} still runs");
    }
    pids.lines().count()
}

#[test]
fn mcp_check_starts_servers_lists_their_tools_and_stops_them() {
    let folder = project();
    let folder = folder.path();
    run(folder, &["mcp", "check"], 6);
    assert_eq!(assert_all_exited(folder), 0);
    run(folder, &["trust", "--yes"], 0);
    let (out, err) = run(folder, &["mcp", "check", "fake"], 0);
    assert!(err.contains("fake: starting"), "{err}");
    assert!(out.contains("fake-server 1.2.3"), "{out}");
    assert!(out.contains("2 tools"), "{out}");
    assert!(out.contains("mcp:fake/greet") && out.contains("pure"), "{out}");
    assert!(out.contains("mcp:fake/shout") && out.contains("once"), "{out}");
    assert!(assert_all_exited(folder) > 0);
    let (out, _) = run(folder, &["mcp", "check", "--json"], 5);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["checks"][0]["ok"], true, "{out}");
    assert_eq!(json["checks"][0]["tools"][0]["name"], "mcp:fake/greet");
    assert_eq!(json["checks"][0]["tools"][0]["class"], "pure");
    assert_eq!(json["checks"][1]["ok"], false, "{out}");
    assert!(!json["checks"][1]["message"].as_str().unwrap().is_empty());
    let output = longhaul_in(folder, &["mcp", "check", "fake"], &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(out.contains("the variable TOKEN is not set"), "{out}");
}

#[test]
fn a_run_uses_a_server_and_leaves_no_process_behind() {
    let folder = project();
    let folder = folder.path();
    let (_, err) = run(folder, &["run", "a", "x", "--no-input"], 3);
    assert!(err.contains("`longhaul trust`"), "{err}");
    run(folder, &["trust", "--yes"], 0);
    // The blocked run continues.
    run(folder, &["answer", "@last", "It is trusted now."], 0);
    let (out, err) = run(folder, &["watch", "@last"], 0);
    assert!(format!("{out}{err}").contains("Hello anna with 12 characters"), "{out}{err}");
    let (out, _) = run(folder, &["run", "a", "x"], 0);
    assert!(out.contains("Hello anna"), "{out}");
    assert!(assert_all_exited(folder) > 0);
}

#[test]
fn a_run_loads_deferred_tools_of_a_server() {
    let folder = project();
    let agent = "---\nmodel: scripted/a\ntools: [\"mcp:fake?\", read_file]\napprove: [{ tool: \"mcp:*\", allow: true }]\n---\nYou.";
    fs::write(folder.path().join("agents/a.md"), agent).unwrap();
    let script = "replies:\n  - tools: [{ name: find_tools, input: { query: greets } }]\n  - tools: [{ name: 'mcp:fake/greet', input: { who: anna } }]\n  - text: 'Done: {{ last_result }}'\n";
    fs::write(folder.path().join("scripts/a.yaml"), script).unwrap();
    run(folder.path(), &["trust", "--yes"], 0);
    let (out, err) = run(folder.path(), &["run", "a", "go", "--no-input"], 0);
    assert!(out.contains("Done: Hello anna"), "{out}{err}");
    assert!(err.contains("You can call these tools now: mcp__fake__greet."), "{err}");
    let (out, _) = run(folder.path(), &["agents", "show", "a"], 0);
    assert!(out.contains("\"mcp:fake?\", read_file"), "{out}");
    let size = out.lines().find(|line| line.starts_with("tool size")).unwrap();
    assert!(
        size.contains("about ") && size.contains(" tokens (without the list of deferred tools"),
        "{size}"
    );
}

#[test]
fn tools_are_listed_with_class_input_and_origin() {
    let folder = project();
    let rows = |out: &str| -> Vec<String> {
        out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let (out, err) = run(folder.path(), &["tools"], 0);
    for expected in [
        "TOOL CLASS FROM INPUT",
        "wait control control {for?, until?, child?, signal?}",
        "read_file pure sandbox {path, offset?, limit?}",
        "http_fetch pure or once built-in {url, method?, headers?, body?}",
        "recall pure built-in {query, limit?}",
        "send_message once built-in {text}",
    ] {
        assert!(rows(&out).contains(&expected.to_owned()), "{expected}: {out}");
    }
    assert!(err.contains("note: mcp:fake: `.mcp.json` is not trusted yet"), "{err}");
    assert_eq!(assert_all_exited(folder.path()), 0);
    run(folder.path(), &["trust", "--yes"], 0);
    let (out, err) = run(folder.path(), &["tools"], 0);
    assert!(rows(&out).contains(&"mcp:fake/greet pure mcp:fake {who}".to_owned()), "{out}");
    assert!(err.contains("note: mcp:gone: "), "{err}");
    let (out, _) = run(folder.path(), &["tools", "mcp:fake/greet", "--json"], 0);
    let tool: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(tool["description"], "Greets.");
    assert_eq!(tool["agents"], json!(["a"]));
    assert_eq!(tool["input_schema"]["required"], json!(["who"]));
    let started = assert_all_exited(folder.path());
    let (out, _) = run(folder.path(), &["tools", "--no-mcp", "--json"], 0);
    assert!(out.contains("vault_write") && !out.contains("mcp:fake"), "{out}");
    let (_, err) = run(folder.path(), &["tools", "read_fil"], 2);
    assert!(err.contains("did you mean `read_file`?"), "{err}");
    assert_eq!(assert_all_exited(folder.path()), started);
}

#[test]
fn agents_check_and_mcp_check_say_the_same_class() {
    let folder = project();
    let agent = "---\nmodel: scripted/a\ntools: [mcp:fake/greet, mcp:fake/shout]\n---\nYou.";
    fs::write(folder.path().join("agents/a.md"), agent).unwrap();
    let (out, _) = run(folder.path(), &["agents", "check", "a"], 0);
    for tool in ["greet", "shout"] {
        let expected = format!(
            "`mcp:fake/{tool}` can't be undone, unless the server says otherwise to `longhaul mcp \
             check fake`,"
        );
        assert!(out.contains(&expected), "{out}");
    }
    run(folder.path(), &["trust", "--yes"], 0);
    let (out, _) = run(folder.path(), &["agents", "check", "a"], 0);
    assert!(out.contains("`mcp:fake/shout` can't be undone and no rule"), "{out}");
    assert!(!out.contains("mcp:fake/greet"), "{out}");
}
