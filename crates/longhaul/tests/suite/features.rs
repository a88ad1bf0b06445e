//! Tests of a program that uses `longhaul` without its features.

use std::fs;
use std::process::Command;

use super::standalone_build;

/// Runs an agent of the project in the working directory until the run is blocked.
const PROGRAM: &str = r#"
use longhaul::{Runtime, Task};

#[tokio::main]
async fn main() -> Result<(), longhaul::Error> {
    let builder = Runtime::builder();
    // Without a crypto provider, this panics: `longhaul` has enabled TLS for this client.
    _ = reqwest::Client::builder().build();
    let runtime = builder.project(".").open().await?;
    let worker = runtime.worker().spawn();
    let run = runtime.submit(Task::new("clerk").input("go")).await?;
    let mut events = run.events();
    while let Some(entry) = events.next().await {
        let event = entry?.event;
        println!("{event:?}");
        if event.kind() == "run.blocked" {
            break;
        }
    }
    worker.stop().await
}
"#;

#[test]
fn a_program_without_features_has_its_own_http_client_and_says_that_it_has_no_mcp_client() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let program = standalone_build::build_program("longhaul-without-features", PROGRAM, folder);
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    write("scripts/clerk.yaml", "replies:\n  - text: Done.\n");
    let server = r#"{"mcpServers":{"files":{"command":"true"}}}"#;
    // The error is the same whether the server is listed or the file is missing.
    for (tool, file) in [("mcp:files", Some(server)), ("mcp:*", Some(server)), ("mcp:files", None)]
    {
        let agent =
            format!("---\nname: clerk\nmodel: scripted/clerk\ntools: [\"{tool}\"]\n---\nWork.\n");
        write("agents/clerk.md", &agent);
        match file {
            Some(text) => write(".mcp.json", text),
            None => fs::remove_file(folder.join(".mcp.json")).unwrap(),
        }
        let output = Command::new(&program).current_dir(folder).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let expected = "this build has no MCP client: enable the feature `mcp`";
        assert!(output.status.success() && stdout.contains(expected), "{output:?}");
    }
}

#[test]
fn without_features_there_is_no_http_server_no_mcp_client_and_no_command_line() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--package", "longhaul", "--no-default-features"])
        .args(["--edges", "normal", "--prefix", "none", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{stderr}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    let has_package = |name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    assert!(has_package("longhaul-engine"), "{tree}");
    for name in ["axum", "clap", "rmcp", "longhaul-mcp", "longhaul-server", "longhaul-cli"] {
        assert!(!has_package(name), "{name} is a dependency even without features");
    }
}
