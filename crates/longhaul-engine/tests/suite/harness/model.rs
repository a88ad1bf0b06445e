//! A model that says what a test wrote down, and keeps what it was told.
//!
//! Never: clever. Beyond its lines it says `done`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::RunId;
use longhaul_core::message::{
    Block, Message, Part, Reply, StopReason, TextBlock, ToolCall, ToolResult,
};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::{Hold, ModelPricing, Usage};
use longhaul_run::next::check_conversation;
use serde_json::Value;

use longhaul_testkit::latch::Latch;

/// What the model does when it is asked.
#[derive(Debug, Clone)]
pub(crate) enum FakeReply {
    /// It says this and is done.
    Text(&'static str),
    /// It says this and has no room for more.
    MaxTokens(&'static str),
    /// It wants tools used, all in one reply.
    Calls(Vec<(&'static str, Value)>),
    /// It fails.
    Fail(FailureClass),
    /// It fails in these words.
    FailWith(FailureClass, &'static str),
    /// Its adapter panics.
    Panic,
    /// It speaks these words, then goes on with the next line.
    StreamThen(&'static str, Box<Self>),
    /// It waits at a door, then goes on with the next line.
    AfterLatch(Latch, Box<Self>),
}

impl FakeReply {
    /// One call.
    pub(crate) fn call(tool: &'static str, input: Value) -> Self {
        Self::Calls(vec![(tool, input)])
    }

    /// The same, behind a door.
    pub(crate) fn after_latch(self, door: &Latch) -> Self {
        Self::AfterLatch(door.clone(), Box::new(self))
    }
}

/// A model in the hands of a test. Each run hears the lines from the first on.
#[derive(Debug, Default)]
pub(crate) struct FakeModel {
    replies: Mutex<Vec<FakeReply>>,
    reply_counts: Mutex<BTreeMap<RunId, usize>>,
    requests: Mutex<Vec<ModelRequest>>,
    violations: Mutex<Vec<String>>,
    pricing: Mutex<ModelPricing>,
}

impl FakeModel {
    pub(crate) fn set_replies(&self, lines: Vec<FakeReply>) {
        *self.replies.lock().unwrap() = lines;
    }

    /// So many tokens fit into its window from now on.
    pub(crate) fn set_window(&self, tokens: u64) {
        self.pricing.lock().unwrap().window_tokens = tokens;
    }

    /// What it was asked, in order.
    pub(crate) fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// What was wrong with conversations: every provider would have refused them.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }

    fn next_reply(&self, run: RunId) -> FakeReply {
        let mut spoken = self.reply_counts.lock().unwrap();
        let count = spoken.entry(run).or_default();
        *count += 1;
        let lines = self.replies.lock().unwrap();
        lines.get(*count - 1).cloned().unwrap_or(FakeReply::Text("done"))
    }
}

#[async_trait]
impl Model for FakeModel {
    fn estimate(&self, _ask: &ModelRequest) -> CostEstimate {
        CostEstimate { hold: Hold::default(), pricing: *self.pricing.lock().unwrap() }
    }

    async fn generate(
        &self,
        ask: &ModelRequest,
        ear: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        if let Err(bad) = check_conversation(&ask.messages) {
            self.violations.lock().unwrap().push(bad.to_string());
        }
        self.requests.lock().unwrap().push(ask.clone());
        let mut line = self.next_reply(ask.run);
        loop {
            line = match line {
                FakeReply::Text(text) => {
                    ear.on_text(text);
                    return Ok(response(vec![text_block(text)], StopReason::EndTurn));
                }
                FakeReply::MaxTokens(text) => {
                    return Ok(response(vec![text_block(text)], StopReason::MaxTokens));
                }
                FakeReply::Calls(calls) => {
                    let calls = calls.into_iter().enumerate();
                    let blocks =
                        calls.map(|(place, (tool, input))| call_block(place, tool, &input));
                    return Ok(response(blocks.collect(), StopReason::ToolUse));
                }
                FakeReply::Fail(class) => return Err(Failure::new(class, "the provider said no")),
                FakeReply::FailWith(class, words) => return Err(Failure::new(class, words)),
                FakeReply::Panic => panic!("an adapter with a mistake"),
                FakeReply::StreamThen(text, then) => {
                    ear.on_text(text);
                    *then
                }
                FakeReply::AfterLatch(door, then) => {
                    door.wait().await;
                    *then
                }
            };
        }
    }
}

fn text_block(text: &str) -> Block {
    Block::Text(TextBlock { text: text.into(), extra: None })
}

fn call_block(place: usize, tool: &str, input: &Value) -> Block {
    Block::ToolCall(ToolCall {
        id: format!("call_{place}"),
        name: tool.to_owned(),
        input: RawJson::from_serialize(input),
        extra: None,
    })
}

fn response(blocks: Vec<Block>, stop: StopReason) -> ModelResponse {
    ModelResponse {
        reply: Arc::new(Reply { api: "scripted".into(), blocks }),
        stop,
        usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() },
        cost: None,
        model: "scripted/actor".into(),
    }
}

/// The words of some parts.
pub(crate) fn texts(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => text.to_string(),
        Part::Image(_) => "(a picture)".to_owned(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The newest results that a model was shown: words, and whether they are a failure.
pub(crate) fn results(ask: &ModelRequest) -> Vec<(String, bool)> {
    let newest = ask.messages.iter().rev().find_map(|message| match &**message {
        Message::Results(results) => Some(results.clone()),
        Message::User(_) | Message::Assistant(_) => None,
    });
    let shown = |result: &ToolResult| (texts(&result.content), result.is_error);
    newest.unwrap_or_default().iter().map(shown).collect()
}

/// Everything that users said to a model, in order.
pub(crate) fn user_texts(ask: &ModelRequest) -> Vec<String> {
    let said = ask.messages.iter().filter_map(|message| match &**message {
        Message::User(parts) => Some(texts(parts)),
        Message::Assistant(_) | Message::Results(_) => None,
    });
    said.collect()
}
