//! The SDKs of Anthropic and OpenAI against the mock model.

use std::process::Command;

use super::{packages_folder, programs_folder, run_program};
use crate::suite::project::Project;
use crate::suite::server_harness::TestServer;

const SCRIPTS: &[(&str, &str)] = &[
    (
        "text",
        "- text: 'You said: {{ input }}.'
  usage: { input_tokens: 100, output_tokens: 20, cached_tokens: 30, cache_write_tokens: 5, reasoning_tokens: 7 }",
    ),
    (
        "call",
        "- tools: [{ name: search, input: { place: '{{ input }}' } }]
- text: 'Then: {{ last_result }}'",
    ),
    (
        "calls",
        "- text: Two things.
  tools:
  - { name: search, input: { place: '{{ input }}' } }
  - { name: measure, input: { objects: [bed, Beet ü], depth: 2.5 } }
- text: 'Then: {{ last_result }}'
  usage: { input_tokens: 100, output_tokens: 20, cached_tokens: 30, cache_write_tokens: 5, reasoning_tokens: 7 }",
    ),
    (
        "rate_limited",
        "- error: { status: 429, times: 2 }\n  text: At last.",
    ),
    (
        "overloaded",
        "- error: { status: 529, times: 2 }\n  text: At last.",
    ),
];

/// Starts a mock with the scripts that the test programs use.
fn start_mock(project: &Project) -> TestServer {
    for (name, replies) in SCRIPTS {
        project.write(&format!("interop/{name}.yaml"), &format!("replies:\n{replies}\n"));
    }
    let listen = ["mock-model", "--listen", "127.0.0.1:0", "--until-eof"];
    let scripts = ["--scripts", "interop"];
    TestServer::from_command(project.command(&[&listen[..], &scripts].concat()))
}

/// Removes the settings of the user who runs the tests.
fn isolate_env(command: &mut Command, project: &Project) {
    for (name, _) in std::env::vars_os() {
        let upper_name = name.to_string_lossy().to_uppercase();
        let is_provider_var =
            upper_name.starts_with("ANTHROPIC_") || upper_name.starts_with("OPENAI_");
        if is_provider_var || upper_name.ends_with("_PROXY") {
            command.env_remove(name);
        }
    }
    command.current_dir(project.path()).env("PYTHONUTF8", "1");
}

#[test]
fn two_sdks_in_python_understand_the_mock() {
    let project = Project::new();
    let server = start_mock(&project);
    let mut command = Command::new(packages_folder().join("python/bin/python"));
    command.arg("-B").arg(programs_folder().join("sdks.py"));
    isolate_env(&mut command, &project);
    let output = run_program(command.arg(&server.url));
    assert!(output.starts_with("60 requests over 3 APIs"), "{output}");
}

#[test]
fn two_sdks_on_node_understand_the_mock() {
    let project = Project::new();
    let server = start_mock(&project);
    let mut command = Command::new("node");
    command.arg(programs_folder().join("sdks.mjs"));
    isolate_env(&mut command, &project);
    command.env("LONGHAUL_INTEROP_DIR", packages_folder());
    let output = run_program(command.arg(&server.url));
    assert!(output.starts_with("60 requests over 3 APIs"), "{output}");
}
