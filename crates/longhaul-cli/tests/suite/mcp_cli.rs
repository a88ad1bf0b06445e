//! `longhaul mcp` on the command line.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::cli::longhaul_in;

const MCP: &str = r#"{
  "mcpServers": {
    "github": { "command": "npx", "args": ["-y", "server"], "env": { "TOKEN": "${GITHUB_TOKEN}" } },
    "docs": { "type": "http", "url": "https://docs.example/mcp?key=s3cret", "headers": { "Authorization": "s3cret" } },
    "old": { "type": "sse", "url": "https://old.example/sse" },
    "off": { "command": "x", "disabled": true },
    "odd": { "command": "x", "autoApprove": [] }
  }
}"#;

fn folder(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("longhaul.toml"), "").unwrap();
    fs::write(folder.path().join(".mcp.json"), text).unwrap();
    folder
}

/// Runs the binary, asserts the exit code and that no secret is printed.
fn run(folder: &Path, args: &[&str], env: &[(&str, &str)], code: i32) -> (String, String) {
    let output = longhaul_in(folder, args, env);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {out}{err}");
    assert!(!format!("{out}{err}").contains("s3cret"), "{args:?}: {out}{err}");
    (out, err)
}

fn find_line<'a>(out: &'a str, start: &str) -> &'a str {
    let line = out.lines().find(|line| line.starts_with(start));
    line.unwrap_or_else(|| panic!("no {start}: {out}"))
}

#[test]
fn mcp_ls_prints_each_servers_status_and_starts_nothing() {
    let folder = folder(MCP);
    let folder = folder.path();
    let (out, err) = run(folder, &["mcp"], &[], 0);
    assert_eq!(run(folder, &["mcp", "ls"], &[], 0).0, out);
    assert!(find_line(&out, "github").contains("npx -y server"), "{out}");
    assert!(find_line(&out, "github").contains("GITHUB_TOKEN is not set"), "{out}");
    assert!(find_line(&out, "docs").contains("http   https://docs.example/mcp?..."), "{out}");
    assert!(find_line(&out, "docs").ends_with("not trusted yet: longhaul trust"), "{out}");
    assert!(find_line(&out, "old").ends_with("broken, see below"), "{out}");
    assert!(find_line(&out, "off").ends_with("disabled"), "{out}");
    assert!(err.contains("error: .mcp.json:5:12: server `old`: the old SSE"), "{err}");
    assert!(err.contains("note: .mcp.json:7:"), "{err}");
    let token = [("GITHUB_TOKEN", "gh-s3cret"), ("LONGHAUL_TRUST", "1")];
    let (out, _) = run(folder, &["mcp"], &token, 0);
    assert!(find_line(&out, "github").ends_with("trusted by LONGHAUL_TRUST=1"), "{out}");
    let (out, _) = run(folder, &["mcp", "ls", "--json"], &token, 0);
    let listing: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(listing["trust"], "trusted_by_variable");
    let status = |at: usize| listing["servers"][at]["status"].as_str().unwrap().to_owned();
    assert_eq!([status(0), status(2), status(3)], ["trusted", "broken", "disabled"]);
    assert_eq!(listing["servers"][0]["transport"]["env"][0], "TOKEN");
    assert_eq!(listing["servers"][0]["transport"]["reads"][0], "GITHUB_TOKEN");
    assert_eq!(listing["servers"][1]["transport"]["headers"][0], "Authorization");
    fs::remove_file(folder.join(".mcp.json")).unwrap();
    let (out, err) = run(folder, &["mcp"], &[], 0);
    assert!(out.is_empty() && err.contains("There is no .mcp.json"), "{out}{err}");
}

#[test]
fn an_invalid_mcp_file_is_reported_and_blocks_no_other_agent() {
    let folder = folder("{\n  \"mcpServers\": {,\n");
    let folder = folder.path();
    let (_, err) = run(folder, &["mcp"], &[], 2);
    assert!(err.contains("error: .mcp.json:2:18: "), "{err}");
    let (out, _) = run(folder, &["mcp", "--json"], &[], 2);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert!(json["problems"][0].as_str().unwrap().starts_with(".mcp.json:2:18"));
    let (_, err) = run(folder, &["mcp", "check"], &[], 2);
    assert!(err.contains("longhaul mcp ls"), "{err}");
    fs::create_dir(folder.join("agents")).unwrap();
    fs::create_dir(folder.join("scripts")).unwrap();
    fs::write(folder.join("agents/a.md"), "---\nmodel: scripted/a\n---\nYou.").unwrap();
    fs::write(folder.join("scripts/a.yaml"), "replies: [{ text: Done. }]\n").unwrap();
    let (out, _) = run(folder, &["run", "a", "x"], &[], 0);
    assert!(out.contains("Done."), "{out}");
}

#[test]
fn no_untrusted_server_is_started() {
    let folder = folder(r#"{"mcpServers": {"a": {"command": "touch", "args": ["started"]}}}"#);
    let folder = folder.path();
    let (_, err) = run(folder, &["mcp", "check"], &[], 6);
    assert!(err.contains("is not trusted yet"), "{err}");
    assert!(err.contains("longhaul trust"), "{err}");
    assert!(!folder.join("started").exists());
    let (_, err) = run(folder, &["mcp", "check", "b"], &[], 2);
    assert!(err.contains("has no server `b`"), "{err}");
    assert!(run(folder, &["mcp", "--help"], &[], 0).0.contains("Examples:"));
}

/// A project with an agent that uses the tools of a server.
fn folder_with_agent(mcp: &str) -> TempDir {
    let folder = folder(mcp);
    for (name, text) in [
        (
            "agents/a.md",
            "---\nmodel: scripted/a\ntools: [mcp:fake]\napprove: [{ tool: \"mcp:*\", allow: true }]\n---\nYou.",
        ),
        (
            "scripts/a.yaml",
            "replies:\n  - tools: [{ name: mcp:fake/greet, input: { who: anna } }]\n  - text: 'Done: {{ last_result }}'\n",
        ),
    ] {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    folder
}

#[test]
fn a_run_with_an_untrusted_server_is_blocked_and_starts_nothing() {
    let folder =
        folder_with_agent(r#"{"mcpServers": {"fake": {"command": "touch", "args": ["started"]}}}"#);
    let folder = folder.path();
    let (_, err) = run(folder, &["run", "a", "x", "--no-input"], &[], 3);
    assert!(err.contains("is not trusted yet"), "{err}");
    assert!(err.contains("`longhaul trust`"), "{err}");
    assert!(!folder.join("started").exists());
    let (out, _) = run(folder, &["show", "@last", "--json"], &[], 0);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["status"], "blocked", "{out}");
    let (out, _) = run(folder, &["agents", "check", "a"], &[], 0);
    assert!(out.contains("outside any sandbox"), "{out}");
    let (out, _) = run(folder, &["trust", "ls"], &[], 0);
    assert!(find_line(&out, ".mcp.json").ends_with("not trusted  a, integrations_agent"), "{out}");
}
