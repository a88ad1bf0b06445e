//! Built-in agents and tools: each file and schema is valid, each script plays its agent to the end
//! without a key, and the documentation shows the output.

use std::path::Path;

use longhaul::agents::built_in::BUILT_IN_AGENTS;
use longhaul::assemble::{
    ProjectOpenOptions, ProjectRuntime, built_in_tool_registry, open_runtime_in_memory,
};
use longhaul::config::load;
use longhaul::config::process_env::ProcessEnv;
use longhaul_core::raw::RawJson;
use longhaul_engine::validation::SchemaValidator;
use longhaul_store::OpenMode;
use serde_json::Value;

use crate::suite::project::{CommandOutput, Project};

const DOCUMENT: &str = include_str!("../../../../docs/shipped.md");

const TASK: &str = "how do we keep backups";

/// Returns the example output of an agent from the documentation.
fn documented_output(name: &str) -> Value {
    let (_, section) = DOCUMENT
        .split_once(&format!("\n### `{name}`\n"))
        .unwrap_or_else(|| panic!("docs/shipped.md has no section `{name}`"));
    let section = section.split("\n### ").next().unwrap();
    let (_, block) = section.split_once("\n```json output\n").unwrap();
    let (block, _) = block.split_once("\n```").unwrap();
    serde_json::from_str(block).unwrap()
}

/// Plays the agent and returns its ended run; gates are approved.
fn run_built_in(name: &str) -> Value {
    let project = Project::new();
    let model = format!("scripted/{name}");
    let run = ["run", name, TASK, "--model", &model, "--no-input"];
    let needs_recipient = ["assistant", "integrations_agent"].contains(&name);
    let context: &[&str] = if needs_recipient { &["--context", "recipient=anna"] } else { &[] };
    let run = [&run[..], context].concat();
    let mut output = CommandOutput::from_output(&project.command(&run).output().unwrap());
    while output.code == 3 {
        project.run(&["approve", "@last", "--yes"], 0);
        let watch_args = ["watch", "@last", "--no-input"];
        output = CommandOutput::from_output(&project.command(&watch_args).output().unwrap());
    }
    assert_eq!(output.code, 0, "{name}: {}\n{}", output.out, output.err);
    let view = project.run(&["show", "@last", "--json"], 0).out;
    serde_json::from_str(&view).unwrap()
}

/// Starting a command does not check these schemas. In YAML flow style a comma ends an unquoted text,
/// and the rest becomes a key without a value.
#[test]
fn the_output_schemas_of_built_in_agents_are_valid() {
    let root = tempfile::tempdir().unwrap();
    let loaded = open_in_memory(root.path()).loaded;
    assert_eq!(loaded.agents.len(), BUILT_IN_AGENTS.len(), "{:?}", loaded.problems);
    let schemas = loaded.agents.iter().filter_map(|one| one.agent.output.as_ref());
    let schemas: Vec<Value> = schemas.map(RawJson::to_value).collect();
    assert!(schemas.len() > 5);
    for schema in schemas {
        let validator = SchemaValidator::new(&schema);
        assert!(
            validator.is_ok() && !schema.to_string().contains(":null"),
            "{validator:?} {schema}"
        );
    }
}

/// Starting a command does not compile these schemas.
#[test]
fn the_input_schemas_of_built_in_tools_are_valid() {
    let root = tempfile::tempdir().unwrap();
    let runtime = open_in_memory(root.path());
    let without_store =
        built_in_tool_registry(&runtime.config, &runtime.longhaul.services().clock).unwrap();
    let tools = &runtime.longhaul.services().tools;
    for tool in tools.tools().chain(without_store.tools()) {
        tool.compile_input_schema().unwrap();
    }
}

fn open_in_memory(folder: &Path) -> ProjectRuntime {
    let process_env = ProcessEnv { cwd: folder.to_path_buf(), ..ProcessEnv::default() };
    let options = ProjectOpenOptions {
        mode: OpenMode::Driver,
        holder: "a test".to_owned(),
        on_fatal: None,
        recorder: None,
        loaded_agents: None,
    };
    open_runtime_in_memory(load::load(&process_env, &[]).unwrap(), options).unwrap()
}

#[test]
fn each_built_in_agent_gives_the_documented_output() {
    for built_in in BUILT_IN_AGENTS {
        let run = run_built_in(built_in.name);
        assert_eq!(run["status"], "completed", "{}: {run}", built_in.name);
        let output = &run["output"];
        let part = if output["data"].is_null() {
            serde_json::json!({ "text": output["text"], "tools_called": output["tools_called"] })
        } else {
            output["data"].clone()
        };
        let pretty_json = serde_json::to_string_pretty(&part).unwrap();
        assert_eq!(part, documented_output(built_in.name), "{}:\n{pretty_json}", built_in.name);
    }
}

#[test]
fn each_built_in_agent_passes_its_check() {
    let project = Project::new();
    for built_in in BUILT_IN_AGENTS {
        let output = project.run(&["agents", "check", built_in.name], 0);
        let text = format!("{}{}", output.out, output.err);
        assert!(!text.contains("can't be undone"), "{text}");
    }
}
