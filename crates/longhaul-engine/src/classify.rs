//! What a call is, found out before anything is decided about it.
//!
//! Never: decides. What is found here is journaled with the reply, so that a
//! later build judges the call as this one did.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use longhaul_core::event::turn::CallClassification;
use longhaul_core::id::ToolName;
use longhaul_core::message::ToolCall;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::Tool;
use longhaul_core::raw::RawJson;
use longhaul_run::Run;
use serde_json::Value;
use wildmatch::WildMatch;

use crate::agent::Agent;
use crate::panics;
use crate::run_env::RunEnv;
use crate::tool_registry::RegisteredTool;

/// The longest input of a call that is read.
const INPUT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Appraises a call that a model wants made, whose input held this secret.
pub(crate) async fn classify_call(
    capsule: &RunEnv,
    run: &Run,
    (call, held): (&ToolCall, Option<&str>),
) -> CallClassification {
    let name = ToolName::lossy(&call.name);
    let Some(equipped) = capsule.tool(&call.name) else {
        let has: Vec<&str> = capsule.tools_by_wire_name().map(|(wire, _)| wire).collect();
        let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
        return rejected_call(name.as_str(), &format!("there is no tool `{name}`; there is {has}"));
    };
    match held {
        // What never executes is words, and they are read without it.
        Some(secret) if equipped.tool.is_some() => {
            rejected_call(equipped.spec().name.as_str(), &secret_problem(secret))
        }
        Some(_) | None => classify_input(capsule, run, equipped, &call.input).await,
    }
}

/// Why a call is not made whose input held this secret: what is left of it is
/// another.
pub(crate) fn secret_problem(secret: &str) -> String {
    format!("its input holds the secret `{secret}`, which is not handed to tools; write it without")
}

/// Appraises an input for a tool, whoever wrote it.
pub(crate) async fn classify_input(
    capsule: &RunEnv,
    run: &Run,
    equipped: &RegisteredTool,
    input: &RawJson,
) -> CallClassification {
    let card = equipped.spec();
    let input = match parse_input(input) {
        Ok(input) => capsule.without_injected(equipped, input),
        Err(why) => return rejected_call(card.name.as_str(), &why),
    };
    let problem = equipped.input_error(&input, &*capsule.clock).await;
    let said = match &equipped.tool {
        // What never executes may stand beside anything.
        None => CallFacts::pure(),
        // What does not fit its schema is not shown to the tool either.
        Some(_) if problem.is_some() => CallFacts::pure(),
        Some(tool) => match query_tool(&**tool, &input, &capsule.injected_context(run)) {
            Ok(said) => said,
            Err(why) => return rejected_call(card.name.as_str(), &why),
        },
    };
    CallClassification {
        tool: card.name.clone(),
        class: declared_class(&capsule.agent, &card.name, &said).unwrap_or(said.class),
        subjects: said.subjects,
        injected_subjects: said.injected,
        opaque: said.opaque,
        problem,
        can_verify: card.can_verify,
        in_doubt: card.in_doubt,
        may_outlive_worker: equipped.tool.as_ref().is_some_and(|tool| tool.may_outlive_worker()),
    }
}

/// What a tool says of a call.
struct CallFacts {
    class: EffectClass,
    subjects: Vec<String>,
    /// The subjects that only the context gives.
    injected: Vec<String>,
    opaque: bool,
}

impl CallFacts {
    const fn pure() -> Self {
        Self { class: EffectClass::Pure, subjects: Vec::new(), injected: Vec::new(), opaque: false }
    }
}

/// Asks a tool about a call; a panic in its code is a reason not to make it.
fn query_tool(
    tool: &dyn Tool,
    input: &Value,
    context: &BTreeMap<String, RawJson>,
) -> Result<CallFacts, String> {
    let said = catch_unwind(AssertUnwindSafe(|| {
        let subjects = tool.subjects_with_context(input, context);
        let injected = match context.is_empty() {
            true => Vec::new(),
            false => {
                let read = tool.subjects(input);
                let unread = subjects.iter().filter(|subject| !read.contains(subject));
                unread.cloned().collect()
            }
        };
        CallFacts { class: tool.class(input), subjects, injected, opaque: tool.is_opaque(input) }
    }));
    said.map_err(|panic| {
        let words = panics::panic_message(&*panic);
        format!("the tool panicked when it was shown this call: {words}")
    })
}

fn parse_input(input: &RawJson) -> Result<Value, String> {
    if input.as_str().len() > INPUT_BYTES_MAX {
        return Err(format!("the input is longer than {INPUT_BYTES_MAX} bytes"));
    }
    serde_json::from_str(input.as_str()).map_err(|why| format!("the input can't be read: {why}"))
}

/// The class that the agent's file gives a call: by the first of its words that
/// matches the tool and every subject. Where subjects can't be read, only a word
/// about every call of the tool counts.
fn declared_class(agent: &Agent, tool: &ToolName, said: &CallFacts) -> Option<EffectClass> {
    let matches = |glob: &str, text: &str| WildMatch::new(glob).matches(text);
    let told = agent.effects.iter().find(|rule| {
        let fits = rule.subject.as_ref().is_none_or(|glob| {
            let mut subjects = said.subjects.iter();
            !said.opaque && subjects.all(|subject| matches(glob, subject))
        });
        matches(&rule.tool, tool.as_str()) && fits
    });
    told.map(|rule| rule.class)
}

fn rejected_call(name: &str, problem: &str) -> CallClassification {
    CallClassification {
        tool: ToolName::lossy(name),
        class: EffectClass::Pure,
        subjects: Vec::new(),
        injected_subjects: Vec::new(),
        opaque: false,
        problem: Some(problem.to_owned()),
        can_verify: false,
        in_doubt: None,
        may_outlive_worker: false,
    }
}
