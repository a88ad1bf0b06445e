//! The agents that ship: each file is in order, each script plays its agent to
//! the end without a key, and the document shows what comes out of it.

use longhaul::agents::shipped::SHIPPED;
use serde_json::Value;

use crate::suite::agents::loaded_in;
use crate::suite::project::{Project, Said};

const DOCUMENT: &str = include_str!("../../../../docs/shipped.md");

const TASK: &str = "how do we keep backups";

/// The example that the document gives of an agent's output.
fn shown(name: &str) -> Value {
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
fn played(name: &str) -> Value {
    let project = Project::new();
    let model = format!("scripted/{name}");
    let run = ["run", name, TASK, "--model", &model, "--no-input"];
    let writes = ["assistant", "integrations_agent"].contains(&name);
    let context: &[&str] = if writes {
        &["--context", "recipient=anna"]
    } else {
        &[]
    };
    let run = [&run[..], context].concat();
    let mut said = Said::of(&project.command(&run).output().unwrap());
    while said.code == 3 {
        project.say(&["approve", "@last", "--yes"], 0);
        let watch = ["watch", "@last", "--no-input"];
        said = Said::of(&project.command(&watch).output().unwrap());
    }
    assert_eq!(said.code, 0, "{name}: {}\n{}", said.out, said.err);
    let view = project.say(&["show", "@last", "--json"], 0).out;
    serde_json::from_str(&view).unwrap()
}

/// In YAML's short form a comma ends a text without quotes, and its rest becomes a
/// keyword without a value.
#[test]
fn no_comma_cuts_a_text_in_a_schema_that_ships() {
    let root = tempfile::tempdir().unwrap();
    let loaded = loaded_in(root.path(), SHIPPED);
    let problems = loaded.problems.iter().map(ToString::to_string);
    let cut: Vec<String> = problems
        .filter(|said| said.contains("a comma cut"))
        .collect();
    assert_eq!(cut, [""; 0]);
}

#[test]
fn each_agent_that_ships_plays_its_script_and_ends_as_the_document_shows() {
    for shipped in SHIPPED {
        let run = played(shipped.name);
        assert_eq!(run["status"], "completed", "{}: {run}", shipped.name);
        let output = &run["output"];
        let part = if output["data"].is_null() {
            serde_json::json!({ "text": output["text"], "tools_called": output["tools_called"] })
        } else {
            output["data"].clone()
        };
        let pretty = serde_json::to_string_pretty(&part).unwrap();
        assert_eq!(part, shown(shipped.name), "{}:\n{pretty}", shipped.name);
    }
}

#[test]
fn each_agent_that_ships_is_in_order() {
    let project = Project::new();
    for shipped in SHIPPED {
        let said = project.say(&["agents", "check", shipped.name], 0);
        let talk = format!("{}{}", said.out, said.err);
        assert!(!talk.contains("can't be taken back"), "{talk}");
    }
}
