//! What a server has, as we take it.
//!
//! Never: takes a tool whose name, schema or words could harm. It is left out
//! with a note, and the others stay.

use std::collections::BTreeSet;

use longhaul_core::id::ToolName;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::port::tool::ToolSpec;
use serde_json::Value;

use crate::schema_check::SchemaChecker;
use crate::spec::{ServerSpec, is_tool_name, tool_name};

/// So many tools of one server are taken.
pub(super) const TOOLS_MAX: usize = 256;

/// The longest description, in letters.
const DESCRIPTION_CHARS_MAX: usize = 4_000;

/// So many notes are kept.
const NOTES_MAX: usize = 50;

/// A tool that a server has.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedTool {
    /// What it is.
    pub spec: ToolSpec,
    /// What its calls do to the world, by its own word.
    pub class: EffectClass,
    /// The schema that its results promise to keep.
    pub output_schema: Option<Value>,
}

/// What a server has.
#[derive(Debug, Clone, Default)]
pub(super) struct Listing {
    /// What can be used.
    pub(super) tools: Vec<ListedTool>,
    /// What was left out or cut, and why.
    pub(super) notes: Vec<String>,
    schema_checker: SchemaChecker,
}

impl Listing {
    /// A page more of what a server says it has.
    pub(super) fn add(&mut self, spec: &ServerSpec, page: &[Value]) {
        let mut names: BTreeSet<String> =
            self.tools.iter().map(|offered| offered.spec.name.as_str().to_owned()).collect();
        for said in page {
            if self.tools.len() >= TOOLS_MAX {
                self.add_note(format!("it has more than {TOOLS_MAX} tools; the rest is left out"));
                return;
            }
            match parse_tool(spec, said, &mut self.schema_checker) {
                Ok((offered, unused)) if names.insert(offered.spec.name.as_str().to_owned()) => {
                    self.tools.push(offered);
                    if let Some(why) = unused {
                        self.add_note(format!(
                            "what `{}` promises of its results is not used: {why}",
                            display_name(said)
                        ));
                    }
                }
                Ok(_) => self.add_note(format!(
                    "`{}` is there twice; the second is left out",
                    display_name(said)
                )),
                Err(why) => self.add_note(format!("`{}` is left out: {why}", display_name(said))),
            }
        }
    }

    /// One note more, up to a bound, and none twice.
    pub(super) fn add_note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// The name that a server gives a tool, for a message.
fn display_name(said: &Value) -> String {
    match said["name"].as_str() {
        Some(name) => name.escape_debug().take(80).collect(),
        None => "(no name)".to_owned(),
    }
}

/// A tool as we take it, with why what it promises is not used; or why it is not taken.
fn parse_tool(
    spec: &ServerSpec,
    said: &Value,
    judge: &mut SchemaChecker,
) -> Result<(ListedTool, Option<String>), String> {
    let name = said["name"].as_str().ok_or("it has no name")?;
    if !is_tool_name(name) {
        return Err("its name is not 1 to 128 letters, digits, `_`, `-`, `.` and `/`".to_owned());
    }
    let name = tool_name(&spec.name, name);
    let name = ToolName::new(name).map_err(|bad| bad.to_string())?;
    let schema = said.get("inputSchema").ok_or("it has no schema of its input")?;
    if !schema.is_object() {
        return Err("the schema of its input is no object".to_owned());
    }
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Err("its input would be no object".to_owned());
    }
    judge.check(schema, "input")?;
    let (promise, unused) = match parse_output_schema(said, judge) {
        Ok(promise) => (promise.cloned(), None),
        Err(why) => (None, Some(why)),
    };
    let words = said["description"].as_str();
    let title = said["title"].as_str().or(said["annotations"]["title"].as_str());
    let description = words.or(title).unwrap_or_default();
    let offered = ListedTool {
        spec: ToolSpec {
            name,
            description: bounded_description(description),
            schema: schema.clone(),
            can_verify: false,
            // A model that is told "unknown" simply calls again.
            in_doubt: Some(InDoubtPolicy::Ask),
            timeout: Some(spec.timeout),
        },
        class: effect_class(spec, &said["annotations"]),
        output_schema: promise,
    };
    Ok((offered, unused))
}

/// The schema that its results promise to keep, or why it can't be held to it.
fn parse_output_schema<'a>(
    said: &'a Value,
    judge: &mut SchemaChecker,
) -> Result<Option<&'a Value>, String> {
    let schema = said.get("outputSchema").filter(|schema| !schema.is_null());
    let Some(schema) = schema else {
        return Ok(None);
    };
    judge.check(schema, "results")?;
    Ok(Some(schema))
}

/// What its calls do to the world, by its own word. What one of its calls did may
/// be what the next relies on, where it is a run's own: then none is repeated.
fn effect_class(spec: &ServerSpec, annotations: &Value) -> EffectClass {
    let says = |hint: &str| annotations[hint].as_bool() == Some(true);
    if spec.per_run {
        EffectClass::Once
    } else if says("readOnlyHint") {
        EffectClass::Pure
    } else if says("idempotentHint") {
        EffectClass::Keyed
    } else {
        EffectClass::Once
    }
}

fn bounded_description(words: &str) -> String {
    let fits = |letter: &char| !letter.is_control() || matches!(letter, '\n' | '\t');
    let mut short: String = words.chars().filter(fits).take(DESCRIPTION_CHARS_MAX).collect();
    if words.chars().nth(DESCRIPTION_CHARS_MAX).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ServerTransport;
    use serde_json::{Map, json};
    use std::collections::BTreeMap;

    fn spec(per_run: bool) -> ServerSpec {
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

    fn tool(name: &str, schema: &Value) -> Value {
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
            tool("good", &object),
            tool("twice", &object),
            tool("twice", &object),
            tool("new\nline", &object),
            tool(&"x".repeat(10_000), &object),
            tool("text", &json!("none")),
            tool("array", &json!({ "type": "array" })),
            tool("broken", &json!({ "type": "object", "properties": { "a": { "type": 5 } } })),
            tool("itself", &json!({ "type": "object", "properties": { "a": { "$ref": "#" } } })),
            tool(
                "round",
                &json!({
                    "$ref": "#/$defs/a",
                    "$defs": { "a": { "items": { "$ref": "#/$defs/b" } }, "b": { "not": { "$ref": "#/$defs/a" } } },
                }),
            ),
            tool("far", &json!({ "properties": { "a": { "$ref": "http://127.0.0.1:1/x" } } })),
            tool("huge", &json!({ "type": "object", "description": "x".repeat(70_000) })),
            tool("deep", &deep),
            json!({ "name": "bare" }),
            json!({ "inputSchema": {} }),
            json!(5),
        ];
        let mut listing = Listing::default();
        listing.add(&spec(false), &page);
        let names: Vec<&str> =
            listing.tools.iter().map(|offered| offered.spec.name.as_str()).collect();
        assert_eq!(names, ["mcp:s/good", "mcp:s/twice", "mcp:s/deep"]);
        assert_eq!(listing.notes.len(), 12, "{:#?}", listing.notes);
        for note in &listing.notes {
            assert!(note.len() < 400 && !note.contains('\n'), "{note}");
        }
    }

    #[test]
    fn patterns_are_counted_before_any_is_compiled() {
        let named = |count: usize| {
            let field = |at: usize| (format!("f{at}"), json!({ "pattern": format!("^{at}$") }));
            let fields: Map<String, Value> = (0..count).map(field).collect();
            json!({ "type": "object", "properties": fields })
        };
        let keyed: Map<String, Value> = (0..65).map(|at| (format!("^{at}$"), json!({}))).collect();
        let promises = json!({
            "name": "promises", "inputSchema": named(1),
            "outputSchema": { "type": "object", "patternProperties": keyed },
        });
        let page = [
            tool("few", &named(64)),
            tool("many", &named(65)),
            tool("keyed", &json!({ "type": "object", "patternProperties": keyed })),
            tool("vast", &json!({ "properties": { "a": { "pattern": r"\p{L}{60}" } } })),
            promises,
        ];
        let mut listing = Listing::default();
        listing.add(&spec(false), &page);
        let taken: Vec<(&str, bool)> = listing
            .tools
            .iter()
            .map(|offered| (offered.spec.name.as_str(), offered.output_schema.is_some()))
            .collect();
        assert_eq!(taken, [("mcp:s/few", false), ("mcp:s/promises", false)]);
        let many = "holds more than 64 patterns";
        for (at, why) in [(0, many), (1, many), (2, "is none"), (3, many)] {
            assert!(listing.notes[at].contains(why), "{:#?}", listing.notes);
        }
        // Those that are left out count as well: there is no end of them else.
        let page: Vec<Value> = (0..20).map(|_| tool("twice", &named(64))).collect();
        listing.add(&spec(false), &page);
        assert_eq!(listing.tools.len(), 3);
        let last = listing.notes.last().unwrap();
        assert!(last.contains("all its schemas hold more than 512"), "{last}");
    }

    #[test]
    fn effect_classes_follow_hints_and_run_scoped_servers_are_session() {
        for (hints, class) in [
            (json!({ "readOnlyHint": true }), EffectClass::Pure),
            (json!({ "idempotentHint": true }), EffectClass::Keyed),
            (json!({ "readOnlyHint": false }), EffectClass::Once),
            (json!({ "readOnlyHint": "yes" }), EffectClass::Once),
            (Value::Null, EffectClass::Once),
        ] {
            assert_eq!(super::effect_class(&spec(false), &hints), class, "{hints}");
            assert_eq!(super::effect_class(&spec(true), &hints), EffectClass::Once);
        }
    }
}
