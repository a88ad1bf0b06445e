//! Delivery targets for messages: a JSON lines file, a program or a webhook.
//!
//! Invariant: no shell is involved.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use url::Url;

use crate::location::FileLocation;
use crate::outbound::hop::{parse_url, redacted_url};

/// Where messages are delivered.
#[derive(Clone, PartialEq, Eq)]
pub enum DeliveryTarget {
    /// Append each message to this file as a JSON line.
    File(FileLocation),
    /// Pass each message as JSON on stdin to this program with these arguments.
    Command(Vec<String>),
    /// Post each message to this URL.
    Webhook(Url),
}

impl DeliveryTarget {
    /// Returns the name of the target's channel: `file`, `command` or `webhook`.
    pub(super) const fn channel_name(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Command(_) => "command",
            Self::Webhook(_) => "webhook",
        }
    }

    /// Resolves a relative file path against this directory.
    pub(super) fn resolved_from(self, base_dir: &Path) -> Self {
        match self {
            Self::File(file) => Self::File(file.resolved_from(base_dir)),
            other @ (Self::Command(_) | Self::Webhook(_)) => other,
        }
    }
}

impl fmt::Debug for DeliveryTarget {
    /// Hides the program's arguments and the path of the URL, because they may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.path().display()),
            Self::Command(argv) => {
                let program = argv.first().map_or("", String::as_str);
                write!(f, "command:{program} ...")
            }
            Self::Webhook(url) => write!(f, "webhook:{}/...", redacted_url(url)),
        }
    }
}

impl FromStr for DeliveryTarget {
    type Err = DeliveryTargetError;

    fn from_str(text: &str) -> Result<Self, DeliveryTargetError> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix("file:") {
            return match path.trim() {
                "" => Err(DeliveryTargetError("`file:` needs a path".into())),
                path if path.ends_with('/') => Err(DeliveryTargetError(
                    "`file:` needs the path of a file and not of a folder".into(),
                )),
                path => Ok(Self::File(path.into())),
            };
        }
        if let Some(line) = text.strip_prefix("command:") {
            let argv = split_words(line)?;
            return match argv.first().is_some_and(|program| !program.is_empty()) {
                true => Ok(Self::Command(argv)),
                false => Err(DeliveryTargetError("`command:` needs a program".into())),
            };
        }
        if let Some(url) = text.strip_prefix("webhook:") {
            let url = parse_url(url).map_err(|error| DeliveryTargetError(error.to_string()))?;
            return Ok(Self::Webhook(url));
        }
        let scheme = text.split([':', ' ']).next().unwrap_or_default();
        let scheme: String = scheme.chars().take(40).collect();
        Err(DeliveryTargetError(format!("`{scheme}` is not a delivery target")))
    }
}

/// Splits a command line into words at whitespace, except inside of quotes. No other character has
/// a special meaning.
fn split_words(command_line: &str) -> Result<Vec<String>, DeliveryTargetError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in command_line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(DeliveryTargetError("a quote in `command:` is not closed".into()));
    }
    words.extend(word);
    Ok(words)
}

/// Why a text is not a valid delivery target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write `file:PATH`, `command:PROGRAM ARG...` or `webhook:URL`")]
pub struct DeliveryTargetError(String);

#[cfg(test)]
mod tests {
    use super::*;

    fn check_parsed_target(text: &str, expected: Result<&str, &str>) {
        let parsed = text.parse::<DeliveryTarget>().map(|target| match target {
            DeliveryTarget::File(path) => format!("file {}", path.path().display()),
            DeliveryTarget::Command(argv) => format!("command {}", argv.join("|")),
            DeliveryTarget::Webhook(url) => format!("webhook {url}"),
        });
        match (parsed, expected) {
            (Ok(parsed), Ok(expected)) => assert_eq!(parsed, expected, "{text}"),
            (Err(error), Err(expected)) => {
                let error = error.to_string();
                assert!(
                    error.contains(expected) && error.contains("`file:PATH`"),
                    "{text}: {error}"
                );
            }
            (parsed, _) => panic!("{text}: {parsed:?}"),
        }
    }

    #[test]
    fn delivery_targets_are_parsed_or_rejected_with_the_allowed_ones() {
        check_parsed_target("file:.longhaul/outbox.jsonl", Ok("file .longhaul/outbox.jsonl"));
        check_parsed_target(" file: /a b/c ", Ok("file /a b/c"));
        check_parsed_target("command:notify-send  -u low", Ok("command notify-send|-u|low"));
        check_parsed_target(
            "command:./a 'b c' d\" \"e '' $HOME;ls",
            Ok("command ./a|b c|d e||$HOME;ls"),
        );
        check_parsed_target("webhook:https://a.example/x?y", Ok("webhook https://a.example/x?y"));
        check_parsed_target("webhook: http://127.0.0.1:9", Ok("webhook http://127.0.0.1:9/"));
        check_parsed_target("", Err("`` is not a delivery target"));
        check_parsed_target("mail:me@a.example", Err("`mail` is not a delivery target"));
        check_parsed_target("file:", Err("needs a path"));
        check_parsed_target("file:a/", Err("not of a folder"));
        check_parsed_target("command:", Err("needs a program"));
        check_parsed_target("command: ''", Err("needs a program"));
        check_parsed_target("command:a 'b", Err("not closed"));
        check_parsed_target("webhook:", Err("URL is invalid"));
        check_parsed_target("webhook:ftp://a.example", Err("only http"));
        check_parsed_target("webhook:https://me:hush@a.example", Err("must not contain"));
    }

    #[test]
    fn debug_output_hides_secrets() {
        for text in ["command:send --key hush", "webhook:https://a.example/hush?hush"] {
            let debug_text = format!("{:?}", text.parse::<DeliveryTarget>().unwrap());
            assert!(!debug_text.contains("hush"), "{debug_text}");
        }
    }
}
