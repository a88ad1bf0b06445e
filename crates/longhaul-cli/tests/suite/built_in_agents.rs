//! The agents that ship: each file is in order, each script plays its agent to
//! the end without a key, and the document shows what comes out of it.

use longhaul::agents::built_in::BUILT_IN_AGENTS;
use serde_json::Value;

use crate::suite::agents::load_folder;
use crate::suite::project::{CommandOutput, Project};

const DOCUMENT: &str = include_str!("../../../../docs/shipped.md");

const TASK: &str = "how do we keep backups";

/// The example that the document gives of an agent's output.
fn documented_output(name: &str) -> Value {
    let (_, below) = DOCUMENT
        .split_once(&format!("\n### `{name}`\n"))
        .unwrap_or_else(|| panic!("docs/shipped.md has no section `{name}`"));
    let below = below.split("\n### ").next().unwrap();
    let (_, block) = below.split_once("\n```json output\n").unwrap();
    let (block, _) = block.split_once("\n```").unwrap();
    serde_json::from_str(block).unwrap()
}

/// Plays the agent and gives its run at the end; gates on the way are answered
/// with yes.
fn run_built_in(name: &str) -> Value {
    let project = Project::new();
    let model = format!("scripted/{name}");
    let run = ["run", name, TASK, "--model", &model, "--no-input"];
    let writes = ["assistant", "integrations_agent"].contains(&name);
    let context: &[&str] = if writes { &["--context", "recipient=anna"] } else { &[] };
    let run = [&run[..], context].concat();
    let mut said = CommandOutput::from_output(&project.command(&run).output().unwrap());
    while said.code == 3 {
        project.run(&["approve", "@last", "--yes"], 0);
        let watch = ["watch", "@last", "--no-input"];
        said = CommandOutput::from_output(&project.command(&watch).output().unwrap());
    }
    assert_eq!(said.code, 0, "{name}: {}\n{}", said.out, said.err);
    let view = project.run(&["show", "@last", "--json"], 0).out;
    serde_json::from_str(&view).unwrap()
}

/// In YAML's short form a comma ends a text without quotes, and its rest becomes a
/// keyword without a value.
#[test]
fn no_comma_splits_a_text_in_a_built_in_schema() {
    let root = tempfile::tempdir().unwrap();
    let loaded = load_folder(root.path(), BUILT_IN_AGENTS);
    let problems = loaded.problems.iter().map(ToString::to_string);
    let cut: Vec<String> = problems.filter(|said| said.contains("a comma cut")).collect();
    assert_eq!(cut, [""; 0]);
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
        let said = project.run(&["agents", "check", shipped.name], 0);
        let talk = format!("{}{}", said.out, said.err);
        assert!(!talk.contains("can't be taken back"), "{talk}");
    }
}
