//! Parses the script of a scripted model from YAML and validates it. Unknown keys are errors with a
//! position and a suggestion.

use longhaul_core::suggest;
use serde::Deserialize;
use serde_saphyr::{Location, Spanned, UserMessageFormatter};

use crate::scripted::render::{self, TemplateRenderer};
use crate::scripted::script::{Script, ScriptError, ScriptLoop, ScriptedReply};

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
        parse_script(text).map_err(|(at, message)| {
            let location = match at == Location::UNKNOWN {
                true => origin.to_owned(),
                false => format!("{origin}:{}:{}", at.line(), at.column()),
            };
            ScriptError { location, message }
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptYaml {
    replies: Spanned<Vec<Spanned<ScriptedReply>>>,
    #[serde(rename = "loop")]
    repeat: Option<Spanned<ScriptLoop>>,
}

/// Where an error in a script is, and what is wrong.
type ParseError = (Location, String);

fn parse_script(text: &str) -> Result<Script, ParseError> {
    if text.len() > SCRIPT_BYTES_MAX {
        let message = format!("the script is larger than {SCRIPT_BYTES_MAX} bytes");
        return Err((Location::UNKNOWN, message));
    }
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: ALIAS_EVENTS_MAX },
    };
    let script: Result<ScriptYaml, _> = serde_saphyr::from_str_with_options(text, options);
    let script = script.map_err(|error| {
        let location = error.location().unwrap_or(Location::UNKNOWN);
        (location, describe_yaml_error(error.without_snippet(), location))
    })?;
    if script.replies.value.is_empty() {
        let message = "a script needs at least one reply".to_owned();
        return Err((script.replies.referenced, message));
    }
    if let Some(script_loop) = &script.repeat {
        check_loop(script_loop, script.replies.value.len())?;
    }
    let renderer = TemplateRenderer::new();
    for (index, reply) in script.replies.value.iter().enumerate() {
        check_reply(index, reply, &renderer)?;
    }
    Ok(Script {
        replies: script.replies.value.into_iter().map(|reply| reply.value).collect(),
        repeat: script.repeat.map(|script_loop| script_loop.value),
    })
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
        other => {
            let location = other.location().unwrap_or(location);
            // The position is already shown before the message.
            let position = format!(" at line {}, column {}", location.line(), location.column());
            other.render_with_formatter(&UserMessageFormatter).replace(&position, "")
        }
    }
}

fn check_loop(script_loop: &Spanned<ScriptLoop>, reply_count: usize) -> Result<(), ParseError> {
    let ScriptLoop { from, to, times } = script_loop.value;
    let message = if from >= to {
        format!(
            "loop: `from: {from}` must be less than `to: {to}`, the index after the last reply of the loop"
        )
    } else if to > reply_count {
        format!("loop: `to` is {to}, but the script has {reply_count} replies")
    } else if times == 0 {
        "loop: `times: 0` would skip the replies of the loop; use at least 1".to_owned()
    } else {
        return Ok(());
    };
    Err((script_loop.referenced, message))
}

fn check_reply(
    index: usize,
    reply: &Spanned<ScriptedReply>,
    renderer: &TemplateRenderer,
) -> Result<(), ParseError> {
    let ScriptedReply { text, tools, .. } = &reply.value;
    if text.is_none() && tools.is_empty() {
        let message = format!(
            "replies[{index}] is empty; add `text` or `tools` (an `error` only precedes the reply)"
        );
        return Err((reply.referenced, message));
    }
    if let Some(call) = tools.iter().find(|call| call.name.value.trim().is_empty()) {
        return Err((call.name.referenced, "a tool needs a name".to_owned()));
    }
    let texts = text.iter().map(|text| (text.value.as_str(), text.referenced));
    let inputs = tools.iter().filter_map(|call| call.input.as_ref()).flat_map(|input| {
        let strings = render::find_template_strings(&input.value).into_iter();
        strings.map(|source| (source, input.referenced))
    });
    for (source, location) in texts.chain(inputs) {
        if let Some(error) = renderer.find_template_error(source) {
            return Err((location, format!("replies[{index}]: {error}")));
        }
    }
    Ok(())
}
