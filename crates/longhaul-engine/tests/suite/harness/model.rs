//! A fake model that replies with what a test sets and records the requests. After its last reply
//! it says `done`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::RunId;
use longhaul_core::message::{
    Block, Message, Part, Reply, StopReason, TextBlock, ToolCall, ToolResult,
};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::{BudgetAmount, ModelPricing, Price, Usage};
use longhaul_testkit::conversation::check_message_order;
use serde_json::Value;

use longhaul_testkit::latch::Latch;

/// Reply of the fake model to one request.
#[derive(Debug, Clone)]
pub(crate) enum FakeReply {
    /// Replies with this text and ends the turn.
    Text(&'static str),
    /// Replies with this text and stops at the token limit.
    MaxTokens(&'static str),
    /// Calls tools, all in one reply.
    Calls(Vec<(&'static str, Value)>),
    Fail(FailureClass),
    /// Fails with this message.
    FailWith(FailureClass, &'static str),
    Panic,
    /// Streams this text, then continues with the inner reply.
    StreamThen(&'static str, Box<Self>),
    /// Waits at a latch, then continues with the inner reply.
    AfterLatch(Latch, Box<Self>),
    /// Continues with the first of these replies that no request got yet.
    InTurn(Arc<Mutex<VecDeque<Self>>>),
}

impl FakeReply {
    pub(crate) fn call(tool: &'static str, input: Value) -> Self {
        Self::Calls(vec![(tool, input)])
    }

    /// One of these replies, each for one request, in this order.
    pub(crate) fn in_turn(replies: impl IntoIterator<Item = Self>) -> Self {
        Self::InTurn(Arc::new(Mutex::new(replies.into_iter().collect())))
    }

    /// Waits at a latch before this reply.
    pub(crate) fn after_latch(self, latch: &Latch) -> Self {
        Self::AfterLatch(latch.clone(), Box::new(self))
    }
}

/// A fake model. Each run gets the replies from the first one on.
#[derive(Debug, Default)]
pub(crate) struct FakeModel {
    replies: Mutex<Vec<FakeReply>>,
    /// Replies of models with another name.
    other_replies: Mutex<BTreeMap<String, Vec<FakeReply>>>,
    reply_counts: Mutex<BTreeMap<RunId, usize>>,
    requests: Mutex<Vec<ModelRequest>>,
    violations: Mutex<Vec<String>>,
    pricing: Mutex<ModelPricing>,
}

impl FakeModel {
    pub(crate) fn set_replies(&self, replies: Vec<FakeReply>) {
        *self.replies.lock().unwrap() = replies;
    }

    /// Sets the replies of the model with this name.
    pub(crate) fn set_replies_of(&self, model: &str, replies: Vec<FakeReply>) {
        self.other_replies.lock().unwrap().insert(model.to_owned(), replies);
    }

    /// Sets the size of the context window in tokens.
    pub(crate) fn set_window(&self, tokens: u64) {
        self.pricing.lock().unwrap().window_tokens = tokens;
    }

    pub(crate) fn set_price(&self, price: Price) {
        self.pricing.lock().unwrap().price = Some(price);
    }

    /// Returns the recorded requests in order.
    pub(crate) fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns the errors in conversations that providers would have rejected.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }

    fn next_reply(&self, request: &ModelRequest) -> FakeReply {
        let mut counts = self.reply_counts.lock().unwrap();
        let count = counts.entry(request.run).or_default();
        *count += 1;
        let (replies, others) = (self.replies.lock().unwrap(), self.other_replies.lock().unwrap());
        let replies = others.get(&request.model).unwrap_or(&replies);
        replies.get(*count - 1).cloned().unwrap_or(FakeReply::Text("done"))
    }
}

#[async_trait]
impl Model for FakeModel {
    fn estimate(&self, _ask: &ModelRequest) -> CostEstimate {
        CostEstimate { hold: BudgetAmount::default(), pricing: *self.pricing.lock().unwrap() }
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        if let Err(error) = check_message_order(&request.messages) {
            self.violations.lock().unwrap().push(error);
        }
        self.requests.lock().unwrap().push(request.clone());
        let mut reply = self.next_reply(request);
        loop {
            reply = match reply {
                FakeReply::Text(text) => {
                    sink.on_text(text);
                    return Ok(response(vec![text_block(text)], StopReason::EndTurn));
                }
                FakeReply::MaxTokens(text) => {
                    return Ok(response(vec![text_block(text)], StopReason::MaxTokens));
                }
                FakeReply::Calls(calls) => {
                    let calls = calls.into_iter().enumerate();
                    let blocks =
                        calls.map(|(index, (tool, input))| call_block(index, tool, &input));
                    return Ok(response(blocks.collect(), StopReason::ToolUse));
                }
                FakeReply::Fail(class) => return Err(Failure::new(class, "the provider refused")),
                FakeReply::FailWith(class, message) => return Err(Failure::new(class, message)),
                FakeReply::Panic => panic!("a bug in the adapter"),
                FakeReply::StreamThen(text, next_reply) => {
                    sink.on_text(text);
                    *next_reply
                }
                FakeReply::InTurn(replies) => {
                    replies.lock().unwrap().pop_front().unwrap_or(FakeReply::Text("done"))
                }
                FakeReply::AfterLatch(latch, next_reply) => {
                    latch.wait().await;
                    *next_reply
                }
            };
        }
    }
}

fn text_block(text: &str) -> Block {
    Block::Text(TextBlock { text: text.into(), extra: None })
}

fn call_block(index: usize, tool: &str, input: &Value) -> Block {
    Block::ToolCall(ToolCall {
        id: format!("call_{index}"),
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
        output: None,
    }
}

pub(crate) fn texts(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => text.to_string(),
        Part::Image(_) => "(an image)".to_owned(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns the newest tool results in a request: the text, and whether it is an error.
pub(crate) fn results(request: &ModelRequest) -> Vec<(String, bool)> {
    let newest = request.messages.iter().rev().find_map(|message| match &**message {
        Message::Results(results) => Some(results.clone()),
        Message::User(_) | Message::Assistant(_) => None,
    });
    let to_pair = |result: &ToolResult| (texts(&result.content), result.is_error);
    newest.unwrap_or_default().iter().map(to_pair).collect()
}

/// Returns all user messages of a request in order.
pub(crate) fn user_texts(request: &ModelRequest) -> Vec<String> {
    let user_messages = request.messages.iter().filter_map(|message| match &**message {
        Message::User(parts) => Some(texts(parts)),
        Message::Assistant(_) | Message::Results(_) => None,
    });
    user_messages.collect()
}
