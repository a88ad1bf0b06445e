//! `remember` and `recall` with an in-memory store.

use std::sync::Arc;

use serde_json::{Value, json};

use longhaul_core::id::{CallId, Epoch, ResourceKey, RunId, ThreadKey};
use longhaul_core::message::Part;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::records::RecordStore as _;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure};
use longhaul_core::time::Millis;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::mem_store::MemStore;
use longhaul_tool::memory::memory_tools;

struct Fixture {
    store: MemStore,
    clock: SimClock,
    tools: Vec<Arc<dyn Tool>>,
}

impl Fixture {
    fn new() -> Self {
        let clock = SimClock::new();
        let store = MemStore::new(clock.clone());
        let tools = memory_tools(Arc::new(store.clone())).unwrap();
        Self { store, clock, tools }
    }

    fn tool(&self, name: &str) -> &dyn Tool {
        let mut tools = self.tools.iter();
        &**tools.find(|tool| tool.spec().name.as_str() == name).unwrap()
    }

    async fn call(&self, name: &str, input: Value, ctx: &ToolContext) -> Result<String, String> {
        self.clock.advance(Millis(1_000));
        let output = self.tool(name).call(input, ctx).await;
        let output = output.map_err(ToolFailure::into_message)?;
        match output.content.as_slice() {
            [Part::Text(text)] => Ok(text.to_string()),
            other => panic!("one text, not {other:?}"),
        }
    }

    async fn remember(&self, index: u16, text: &str, tags: &[&str]) -> String {
        let input = json!({ "text": text, "tags": tags });
        let output = self.call("remember", input, &ada_context(index)).await;
        output.unwrap()
    }

    async fn recall(&self, input: Value) -> String {
        self.call("recall", input, &ada_context(99)).await.unwrap()
    }
}

fn tool_context(index: u16) -> ToolContext {
    let call = CallId { turn: 1, index };
    ToolContext::new(RunId::from_bits(1), call, Epoch(1))
}

fn ada_context(index: u16) -> ToolContext {
    ToolContext { resource: Some(ResourceKey::new("ada").unwrap()), ..tool_context(index) }
}

#[tokio::test]
async fn a_note_of_one_run_is_found_by_another() {
    let fixture = Fixture::new();
    let output = fixture.remember(1, "Likes green tea.\nNo sugar.", &["taste"]).await;
    assert!(output.starts_with("The note was saved as note_"), "{output}");
    assert!(output.ends_with(", about ada."), "{output}");
    fixture.remember(2, "Ships on Fridays", &[]).await;
    assert_text(
        &fixture.recall(json!({ "query": "tea?" })).await,
        "Notes about ada, the best match first:\n\n1. DAY [taste]\n   Likes green tea.\n   No sugar.\n",
    );
    assert_text(
        &fixture.recall(json!({ "query": "", "limit": 1 })).await,
        "Notes about ada, the newest first:\n\n1. DAY\n   Ships on Fridays\n",
    );
    let none = fixture.recall(json!({ "query": "coffee" })).await;
    assert!(none.starts_with("No note about ada matches."));
}

/// Compares texts after replacing the day, which depends on the clock.
fn assert_text(output: &str, expected: &str) {
    let day = output.split("1. ").nth(1).and_then(|rest| rest.get(..10));
    assert_eq!(output.replace(day.unwrap_or("?"), "DAY"), expected);
}

#[tokio::test]
async fn a_repeated_call_adds_one_note() {
    let fixture = Fixture::new();
    let first = fixture.remember(1, "Likes tea", &[]).await;
    let second = fixture.remember(1, "Likes tea", &[]).await;
    assert_eq!(first, second);
    fixture.remember(2, "Likes tea", &[]).await;
    let ada = ResourceKey::new("ada").unwrap();
    let notes = fixture.store.list_notes(&ada, None, 9).await.unwrap();
    assert_eq!(notes.len(), 2, "each call must save its own note");
    assert_eq!(notes[0].run, Some(RunId::from_bits(1)));
    assert_eq!(fixture.tool("remember").class(&Value::Null), EffectClass::Keyed);
    assert_eq!(fixture.tool("recall").class(&Value::Null), EffectClass::Pure);
}

#[tokio::test]
async fn notes_belong_to_the_resource_or_the_thread_or_are_rejected() {
    let fixture = Fixture::new();
    let in_thread =
        ToolContext { thread: Some(ThreadKey::new("chat-7").unwrap()), ..tool_context(1) };
    let output = fixture.call("remember", json!({ "text": "Likes tea" }), &in_thread).await;
    assert!(output.unwrap().ends_with("about chat-7."));
    assert_eq!(
        fixture.recall(json!({ "query": "tea" })).await,
        "No note about ada matches. Try other words, or an empty query for the newest \
         notes."
    );
    for (name, input) in [("remember", json!({ "text": "x" })), ("recall", json!({ "query": "x" }))]
    {
        let error = fixture.call(name, input, &tool_context(2)).await.unwrap_err();
        assert!(error.contains("--resource NAME or --thread NAME"));
    }
}

#[tokio::test]
async fn too_long_notes_are_rejected_with_a_message() {
    let fixture = Fixture::new();
    let check = async |input: Value, expected: &str| {
        let error = fixture.call("remember", input, &ada_context(1)).await.unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    check(json!({ "text": "  " }), "a note must not be empty").await;
    check(json!({ "text": "x".repeat(16_385) }), "at most 16384 bytes").await;
    check(json!({ "text": "x", "tags": vec!["t"; 33] }), "at most 32 tags").await;
    check(json!({ "text": 7 }), "can't read its input").await;
    let result = fixture.call("recall", json!({ "query": null }), &ada_context(1)).await;
    assert!(result.is_err());
}

#[tokio::test]
async fn recalled_notes_are_limited() {
    let fixture = Fixture::new();
    for index in 1..=8 {
        fixture.remember(index, &"tea ".repeat(4_000), &[]).await;
    }
    let output = fixture.recall(json!({ "query": "tea", "limit": 5_000 })).await;
    assert!(output.len() < 40_000, "{}", output.len());
    assert!(output.ends_with("6 more are not shown: use a smaller limit."));
}
