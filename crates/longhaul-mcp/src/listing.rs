//! The tool list of a server after validation.
//!
//! Invariant: a tool with an invalid name or schema is skipped with a note. The other tools stay
//! usable.

use std::collections::BTreeSet;

use longhaul_core::id::ToolName;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::port::tool::ToolSpec;
use longhaul_core::time::Millis;
use serde_json::Value;

use crate::exit::truncated;
use crate::schema_check::SchemaChecker;
use crate::spec::{ServerSpec, is_valid_tool_name, prefixed_tool_name};

/// Maximum number of tools per server.
pub(super) const TOOLS_MAX: usize = 256;

/// Maximum length of a tool description in characters.
const DESCRIPTION_CHARS_MAX: usize = 4_000;

/// Maximum number of notes about a server's tool list.
const NOTES_MAX: usize = 50;

/// A tool that a server offers.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedTool {
    /// Name, description and schema of the tool.
    pub spec: ToolSpec,
    /// Effect class of the tool's calls (whether a call may be repeated), from the server's
    /// annotations.
    pub class: EffectClass,
    /// Schema of the tool's structured results. `None` means the tool declares no usable schema.
    pub output_schema: Option<Value>,
}

/// Result of checking a server: its identity and its tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerCheckReport {
    /// Name that the server reports for itself.
    pub name: String,
    /// Version that the server reports for itself.
    pub version: String,
    /// Negotiated revision of the MCP protocol.
    pub protocol: String,
    /// Tools the server offers.
    pub tools: Vec<ListedTool>,
    /// What was skipped or truncated in the tool list, and why.
    pub notes: Vec<String>,
    pub duration: Millis,
}

/// The usable tools of a server, with notes about the skipped ones.
#[derive(Debug, Clone, Default)]
pub(super) struct ToolListing {
    /// Tools that passed validation.
    pub(super) tools: Vec<ListedTool>,
    /// Notes about what was skipped or truncated in the tool list, and why.
    pub(super) notes: Vec<String>,
    names: BTreeSet<String>,
    schema_checker: SchemaChecker,
}

impl ToolListing {
    /// Adds one page of a server's tool list.
    pub(super) fn add_page(&mut self, spec: &ServerSpec, tool_page: &[Value]) {
        for tool in tool_page {
            if self.tools.len() >= TOOLS_MAX {
                self.add_note(format!("tools after the first {TOOLS_MAX} are left out"));
                return;
            }
            let name = tool["name"].as_str().unwrap_or("(no name)");
            let name: String = name.escape_debug().take(80).collect();
            match parse_tool(spec, tool, &mut self.schema_checker) {
                Err(reason) => {
                    self.add_note(format!("the tool `{name}` is left out: {reason}"));
                }
                Ok((listed, _)) if self.names.contains(listed.spec.name.as_str()) => {
                    self.add_note(format!("`{name}` is listed twice; the second is left out"));
                }
                Ok((listed, schema_problem)) => {
                    self.names.insert(listed.spec.name.as_str().to_owned());
                    self.tools.push(listed);
                    if let Some(reason) = schema_problem {
                        self.add_note(format!(
                            "the output schema of `{name}` is not used: {reason}"
                        ));
                    }
                }
            }
        }
    }

    /// Adds a note about the tool list, up to a limit and without duplicates.
    pub(super) fn add_note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// Parses a tool from the server's list. Also returns why its output schema is not used. The error
/// says why the tool is skipped.
fn parse_tool(
    spec: &ServerSpec,
    tool: &Value,
    checker: &mut SchemaChecker,
) -> Result<(ListedTool, Option<String>), String> {
    let name = tool["name"].as_str().ok_or("the tool has no name")?;
    if !is_valid_tool_name(name) {
        return Err("a tool name must be 1 to 128 letters, digits, `_`, `-`, `.` or `/`".to_owned());
    }
    let name = prefixed_tool_name(&spec.name, name);
    let name = ToolName::new(name).map_err(|error| error.to_string())?;
    let schema = tool.get("inputSchema").ok_or("the tool has no input schema")?;
    if !schema.is_object() {
        return Err("the input schema is not an object".to_owned());
    }
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Err("the input schema does not describe an object".to_owned());
    }
    checker.check_schema(schema, "input")?;
    let output_schema = tool.get("outputSchema").filter(|schema| !schema.is_null());
    let schema_problem =
        output_schema.and_then(|schema| checker.check_schema(schema, "results").err());
    let output_schema = output_schema.filter(|_| schema_problem.is_none()).cloned();
    let text = tool["description"].as_str();
    let title = tool["title"].as_str().or(tool["annotations"]["title"].as_str());
    let is_allowed = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    let description = text.or(title).unwrap_or_default().chars().filter(is_allowed);
    let listed = ListedTool {
        spec: ToolSpec {
            name,
            description: truncated(description, DESCRIPTION_CHARS_MAX),
            schema: schema.clone(),
            can_verify: false,
            // A model that gets the result "unknown" simply calls again, so a person is asked.
            in_doubt: Some(InDoubtPolicy::Ask),
            timeout: Some(spec.timeout),
        },
        class: effect_class(spec, &tool["annotations"]),
        output_schema,
    };
    Ok((listed, schema_problem))
}

/// Returns the effect class of a tool's calls (whether a call may be repeated) from the server's
/// annotations. A `per_run` server may keep state between calls, so its calls are never repeated.
fn effect_class(spec: &ServerSpec, annotations: &Value) -> EffectClass {
    let has_hint = |hint: &str| annotations[hint].as_bool() == Some(true);
    if spec.per_run {
        EffectClass::Once
    } else if has_hint("readOnlyHint") {
        EffectClass::Pure
    } else if has_hint("idempotentHint") {
        EffectClass::Keyed
    } else {
        EffectClass::Once
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ServerTransport;
    use serde_json::{Map, json};
    use std::collections::BTreeMap;

    fn server_spec(per_run: bool) -> ServerSpec {
        ServerSpec {
            name: "s".into(),
            transport: ServerTransport::Http {
                url: String::new(),
                headers: BTreeMap::new(),
                login: None,
            },
            per_run,
            timeout: ServerSpec::TIMEOUT,
        }
    }

    fn tool_json(name: &str, schema: &Value) -> Value {
        json!({ "name": name, "inputSchema": schema })
    }

    #[test]
    fn invalid_tools_are_left_out_of_the_listing() {
        let object = json!({ "type": "object" });
        let deep = json!({
            "type": "object",
            "properties": { "a": { "$ref": "#/$defs/a" }, "b": { "$ref": "#/$defs/a" } },
            "$defs": { "a": { "type": "string" } },
        });
        let page = [
            tool_json("good", &object),
            tool_json("twice", &object),
            tool_json("twice", &object),
            tool_json("new\nline", &object),
            tool_json(&"x".repeat(10_000), &object),
            tool_json("text", &json!("none")),
            tool_json("array", &json!({ "type": "array" })),
            tool_json("broken", &json!({ "type": "object", "properties": { "a": { "type": 5 } } })),
            tool_json(
                "itself",
                &json!({ "type": "object", "properties": { "a": { "$ref": "#" } } }),
            ),
            tool_json(
                "round",
                &json!({
                    "$ref": "#/$defs/a",
                    "$defs": { "a": { "items": { "$ref": "#/$defs/b" } }, "b": { "not": { "$ref": "#/$defs/a" } } },
                }),
            ),
            tool_json("far", &json!({ "properties": { "a": { "$ref": "http://127.0.0.1:1/x" } } })),
            tool_json("huge", &json!({ "type": "object", "description": "x".repeat(70_000) })),
            tool_json("deep", &deep),
            json!({ "name": "bare" }),
            json!({ "inputSchema": {} }),
            json!(5),
        ];
        let mut listing = ToolListing::default();
        listing.add_page(&server_spec(false), &page);
        let names: Vec<&str> =
            listing.tools.iter().map(|listed| listed.spec.name.as_str()).collect();
        assert_eq!(names, ["mcp:s/good", "mcp:s/twice", "mcp:s/deep"]);
        assert_eq!(listing.notes.len(), 12, "{:#?}", listing.notes);
        for note in &listing.notes {
            assert!(note.len() < 400 && !note.contains('\n'), "{note}");
        }
    }

    #[test]
    fn schema_patterns_are_counted_before_any_is_compiled() {
        let schema_with_patterns = |count: usize| {
            let field = |at: usize| (format!("f{at}"), json!({ "pattern": format!("^{at}$") }));
            let fields: Map<String, Value> = (0..count).map(field).collect();
            json!({ "type": "object", "properties": fields })
        };
        let pattern_properties: Map<String, Value> =
            (0..65).map(|at| (format!("^{at}$"), json!({}))).collect();
        let with_output_schema = json!({
            "name": "promises", "inputSchema": schema_with_patterns(1),
            "outputSchema": { "type": "object", "patternProperties": pattern_properties },
        });
        let page = [
            tool_json("few", &schema_with_patterns(64)),
            tool_json("many", &schema_with_patterns(65)),
            tool_json(
                "keyed",
                &json!({ "type": "object", "patternProperties": pattern_properties }),
            ),
            tool_json("vast", &json!({ "properties": { "a": { "pattern": r"\p{L}{60}" } } })),
            with_output_schema,
        ];
        let mut listing = ToolListing::default();
        listing.add_page(&server_spec(false), &page);
        let accepted: Vec<(&str, bool)> = listing
            .tools
            .iter()
            .map(|listed| (listed.spec.name.as_str(), listed.output_schema.is_some()))
            .collect();
        assert_eq!(accepted, [("mcp:s/few", false), ("mcp:s/promises", false)]);
        let too_many = "holds more than 64 patterns";
        for (at, expected) in [(0, too_many), (1, too_many), (2, "is invalid"), (3, too_many)] {
            assert!(listing.notes[at].contains(expected), "{:#?}", listing.notes);
        }
        // Skipped tools count too. Otherwise their number would be unlimited.
        let page: Vec<Value> =
            (0..20).map(|_| tool_json("twice", &schema_with_patterns(64))).collect();
        listing.add_page(&server_spec(false), &page);
        assert_eq!(listing.tools.len(), 3);
        let last = listing.notes.last().unwrap();
        assert!(last.contains("the tool schemas hold more than 512"), "{last}");
    }

    #[test]
    fn hints_set_the_effect_class_except_for_per_run_servers() {
        for (hints, class) in [
            (json!({ "readOnlyHint": true }), EffectClass::Pure),
            (json!({ "idempotentHint": true }), EffectClass::Keyed),
            (json!({ "readOnlyHint": false }), EffectClass::Once),
            (json!({ "readOnlyHint": "yes" }), EffectClass::Once),
            (Value::Null, EffectClass::Once),
        ] {
            assert_eq!(super::effect_class(&server_spec(false), &hints), class, "{hints}");
            assert_eq!(super::effect_class(&server_spec(true), &hints), EffectClass::Once);
        }
    }
}
