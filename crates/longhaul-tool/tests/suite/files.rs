//! The file tools on real directories: results and rejections.

mod escape;
mod race;
mod read_and_search;
mod write_and_edit;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::message::Part;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext};
use longhaul_core::time::Clock;
use longhaul_testkit::clock::SimClock;
use longhaul_tool::file_tools;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A workspace next to a directory that must not be accessed.
struct Fixture {
    dir: TempDir,
    tools: Vec<Arc<dyn Tool>>,
}

impl Fixture {
    fn new() -> Self {
        Self::with_clock(Arc::new(SimClock::new()))
    }

    fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("work");
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/secret.txt"), "the secret").unwrap();
        let protected = vec![root.join("state"), root.join("runs.db")];
        Self { tools: file_tools(&root, protected, clock).unwrap(), dir }
    }

    fn path(&self, relative_path: &str) -> PathBuf {
        self.dir.path().join("work").join(relative_path)
    }

    fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    fn write_file(&self, relative_path: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(relative_path).parent().unwrap()).unwrap();
        fs::write(self.path(relative_path), content).unwrap();
    }

    fn content(&self, relative_path: &str) -> String {
        fs::read_to_string(self.path(relative_path)).unwrap()
    }

    fn tool(&self, name: &str) -> Arc<dyn Tool> {
        let mut tools = self.tools.iter();
        let tool = tools.find(|tool| tool.spec().name.as_str() == name);
        tool.unwrap().clone()
    }

    async fn call(&self, name: &str, input: Value) -> Result<String, String> {
        call(&self.tool(name), input).await
    }

    async fn read(&self, path: &str) -> Result<String, String> {
        self.call("read_file", json!({ "path": path })).await
    }

    async fn write(&self, path: &str, content: &str) -> Result<String, String> {
        let input = json!({ "path": path, "content": content });
        self.call("write_file", input).await
    }

    async fn edit(&self, path: &str, old: &str, new: &str) -> Result<String, String> {
        self.call("edit_file", edit_input(path, old, new)).await
    }

    async fn list(&self, input: Value) -> String {
        self.call("list_files", input).await.unwrap()
    }

    async fn search(&self, input: Value) -> String {
        self.call("search_files", input).await.unwrap()
    }

    async fn verify(&self, input: Value) -> VerifyOutcome {
        self.tool("edit_file").verify(input, &tool_context()).await
    }
}

fn edit_input(path: &str, old: &str, new: &str) -> Value {
    json!({ "path": path, "old": old, "new": new })
}

fn tool_context() -> ToolContext {
    let run = RunId::from_bits(7);
    let id = CallId { turn: 1, index: 1 };
    ToolContext::new(run, id, Epoch(1))
}

async fn call(tool: &Arc<dyn Tool>, input: Value) -> Result<String, String> {
    match tool.call(input, &tool_context()).await {
        Ok(output) => Ok(only_text(&output)),
        Err(failure) => Err(failure.to_string()),
    }
}

fn only_text(output: &ToolOutput) -> String {
    match &output.content[..] {
        [Part::Text(text)] => text.to_string(),
        other => panic!("one text, not {other:?}"),
    }
}

#[test]
fn file_tools_have_effect_classes_and_rule_match_texts() {
    let fixture = Fixture::new();
    let check = |tool: &str, path: Value, class: EffectClass, match_text: &str| {
        let tool = fixture.tool(tool);
        let input = json!({ "path": path });
        assert_eq!(tool.class(&input), class);
        assert_eq!(tool.rule_match_texts(&input), [match_text], "{input}");
        assert_eq!(tool.spec().schema["additionalProperties"], false);
    };
    let absolute = fixture.path("src//a.rs");
    check("read_file", json!("./src/./a.rs"), EffectClass::Pure, "src/a.rs");
    check("read_file", json!(absolute), EffectClass::Pure, "src/a.rs");
    check("write_file", json!("src//a.rs/"), EffectClass::Keyed, "src/a.rs");
    check("edit_file", json!("src/a.rs"), EffectClass::Once, "src/a.rs");
    check("list_files", json!(""), EffectClass::Pure, ".");
    check("list_files", Value::Null, EffectClass::Pure, ".");
    check("search_files", json!("./src"), EffectClass::Pure, "src");
    // A rejected path is shown to rules and people as it was written.
    check("read_file", json!("../etc"), EffectClass::Pure, "../etc");
    check("read_file", json!("/etc/x"), EffectClass::Pure, "/etc/x");
    check("read_file", json!(1), EffectClass::Pure, r#"{"path":1}"#);
    let verifies: Vec<&str> = fixture
        .tools
        .iter()
        .filter(|tool| tool.spec().can_verify)
        .map(|tool| tool.spec().name.as_str())
        .collect();
    assert_eq!(verifies, ["edit_file"]);
}

#[test]
fn every_number_has_a_maximum_in_the_schema() {
    let tool = Fixture::new().tool("read_file");
    for name in ["offset", "limit"] {
        let number = &tool.spec().schema["properties"][name];
        assert_eq!(number["type"], "integer");
        assert_eq!(number["maximum"], 1_000_000_000, "{name}");
    }
}
