//! Built-in agents: each file is valid, each script plays its agent to the end without a key, and
//! the documentation shows the output.

use longhaul::agents::built_in::BUILT_IN_AGENTS;
use serde_json::Value;

use crate::suite::agents::load_folder;
use crate::suite::project::{CommandOutput, Project};

const DOCUMENT: &str = include_str!("../../../../docs/shipped.md");

const TASK: &str = "how do we keep backups";

/// Returns the example output of an agent from the documentation.
fn documented_output(name: &str) -> Value {
    let (_, below) = DOCUMENT
        .split_once(&format!("\n### `{name}`\n"))
        .unwrap_or_else(|| panic!("docs/shipped.md has no section `{name}`"));
    let below = below.split("\n### ").next().unwrap();
    let (_, block) = below.split_once("\n```json output\n").unwrap();
    let (block, _) = block.split_once("\n```").unwrap();
    serde_json::from_str(block).unwrap()
}

/// Plays the agent and returns its ended run; gates are approved.
fn run_built_in(name: &str) -> Value {
    let project = Project::new();
    let model = format!("scripted/{name}");
    let run = ["run", name, TASK, "--model", &model, "--no-input"];
    let writes = ["assistant", "integrations_agent"].contains(&name);
    let context: &[&str] = if writes { &["--context", "recipient=anna"] } else { &[] };
    let run = [&run[..], context].concat();
    let mut output = CommandOutput::from_output(&project.command(&run).output().unwrap());
    while output.code == 3 {
        project.run(&["approve", "@last", "--yes"], 0);
        let watch = ["watch", "@last", "--no-input"];
        output = CommandOutput::from_output(&project.command(&watch).output().unwrap());
    }
    assert_eq!(output.code, 0, "{name}: {}\n{}", output.out, output.err);
    let view = project.run(&["show", "@last", "--json"], 0).out;
    serde_json::from_str(&view).unwrap()
}

/// In YAML flow style a comma ends an unquoted text, and the rest becomes a key without a value.
#[test]
fn no_comma_splits_a_text_in_a_built_in_schema() {
    let root = tempfile::tempdir().unwrap();
    let loaded = load_folder(root.path(), BUILT_IN_AGENTS);
    let problems = loaded.problems.iter().map(ToString::to_string);
    let split_texts: Vec<String> = problems.filter(|text| text.contains("a comma cut")).collect();
    assert_eq!(split_texts, [""; 0]);
}

#[test]
fn each_built_in_agent_gives_the_documented_output() {
    for shipped in BUILT_IN_AGENTS {
        let run = run_built_in(shipped.name);
        assert_eq!(run["status"], "completed", "{}: {run}", shipped.name);
        let output = &run["output"];
        let part = if output["data"].is_null() {
            serde_json::json!({ "text": output["text"], "tools_called": output["tools_called"] })
        } else {
            output["data"].clone()
        };
        let pretty = serde_json::to_string_pretty(&part).unwrap();
        assert_eq!(part, documented_output(shipped.name), "{}:\n{pretty}", shipped.name);
    }
}

#[test]
fn each_built_in_agent_passes_its_check() {
    let project = Project::new();
    for shipped in BUILT_IN_AGENTS {
        let output = project.run(&["agents", "check", shipped.name], 0);
        let text = format!("{}{}", output.out, output.err);
        assert!(!text.contains("can't be undone"), "{text}");
    }
}
