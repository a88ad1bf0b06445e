//! Tests of programs that use `longhaul` without some of its features.

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
fn a_program_without_the_feature_mcp_has_its_own_http_client_and_says_that_it_has_no_mcp_client() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let features = ["project"];
    let program =
        standalone_build::build_program("longhaul-without-mcp", &features, PROGRAM, folder);
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

/// Returns the names of all packages in a program with these features of `longhaul`.
fn packages(features: &str) -> Vec<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--package", "longhaul", "--no-default-features", "--features", features])
        .args(["--edges", "normal", "--prefix", "none", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{stderr}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn each_feature_brings_only_its_own_code() {
    let has = |features: &str, name: &str| packages(features).iter().any(|package| package == name);
    assert!(has("", "longhaul-engine"));
    for name in ["axum", "clap", "rmcp", "longhaul-cli"] {
        assert!(!has("sqlite", name), "{name} is a dependency even without features");
    }
    for (feature, name) in [
        ("sqlite", "longhaul-store"),
        ("project", "longhaul-project"),
        ("mcp", "longhaul-mcp"),
        ("server", "longhaul-server"),
    ] {
        assert!(!has("", name), "{name} is a dependency even without `{feature}`");
        assert!(has(feature, name), "`{feature}` does not add {name}");
    }
    assert!(!has("sqlite,server", "longhaul-project"), "a program without projects compiles them");
}
