//! The ways on which a message leaves: a line in a file, a program, a webhook.
//!
//! Never: a shell, and never the same message by two ways.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use url::Url;

use crate::location::Location;
use crate::outbound::hop::{parse_url, redacted_url};

/// How messages are delivered.
#[derive(Clone, PartialEq, Eq)]
pub enum DeliveryTarget {
    /// Added to this file as a line of JSON.
    File(Location),
    /// Given to this program on its standard input, with these words.
    Command(Vec<String>),
    /// Posted to this address.
    Webhook(Url),
}

impl DeliveryTarget {
    /// The way's name.
    pub(super) const fn channel_name(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Command(_) => "command",
            Self::Webhook(_) => "webhook",
        }
    }

    /// The same, with a file that is looked for from this directory.
    pub(super) fn resolved_from(self, dir: &Path) -> Self {
        match self {
            Self::File(file) => Self::File(file.resolved_from(dir)),
            other @ (Self::Command(_) | Self::Webhook(_)) => other,
        }
    }
}

impl fmt::Debug for DeliveryTarget {
    /// Words and paths of addresses may be secrets.
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
            let url = parse_url(url).map_err(|no| DeliveryTargetError(no.to_string()))?;
            return Ok(Self::Webhook(url));
        }
        let way = text.split([':', ' ']).next().unwrap_or_default();
        let way: String = way.chars().take(40).collect();
        Err(DeliveryTargetError(format!("`{way}` is no way to deliver")))
    }
}

/// The words of a line: parted by blanks, unless they stand in quotes. Nothing
/// else means anything, because nobody but us reads it.
fn split_words(line: &str) -> Result<Vec<String>, DeliveryTargetError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err(DeliveryTargetError("a quote in `command:` is not closed".into()));
    }
    words.extend(word);
    Ok(words)
}

/// A word that names no way to deliver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write `file:PATH`, `command:PROGRAM ARG...` or `webhook:URL`")]
pub struct DeliveryTargetError(String);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let said = text.parse::<DeliveryTarget>().map(|deliver| match deliver {
            DeliveryTarget::File(path) => format!("file {}", path.path().display()),
            DeliveryTarget::Command(argv) => format!("command {}", argv.join("|")),
            DeliveryTarget::Webhook(url) => format!("webhook {url}"),
        });
        match (said, expected) {
            (Ok(said), Ok(expected)) => assert_eq!(said, expected, "{text}"),
            (Err(no), Err(why)) => {
                let no = no.to_string();
                assert!(no.contains(why) && no.contains("`file:PATH`"), "{text}: {no}");
            }
            (said, _) => panic!("{text}: {said:?}"),
        }
    }

    #[test]
    fn delivery_targets_are_parsed_or_rejected_with_the_allowed_ones() {
        check("file:.longhaul/outbox.jsonl", Ok("file .longhaul/outbox.jsonl"));
        check(" file: /a b/c ", Ok("file /a b/c"));
        check("command:notify-send  -u low", Ok("command notify-send|-u|low"));
        check("command:./a 'b c' d\" \"e '' $HOME;ls", Ok("command ./a|b c|d e||$HOME;ls"));
        check("webhook:https://a.example/x?y", Ok("webhook https://a.example/x?y"));
        check("webhook: http://127.0.0.1:9", Ok("webhook http://127.0.0.1:9/"));
        check("", Err("`` is no way"));
        check("mail:me@a.example", Err("`mail` is no way"));
        check("file:", Err("needs a path"));
        check("file:a/", Err("not of a folder"));
        check("command:", Err("needs a program"));
        check("command: ''", Err("needs a program"));
        check("command:a 'b", Err("not closed"));
        check("webhook:", Err("no URL"));
        check("webhook:ftp://a.example", Err("only http"));
        check("webhook:https://me:hush@a.example", Err("no place"));
    }

    #[test]
    fn debug_output_hides_secrets() {
        for text in ["command:send --key hush", "webhook:https://a.example/hush?hush"] {
            let shown = format!("{:?}", text.parse::<DeliveryTarget>().unwrap());
            assert!(!shown.contains("hush"), "{shown}");
        }
    }
}
