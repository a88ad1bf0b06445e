//! Classifies the calls of a reply: tool, effect class, texts that approval rules match
//! and validity of the input.
//!
//! The classification is journaled together with the reply, so that a later build treats the call
//! in the same way as this one.
//!
//! Calls with which a model waits, by sleeping in a command or by asking for the same state again
//! and again, are refused with a hint: `wait` parks the run at no cost.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use longhaul_core::event::turn::ToolCallClassification;
use longhaul_core::glob::{self, TEXT_BYTES_MAX};
use longhaul_core::id::ToolName;
use longhaul_core::message::{Message, ToolCall};
use longhaul_core::output_reference::OutputReference;
use longhaul_core::policy::effect_key::{EFFECT_KEY_BYTES_MAX, EffectKey};
use longhaul_core::policy::gate::RulePattern;
use longhaul_core::policy::rule::{RememberedApproval, RememberedApprovalScope};
use longhaul_core::port::store::StoreError;
use longhaul_core::port::tool::Tool;
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::task::TaskSpec;
use longhaul_run::{RUN_AGENT, Run, shared_patterns};
use serde_json::{Value, json};

use crate::agent::EffectRule;
use crate::drive::run_env::RunEnv;
use crate::drive::session::retry_while_busy;
use crate::guard::template::render_identifier_template;
use crate::panics;
use crate::services::Services;
use crate::tools::children::CHILD_STATUS;
use crate::tools::find_tools::join_tool_names;
use crate::tools::recorded_outputs::ReferenceError;
use crate::tools::registry::RegisteredTool;

/// Maximum length of the input of a tool call, in bytes.
const INPUT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Maximum total length in bytes of the rule match texts of a call, as a JSON list.
const MATCH_TEXTS_BYTES_MAX: usize = 64 * 1024;
const MATCH_TEXT_OVERHEAD_BYTES: usize = 3;

/// Name of the control tool that parks the run until a time or an event.
const WAIT_TOOL: &str = "wait";

/// Longest sleep in a command that is accepted, in seconds.
const SLEEP_SECS_MAX: f64 = 30.0;

/// Maximum number of consecutive turns in which the model calls nothing but `child_status`.
const STATUS_TURNS_MAX: usize = 2;

/// Classifies a tool call that the model made. `secret_name` is the name of a secret that the input
/// of the call contained. `None` means that it contained none.
pub(crate) async fn classify_call(
    env: &RunEnv,
    run: &Run,
    (call, secret_name): (&ToolCall, Option<&str>),
) -> Result<ToolCallClassification, StoreError> {
    let name = ToolName::from_text_lossy(&call.name);
    let Some(registered) = env.tool(&call.name) else {
        let available: Vec<&str> = env.tools_by_api_name().map(|(name, _)| name).collect();
        let available =
            if available.is_empty() { "none".to_owned() } else { join_tool_names(&available) };
        let problem = format!("there is no tool `{name}`; the available tools are: {available}");
        return Ok(rejected_call(name, problem));
    };
    match secret_name {
        // Control tools are not executed: their input is only text, in which the secret was
        // redacted.
        Some(secret) if registered.tool.is_some() => {
            Ok(rejected_call(registered.spec().name.clone(), secret_in_input_message(secret)))
        }
        Some(_) | None => classify_input(env, run, registered, &call.input).await,
    }
}

/// Adds to each call of a reply the remembered approvals of its agent and its project that match
/// the call. The store is read at most once per reply, and not at all if no call needs an approval.
/// A remembered approval that is revoked between this read and the append still applies to this
/// reply.
pub(crate) async fn add_remembered_approvals(
    services: &Services,
    task: &TaskSpec,
    calls: &mut [ToolCallClassification],
) -> Result<(), StoreError> {
    let patterns = |call: &ToolCallClassification| shared_patterns(&task.policy, call);
    let valid = calls.iter().filter(|call| call.problem.is_none());
    let all: BTreeSet<RulePattern> = valid.flat_map(patterns).collect();
    if all.is_empty() {
        return Ok(());
    }
    let scopes =
        vec![RememberedApprovalScope::Agent(task.agent.clone()), RememberedApprovalScope::Project];
    let all: Vec<RulePattern> = all.into_iter().collect();
    let read = || services.records.active_remembered_approvals(scopes.clone(), all.clone());
    // The reply is paid for: it must not be lost because the store is busy.
    let active = retry_while_busy(&*services.clock, read).await?;
    for call in calls.iter_mut().filter(|_| !active.is_empty()) {
        let patterns = patterns(call);
        let matching_rules = active.iter().filter(|rule| patterns.contains(&rule.pattern));
        call.approvals = matching_rules.cloned().map(RememberedApproval::from).collect();
    }
    Ok(())
}

/// Returns the error message for a tool call whose input contains the secret with this name. Such a
/// call is not made, because without the secret it would be a different call.
pub(crate) fn secret_in_input_message(secret_name: &str) -> String {
    format!(
        "the input holds the secret `{secret_name}`, which is not passed to tools; leave it out"
    )
}

/// Classifies a tool call by its input, which the model or a person wrote: effect class (whether it
/// may be repeated), texts that approval rules match, and validity.
pub(crate) async fn classify_input(
    env: &RunEnv,
    run: &Run,
    registered: &RegisteredTool,
    input: &RawJson,
) -> Result<ToolCallClassification, StoreError> {
    let spec = registered.spec();
    let resolved = match parse_tool_input(input) {
        Ok(input) => env.resolve_tool_input(run.id(), registered, input).await,
        Err(reason) => Err(ReferenceError::Invalid(reason)),
    };
    match resolved {
        Ok(resolved) => Ok(classify_resolved_input(env, run, registered, resolved).await),
        Err(ReferenceError::Invalid(reason)) => Ok(rejected_call(spec.name.clone(), reason)),
        Err(ReferenceError::Store(error)) => Err(error),
    }
}

/// Classifies a tool call by its input, in which references to outputs of earlier calls were
/// replaced by the outputs or parts of them.
async fn classify_resolved_input(
    env: &RunEnv,
    run: &Run,
    registered: &RegisteredTool,
    (input, outputs): (Value, Vec<OutputReference>),
) -> ToolCallClassification {
    let spec = registered.spec();
    let problem = registered.find_input_error(&input, &*env.clock).await;
    let model_api_name = spec.name.name_for_model_api();
    let is_unknown = env.deferred_tools.contains(&*model_api_name)
        && !run.transcript().has_loaded_tool(&model_api_name);
    let hint = format!("; call `find_tools` with the name `{model_api_name}` to see its schema");
    let problem = problem.map(|problem| if is_unknown { problem + &hint } else { problem });
    let mut call = match &registered.tool {
        // Control tools are not executed, so they have no effect. Rules can match only the agent of
        // a child run.
        None => ToolCallClassification {
            rule_match_texts: child_agent_name(&spec.name, &input).into_iter().collect(),
            ..ToolCallClassification::pure(spec.name.clone())
        },
        // An invalid input is not passed to the tool's own methods either.
        Some(_) if problem.is_some() => ToolCallClassification::pure(spec.name.clone()),
        Some(tool) => match describe_tool_call(&**tool, &input, &env.injected_context(run)) {
            Ok(described) => described,
            Err(reason) => return rejected_call(spec.name.clone(), reason),
        },
    };
    truncate_rule_match_texts(&mut call);
    call.problem = problem.or(call.problem).or_else(|| {
        let hint = polling_refusal(run, spec.name.as_str(), &input);
        hint.filter(|_| env.tool(WAIT_TOOL).is_some())
    });
    if call.problem.is_none() && registered.tool.is_some() {
        match render_effect_key(env, run, &call, input) {
            Ok(key) => call.key = key,
            Err(reason) => call.problem = Some(reason),
        }
    }
    let has_tool = |is: fn(&dyn Tool) -> bool| registered.tool.as_deref().is_some_and(is);
    let sandboxed =
        env.agent.sandbox_config().is_some() && has_tool(|tool| tool.works_in_sandbox());
    let mut rules = env.agent.effects.iter().filter(|rule| effect_rule_matches(rule, &call));
    let declared_class = rules.find_map(|rule| rule.class);
    ToolCallClassification {
        class: declared_class.unwrap_or(call.class),
        can_verify: spec.can_verify,
        in_doubt: spec.in_doubt,
        may_outlive_worker: !sandboxed && has_tool(|tool| tool.may_outlive_worker()),
        sandboxed,
        outputs,
        ..call
    }
}

/// Returns the name of the agent that a call of `run_agent` starts, because approval rules can
/// match it. `None` for a call of any other tool, or if the input names no agent.
fn child_agent_name(tool: &ToolName, input: &Value) -> Option<String> {
    let agent = input.get("agent").filter(|_| tool.as_str() == RUN_AGENT)?;
    agent.as_str().map(str::to_owned)
}

/// Truncates long rule match texts of a call and their list: rules compare texts of limited length,
/// and the journal must not contain a long input or referenced outputs again. If something was cut,
/// the texts count as unknown.
fn truncate_rule_match_texts(call: &mut ToolCallClassification) {
    for texts in [&mut call.rule_match_texts, &mut call.injected_rule_match_texts] {
        let mut remaining_bytes = MATCH_TEXTS_BYTES_MAX;
        let mut kept = Vec::new();
        for mut text in texts.drain(..) {
            if text.len() > TEXT_BYTES_MAX {
                text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
                call.opaque = true;
            }
            match remaining_bytes.checked_sub(text.len() + MATCH_TEXT_OVERHEAD_BYTES) {
                Some(rest) => remaining_bytes = rest,
                None => {
                    call.opaque = true;
                    break;
                }
            }
            kept.push(text);
        }
        *texts = kept;
    }
}

/// Asks a tool to describe a call, before the call is made. If the tool panics, the call is not
/// made.
fn describe_tool_call(
    tool: &dyn Tool,
    input: &Value,
    context: &BTreeMap<String, RawJson>,
) -> Result<ToolCallClassification, String> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let rule_match_texts = tool.rule_match_texts_with_context(input, context);
        let injected_rule_match_texts = match context.is_empty() {
            true => Vec::new(),
            false => {
                let texts: BTreeSet<String> = tool.rule_match_texts(input).into_iter().collect();
                let unmatched = rule_match_texts.iter().filter(|text| !texts.contains(*text));
                unmatched.cloned().collect()
            }
        };
        ToolCallClassification {
            class: tool.class(input),
            rule_match_texts,
            injected_rule_match_texts,
            opaque: tool.are_rule_match_texts_unknown(input),
            problem: tool.find_call_problem(input, context),
            ..ToolCallClassification::pure(tool.spec().name.clone())
        }
    }));
    result.map_err(|panic| {
        let message = panics::panic_message(&*panic);
        format!("the tool panicked while it described this call: {message}")
    })
}

fn parse_tool_input(input: &RawJson) -> Result<Value, String> {
    if input.as_str().len() > INPUT_BYTES_MAX {
        return Err(format!("the input is longer than {INPUT_BYTES_MAX} bytes"));
    }
    serde_json::from_str(input.as_str())
        .map_err(|error| format!("the input is not valid JSON: {error}"))
}

/// Returns whether a rule matches the tool and every rule match text of a call. If these texts are
/// unknown or can't be compared with the glob, a rule applies only if it has no `match`, or if its
/// class forbids a repetition.
fn effect_rule_matches(rule: &EffectRule, call: &ToolCallClassification) -> bool {
    let is_restriction = rule.class.is_some_and(|class| !class.may_repeat());
    let matches = |glob: &str, text: &str| glob::matches(glob, text).unwrap_or(is_restriction);
    let matches_text = rule.match_glob.as_ref().is_none_or(|glob| match call.opaque {
        true => is_restriction,
        false => call.rule_match_texts.iter().all(|text| matches(glob, text)),
    });
    matches(&rule.tool, call.tool.as_str()) && matches_text
}

/// Returns the effect key of a call, rendered from the template in the agent file with the input
/// and the context of the call. Calls with the same effect key take effect at most once over all
/// runs. `None` means that the agent file declares no key for the call. The error is a message for
/// the model.
fn render_effect_key(
    env: &RunEnv,
    run: &Run,
    call: &ToolCallClassification,
    input: Value,
) -> Result<Option<EffectKey>, String> {
    // A rule whose pattern can't be checked applies, because a key only prevents calls.
    let applies = |rule: &&EffectRule| {
        let may_match_tool = glob::matches(&rule.tool, call.tool.as_str()) != Some(false);
        effect_rule_matches(rule, call) || call.opaque && may_match_tool
    };
    let mut templates = env.agent.effects.iter().filter(applies);
    let Some(template) = templates.find_map(|rule| rule.key.as_ref()) else { return Ok(None) };
    let context = env.injected_context(run).into_iter();
    let context: serde_json::Map<_, _> =
        context.map(|(name, value)| (name, value.to_value())).collect();
    let values = json!({ "input": input, "context": context });
    let text = render_identifier_template(template, &values).map_err(|reason| {
        format!("the effect key `{template}` of this call can't be rendered: {reason}")
    })?;
    match text.len() {
        _ if text.trim().is_empty() => {
            Err(format!("the effect key `{template}` of this call is empty"))
        }
        0..=EFFECT_KEY_BYTES_MAX => {
            let hash = Hash::digest(text.as_bytes());
            Ok(Some(EffectKey { text: env.redact.redact(&text).into_owned(), hash }))
        }
        _ => Err(format!(
            "the effect key of this call (`key` in `effects` of the agent) is longer than \
                 {EFFECT_KEY_BYTES_MAX} bytes"
        )),
    }
}

fn rejected_call(tool: ToolName, problem: String) -> ToolCallClassification {
    ToolCallClassification { problem: Some(problem), ..ToolCallClassification::pure(tool) }
}

/// Returns the message that refuses a call in which a command sleeps too long, or with which the
/// model asks for the state of its child runs again and again. The message suggests `wait`. `None`
/// if the call does neither.
pub(crate) fn polling_refusal(run: &Run, tool: &str, input: &Value) -> Option<String> {
    match tool {
        "shell" => {
            let secs = longest_sleep_secs(input.get("command")?.as_str()?);
            (secs > SLEEP_SECS_MAX).then(|| {
                format!(
                    "not run: a command may sleep for at most {SLEEP_SECS_MAX} s. To wait longer, call \
                     `wait` with `for`, `until`, `child` or `signal`, which costs nothing"
                )
            })
        }
        CHILD_STATUS => {
            let messages = run.transcript().messages().iter().rev();
            let replies = messages.filter_map(|message| match &**message {
                Message::Assistant(reply) => Some(reply),
                Message::User(_) | Message::Results(_) => None,
            });
            let status_turns = replies.take_while(|reply| {
                let mut calls = reply.tool_calls().peekable();
                calls.peek().is_some() && calls.all(|call| call.name == CHILD_STATUS)
            });
            (status_turns.take(STATUS_TURNS_MAX).count() == STATUS_TURNS_MAX).then(|| {
                "not run: you have only asked for the state of your child runs in the last turns. \
                 Call `wait` with `child` to wait for one of them, which costs nothing"
                    .to_owned()
            })
        }
        _ => None,
    }
}

/// Returns the longest time in seconds that a part of a command sleeps.
fn longest_sleep_secs(command: &str) -> f64 {
    let parts = command.split([';', '&', '|', '\n', '(', ')']);
    let sleeps = parts.filter_map(|part| {
        let mut args = part.split_whitespace().skip_while(|arg| {
            matches!(*arg, "do" | "then" | "else" | "exec" | "command" | "time" | "{")
        });
        (args.next()? == "sleep").then(|| args.map_while(parse_sleep_secs).sum::<f64>())
    });
    sleeps.fold(0.0, f64::max)
}

/// Parses a duration of `sleep`, such as `90`, `1.5m` or `infinity`.
fn parse_sleep_secs(arg: &str) -> Option<f64> {
    let (number, unit) = match arg.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, &arg[number.len()..]),
        None => (arg, "s"),
    };
    let factor = match unit {
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => 1.0,
    };
    number.parse::<f64>().ok().map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_match_texts_are_limited_in_length_and_number() {
        for (rule_match_texts, kept) in [
            (vec!["a".to_owned(), "b".to_owned()], 2),
            (vec!["a".repeat(4_096); 15], 15),
            (vec!["a".repeat(4_097)], 1),
            (vec!["a".repeat(4_096); 17], 15),
            (vec![String::new(); 250_000], MATCH_TEXTS_BYTES_MAX / MATCH_TEXT_OVERHEAD_BYTES),
        ] {
            let is_long = rule_match_texts.iter().any(|text| text.len() > TEXT_BYTES_MAX);
            let all = rule_match_texts.len();
            let pure = ToolCallClassification::pure(ToolName::new("read_file").unwrap());
            let mut call = ToolCallClassification { rule_match_texts, ..pure };
            truncate_rule_match_texts(&mut call);
            assert_eq!(call.rule_match_texts.len(), kept);
            assert_eq!(call.opaque, is_long || kept < all, "{all}");
        }
    }

    #[test]
    fn sleeps_are_found_in_commands() {
        for (command, expected) in [
            ("sleep 300", 300.0),
            ("make; sleep 2m", 120.0),
            ("while true; do sleep 45; done", 45.0),
            ("sleep 1m 30s && ls", 90.0),
            ("( sleep 1h )", 3_600.0),
            ("sleep infinity", f64::INFINITY),
            ("echo sleep 300", 0.0),
            ("sleep 5", 5.0),
            ("./sleepy 900", 0.0),
            ("sleep", 0.0),
            ("sleep $N", 0.0),
        ] {
            assert!(
                (longest_sleep_secs(command) - expected).abs() < 1e-9
                    || expected.is_infinite() && longest_sleep_secs(command).is_infinite(),
                "{command}"
            );
        }
    }
}
