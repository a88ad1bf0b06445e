//! Parses the script of a scripted model from YAML and validates it. Unknown keys are errors with a
//! position and a suggestion.

use jiff::SignedDuration;
use longhaul_core::raw::RawJson;
use longhaul_core::suggest;
use longhaul_core::time::Millis;
use longhaul_core::usage::Usage;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::{Location, Spanned, UserMessageFormatter};

use crate::scripted::error::{ScriptError, ScriptPosition};
use crate::scripted::render::{self, TemplateRenderer};
use crate::scripted::reply_index::ScriptLoop;
use crate::scripted::script::{
    Script, ScriptedArguments, ScriptedFailure, ScriptedReply, ScriptedToolCall,
};

/// Maximum size of a script in bytes.
pub const SCRIPT_BYTES_MAX: usize = 1 << 20;

/// Maximum number of YAML events that aliases may repeat in a script.
const ALIAS_EVENTS_MAX: usize = 10_000;

/// Maximum nesting depth of lists and maps in a script. In an unoptimised build a hundred levels
/// overflow a 2 MiB stack.
const DEPTH_MAX: usize = 32;

impl Script {
    /// Parses a script. `origin` is the file name of the script, or another name for error
    /// messages.
    pub fn parse_yaml(origin: &str, text: &str) -> Result<Self, ScriptError> {
        parse_script(text).map_err(|error| ScriptError {
            origin: origin.to_owned(),
            position: error.position,
            message: error.message,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptYaml {
    replies: Spanned<Vec<Spanned<ReplyYaml>>>,
    #[serde(default, rename = "loop")]
    repeat: Option<Spanned<LoopYaml>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyYaml {
    text: Option<Spanned<String>>,
    #[serde(default)]
    tools: Vec<ToolCallYaml>,
    delay: Option<Spanned<String>>,
    usage: Option<UsageYaml>,
    error: Option<FailureYaml>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolCallYaml {
    name: Spanned<String>,
    input: Option<Spanned<Value>>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct UsageYaml {
    input_tokens: u64,
    output_tokens: u64,
    cached_tokens: u64,
    cache_write_tokens: u64,
    reasoning_tokens: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailureYaml {
    status: Spanned<u16>,
    #[serde(default = "default_times")]
    times: u32,
}

const fn default_times() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoopYaml {
    from: usize,
    to: usize,
    times: u32,
}

/// An error in a script, before the origin of the script is known.
struct ScriptParseError {
    position: Option<ScriptPosition>,
    message: String,
}

impl ScriptParseError {
    fn new(location: Location, message: impl Into<String>) -> Self {
        let position = (location != Location::UNKNOWN)
            .then(|| ScriptPosition { line: location.line(), column: location.column() });
        Self { position, message: message.into() }
    }
}

fn parse_script(text: &str) -> Result<Script, ScriptParseError> {
    if text.len() > SCRIPT_BYTES_MAX {
        let message = format!("the script is larger than {SCRIPT_BYTES_MAX} bytes");
        return Err(ScriptParseError::new(Location::UNKNOWN, message));
    }
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: ALIAS_EVENTS_MAX },
    };
    let script: ScriptYaml = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| yaml_to_script_parse_error(&error))?;
    if script.replies.value.is_empty() {
        let message = "a script needs at least one reply";
        return Err(ScriptParseError::new(script.replies.referenced, message));
    }
    let script_loop = script.repeat.as_ref();
    let script_loop =
        script_loop.map(|script_loop| parse_loop(script_loop, script.replies.value.len()));
    let renderer = TemplateRenderer::new();
    let replies = script.replies.value.into_iter().enumerate();
    let replies = replies.map(|(index, reply)| parse_reply(index, reply, &renderer));
    Ok(Script { replies: replies.collect::<Result<_, _>>()?, repeat: script_loop.transpose()? })
}

fn yaml_to_script_parse_error(error: &serde_saphyr::Error) -> ScriptParseError {
    let location = error.location().unwrap_or(Location::UNKNOWN);
    ScriptParseError::new(location, describe_yaml_error(error.without_snippet(), location))
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a foreign enum: all other errors keep the parser's message"
)]
fn describe_yaml_error(error: &serde_saphyr::Error, location: Location) -> String {
    match error {
        serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => {
            suggest::unknown_name_message("key", field, expected)
        }
        serde_saphyr::Error::SerdeMissingField { field, .. } => {
            format!("the key `{field}` is missing")
        }
        serde_saphyr::Error::Eof { .. } => "it is empty: start with `replies:`".to_owned(),
        serde_saphyr::Error::InvalidScalar { .. } => {
            "expected a whole number, not negative and not too large".to_owned()
        }
        serde_saphyr::Error::AliasError { error, .. } => describe_yaml_error(error, location),
        other => message_without_location(
            &other.render_with_formatter(&UserMessageFormatter),
            other.location().unwrap_or(location),
        ),
    }
}

/// Removes the position that the YAML parser appended to its message, because the position is
/// already shown before the message.
fn message_without_location(message: &str, location: Location) -> String {
    let position = format!(" at line {}, column {}", location.line(), location.column());
    message.replace(&position, "")
}

fn parse_loop(
    loop_yaml: &Spanned<LoopYaml>,
    reply_count: usize,
) -> Result<ScriptLoop, ScriptParseError> {
    let &LoopYaml { from, to, times } = &loop_yaml.value;
    let invalid = |message: String| Err(ScriptParseError::new(loop_yaml.referenced, message));
    if from >= to {
        return invalid(format!(
            "loop: `from: {from}` must be less than `to: {to}`, the index after the last reply of the loop"
        ));
    }
    if to > reply_count {
        return invalid(format!("loop: `to` is {to}, but the script has {reply_count} replies"));
    }
    if times == 0 {
        return invalid(
            "loop: `times: 0` would skip the replies of the loop; use at least 1".into(),
        );
    }
    Ok(ScriptLoop { from, to, times })
}

fn parse_reply(
    index: usize,
    line: Spanned<ReplyYaml>,
    renderer: &TemplateRenderer,
) -> Result<ScriptedReply, ScriptParseError> {
    let location = line.referenced;
    let line = line.value;
    if line.text.is_none() && line.tools.is_empty() {
        let message = format!(
            "replies[{index}] is empty; add `text` or `tools` (an `error` only precedes the reply)"
        );
        return Err(ScriptParseError::new(location, message));
    }
    let check = |source: &str, at: Location| match renderer.find_template_error(source) {
        Some(error) => Err(ScriptParseError::new(at, format!("replies[{index}]: {error}"))),
        None => Ok(()),
    };
    if let Some(text) = &line.text {
        check(&text.value, text.referenced)?;
    }
    let tools = line.tools.into_iter().map(|call| {
        if let Some(input) = &call.input {
            let mut templates = render::find_template_strings(&input.value).into_iter();
            templates.try_for_each(|source| check(source, input.referenced))?;
        }
        parse_tool_call(call)
    });
    Ok(ScriptedReply {
        calls: tools.collect::<Result<_, _>>()?,
        text: line.text.map(|text| text.value),
        delay: line.delay.map_or(Ok(Millis::ZERO), |delay| parse_delay(&delay))?,
        usage: line.usage.map(parse_usage),
        failure: line.error.map(parse_failure).transpose()?,
    })
}

fn parse_tool_call(call: ToolCallYaml) -> Result<ScriptedToolCall, ScriptParseError> {
    if call.name.value.trim().is_empty() {
        return Err(ScriptParseError::new(call.name.referenced, "a tool needs a name"));
    }
    let input = call.input.map_or_else(|| Value::Object(Default::default()), |input| input.value);
    let input = if render::find_template_strings(&input).is_empty() {
        ScriptedArguments::Literal(RawJson::from_serialize(&input))
    } else {
        ScriptedArguments::Templated(input)
    };
    Ok(ScriptedToolCall { name: call.name.value, input })
}

fn parse_delay(delay: &Spanned<String>) -> Result<Millis, ScriptParseError> {
    let text = delay.value.as_str();
    let parsed = text.parse::<SignedDuration>().ok();
    let duration = parsed.and_then(|duration| std::time::Duration::try_from(duration).ok());
    duration.map(Millis::from).ok_or_else(|| {
        let message = format!("delay: `{text}` is not a duration; use one such as 50ms or 2s");
        ScriptParseError::new(delay.referenced, message)
    })
}

const fn parse_usage(usage: UsageYaml) -> Usage {
    Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cached_tokens: usage.cached_tokens,
        cache_write_tokens: usage.cache_write_tokens,
        reasoning_tokens: usage.reasoning_tokens,
        estimated: false,
    }
}

fn parse_failure(failure: FailureYaml) -> Result<ScriptedFailure, ScriptParseError> {
    let status = failure.status.value;
    ScriptedFailure::from_status(status, failure.times).ok_or_else(|| {
        let message =
            format!("error: status {status} is not an error status; use one from 400 to 599");
        ScriptParseError::new(failure.status.referenced, message)
    })
}
