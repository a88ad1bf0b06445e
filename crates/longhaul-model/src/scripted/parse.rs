//! Reads a script from YAML and checks all that can be checked before it plays.
//!
//! Never: guesses. A key that is not known is an error with its place and, where
//! one is near, the key that was meant.

use jiff::SignedDuration;
use longhaul_core::raw::RawJson;
use longhaul_core::suggest;
use longhaul_core::time::Millis;
use longhaul_core::usage::Usage;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::{Location, Spanned, UserMessageFormatter};

use crate::scripted::error::{Position, ScriptError};
use crate::scripted::render::{self, Renderer};
use crate::scripted::reply_index::Loop;
use crate::scripted::script::{
    Script, ScriptedCall, ScriptedFailure, ScriptedInput, ScriptedReply,
};

/// The longest script that is read.
pub const SCRIPT_BYTES_MAX: usize = 1 << 20;

/// Aliases may repeat so much of a script, which is plenty for people.
const ALIAS_EVENTS_MAX: usize = 10_000;

/// So deep may lists and maps stand in each other. Measured: without
/// optimisation a hundred levels fill the 2 MiB stack of a thread.
const DEPTH_MAX: usize = 32;

impl Script {
    /// Reads a script; `origin` is its file or another name for error messages.
    pub fn parse(origin: &str, text: &str) -> Result<Self, ScriptError> {
        parse_script(text).map_err(|fault| ScriptError {
            origin: origin.to_owned(),
            position: fault.position,
            message: fault.message,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptText {
    replies: Spanned<Vec<Spanned<ReplyText>>>,
    #[serde(default, rename = "loop")]
    repeat: Option<Spanned<LoopText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyText {
    text: Option<Spanned<String>>,
    #[serde(default)]
    tools: Vec<CallText>,
    delay: Option<Spanned<String>>,
    usage: Option<UsageText>,
    error: Option<FailureText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallText {
    name: Spanned<String>,
    input: Option<Spanned<Value>>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct UsageText {
    input_tokens: u64,
    output_tokens: u64,
    cached_tokens: u64,
    cache_write_tokens: u64,
    reasoning_tokens: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailureText {
    status: Spanned<u16>,
    #[serde(default = "default_times")]
    times: u32,
}

const fn default_times() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoopText {
    from: usize,
    to: usize,
    times: u32,
}

/// What is wrong, before it is known in which file.
struct ParseError {
    position: Option<Position>,
    message: String,
}

impl ParseError {
    fn at(location: Location, message: impl Into<String>) -> Self {
        let spot = (location != Location::UNKNOWN)
            .then(|| Position { line: location.line(), column: location.column() });
        Self { position: spot, message: message.into() }
    }
}

fn parse_script(text: &str) -> Result<Script, ParseError> {
    if text.len() > SCRIPT_BYTES_MAX {
        let message = format!("a script has at most {SCRIPT_BYTES_MAX} bytes");
        return Err(ParseError::at(Location::UNKNOWN, message));
    }
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: ALIAS_EVENTS_MAX },
    };
    let script: ScriptText =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| yaml_error(&error))?;
    if script.replies.value.is_empty() {
        let message = "a script needs at least one reply";
        return Err(ParseError::at(script.replies.referenced, message));
    }
    let round = script.repeat.as_ref();
    let round = round.map(|round| checked_loop(round, script.replies.value.len()));
    let renderer = Renderer::new();
    let lines = script.replies.value.into_iter().enumerate();
    let lines = lines.map(|(index, line)| checked_reply(index, line, &renderer));
    Ok(Script { replies: lines.collect::<Result<_, _>>()?, repeat: round.transpose()? })
}

fn yaml_error(error: &serde_saphyr::Error) -> ParseError {
    let location = error.location().unwrap_or(Location::UNKNOWN);
    ParseError::at(location, describe(error.without_snippet(), location))
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the parser's enum, not ours: what has no better words here keeps its own"
)]
fn describe(error: &serde_saphyr::Error, location: Location) -> String {
    match error {
        serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => {
            suggest::unknown_message("key", field, expected)
        }
        serde_saphyr::Error::SerdeMissingField { field, .. } => {
            format!("the key `{field}` is missing")
        }
        serde_saphyr::Error::Eof { .. } => "it is empty: write `replies:` first".to_owned(),
        serde_saphyr::Error::InvalidScalar { .. } => {
            "a whole number is expected here, not negative and not too big".to_owned()
        }
        serde_saphyr::Error::AliasError { error, .. } => describe(error, location),
        other => without_location(
            &other.render_with_formatter(&UserMessageFormatter),
            other.location().unwrap_or(location),
        ),
    }
}

/// The parser's words without its own note of the place, which stands before them.
fn without_location(said: &str, location: Location) -> String {
    let note = format!(" at line {}, column {}", location.line(), location.column());
    said.replace(&note, "")
}

fn checked_loop(round: &Spanned<LoopText>, replies: usize) -> Result<Loop, ParseError> {
    let &LoopText { from, to, times } = &round.value;
    let fault = |message: String| Err(ParseError::at(round.referenced, message));
    if from >= to {
        return fault(format!(
            "loop: `from: {from}` must be less than `to: {to}`, which is the first reply after it"
        ));
    }
    if to > replies {
        return fault(format!("loop: `to: {to}` is past the end of {replies} replies"));
    }
    if times == 0 {
        return fault("loop: `times: 0` would never play its replies, write at least 1".into());
    }
    Ok(Loop { from, to, times })
}

fn checked_reply(
    index: usize,
    line: Spanned<ReplyText>,
    renderer: &Renderer,
) -> Result<ScriptedReply, ParseError> {
    let place = line.referenced;
    let line = line.value;
    if line.text.is_none() && line.tools.is_empty() {
        let message = format!(
            "replies[{index}] says nothing: give it `text` or `tools` (an `error` only comes first)"
        );
        return Err(ParseError::at(place, message));
    }
    let check = |source: &str, at: Location| match renderer.check(source) {
        Some(fault) => Err(ParseError::at(at, format!("replies[{index}]: {fault}"))),
        None => Ok(()),
    };
    if let Some(text) = &line.text {
        check(&text.value, text.referenced)?;
    }
    let tools = line.tools.into_iter().map(|call| {
        if let Some(input) = &call.input {
            let mut templates = render::templates(&input.value).into_iter();
            templates.try_for_each(|source| check(source, input.referenced))?;
        }
        checked_call(call)
    });
    Ok(ScriptedReply {
        calls: tools.collect::<Result<_, _>>()?,
        text: line.text.map(|text| text.value),
        delay: line.delay.map_or(Ok(Millis::ZERO), |delay| parse_delay(&delay))?,
        usage: line.usage.map(parse_usage),
        failure: line.error.map(parse_failure).transpose()?,
    })
}

fn checked_call(call: CallText) -> Result<ScriptedCall, ParseError> {
    if call.name.value.trim().is_empty() {
        return Err(ParseError::at(call.name.referenced, "a tool needs a name"));
    }
    let input = call.input.map_or_else(|| Value::Object(Default::default()), |input| input.value);
    let input = if render::templates(&input).is_empty() {
        ScriptedInput::Literal(RawJson::from_serialize(&input))
    } else {
        ScriptedInput::Templated(input)
    };
    Ok(ScriptedCall { name: call.name.value, input })
}

fn parse_delay(delay: &Spanned<String>) -> Result<Millis, ParseError> {
    let text = delay.value.as_str();
    let parsed = text.parse::<SignedDuration>().ok();
    let span = parsed.and_then(|span| std::time::Duration::try_from(span).ok());
    span.map(Millis::from).ok_or_else(|| {
        let message = format!("delay: `{text}` is no span of time, write one such as 50ms or 2s");
        ParseError::at(delay.referenced, message)
    })
}

const fn parse_usage(text: UsageText) -> Usage {
    Usage {
        input_tokens: text.input_tokens,
        output_tokens: text.output_tokens,
        cached_tokens: text.cached_tokens,
        cache_write_tokens: text.cache_write_tokens,
        reasoning_tokens: text.reasoning_tokens,
        estimated: false,
    }
}

fn parse_failure(text: FailureText) -> Result<ScriptedFailure, ParseError> {
    let status = text.status.value;
    ScriptedFailure::from_status(status, text.times).ok_or_else(|| {
        let message = format!("error: status {status} is no failure, write one from 400 to 599");
        ParseError::at(text.status.referenced, message)
    })
}
