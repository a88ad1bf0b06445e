//! What a program that depends on `longhaul` does not get unless it asks for it.

use std::fs;
use std::process::Command;

use super::standalone_build;

/// Works for an agent of the project in its folder, until that waits for somebody.
const PROGRAM: &str = r#"
use longhaul::{Runtime, Task};

#[tokio::main]
async fn main() -> Result<(), longhaul::Error> {
    let runtime = Runtime::builder().project(".").open().await?;
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
fn a_program_without_features_is_built_and_says_that_it_has_no_mcp_client() {
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
    // Neither a server that is named nor a file that is missing changes what the build lacks.
    for (tool, file) in [("mcp:files", Some(server)), ("mcp:*", Some(server)), ("mcp:files", None)]
    {
        let agent =
            format!("---\nname: clerk\nmodel: scripted/clerk\ntools: [\"{tool}\"]\n---\nWork.\n");
        write("agents/clerk.md", &agent);
        match file {
            Some(text) => write(".mcp.json", text),
            None => fs::remove_file(folder.join(".mcp.json")).unwrap(),
        }
        let ended = Command::new(&program).current_dir(folder).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        let words = "this build has no MCP client: enable the feature `mcp`";
        assert!(ended.status.success() && said.contains(words), "{ended:?}");
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
    let said = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{said}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    let has = |name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    assert!(has("longhaul-engine"), "{tree}");
    for name in ["axum", "clap", "rmcp", "longhaul-mcp", "longhaul-server", "longhaul-cli"] {
        assert!(!has(name), "{name} is part of every program");
    }
}
