//! Constructors for inputs: replies, results, failures and summaries.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::change::Blob;
use longhaul_core::event::environment::{MemoryCompacted, SavedFiles, WorkspaceSnapshot};
use longhaul_core::event::run::{CompactionModel, RunPrepared};
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::event::tool::{ToolOutput, ToolQuestion, ToolSuspension};
use longhaul_core::event::turn::{OutputCheckResult, PerceptionUpdate, ToolCallClassification};
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{CallId, ToolName};
use longhaul_core::message::{Block, Message, Reply, StopReason, TextBlock, ToolCall};
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::effect_facts::{EffectFacts, FileChangeKind, FileEffect};
use longhaul_core::policy::effect_key::EffectKey;
use longhaul_core::port::model::ModelResponse;
use longhaul_core::port::tool::{SuspendedCallWait, SuspendedToolCall};
use longhaul_core::raw::{Hash, RawJson, StoredText};
use longhaul_core::time::Millis;
use longhaul_core::usage::{MicroUsd, ModelPricing, Price, Usage};
use longhaul_run::RunInput;
use longhaul_run::input::{
    InterruptedReply, ModelReply, PerceptionRefresh, ToolCallResult, ToolCallStatus,
};

/// Price of all models in these tests.
pub(crate) const PRICE: Price =
    Price { input: 3_000_000, output: 15_000_000, cached: 300_000, cache_write: 3_750_000 };

/// Price of the model that summarizes conversations.
pub(crate) const COMPACTOR_PRICE: Price =
    Price { input: 1_000_000, output: 5_000_000, cached: 100_000, cache_write: 1_000_000 };

/// Usage of every reply in these tests.
pub(crate) const USAGE: Usage = Usage {
    input_tokens: 100,
    output_tokens: 20,
    cached_tokens: 0,
    cache_write_tokens: 0,
    reasoning_tokens: 0,
    estimated: false,
};

/// Duration of every request and call.
pub(crate) const ACTIVE: Millis = Millis(700);

/// Time that the context provider needs.
const PERCEPTION_ACTIVE: Millis = Millis(30);

pub(crate) fn pricing() -> ModelPricing {
    ModelPricing {
        price: Some(PRICE),
        max_output_tokens: 4_096,
        fixed_tokens: 500,
        ..ModelPricing::default()
    }
}

/// Creates a `Prepared` input with these fallback models. A word such as `identical_calls=4` sets the
/// limit of a guard, and `max_output=512` the maximum reply length of the model.
pub(crate) fn prepared<'a>(args: impl Iterator<Item = &'a str>) -> RunInput {
    let (limits, fallbacks): (Vec<&str>, Vec<&str>) = args.partition(|arg| arg.contains('='));
    let limit = |name: &str| {
        let mut limits = limits.iter().filter_map(|limit| limit.split_once('='));
        limits.find(|(key, _)| *key == name).map(|(_, value)| value.parse().unwrap())
    };
    let max_output_tokens = limit("max_output").map_or(4_096, u64::from);
    let preparation = RunPrepared {
        system: StoredText::new_inline("You are a writer."),
        tools: StoredText::new_inline("[]"),
        initial_messages: vec![Message::user("Write a poem.")],
        model: "scripted/poem".into(),
        fallbacks: fallbacks.into_iter().map(str::to_owned).collect(),
        pricing: ModelPricing { max_output_tokens, ..pricing() },
        compactor: None,
        world: None,
        context: BTreeMap::new(),
        external_tools: Vec::new(),
        identical_calls: limit("identical_calls"),
        no_progress: limit("no_progress"),
        repeated_text: limit("repeated_text"),
        compactions: limit("compactions"),
        compaction: None,
        perception_active: PERCEPTION_ACTIVE,
    };
    RunInput::Prepared(Box::new(preparation), Vec::new())
}

/// Like `prepared`, with a context window of this many tokens and an optional summary model.
pub(crate) fn prepared_with_window(window_tokens: u64, helper: Option<&str>) -> RunInput {
    let RunInput::Prepared(mut preparation, blobs) = prepared(["scripted/spare"].into_iter())
    else {
        panic!("unexpected input");
    };
    preparation.pricing.window_tokens = window_tokens;
    preparation.compactor = helper.map(|model| CompactionModel {
        model: model.into(),
        pricing: ModelPricing { price: Some(COMPACTOR_PRICE), ..pricing() },
    });
    RunInput::Prepared(preparation, blobs)
}

/// Creates a perception refresh with this state. An empty text means an unchanged state.
pub(crate) fn perception_refreshed(world: &str) -> RunInput {
    if world.is_empty() {
        return RunInput::PerceptionRefreshed(Box::default());
    }
    RunInput::PerceptionRefreshed(Box::new(PerceptionRefresh {
        message: Some(world.into()),
        update: Some(PerceptionUpdate {
            world_hash: Hash::digest(world.as_bytes()),
            context: BTreeMap::new(),
        }),
        active: PERCEPTION_ACTIVE,
    }))
}

/// Creates a final answer that was checked: `valid {json}`, or the reason why it is invalid.
pub(crate) fn replied_with_check(verdict: &str) -> RunInput {
    let output_check = match verdict.strip_prefix("valid ") {
        Some(data) => OutputCheckResult::Valid(RawJson::parse(data).unwrap()),
        None => OutputCheckResult::Invalid(verdict.to_owned()),
    };
    match replied("Here it is.", "", StopReason::EndTurn) {
        RunInput::ModelReplied(mut replied) => {
            replied.output_check = Some(output_check);
            RunInput::ModelReplied(replied)
        }
        other => other,
    }
}

/// Creates a reply with `text` and calls in the form `name/class {json} + name/class`.
pub(crate) fn replied(text: &str, calls: &str, stop: StopReason) -> RunInput {
    let calls: Vec<(ToolCall, ToolCallClassification)> = calls
        .split(" + ")
        .filter(|call| !call.trim().is_empty())
        .zip(1..)
        .map(|(call, index)| parse_call(call.trim(), index))
        .collect();
    let text_block = Block::Text(TextBlock { text: text.into(), extra: None });
    let text_block = (!text.is_empty()).then_some(text_block);
    let called = calls.iter().map(|(call, _)| Block::ToolCall(call.clone()));
    let reply =
        Reply { api: "scripted".into(), blocks: text_block.into_iter().chain(called).collect() };
    RunInput::ModelReplied(Box::new(ModelReply {
        response: ModelResponse {
            reply: Arc::new(reply),
            stop,
            usage: USAGE,
            cost: Some(PRICE.cost(USAGE)),
            model: "poem-1".into(),
            output: None,
        },
        calls: calls.into_iter().map(|(_, classification)| classification).collect(),
        output_check: None,
        active: ACTIVE,
    }))
}

/// Parses a call: `name/class`, `name/class?` if the tool can verify calls, `name/class!tell` for
/// the tool's in-doubt policy, `name/class~undo` for effect facts, `name/bad` for a call that can't
/// be made; `@box` for a call that works in the sandbox of the run; then its input.
fn parse_call(call: &str, index: usize) -> (ToolCall, ToolCallClassification) {
    let (head, input) = call.split_once(' ').unwrap_or((call, "{}"));
    let (name, class) = head.split_once('/').unwrap_or((head, "pure"));
    let (class, sandbox) = class.split_once('@').unwrap_or((class, ""));
    let (class, undo) = class.split_once('~').unwrap_or((class, ""));
    let (class, doubt) = class.split_once('!').unwrap_or((class, ""));
    let input = RawJson::parse(input).unwrap();
    let command = input.to_value()["command"].as_str().map(str::to_owned);
    let parts = command.iter().flat_map(|command| command.split("; "));
    let classification = ToolCallClassification {
        tool: ToolName::new(name).unwrap(),
        class: match class.trim_end_matches('?') {
            "pure" | "bad" => EffectClass::Pure,
            "keyed" => EffectClass::Keyed,
            "session" => EffectClass::Session,
            _ => EffectClass::Once,
        },
        rule_match_texts: parts.map(str::to_owned).collect(),
        injected_rule_match_texts: Vec::new(),
        opaque: command.as_ref().is_some_and(|command| command.contains("$(")),
        problem: (class == "bad").then(|| format!("there is no tool `{name}`")),
        can_verify: class.ends_with('?'),
        in_doubt: match doubt {
            "tell" => Some(InDoubtPolicy::Tell),
            "ask" => Some(InDoubtPolicy::Ask),
            "fail" => Some(InDoubtPolicy::Fail),
            _ => None,
        },
        may_outlive_worker: name == "shell",
        sandboxed: sandbox == "box",
        facts: (!undo.is_empty()).then(|| {
            Box::new(EffectFacts { undo: Some(undo.to_owned()), ..EffectFacts::default() })
        }),
        outputs: Vec::new(),
        key: key_of_input(&input),
        approvals: Vec::new(),
    };
    let call = ToolCall { id: format!("call_{index}"), name: name.into(), input, extra: None };
    (call, classification)
}

/// Returns the effect key of a call: the member `key` of its input.
fn key_of_input(input: &RawJson) -> Option<EffectKey> {
    let text = input.to_value()["key"].as_str()?.to_owned();
    let hash = Hash::digest(text.as_bytes());
    Some(EffectKey { text, hash })
}

pub(crate) fn failed(class: FailureClass, retry_after: Option<u64>) -> RunInput {
    let mut failure = Failure::new(class, format!("the provider said {}", class.as_str()));
    failure.retry_after = retry_after.map(Millis::from_secs);
    RunInput::ModelFailed { failure, cost: None, active: ACTIVE }
}

/// Creates a failure of a request that has nevertheless cost this much.
pub(crate) fn failed_with_cost(class: FailureClass, cost: Option<u64>) -> RunInput {
    let mut failure = Failure::new(class, "the reply was unusable");
    failure.usage = Some(USAGE);
    RunInput::ModelFailed { failure, cost: cost.map(MicroUsd), active: ACTIVE }
}

pub(crate) fn interrupted(text: &str) -> RunInput {
    let usage = Usage { estimated: true, ..USAGE };
    RunInput::ModelInterrupted(InterruptedReply {
        text: text.into(),
        usage,
        cost: Some(PRICE.cost(usage)),
        active: ACTIVE,
    })
}

/// Returns the input that the files of the sandbox were saved, had not changed, or were skipped.
pub(crate) fn saved_workspace(pick: usize) -> RunInput {
    let (pack, diff) = (Blob::new(*b"pack"), Blob::new(*b"+line"));
    let snapshot = WorkspaceSnapshot {
        commit: "c0ffee".to_owned(),
        pack: pack.blob_ref,
        changes: vec![FileEffect {
            path: "a.rs".to_owned(),
            change: FileChangeKind::Change,
            lines_added: Some(1),
            lines_removed: Some(0),
        }],
        more_files: 2,
        diff: Some(diff.blob_ref),
    };
    match pick % 3 {
        0 => RunInput::WorkspaceSaved(SavedFiles::Snapshot(Box::new(snapshot)), vec![pack, diff]),
        1 => RunInput::WorkspaceSaved(SavedFiles::Unchanged, Vec::new()),
        _ => {
            let reason = "the files are too large".to_owned();
            RunInput::WorkspaceSaved(SavedFiles::Skipped { reason }, Vec::new())
        }
    }
}

pub(crate) fn compacted(replaced: usize) -> RunInput {
    RunInput::Compacted(Box::new(MemoryCompacted {
        replaced,
        summary: vec![Message::user("What came before, in short.")],
        usage: USAGE,
        cost: Some(MicroUsd(600)),
        model: "poem-1".into(),
        active: ACTIVE,
    }))
}

pub(crate) fn tool_result(call: CallId, end: ToolCallStatus, text: &str) -> ToolCallResult {
    ToolCallResult {
        call,
        status: end,
        output: ToolOutput::text(text),
        active: ACTIVE,
        blobs: Vec::new(),
    }
}

/// Returns the status of a call that another system works on, which is asked about again later.
pub(crate) fn pending_call(after: Millis, ttl: Option<Millis>) -> ToolCallStatus {
    let state = RawJson::parse(r#"{"task":"7"}"#).unwrap();
    let suspension = ToolSuspension { state, may_repeat: true, must_cancel: true };
    let message = Some("page 1 of 2.\nMore.".to_owned());
    let wait = SuspendedCallWait::Poll { after, ttl, message };
    ToolCallStatus::Suspended(Box::new(SuspendedToolCall { suspension, wait }))
}

/// Returns the status of a call whose tool asks a person a question.
pub(crate) fn asking_call(is_task: bool) -> ToolCallStatus {
    let state = RawJson::parse(r#"{"request":"7"}"#).unwrap();
    let suspension = ToolSuspension { state, may_repeat: is_task, must_cancel: is_task };
    let schema = r#"{"properties":{"name":{"type":"string"}},"required":["name"]}"#;
    let wait = SuspendedCallWait::Answer(ToolQuestion {
        asker: "The MCP server `billing`".to_owned(),
        message: "Who are\n\u{1b}you?".to_owned(),
        schema: RawJson::parse(schema).unwrap(),
    });
    ToolCallStatus::Suspended(Box::new(SuspendedToolCall { suspension, wait }))
}

pub(crate) fn class_of(name: &str) -> FailureClass {
    serde_json::from_value(name.into()).unwrap()
}

pub(crate) fn delivery_of(name: &str) -> SteerDelivery {
    serde_json::from_value(name.into()).unwrap()
}
