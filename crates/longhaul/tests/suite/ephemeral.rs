//! The stateless use as a library: history in, result out, and nobody disturbs
//! anybody.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul::ephemeral::{Ephemeral, EphemeralError, EphemeralOutcome, SingleModel};
use longhaul_api::history::parse_history;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::AgentName;
use longhaul_core::message::Message;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure};
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::config::{Isolation, SandboxConfig};
use longhaul_engine::clock::SystemClock;
use longhaul_model::scripted::{Script, ScriptedModel};
use longhaul_tool::Shell;
use longhaul_tool::typed::{TypedTool, typed};
use schemars::JsonSchema;
use serde::Deserialize;

#[path = "../../examples/own_tool.rs"]
mod own_tool;

/// These replies, and these tools.
fn ephemeral(replies: &str, tools: Vec<Arc<dyn Tool>>) -> Ephemeral {
    let script = Script::parse("test", &format!("replies:\n{replies}\n")).unwrap();
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
    // Two questions, each with two calls, their results and an answer.
    assert_eq!(messages.len(), 12, "{messages:?}");
}

#[test]
fn the_example_runs() {
    own_tool::main().unwrap();
}

#[tokio::test]
async fn concurrent_runs_are_independent() {
    let house = ephemeral("- text: 'You said {{ input }}'\n  delay: 20ms", Vec::new());
    let ask = |words: &'static str| house.ask(agent(&[]), Vec::new(), words);
    let (a, b, c) = tokio::join!(ask("one"), ask("two"), ask("three"));
    for (outcome, text) in [(a, "You said one"), (b, "You said two"), (c, "You said three")] {
        let outcome = outcome.unwrap();
        assert_eq!(outcome.text, text);
        assert_eq!(outcome.messages.len(), 2);
        assert!(outcome.tools_called.is_empty());
    }
}

#[tokio::test]
async fn a_history_precedes_the_input_and_the_reply_is_appended() {
    let said =
        br#"[{"role":"user","content":"I am Ada."},{"role":"assistant","content":"Hello."}]"#;
    let before = parse_history(said).unwrap();
    // The script says what this run was asked, and not what the conversation began with.
    let house = ephemeral("- text: 'Hello again: {{ input }}'", Vec::new());
    let outcome = house.ask(agent(&[]), before.clone(), "Who am I?").await;
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
    let house = ephemeral(replies, Vec::new());
    let no = house.ask(agent(&["ask_human"]), Vec::new(), "go").await;
    let no = no.unwrap_err();
    assert!(matches!(no, EphemeralError::WouldWait(_)), "{no:?}");
    assert!(no.to_string().contains("can't wait"), "{no}");

    let locked = ephemeral("- error: { status: 401, times: 99 }\n  text: never", Vec::new());
    let no = locked.ask(agent(&[]), Vec::new(), "go").await.unwrap_err();
    assert!(matches!(&no, EphemeralError::Failed(fault) if fault.code == "auth"), "{no:?}");

    // What keeps a run open elsewhere has nothing to wait for here.
    let open =
        Agent { keep_open: Some(longhaul_core::time::Millis::from_secs(3_600)), ..agent(&[]) };
    let house = ephemeral("- text: Done.", Vec::new());
    let outcome = house.ask(open, Vec::new(), "go").await.unwrap();
    assert_eq!(outcome.text, "Done.");
}

/// A tree, which holds itself.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Tree {
    name: String,
    #[serde(default)]
    below: Vec<Self>,
}

impl Tree {
    /// Those that have a name, here and below.
    fn count(&self) -> usize {
        let below: usize = self.below.iter().map(Self::count).sum();
        usize::from(!self.name.is_empty()) + below
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
    for (trees, said) in [
        ("[{ name: a, below: [{ name: b, below: [{ name: c }] }] }]", "3 trees"),
        (
            "[{ name: a, below: [{ name: b, below: [{ name: 7 }] }] }]",
            "/trees/0/below/0/below/0/name",
        ),
    ] {
        let replies = format!(
            "- tools: [{{ name: count_trees, input: {{ trees: {trees} }} }}]\n- text: '{{{{ last_result }}}}'"
        );
        let house = ephemeral(&replies, vec![typed(CountTreesTool).unwrap()]);
        let outcome = house.ask(agent(&["count_trees"]), Vec::new(), "go").await;
        let text = outcome.unwrap().text;
        assert!(text.contains(said), "{text}");
    }
}

#[tokio::test]
async fn the_shell_tool_needs_an_explicit_unsandboxed_setting() {
    let folder = tempfile::tempdir().unwrap();
    let replies = "- tools: [{ name: shell, input: { command: 'echo hi > a; cat a; exit 3' } }]\n- text: '{{ last_result }}'";
    let shell = Shell::new(folder.path(), [], Arc::new(SystemClock)).unwrap();
    let house = ephemeral(replies, vec![Arc::new(shell)]);
    let no = house.ask(agent(&["shell"]), Vec::new(), "go").await;
    let no = no.unwrap_err().to_string();
    assert!(no.contains("`sandbox: { isolation: none }`"), "{no}");
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "nothing was run");
    let open = Agent {
        sandbox: Some(SandboxConfig { isolation: Isolation::None, ..SandboxConfig::default() }),
        ..agent(&["shell"])
    };
    let outcome = house.ask(open, Vec::new(), "go").await.unwrap();
    assert_eq!(outcome.text, "hi\nexit 3");
}
