//! The tool `find_tools`, which loads the deferred tools of an agent: tools of which the model knows
//! only the name and one line until it needs them.
//!
//! Invariant: loaded tools are added after all others, so that providers can cache the list.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::RawJson;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::drive::truncate::first_chars;

/// Name of the tool that loads deferred tools. Every agent with deferred tools has it.
pub(crate) const FIND_TOOLS: &str = "find_tools";

/// Maximum number of tools that one call of `find_tools` loads if its query contains no tool name.
const LOADED_MAX: usize = 5;

/// Maximum number of tool names in a list of names for the model.
const NAMES_MAX: usize = 20;

/// Maximum length in characters of the one-line description of a deferred tool.
const LINE_CHARS_MAX: usize = 100;

/// Maximum number of deferred tools that the description of `find_tools` lists. Tools that are not
/// listed can still be found.
const LISTED_MAX: usize = 500;

/// The tool `find_tools` of one run.
#[derive(Debug)]
struct FindToolsTool {
    spec: ToolSpec,
    /// Specs of the deferred tools (tools that the model must load before it can call them), by the
    /// name that models see.
    deferred: BTreeMap<String, ToolSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FindToolsInput {
    query: String,
}

/// Returns the tool `find_tools` that loads these deferred tools, given by the name that models
/// see.
pub(crate) fn find_tools_tool(deferred: BTreeMap<String, ToolSpec>) -> Arc<dyn Tool> {
    let first_line =
        |text: &str| first_chars(text.trim().lines().next().unwrap_or_default(), LINE_CHARS_MAX);
    let lines = deferred.iter().take(LISTED_MAX);
    let lines: String = lines
        .map(|(name, spec)| format!("\n- {name}: {}", first_line(&spec.description)))
        .collect();
    let omitted_note = match deferred.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        omitted => format!("\n- and {omitted} more"),
    };
    let description = format!(
        "Loads further tools, so that you can call them: those that you name in `query`, or those \
         that match its text best. These tools can be loaded:{lines}{omitted_note}"
    );
    let query = json!({ "query": { "type": "string", "minLength": 1, "maxLength": 1_000 } });
    let spec = ToolSpec::with_input_properties(FIND_TOOLS, &description, query, &["query"]);
    Arc::new(FindToolsTool { spec, deferred })
}

/// Returns the first `NAMES_MAX` tool names as a list, followed by the number of the others.
pub(crate) fn join_tool_names(names: &[&str]) -> String {
    let shown = names.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Returns the entry of a tool in the list of tools that models see.
pub(crate) fn tool_list_entry(model_api_name: &str, spec: &ToolSpec) -> Value {
    json!({ "name": model_api_name, "description": spec.description, "schema": spec.schema })
}

impl FindToolsTool {
    /// Returns the tools whose name the query contains: the name that models see, or Longhaul's own
    /// name of the tool.
    fn tools_named_in_query(&self, query: &str) -> Vec<&str> {
        let is_separator =
            |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '/' | '.'));
        let parts = query.split(is_separator).map(|part| part.trim_end_matches(['.', ':']));
        let parts: Vec<&str> = parts.collect();
        let is_named = |part: &&str, names: [&str; 2]| {
            names.iter().any(|name| name.eq_ignore_ascii_case(part))
        };
        let named = self.deferred.iter().filter(|(model_api_name, spec)| {
            parts.iter().any(|part| is_named(part, [model_api_name.as_str(), spec.name.as_str()]))
        });
        named.map(|(model_api_name, _)| model_api_name.as_str()).collect()
    }

    /// Returns the names of the tools that match a query, best first.
    fn tool_names_matching_query(&self, query: &str) -> Vec<&str> {
        let query = query.to_lowercase();
        let parts: Vec<&str> = query.split(|c: char| !c.is_alphanumeric()).collect();
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let score = |name: &str, spec: &ToolSpec| {
            let (name, description) = (name.to_lowercase(), spec.description.to_lowercase());
            let part_score = |part: &str| {
                2 * u32::from(name.contains(part)) + u32::from(description.contains(part))
            };
            parts.clone().map(part_score).sum()
        };
        let mut scored: Vec<(u32, &str)> =
            self.deferred.iter().map(|(name, spec)| (score(name, spec), name.as_str())).collect();
        scored.retain(|(score, _)| *score > 0);
        // The sort is stable, so equal scores stay in the order of the names.
        scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        scored.into_iter().map(|(_, name)| name).collect()
    }
}

#[async_trait]
impl Tool for FindToolsTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Pure
    }

    async fn call(&self, input: Value, _ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let FindToolsInput { query } = serde_json::from_value(input)
            .map_err(|error| ToolFailure::new(format!("the input is invalid: {error}")))?;
        let named = self.tools_named_in_query(&query);
        let (found, loaded_max) = match named.is_empty() {
            true => (self.tool_names_matching_query(&query), LOADED_MAX),
            false => (named, usize::MAX),
        };
        if found.is_empty() {
            let reason = "no tool matches; the description of `find_tools` lists their names";
            return Err(ToolFailure::new(reason));
        }
        let (loaded, not_loaded) = found.split_at(found.len().min(loaded_max));
        let entries = loaded.iter().filter_map(|name| {
            Some(RawJson::from_serialize(&tool_list_entry(name, self.deferred.get(*name)?)))
        });
        let not_loaded_note = match not_loaded {
            [] => String::new(),
            not_loaded => {
                format!(" Not loaded, but matching too: {}.", join_tool_names(not_loaded))
            }
        };
        let text = format!("You can call these tools now: {}.{not_loaded_note}", loaded.join(", "));
        Ok(ToolOutput { loaded_tools: entries.collect(), ..ToolOutput::text(text) })
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::id::{CallId, Epoch, RunId, ToolName};

    use super::*;

    fn spec(name: &str, description: &str) -> ToolSpec {
        ToolSpec {
            name: ToolName::new(name).unwrap(),
            description: description.to_owned(),
            schema: json!({ "type": "object" }),
            can_verify: false,
            in_doubt: None,
            timeout: None,
        }
    }

    #[test]
    fn tools_are_found_by_name_and_by_description() {
        let descriptions = [
            ("mcp__git__create_issue", "Opens an issue.\nWith a title."),
            ("mcp__git__list_issues", "Lists all issues of a repository."),
            ("mcp__git__merge", "Merges a pull request."),
        ];
        let specs = descriptions.map(|(name, text)| (name.to_owned(), spec(name, text)));
        let tool = FindToolsTool { spec: spec(FIND_TOOLS, ""), deferred: specs.into() };
        for (query, expected) in [
            ("issue", vec!["mcp__git__create_issue", "mcp__git__list_issues"]),
            ("list issues", vec!["mcp__git__list_issues"]),
            ("pull requests, please", vec!["mcp__git__merge"]),
            ("Opens", vec!["mcp__git__create_issue"]),
            ("weather", vec![]),
            ("?!", vec![]),
        ] {
            let mut found = tool.tool_names_matching_query(query);
            found.truncate(expected.len().max(1));
            assert_eq!(found, expected, "{query}");
        }
    }

    #[tokio::test]
    async fn a_query_loads_the_tools_it_names_or_a_limited_number_of_matches() {
        let names = (0..40).map(|index| format!("mcp:git/issue_{index}"));
        let specs = names.map(|name| spec(&name, "Reads an issue."));
        let specs = specs.map(|spec| (spec.name.name_for_model_api().into_owned(), spec));
        let tool = FindToolsTool { spec: spec(FIND_TOOLS, ""), deferred: specs.collect() };
        for (query, loaded, text) in [
            ("mcp:git/issue_3, `mcp__git__issue_7`.", 2, "issue_3, mcp__git__issue_7."),
            ("issue", LOADED_MAX, " and 15 more."),
        ] {
            let ctx = ToolContext::new(RunId::from_bits(1), CallId { turn: 1, index: 1 }, Epoch(1));
            let output = tool.call(json!({ "query": query }), &ctx).await.unwrap();
            assert_eq!(output.loaded_tools.len(), loaded, "{query}");
            assert!(format!("{output:?}").contains(text), "{output:?}");
        }
    }

    #[test]
    fn the_find_tools_description_has_one_line_for_each_tool() {
        let long = format!("{}\nMore.", "x".repeat(200));
        let deferred = [("a".to_owned(), spec("a", &long)), ("b".to_owned(), spec("b", ""))];
        let tool = find_tools_tool(deferred.into());
        let expected = format!("can be loaded:\n- a: {}...\n- b: ", "x".repeat(100));
        let description = &tool.spec().description;
        assert!(description.ends_with(&expected), "{description}");
    }
}
