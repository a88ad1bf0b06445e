//! What a simulated agent says: written into the task's input, so that a run
//! carries its own script and a recorded journal needs no code to go on.
//!
//! Never: state. The reply depends on the turn and the try alone, so neither a
//! crash nor memory moves it.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::event::turn::CallClassification;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{RunId, ToolName};
use longhaul_core::message::{Block, Reply, StopReason, TextBlock, ToolCall};
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::port::model::{ModelRequest, ModelResponse};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::{ModelPricing, Price, Usage};
use serde::{Deserialize, Serialize};

/// One cent for a thousand tokens, in and out.
const PRICE: Price =
    Price { input: 10_000_000, output: 10_000_000, cached: 1_000_000, cache_write: 12_000_000 };

/// What the simulated model charges.
pub const PRICING: ModelPricing = ModelPricing {
    price: Some(PRICE),
    max_output_tokens: 2_048,
    window_tokens: 100_000,
    bytes_per_token: 3,
    fixed_tokens: 50,
};

/// A whole conversation: the tools of each turn, then the final words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// The tools that each turn calls.
    pub turns: Vec<Vec<String>>,
    /// The final words.
    pub text: String,
    /// So many tries of a turn fail first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<u32, u32>,
}

impl Script {
    /// The script that a task carries; a task without one says one word.
    pub fn from_input(input: &RawJson) -> Self {
        serde_json::from_str(input.as_str())
            .unwrap_or_else(|_| Self { text: "done".into(), ..Self::default() })
    }

    /// What the model says to this question.
    pub fn reply(&self, ask: &ModelRequest) -> Result<ModelResponse, Failure> {
        let fails = self.failures.get(&ask.turn).copied().unwrap_or(0);
        if ask.attempt <= fails {
            return Err(Failure::new(FailureClass::Overloaded, "529 overloaded"));
        }
        let place = ask.turn as usize - 1;
        let calls = self.turns.get(place).map_or(&[][..], Vec::as_slice);
        let words = TextBlock { text: self.turn_text(ask.turn).into(), extra: None };
        let blocks = std::iter::once(Block::Text(words)).chain(
            calls
                .iter()
                .enumerate()
                .map(|(index, name)| Block::ToolCall(tool_call(ask.run, name, index))),
        );
        let usage = Usage {
            input_tokens: 40 + 10 * u64::from(ask.turn),
            output_tokens: 12,
            ..Usage::default()
        };
        Ok(ModelResponse {
            reply: Arc::new(Reply { api: "scripted".into(), blocks: blocks.collect() }),
            stop: if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse },
            usage,
            cost: Some(PRICE.cost(usage)),
            model: "scripted/sim".into(),
        })
    }

    fn turn_text(&self, turn: u32) -> String {
        match self.turns.get(turn as usize - 1) {
            Some(_) => format!("turn {turn}"),
            None => self.text.clone(),
        }
    }
}

/// Providers' ids may repeat from turn to turn; ours do not depend on them.
fn tool_call(run: RunId, name: &str, index: usize) -> ToolCall {
    let input = match name {
        "ask_human" => r#"{"question": "Which way?"}"#.to_owned(),
        "report_blocked" => r#"{"reason": "no key"}"#.to_owned(),
        "report_progress" => r#"{"percent": 50, "message": "half way"}"#.to_owned(),
        "wait" => r#"{"for": "5s"}"#.to_owned(),
        "finish" => r#"{"output": {"success": true}}"#.to_owned(),
        _ => format!(r#"{{"to": "{run}", "n": {index}, "odd": 2.50}}"#),
    };
    ToolCall {
        id: format!("call_{index}"),
        name: name.into(),
        input: RawJson::parse(input).unwrap_or_else(|_| RawJson::null()),
        extra: None,
    }
}

/// What a tool of the simulation is.
pub fn classify(call: &ToolCall) -> CallClassification {
    let (class, verifies, in_doubt) = match call.name.as_str() {
        "look" | "ask_human" | "report_blocked" | "report_progress" | "wait" | "finish" => {
            (EffectClass::Pure, false, None)
        }
        "put" => (EffectClass::Keyed, false, None),
        "probe" => (EffectClass::Once, true, None),
        "tell" => (EffectClass::Once, false, Some(InDoubtPolicy::Tell)),
        _ => (EffectClass::Once, false, None),
    };
    CallClassification {
        tool: tool_name(&call.name),
        class,
        subjects: vec![call.name.clone()],
        injected_subjects: Vec::new(),
        opaque: false,
        problem: (call.name == "nonsense").then(|| "there is no such tool".to_owned()),
        can_verify: verifies,
        in_doubt,
        may_outlive_worker: false,
    }
}

fn tool_name(name: &str) -> ToolName {
    // The names of scripts are short words; an empty one can't be a tool's.
    ToolName::new(name).unwrap_or_else(|_| {
        #[expect(clippy::unreachable, reason = "a script's author sees this at once")]
        {
            unreachable!("a script names a tool `{name}`")
        }
    })
}
