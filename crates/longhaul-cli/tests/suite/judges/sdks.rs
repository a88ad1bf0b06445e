//! The SDKs of Anthropic and OpenAI in front of the mock model.

use std::process::Command;

use super::{packages, programs, verdict};
use crate::suite::project::Project;
use crate::suite::served::Served;

const SCRIPTS: &[(&str, &str)] = &[
    (
        "words",
        "- text: 'You said: {{ input }}.'
  usage: { input_tokens: 100, output_tokens: 20, cached_tokens: 30, cache_write_tokens: 5, reasoning_tokens: 7 }",
    ),
    (
        "call",
        "- tools: [{ name: look, input: { where: '{{ input }}' } }]
- text: 'Then: {{ last_result }}'",
    ),
    (
        "calls",
        "- text: Two things.
  tools:
  - { name: look, input: { where: '{{ input }}' } }
  - { name: measure, input: { of: [bed, Beet ü], deep: 2.5 } }
- text: 'Then: {{ last_result }}'
  usage: { input_tokens: 100, output_tokens: 20, cached_tokens: 30, cache_write_tokens: 5, reasoning_tokens: 7 }",
    ),
    (
        "busy",
        "- error: { status: 429, times: 2 }\n  text: At last.",
    ),
    (
        "full",
        "- error: { status: 529, times: 2 }\n  text: At last.",
    ),
];

/// A mock that plays what the judges ask for.
fn start(project: &Project) -> Served {
    for (name, replies) in SCRIPTS {
        project.write(
            &format!("judged/{name}.yaml"),
            &format!("replies:\n{replies}\n"),
        );
    }
    let listen = ["mock-model", "--listen", "127.0.0.1:0", "--until-eof"];
    let scripts = ["--scripts", "judged"];
    Served::of(project.command(&[&listen[..], &scripts].concat()))
}

/// A judge that knows nothing of whoever runs the tests.
fn alone(command: &mut Command, project: &Project) {
    for (name, _) in std::env::vars_os() {
        let known = name.to_string_lossy().to_uppercase();
        let theirs = known.starts_with("ANTHROPIC_") || known.starts_with("OPENAI_");
        if theirs || known.ends_with("_PROXY") {
            command.env_remove(name);
        }
    }
    command.current_dir(project.path()).env("PYTHONUTF8", "1");
}

#[test]
fn two_sdks_in_python_understand_the_mock() {
    let project = Project::new();
    let served = start(&project);
    let mut judge = Command::new(packages().join("python/bin/python"));
    judge.arg("-B").arg(programs().join("sdks.py"));
    alone(&mut judge, &project);
    let said = verdict(judge.arg(&served.url));
    assert!(said.starts_with("60 questions over 3 wires"), "{said}");
}

#[test]
fn two_sdks_on_node_understand_the_mock() {
    let project = Project::new();
    let served = start(&project);
    let mut judge = Command::new("node");
    judge.arg(programs().join("sdks.mjs"));
    alone(&mut judge, &project);
    judge.env("LONGHAUL_JUDGES", packages());
    let said = verdict(judge.arg(&served.url));
    assert!(said.starts_with("60 questions over 3 wires"), "{said}");
}
