//! Built-in agents and tools: each file and schema is valid, each script plays its agent to the end
//! without a key, and the documentation lists the fields of the output.

use std::path::Path;

use longhaul::project::{ProjectOpenOptions, ProjectRuntime, open_runtime_in_memory};
use longhaul_core::raw::RawJson;
use longhaul_engine::guard::validation::SchemaValidator;
use longhaul_project::agents::built_in::BUILT_IN_AGENTS;
use longhaul_project::assemble::built_in_tool_registry;
use longhaul_project::config::load;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_store::OpenMode;
use serde_json::Value;

use crate::suite::project::{CommandOutput, Project};

const DOCUMENT: &str = include_str!("../../../../docs/shipped.md");

/// The structured output of each built-in agent for [`TASK`], by agent; of `assistant`, which has
/// none, its text and the tools that it called.
const EXPECTED_OUTPUTS: &str = include_str!("built_in_agents/expected_outputs.json");

const TASK: &str = "how do we keep backups";

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
fn each_built_in_agent_gives_the_expected_output() {
    let expected_outputs: Value = serde_json::from_str(EXPECTED_OUTPUTS).unwrap();
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
        assert_eq!(part, expected_outputs[built_in.name], "{}:\n{pretty_json}", built_in.name);
    }
}

#[test]
fn the_documentation_lists_the_agents_and_the_fields_of_their_outputs() {
    let expected_outputs: Value = serde_json::from_str(EXPECTED_OUTPUTS).unwrap();
    let (agents, results) = DOCUMENT.split_once("\n## Results\n").unwrap();
    let (_, example) = results.split_once("\n```json output\n").unwrap();
    let (example, fields) = example.split_once("\n```").unwrap();
    let example: Value = serde_json::from_str(example).unwrap();
    assert_eq!(example, expected_outputs["review"]);
    let mut names: Vec<&str> = BUILT_IN_AGENTS.iter().map(|agent| agent.name).collect();
    names.sort_unstable();
    assert_eq!(names_in_table(agents), names);
    let mut with_output: Vec<&String> = expected_outputs.as_object().unwrap().keys().collect();
    with_output.sort_unstable();
    assert_eq!(with_output, names);
    names.retain(|name| *name != "assistant");
    assert_eq!(names_in_table(fields), names);
    let root = tempfile::tempdir().unwrap();
    for loaded in open_in_memory(root.path()).loaded.agents {
        if let Some(schema) = loaded.agent.output.as_ref().map(RawJson::to_value) {
            check_documented_fields(fields, loaded.agent.name.as_str(), &schema);
        }
    }
}

/// Returns the sorted agents in the first column of the tables of a text.
fn names_in_table(text: &str) -> Vec<&str> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut names: Vec<&str> = rows.map(|row| row.split('`').next().unwrap()).collect();
    names.sort_unstable();
    names
}

fn check_documented_fields(table: &str, agent: &str, schema: &Value) {
    let required = schema["required"].as_array().unwrap();
    let format_field = |field: &String| match required.iter().any(|name| name == field) {
        true => format!("`{field}`"),
        false => format!("`{field}`?"),
    };
    let properties = schema["properties"].as_object().unwrap();
    let mut fields: Vec<String> = properties.keys().map(format_field).collect();
    fields.sort_unstable();
    let row = table.lines().find_map(|line| line.strip_prefix(&format!("| `{agent}` | ")));
    let row = row.unwrap_or_else(|| panic!("docs/shipped.md has no row `{agent}`"));
    let mut documented: Vec<&str> = row.trim_end_matches(" |").split(", ").collect();
    // The head of the table names these two.
    documented.push("`confidence`");
    if ["plan", "implement", "review", "bugfix"].contains(&agent) {
        documented.push("`success`");
    }
    documented.sort_unstable();
    assert_eq!(documented, fields, "{agent}");
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
