//! `longhaul tools`: lists every tool that an agent of this project could have, with its effect
//! class, its input and where it comes from. Trusted MCP servers are started and asked.

use std::sync::Arc;

use clap::Args;
use longhaul_core::port::tool::Tool;
use longhaul_core::suggest;
use longhaul_engine::tools::read_output::ReadOutputTool;
use longhaul_engine::tools::registry::{RegisteredTool, ToolRegistry};
use longhaul_project::assemble::trusted_tools::OutboundTools;
use longhaul_project::mcp::name::split_mcp_server_and_tool;
use longhaul_store::{OpenMode, StoreOptions};
use longhaul_tool::{SANDBOX_TOOLS, memory};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::agents::project::ProjectWithAgents;
use crate::error::fail;
use crate::mcp::ask;
use crate::table::{self, TableCell};
use crate::{output, sanitize};

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul tools                all tools; starts the MCP servers that you trust
  longhaul tools --no-mcp       starts nothing
  longhaul tools read_file      one tool: its description and the schema of its input
  longhaul tools --json

An agent gets the tools that its file lists: `tools: [read_file, mcp:github]`.
CLASS says what happens to a call after a crash: pure and keyed calls are repeated, once and session
calls are not; the runtime handles control calls itself.";

/// Maximum number of characters of a tool's input in the list.
const INPUT_CHARS_MAX: usize = 60;

/// Arguments of `longhaul tools`.
#[derive(Debug, Args)]
pub(crate) struct ToolsCommand {
    /// Show only this tool, with its description and the schema of its input
    name: Option<String>,
    /// Leave out the tools of MCP servers, and start no server
    #[arg(long)]
    no_mcp: bool,
    /// Print the tools as one JSON object
    #[arg(long)]
    json: bool,
}

/// A tool that an agent could have.
#[derive(Debug, Serialize)]
struct ToolInfo {
    name: String,
    /// Effect class of the tool's calls, or `control`.
    class: String,
    /// Where the tool comes from: `built-in`, `control`, `sandbox` or the name of an MCP server.
    origin: String,
    description: String,
    input_schema: Value,
}

impl ToolsCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let project = ProjectWithAgents::load()?;
        let mut tools = built_in_tools(&project)?;
        let name = self.name.as_deref();
        let server = name.and_then(split_mcp_server_and_tool).map(|(server, _)| server);
        if !self.no_mcp && (name.is_none() || server.is_some()) {
            let is_wanted = |other: &str| server.is_none_or(|server| server == other);
            for (server, answer) in ask::ask_trusted_servers(is_wanted)? {
                match answer {
                    Ok(report) => {
                        tools.extend(report.tools.into_iter().map(|tool| ToolInfo {
                            name: tool.name,
                            class: class_name(&tool.class),
                            origin: format!("mcp:{server}"),
                            description: tool.description,
                            input_schema: tool.input_schema,
                        }));
                    }
                    Err(reason) => {
                        let reason = sanitize::sanitize_line(&reason);
                        output::eprint_line(&format!("note: mcp:{server}: {reason}"));
                    }
                }
            }
        }
        match name {
            None => self.show_list(&tools),
            Some(name) => self.show_one(&project, &tools, name),
        }
    }

    fn show_list(&self, tools: &[ToolInfo]) -> anyhow::Result<()> {
        let titles = ["TOOL", "CLASS", "FROM", "INPUT"];
        table::show_list(self.json, tools, (&titles, "There are no tools."), |tool| {
            let input = TableCell::new(input_line(&tool.input_schema));
            let input = input.with_max_chars(INPUT_CHARS_MAX);
            table::row(&[&tool.name, &tool.class, &tool.origin, &input])
        })
    }

    fn show_one(
        &self,
        project: &ProjectWithAgents,
        tools: &[ToolInfo],
        name: &str,
    ) -> anyhow::Result<()> {
        let Some(tool) = tools.iter().find(|tool| tool.name == name) else {
            let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
            let message = suggest::unknown_name_message("tool", name, &names);
            return fail(message, "all tools", "longhaul tools");
        };
        let is_user = |listed: &String| listed == name || *listed == tool.origin;
        let agents = project.loaded.agents.iter().map(|one| &one.agent);
        let agents = agents.filter(|agent| agent.tools.iter().any(is_user));
        let agents: Vec<&str> = agents.map(|agent| agent.name.as_str()).collect();
        let mut data = serde_json::to_value(tool)?;
        data["agents"] = agents.clone().into();
        output::show(self.json, &data, |_| {
            let rows = [
                ("class", tool.class.clone()),
                ("from", tool.origin.clone()),
                ("input", input_line(&tool.input_schema)),
                ("agents", if agents.is_empty() { "none".to_owned() } else { agents.join(", ") }),
            ];
            output::print_untrusted_text(name)?;
            table::print_table(&[], rows.iter().map(|(key, value)| table::row(&[key, value])))?;
            let schema = serde_json::to_string_pretty(&tool.input_schema)?;
            output::print_untrusted_text(&format!("\n{}\n\n{schema}", tool.description.trim()))
        })
    }
}

/// Returns the tools of this build, sorted by name, including those that need a store or trust.
fn built_in_tools(project: &ProjectWithAgents) -> anyhow::Result<Vec<ToolInfo>> {
    let clock = Arc::clone(&project.clock);
    let sender = OutboundTools::new(&project.config, &clock).map_err(anyhow::Error::msg)?.sender;
    let options = StoreOptions::new("sqlite::memory:", OpenMode::Driver, clock);
    let store = Arc::new(longhaul_store::open_sqlite_store(options)?);
    let mut tools: Vec<Arc<dyn Tool>> = memory::memory_tools(store.clone())?;
    tools.push(Arc::new(ReadOutputTool::new(store.clone(), store)));
    tools.push(sender.tool);
    let is_new =
        |tool: &Arc<dyn Tool>| project.tools.find_tool(tool.spec().name.as_str()).is_none();
    let mut tools = tools.into_iter().filter(is_new);
    let registry = tools.try_fold(project.tools.clone(), ToolRegistry::with_built_in_tool)?;
    let infos = registry.tools().map(|tool: &RegisteredTool| {
        let spec = tool.spec();
        let name = spec.name.as_str().to_owned();
        let origin = match tool.is_control() {
            true => "control",
            false if SANDBOX_TOOLS.contains(&name.as_str()) => "sandbox",
            false => "built-in",
        };
        ToolInfo {
            class: class_text(tool),
            origin: origin.to_owned(),
            description: spec.description.clone(),
            input_schema: spec.schema.clone(),
            name,
        }
    });
    Ok(infos.collect())
}

/// Returns the effect class of a tool. Requests of `http_fetch` differ by their method.
fn class_text(tool: &RegisteredTool) -> String {
    let Some(class) = tool.class() else {
        return "control".to_owned();
    };
    let post = tool.class_of_call(&json!({ "method": "POST" })).filter(|post| *post != class);
    let post = post.map(|post| format!(" or {}", class_name(&post)));
    format!("{}{}", class_name(&class), post.unwrap_or_default())
}

/// Returns the name of an effect class, as agent files write it.
fn class_name(class: &impl Serialize) -> String {
    let name = serde_json::to_value(class).ok();
    name.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns the names of a tool's arguments in one line, such as `{path, offset?}`.
fn input_line(schema: &Value) -> String {
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let is_required = |name: &str| {
        let required = schema["required"].as_array();
        required.is_some_and(|names| names.iter().any(|required| required == name))
    };
    let (required, optional): (Vec<&String>, Vec<&String>) =
        properties.keys().partition(|name| is_required(name));
    let required = required.into_iter().cloned();
    let names = required.chain(optional.into_iter().map(|name| format!("{name}?")));
    format!("{{{}}}", names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::{input_line, json};

    #[test]
    fn an_input_line_names_required_arguments_first() {
        for (schema, expected) in [
            (json!({}), "{}"),
            (json!({ "properties": { "a": {}, "b": {} }, "required": ["b"] }), "{b, a?}"),
            (json!({ "properties": 7, "required": 7 }), "{}"),
        ] {
            assert_eq!(input_line(&schema), expected);
        }
    }
}
