//! Inputs in short words: replies, results, answers, messages.
//!
//! Never: writes. It only makes what is told to a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::event::run::{Compactor, RunPerceived};
use longhaul_core::event::steer::Delivery;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::event::turn::{Appraisal, Fit, Seen};
use longhaul_core::event::world::MemoryCompacted;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{CallId, ToolName};
use longhaul_core::message::{Block, Message, Reply, StopReason, ToolCall, Words};
use longhaul_core::policy::effect::{EffectClass, InDoubt};
use longhaul_core::port::model::Answered;
use longhaul_core::raw::{Body, Hash, RawJson};
use longhaul_core::time::Millis;
use longhaul_core::usage::{Micros, Price, Tariff, Usage};
use longhaul_run::Input;
use longhaul_run::input::{CutOff, Looked, Replied, ToolDone, ToolEnd};

/// What every model of these tests charges.
pub(crate) const PRICE: Price = Price {
    input: 3_000_000,
    output: 15_000_000,
    cached: 300_000,
    cache_write: 3_750_000,
};

/// What whoever sums up charges.
pub(crate) const CHEAP: Price = Price {
    input: 1_000_000,
    output: 5_000_000,
    cached: 100_000,
    cache_write: 1_000_000,
};

/// What every reply of these tests uses.
pub(crate) const USAGE: Usage = Usage {
    input_tokens: 100,
    output_tokens: 20,
    cached_tokens: 0,
    cache_write_tokens: 0,
    reasoning_tokens: 0,
    estimated: false,
};

/// How long everything takes.
pub(crate) const ACTIVE: Millis = Millis(700);

pub(crate) fn tariff() -> Tariff {
    Tariff {
        price: Some(PRICE),
        max_output_tokens: 4_096,
        fixed_tokens: 500,
        ..Tariff::default()
    }
}

/// What is seen, with these models behind the first.
/// A word such as `circles=4` says when a run that turns in circles ends.
pub(crate) fn perceived<'a>(words: impl Iterator<Item = &'a str>) -> Input {
    let (circles, fallbacks): (Vec<&str>, Vec<&str>) =
        words.partition(|word| word.starts_with("circles="));
    let circles = circles
        .first()
        .map(|word| word["circles=".len()..].parse().unwrap());
    let seen = RunPerceived {
        system: Body::inline("You are a writer."),
        tools: Body::inline("[]"),
        opening: vec![Message::user("Write a poem.")],
        model: "scripted/poem".into(),
        fallbacks: fallbacks.into_iter().map(str::to_owned).collect(),
        tariff: tariff(),
        compactor: None,
        world: None,
        context: BTreeMap::new(),
        supplied: Vec::new(),
        circles,
    };
    Input::Perceived(Box::new(seen), Vec::new())
}

/// The same with a window of so many tokens, and whoever sums up, if somebody does.
pub(crate) fn narrow(window_tokens: u64, helper: Option<&str>) -> Input {
    let Input::Perceived(mut seen, blobs) = perceived(["scripted/spare"].into_iter()) else {
        panic!("what is seen is perceived");
    };
    seen.tariff.window_tokens = window_tokens;
    seen.compactor = helper.map(|model| Compactor {
        model: model.into(),
        tariff: Tariff {
            price: Some(CHEAP),
            ..tariff()
        },
    });
    Input::Perceived(seen, blobs)
}

/// Somebody looked again, and saw this; nothing: all is as it was.
pub(crate) fn looked(world: &str) -> Input {
    if world.is_empty() {
        return Input::Looked(Box::default());
    }
    Input::Looked(Box::new(Looked {
        words: Some(world.into()),
        seen: Some(Seen {
            world: Hash::of(world.as_bytes()),
            context: BTreeMap::new(),
        }),
    }))
}

/// Last words that were judged: `fits {json}` or why they do not.
pub(crate) fn judged(verdict: &str) -> Input {
    let fit = match verdict.strip_prefix("fits ") {
        Some(data) => Fit::Fits(RawJson::parse(data).unwrap()),
        None => Fit::Misfit(verdict.to_owned()),
    };
    match replied("Here it is.", "", StopReason::EndTurn) {
        Input::Replied(mut replied) => {
            replied.fit = Some(fit);
            Input::Replied(replied)
        }
        other => other,
    }
}

/// A reply of `text` and calls in the form `name/class {json} + name/class`.
pub(crate) fn replied(text: &str, calls: &str, stop: StopReason) -> Input {
    let calls: Vec<(ToolCall, Appraisal)> = calls
        .split(" + ")
        .filter(|call| !call.trim().is_empty())
        .zip(1..)
        .map(|(call, index)| one_call(call.trim(), index))
        .collect();
    let words = Block::Text(Words {
        text: text.into(),
        extra: None,
    });
    let words = (!text.is_empty()).then_some(words);
    let called = calls.iter().map(|(call, _)| Block::ToolCall(call.clone()));
    let reply = Reply {
        dialect: "scripted".into(),
        blocks: words.into_iter().chain(called).collect(),
    };
    Input::Replied(Box::new(Replied {
        answered: Answered {
            reply: Arc::new(reply),
            stop,
            usage: USAGE,
            cost: Some(PRICE.of(USAGE)),
            model: "poem-1".into(),
        },
        calls: calls.into_iter().map(|(_, appraisal)| appraisal).collect(),
        fit: None,
        active: ACTIVE,
    }))
}

/// `name/class`, `name/class?` when the tool can look, `name/class!tell` for
/// its word in doubt, `name/bad` for a call that can't be made; then its input.
fn one_call(call: &str, index: usize) -> (ToolCall, Appraisal) {
    let (head, input) = call.split_once(' ').unwrap_or((call, "{}"));
    let (name, class) = head.split_once('/').unwrap_or((head, "pure"));
    let (class, doubt) = class.split_once('!').unwrap_or((class, ""));
    let input = RawJson::parse(input).unwrap();
    let command = input.value()["command"].as_str().map(str::to_owned);
    let parts = command.iter().flat_map(|command| command.split("; "));
    let appraisal = Appraisal {
        tool: ToolName::new(name).unwrap(),
        class: match class.trim_end_matches('?') {
            "pure" | "bad" => EffectClass::Pure,
            "keyed" => EffectClass::Keyed,
            "session" => EffectClass::Session,
            _ => EffectClass::Once,
        },
        subjects: parts.map(str::to_owned).collect(),
        injected: Vec::new(),
        opaque: command
            .as_ref()
            .is_some_and(|command| command.contains("$(")),
        problem: (class == "bad").then(|| format!("there is no tool `{name}`")),
        verifies: class.ends_with('?'),
        in_doubt: match doubt {
            "tell" => Some(InDoubt::Tell),
            "ask" => Some(InDoubt::Ask),
            "fail" => Some(InDoubt::Fail),
            _ => None,
        },
        outlives: name == "shell",
    };
    let call = ToolCall {
        id: format!("call_{index}"),
        name: name.into(),
        input,
        extra: None,
    };
    (call, appraisal)
}

pub(crate) fn failed(class: FailureClass, retry_after: Option<u64>) -> Input {
    let mut failure = Failure::new(class, format!("the provider said {}", class.as_str()));
    failure.retry_after = retry_after.map(Millis::from_secs);
    Input::ModelFailed {
        failure,
        cost: None,
        active: ACTIVE,
    }
}

/// A call that is of no use and has cost this much.
pub(crate) fn wasted(class: FailureClass, cost: Option<u64>) -> Input {
    let mut failure = Failure::new(class, "it was of no use");
    failure.usage = Some(USAGE);
    Input::ModelFailed {
        failure,
        cost: cost.map(Micros),
        active: ACTIVE,
    }
}

pub(crate) fn interrupted(text: &str) -> Input {
    let usage = Usage {
        estimated: true,
        ..USAGE
    };
    Input::Interrupted(CutOff {
        text: text.into(),
        usage,
        cost: Some(PRICE.of(usage)),
        active: ACTIVE,
    })
}

pub(crate) fn compacted(replaced: usize) -> Input {
    Input::Compacted(Box::new(MemoryCompacted {
        replaced,
        summary: vec![Message::user("What came before, in short.")],
        usage: USAGE,
        cost: Some(Micros(600)),
        model: "poem-1".into(),
        active: ACTIVE,
    }))
}

pub(crate) fn done(call: CallId, end: ToolEnd, text: &str) -> ToolDone {
    ToolDone {
        call,
        end,
        output: ToolOutput::text(text),
        active: ACTIVE,
        blobs: Vec::new(),
    }
}

pub(crate) fn class_of(word: &str) -> FailureClass {
    serde_json::from_value(word.into()).unwrap()
}

pub(crate) fn delivery_of(word: &str) -> Delivery {
    serde_json::from_value(word.into()).unwrap()
}
