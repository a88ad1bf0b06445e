//! A model that says what a test wrote down, and tools that give back what they
//! were given.
//!
//! Never: clever. Beyond its lines the model says `done`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::failure::Failure;
use longhaul_core::id::{RunId, ToolName};
use longhaul_core::message::{Block, Reply, StopReason, TextBlock, ToolCall};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::{Hold, ModelPricing, Usage};
use longhaul_engine::services::{ModelError, ModelResolver, ResolvedModel};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use longhaul_testkit::latch::Latch;

/// What the model does when it is asked.
#[derive(Debug, Clone)]
pub(crate) enum FakeReply {
    /// It says this and is done.
    Text(&'static str),
    /// It wants a tool used.
    Call(&'static str, Value),
    /// It speaks these words, then goes on with the next line.
    StreamThen(&'static str, Box<Self>),
    /// It waits at a door, then goes on with the next line.
    AfterLatch(Latch, Box<Self>),
    /// It waits for somebody to let one through, then goes on.
    AfterPermit(Arc<Semaphore>, Box<Self>),
}

impl FakeReply {
    /// The same, behind a door.
    pub(crate) fn after_latch(self, door: &Latch) -> Self {
        Self::AfterLatch(door.clone(), Box::new(self))
    }

    /// The same, after these words.
    pub(crate) fn after_streaming(self, words: &'static str) -> Self {
        Self::StreamThen(words, Box::new(self))
    }

    /// The same, when somebody lets one through.
    pub(crate) fn after_permit(self, gate: &Arc<Semaphore>) -> Self {
        Self::AfterPermit(Arc::clone(gate), Box::new(self))
    }
}

/// A model in the hands of a test. Each run hears the lines from the first on.
#[derive(Debug)]
pub(crate) struct FakeModel {
    replies: Vec<FakeReply>,
    reply_counts: Mutex<BTreeMap<RunId, usize>>,
}

impl FakeModel {
    fn next_reply(&self, run: RunId) -> FakeReply {
        let mut spoken = self.reply_counts.lock().unwrap();
        let count = spoken.entry(run).or_default();
        *count += 1;
        let line = self.replies.get(*count - 1).cloned();
        line.unwrap_or(FakeReply::Text("done"))
    }
}

#[async_trait]
impl Model for FakeModel {
    fn estimate(&self, _ask: &ModelRequest) -> CostEstimate {
        CostEstimate { hold: Hold::default(), pricing: ModelPricing::default() }
    }

    async fn generate(
        &self,
        ask: &ModelRequest,
        ear: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let mut line = self.next_reply(ask.run);
        loop {
            line = match line {
                FakeReply::Text(text) => {
                    ear.on_text(text);
                    let (text, extra) = (text.into(), None);
                    let block = Block::Text(TextBlock { text, extra });
                    return Ok(response(block, StopReason::EndTurn));
                }
                FakeReply::Call(tool, input) => {
                    let block = Block::ToolCall(ToolCall {
                        id: "call_0".to_owned(),
                        name: tool.to_owned(),
                        input: RawJson::from_serialize(&input),
                        extra: None,
                    });
                    return Ok(response(block, StopReason::ToolUse));
                }
                FakeReply::StreamThen(text, then) => {
                    ear.on_text(text);
                    *then
                }
                FakeReply::AfterLatch(door, then) => {
                    door.wait().await;
                    *then
                }
                FakeReply::AfterPermit(gate, then) => {
                    gate.acquire().await.unwrap().forget();
                    *then
                }
            };
        }
    }
}

fn response(block: Block, stop: StopReason) -> ModelResponse {
    ModelResponse {
        reply: Arc::new(Reply { api: "scripted".into(), blocks: vec![block] }),
        stop,
        usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() },
        cost: None,
        model: "scripted/actor".into(),
    }
}

/// The one model there is; on order, whoever looks for it breaks.
#[derive(Debug)]
pub(crate) struct FakeModels {
    model: Arc<FakeModel>,
    fails: AtomicBool,
}

impl FakeModels {
    pub(crate) fn new(lines: Vec<FakeReply>) -> Self {
        let spoken = Mutex::default();
        Self {
            model: Arc::new(FakeModel { replies: lines, reply_counts: spoken }),
            fails: AtomicBool::new(false),
        }
    }

    /// From now on looking for a model panics, or no longer.
    pub(crate) fn set_fails(&self, breaks: bool) {
        self.fails.store(breaks, Ordering::SeqCst);
    }
}

impl ModelResolver for FakeModels {
    fn resolve(&self, name: Option<&str>) -> Result<ResolvedModel, ModelError> {
        assert!(!self.fails.load(Ordering::SeqCst), "a shelf with a mistake");
        if name == Some("scripted/torn") {
            return Err(ModelError::InvalidScript("torn.yaml:1:1: it is torn".to_owned()));
        }
        if name == Some("nobody/none") {
            return Err(ModelError::NotConfigured("nobody sells it".to_owned()));
        }
        let name = "scripted/actor".to_owned();
        let model = self.model.clone();
        Ok(ResolvedModel { name, model })
    }
}

/// A tool that gives its input back.
#[derive(Debug)]
pub(crate) struct FakeTool {
    spec: ToolSpec,
    class: EffectClass,
}

impl FakeTool {
    pub(crate) fn new(name: &str, class: EffectClass) -> Self {
        let card = ToolSpec {
            name: ToolName::new(name).unwrap(),
            description: "made by a test".into(),
            schema: json!({
                "type": "object",
                "properties": { "text": { "type": "string" } },
                "additionalProperties": false,
            }),
            can_verify: false,
            in_doubt: None,
            timeout: None,
        };
        Self { spec: card, class }
    }
}

#[async_trait]
impl Tool for FakeTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        self.class
    }

    async fn call(&self, input: Value, _around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::text(input.to_string()))
    }
}
