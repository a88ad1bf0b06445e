//! A fake model with scripted replies, and fake tools that return their input. After its script
//! the model replies `done`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::failure::Failure;
use longhaul_core::id::{RunId, ToolName};
use longhaul_core::message::{Block, Reply, StopReason, TextBlock, ToolCall};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_facts::{FileContent, PredictedEffects, PredictedFileChange};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::{BudgetAmount, ModelPricing, Price, Usage};
use longhaul_engine::services::{ModelResolver, ResolveModelError, ResolvedModel};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use longhaul_testkit::latch::Latch;

/// Name of the only model that has a price.
pub(crate) const PRICED_MODEL: &str = "acme/priced";

/// One scripted reply of the model.
#[derive(Debug, Clone)]
pub(crate) enum FakeReply {
    Text(&'static str),
    /// Calls a tool.
    Call(&'static str, Value),
    /// Streams this text, then continues with the next reply.
    StreamThen(&'static str, Box<Self>),
    /// Waits at a latch, then continues with the next reply.
    AfterLatch(Latch, Box<Self>),
    /// Waits for a permit, then continues with the next reply.
    AfterPermit(Arc<Semaphore>, Box<Self>),
}

impl FakeReply {
    /// Waits at a latch first.
    pub(crate) fn after_latch(self, latch: &Latch) -> Self {
        Self::AfterLatch(latch.clone(), Box::new(self))
    }

    /// Streams this text first.
    pub(crate) fn after_streaming(self, text: &'static str) -> Self {
        Self::StreamThen(text, Box::new(self))
    }

    /// Waits for a permit first.
    pub(crate) fn after_permit(self, gate: &Arc<Semaphore>) -> Self {
        Self::AfterPermit(Arc::clone(gate), Box::new(self))
    }
}

/// A fake model. Each run gets the replies from the first one on.
#[derive(Debug)]
pub(crate) struct FakeModel {
    replies: Vec<FakeReply>,
    reply_counts: Mutex<BTreeMap<RunId, usize>>,
}

impl FakeModel {
    fn next_reply(&self, run: RunId) -> FakeReply {
        let mut counts = self.reply_counts.lock().unwrap();
        let count = counts.entry(run).or_default();
        *count += 1;
        let line = self.replies.get(*count - 1).cloned();
        line.unwrap_or(FakeReply::Text("done"))
    }
}

#[async_trait]
impl Model for FakeModel {
    fn estimate(&self, request: &ModelRequest) -> CostEstimate {
        let price = (request.model == PRICED_MODEL).then_some(Price::FREE);
        let pricing = ModelPricing { price, ..ModelPricing::default() };
        CostEstimate { hold: BudgetAmount::default(), pricing }
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let mut line = self.next_reply(request.run);
        loop {
            line = match line {
                FakeReply::Text(text) => {
                    sink.on_text(text);
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
                FakeReply::StreamThen(text, next_reply) => {
                    sink.on_text(text);
                    *next_reply
                }
                FakeReply::AfterLatch(latch, next_reply) => {
                    latch.wait().await;
                    *next_reply
                }
                FakeReply::AfterPermit(gate, next_reply) => {
                    gate.acquire().await.unwrap().forget();
                    *next_reply
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
        output: None,
    }
}

/// A resolver with a single model. It can be told to panic.
#[derive(Debug)]
pub(crate) struct FakeModels {
    model: Arc<FakeModel>,
    fails: AtomicBool,
}

impl FakeModels {
    pub(crate) fn new(lines: Vec<FakeReply>) -> Self {
        let counts = Mutex::default();
        Self {
            model: Arc::new(FakeModel { replies: lines, reply_counts: counts }),
            fails: AtomicBool::new(false),
        }
    }

    /// Makes the resolver panic, or stops that.
    pub(crate) fn set_fails(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }
}

impl ModelResolver for FakeModels {
    fn resolve_model_name(&self, name: Option<&str>) -> Result<ResolvedModel, ResolveModelError> {
        assert!(!self.fails.load(Ordering::SeqCst), "the resolver panics on request");
        if name == Some("scripted/torn") {
            return Err(ResolveModelError::InvalidScript("torn.yaml:1:1: it is torn".to_owned()));
        }
        if name == Some("nobody/none") {
            return Err(ResolveModelError::NotConfigured("there is no such provider".to_owned()));
        }
        let name = name.filter(|name| *name == PRICED_MODEL).unwrap_or("scripted/actor").to_owned();
        let model = self.model.clone();
        Ok(ResolvedModel { name, model })
    }
}

/// A tool that returns its input. It predicts that a call writes its text to a file.
#[derive(Debug)]
pub(crate) struct FakeTool {
    spec: ToolSpec,
    class: EffectClass,
}

impl FakeTool {
    pub(crate) fn new(name: &str, class: EffectClass) -> Self {
        let spec = ToolSpec {
            name: ToolName::new(name).unwrap(),
            description: "a tool for tests".into(),
            schema: json!({
                "type": "object",
                "properties": { "text": { "type": "string" } },
                "additionalProperties": false,
            }),
            can_verify: false,
            in_doubt: None,
            timeout: None,
        };
        Self { spec, class }
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

    async fn predict_effects(&self, input: &Value, _ctx: &ToolContext) -> PredictedEffects {
        let text = input["text"].as_str().unwrap_or_default();
        let file = PredictedFileChange {
            path: "<a>.md".to_owned(),
            before: FileContent::Text("old\n".to_owned()),
            after: FileContent::Text(text.to_owned()),
        };
        PredictedEffects {
            files: Some(vec![file]),
            protected_paths: vec![".git/<b>".to_owned()],
            ..PredictedEffects::default()
        }
    }

    async fn call(&self, input: Value, _around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::text(input.to_string()))
    }
}
