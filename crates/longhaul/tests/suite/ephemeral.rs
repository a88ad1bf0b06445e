//! Tests of ephemeral use as a library: history in, result out, and independent requests.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul::ephemeral::{Ephemeral, EphemeralError, EphemeralOutcome, SingleModel};
use longhaul_api::history::parse_history;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::AgentName;
use longhaul_core::message::Message;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure};
use longhaul_engine::agent::config::{IsolationLevel, SandboxConfig};
use longhaul_engine::agent::{Agent, EffectRule};
use longhaul_engine::clock::SystemClock;
use longhaul_model::scripted::{Script, ScriptedModel};
use longhaul_tool::ShellTool;
use longhaul_tool::typed::{TypedTool, typed};
use schemars::JsonSchema;
use serde::Deserialize;

#[path = "../../examples/own_tool.rs"]
mod own_tool;

/// Creates a client with these scripted replies and tools.
fn new_ephemeral_runtime(replies: &str, tools: Vec<Arc<dyn Tool>>) -> Ephemeral {
    let script = Script::parse_yaml("test", &format!("replies:\n{replies}\n")).unwrap();
    let model = ScriptedModel::new("test", script, Arc::new(SystemClock));
    let models = SingleModel::new("scripted/test", Arc::new(model));
    Ephemeral::new(Arc::new(models), tools).unwrap()
}

fn agent(tools: &[&str]) -> Agent {
    Agent {
        tools: tools.iter().map(|&name| name.to_owned()).collect(),
        ..Agent::new(AgentName::new("tester").unwrap())
    }
}

#[tokio::test]
async fn the_example_answers() {
    let EphemeralOutcome { text, tools_called, messages, .. } = own_tool::answer().await.unwrap();
    assert_eq!(text, "You have a seat: IC 61 at counter 7.");
    assert_eq!(tools_called, ["fare", "book"]);
    // Two requests, each with two calls, their results and a final message.
    assert_eq!(messages.len(), 12, "{messages:?}");
}

#[test]
fn the_example_runs() {
    own_tool::main().unwrap();
}

#[tokio::test]
async fn concurrent_runs_are_independent() {
    let ephemeral_runtime =
        new_ephemeral_runtime("- text: 'You said {{ input }}'\n  delay: 20ms", Vec::new());
    let ask_model = |input: &'static str| ephemeral_runtime.ask(agent(&[]), Vec::new(), input);
    let (a, b, c) = tokio::join!(ask_model("one"), ask_model("two"), ask_model("three"));
    for (outcome, text) in [(a, "You said one"), (b, "You said two"), (c, "You said three")] {
        let outcome = outcome.unwrap();
        assert_eq!(outcome.text, text);
        assert_eq!(outcome.messages.len(), 2);
        assert!(outcome.tools_called.is_empty());
    }
}

#[tokio::test]
async fn a_history_precedes_the_input_and_the_reply_is_appended() {
    let history =
        br#"[{"role":"user","content":"I am Ada."},{"role":"assistant","content":"Hello."}]"#;
    let before = parse_history(history).unwrap();
    // `input` in the script is the input of this run, not the first message of the history.
    let ephemeral_runtime = new_ephemeral_runtime("- text: 'Hello again: {{ input }}'", Vec::new());
    let outcome = ephemeral_runtime.ask(agent(&[]), before.clone(), "Who am I?").await;
    let messages = outcome.unwrap().messages;
    assert_eq!(messages[..2], before);
    assert_eq!(messages[2], Message::user("Who am I?"));
    let Message::Assistant(reply) = &messages[3] else {
        panic!("{messages:?}");
    };
    assert_eq!(reply.text(), "Hello again: Who am I?");
}

#[tokio::test]
async fn a_run_that_would_wait_ends_with_an_error() {
    let replies = "- tools: [{ name: ask_human, input: { question: Left? } }]\n- text: Done.";
    let ephemeral_runtime = new_ephemeral_runtime(replies, Vec::new());
    let error = ephemeral_runtime.ask(agent(&["ask_human"]), Vec::new(), "go").await;
    let error = error.unwrap_err();
    assert!(matches!(error, EphemeralError::WouldWait(_)), "{error:?}");
    assert!(error.to_string().contains("can't wait"), "{error}");

    let mut agent_with_key = agent(&[]);
    agent_with_key.effects = vec![EffectRule {
        tool: "pay".to_owned(),
        match_glob: None,
        class: None,
        key: Some("a".to_owned()),
    }];
    let error = ephemeral_runtime.ask(agent_with_key, Vec::new(), "go").await.unwrap_err();
    assert!(error.to_string().contains("has an effect key for `pay`"), "{error}");

    let locked_runtime =
        new_ephemeral_runtime("- error: { status: 401, times: 99 }\n  text: never", Vec::new());
    let error = locked_runtime.ask(agent(&[]), Vec::new(), "go").await.unwrap_err();
    assert!(
        matches!(&error, EphemeralError::Failed(run_error) if run_error.code == "auth"),
        "{error:?}"
    );

    // `keep_open` has no effect in an ephemeral run.
    let kept_open_agent =
        Agent { keep_open: Some(longhaul_core::time::Millis::from_secs(3_600)), ..agent(&[]) };
    let ephemeral_runtime = new_ephemeral_runtime("- text: Done.", Vec::new());
    let outcome = ephemeral_runtime.ask(kept_open_agent, Vec::new(), "go").await.unwrap();
    assert_eq!(outcome.text, "Done.");
}

/// A recursive type.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Tree {
    name: String,
    #[serde(default)]
    below: Vec<Self>,
}

impl Tree {
    /// Counts the named trees, recursively.
    fn count(&self) -> usize {
        let child_count: usize = self.below.iter().map(Self::count).sum();
        usize::from(!self.name.is_empty()) + child_count
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Forest {
    trees: Vec<Tree>,
}

#[derive(Debug)]
struct CountTreesTool;

#[async_trait]
impl TypedTool for CountTreesTool {
    type Input = Forest;
    const NAME: &'static str = "count_trees";
    const DESCRIPTION: &'static str = "Counts trees.";
    const CLASS: EffectClass = EffectClass::Pure;

    async fn call(&self, forest: Forest, _: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let count: usize = forest.trees.iter().map(Tree::count).sum();
        Ok(ToolOutput::text(format!("{count} trees")))
    }
}

#[tokio::test]
async fn a_recursive_input_type_is_validated_at_every_level() {
    for (trees, expected) in [
        ("[{ name: a, below: [{ name: b, below: [{ name: c }] }] }]", "3 trees"),
        (
            "[{ name: a, below: [{ name: b, below: [{ name: 7 }] }] }]",
            "/trees/0/below/0/below/0/name",
        ),
    ] {
        let replies = format!(
            "- tools: [{{ name: count_trees, input: {{ trees: {trees} }} }}]\n- text: '{{{{ last_result }}}}'"
        );
        let ephemeral_runtime =
            new_ephemeral_runtime(&replies, vec![typed(CountTreesTool).unwrap()]);
        let outcome = ephemeral_runtime.ask(agent(&["count_trees"]), Vec::new(), "go").await;
        let text = outcome.unwrap().text;
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn the_shell_tool_needs_an_explicit_unsandboxed_setting() {
    let folder = tempfile::tempdir().unwrap();
    let replies = "- tools: [{ name: shell, input: { command: 'echo hi > a; cat a; exit 3' } }]\n- text: '{{ last_result }}'";
    let shell = ShellTool::new(folder.path(), [], Arc::new(SystemClock)).unwrap();
    let ephemeral_runtime = new_ephemeral_runtime(replies, vec![Arc::new(shell)]);
    let error = ephemeral_runtime.ask(agent(&["shell"]), Vec::new(), "go").await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("`sandbox: { isolation: none }`"), "{error}");
    let file_count = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(file_count, 0, "a command was run");
    let unsandboxed_agent = Agent {
        sandbox: Some(SandboxConfig {
            isolation: IsolationLevel::None,
            ..SandboxConfig::default()
        }),
        ..agent(&["shell"])
    };
    let outcome = ephemeral_runtime.ask(unsandboxed_agent, Vec::new(), "go").await.unwrap();
    assert_eq!(outcome.text, "hi\nexit 3");
}
