//! Script of a simulated model, stored in the input of the task. A recorded journal therefore
//! contains everything that is needed to continue it. A reply depends only on the turn and the
//! attempt.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::event::turn::ToolCallClassification;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{RunId, ToolName};
use longhaul_core::message::{Block, Reply, StopReason, TextBlock, ToolCall};
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::effect_key::EffectKey;
use longhaul_core::port::model::{ModelRequest, ModelResponse};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::usage::{ModelPricing, Price, Usage};
use serde::{Deserialize, Serialize};

/// One cent per thousand tokens, input and output.
const PRICE: Price =
    Price { input: 10_000_000, output: 10_000_000, cached: 1_000_000, cache_write: 12_000_000 };

/// Script of a child run.
const CHILD_SCRIPT: &str = r#"{"turns": [["put", "ask_human"], ["send"]], "text": "child"}"#;

/// Final text of the script of a grading run, which stands for its verdict.
const VERDICT: &str = "verdict";

/// Final text of the script of a chain, which stands for the findings of a step.
pub(crate) const FINDINGS: &str = "findings";

/// Pricing of the simulated model.
pub const PRICING: ModelPricing = ModelPricing {
    price: Some(PRICE),
    max_output_tokens: 2_048,
    window_tokens: 100_000,
    bytes_per_token: 3,
    fixed_tokens: 50,
};

/// A conversation: the tool calls of each turn, then the final text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Tools that each turn calls.
    pub turns: Vec<Vec<String>>,
    /// Final text.
    pub text: String,
    /// Number of failed attempts per turn before one succeeds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<u32, u32>,
}

impl Script {
    /// Parses the script of a task. A task without one gets a default script with one reply.
    pub fn from_input(input: &RawJson) -> Self {
        if input.to_value().get("rubric").is_some() {
            return Self { text: VERDICT.into(), ..Self::default() };
        }
        serde_json::from_str(input.as_str())
            .unwrap_or_else(|_| Self { text: "done".into(), ..Self::default() })
    }

    /// Returns the model's reply to this request.
    pub fn reply(&self, request: &ModelRequest) -> Result<ModelResponse, Failure> {
        let failure_count = self.failures.get(&request.turn).copied().unwrap_or(0);
        if request.attempt <= failure_count {
            return Err(Failure::new(FailureClass::Overloaded, "529 overloaded"));
        }
        let turn_index = request.turn as usize - 1;
        let calls = self.turns.get(turn_index).map_or(&[][..], Vec::as_slice);
        let block = TextBlock { text: self.turn_text(request).into(), extra: None };
        let blocks = std::iter::once(Block::Text(block)).chain(
            calls
                .iter()
                .enumerate()
                .map(|(index, name)| Block::ToolCall(tool_call(request.run, name, index))),
        );
        let usage = Usage {
            input_tokens: 40 + 10 * u64::from(request.turn),
            output_tokens: 12,
            ..Usage::default()
        };
        Ok(ModelResponse {
            reply: Arc::new(Reply { api: "scripted".into(), blocks: blocks.collect() }),
            stop: if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse },
            usage,
            cost: Some(PRICE.cost(usage)),
            model: "scripted/sim".into(),
            output: None,
        })
    }

    fn turn_text(&self, request: &ModelRequest) -> String {
        let turn = request.turn;
        match (self.turns.get(turn as usize - 1), self.text.as_str()) {
            (Some(_), _) => format!("turn {turn}"),
            (None, VERDICT) => verdict(request.run),
            (None, FINDINGS) => findings(request.run),
            (None, text) => text.to_owned(),
        }
    }
}

/// Returns the final text of a grading run: every fourth is no verdict.
fn verdict(run: RunId) -> String {
    match run.bits() % 4 {
        0 => "It is fine.".to_owned(),
        variant => format!(r#"{{"satisfied": {}, "note": "variant {variant}"}}"#, variant > 1),
    }
}

/// Returns the final text of a step of a chain: every fourth says nothing about its success.
fn findings(run: RunId) -> String {
    match run.bits() % 4 {
        0 => "Done.".to_owned(),
        variant => {
            let (issues, success) = (variant > 1, variant != 3);
            format!(r#"{{"issues_found": {issues}, "success": {success}}}"#)
        }
    }
}

/// Builds a call. Its provider id may repeat from turn to turn; Longhaul's call ids do not
/// depend on it.
fn tool_call(run: RunId, name: &str, index: usize) -> ToolCall {
    let input = match name {
        "ask_human" => r#"{"question": "Which way?"}"#.to_owned(),
        "report_blocked" => r#"{"reason": "no key"}"#.to_owned(),
        "report_progress" => r#"{"percent": 50, "message": "half way"}"#.to_owned(),
        "wait" => r#"{"for": "5s"}"#.to_owned(),
        // Every second call does not wait for its child.
        "run_agent" => format!(
            r#"{{"agent": "simulated", "input": {CHILD_SCRIPT}, "background": {}}}"#,
            index % 2 == 1
        ),
        "finish" => r#"{"output": {"success": true}}"#.to_owned(),
        _ => format!(r#"{{"to": "{run}", "n": {index}, "amount": 2.50}}"#),
    };
    ToolCall {
        id: format!("call_{index}"),
        name: name.into(),
        input: RawJson::parse(input).unwrap_or_else(|_| RawJson::null()),
        extra: None,
    }
}

/// Classifies a call of a simulated tool.
pub fn classify(call: &ToolCall) -> ToolCallClassification {
    let (class, can_verify, in_doubt) = match call.name.as_str() {
        "look" | "ask_human" | "report_blocked" | "report_progress" | "wait" | "finish"
        | "run_agent" => (EffectClass::Pure, false, None),
        "put" => (EffectClass::Keyed, false, None),
        "probe" | "build" => (EffectClass::Once, true, None),
        "tell" => (EffectClass::Once, false, Some(InDoubtPolicy::Tell)),
        _ => (EffectClass::Once, false, None),
    };
    ToolCallClassification {
        tool: tool_name(&call.name),
        class,
        rule_match_texts: vec![call.name.clone()],
        injected_rule_match_texts: Vec::new(),
        opaque: false,
        problem: (call.name == "nonsense").then(|| "there is no such tool".to_owned()),
        can_verify,
        in_doubt,
        may_outlive_worker: false,
        sandboxed: call.name == SANDBOXED_TOOL,
        facts: None,
        outputs: Vec::new(),
        key: (call.name == "pay").then(|| effect_key(&call.input)),
        approvals: Vec::new(),
    }
}

/// Tool that works in the sandbox of the run.
pub const SANDBOXED_TOOL: &str = "build";

/// Returns the effect key of a payment. Payments of other runs have the same keys.
fn effect_key(input: &RawJson) -> EffectKey {
    let text = format!("pay:{}", input.to_value()["n"]);
    let hash = Hash::digest(text.as_bytes());
    EffectKey { text, hash }
}

/// Template of the effect key of payments, as an agent declares it.
pub const EFFECT_KEY_TEMPLATE: &str = "pay:{{ input.n }}";

fn tool_name(name: &str) -> ToolName {
    // The names in scripts are short words; only an empty name would be invalid.
    ToolName::new(name).unwrap_or_else(|_| {
        #[expect(clippy::unreachable, reason = "only an invalid script gets here")]
        {
            unreachable!("invalid tool name in a script: `{name}`")
        }
    })
}
