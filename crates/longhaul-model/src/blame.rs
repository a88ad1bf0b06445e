//! Makes a failure out of whatever went wrong between us and a provider.
//!
//! Never: a secret in its words, or more of a stranger's text than people read.

mod class;
mod said;
mod wait;

use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::redact::Redactor;
use longhaul_core::time::Timestamp;
use reqwest::header::HeaderMap;

use crate::blame::said::Said;
use crate::http::trouble::Trouble;

/// So many letters of a failure are kept for people.
const LETTERS_MAX: usize = 500;

/// So much of an answer is looked at for words to quote.
const QUOTED_BYTES: usize = 4 * 1024;

/// The longest name of a request that is believed to be one.
const REQUEST_ID_MAX: usize = 128;

const REQUEST_IDS: &[&str] = &["request-id", "x-request-id", "cf-ray"];

/// Who asked whom, and when the answer came.
#[derive(Debug)]
pub(crate) struct Blame<'a> {
    pub(crate) provider: &'a str,
    pub(crate) secrets: &'a Redactor,
    pub(crate) now: Timestamp,
}

impl Blame<'_> {
    /// An answer whose status says no, as far as its body came.
    pub(crate) fn refused(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> Failure {
        let said = self.said(body);
        let words = match redirect(status, headers) {
            Some(there) => format!("{there}. {}", said.words),
            None => said.words.clone(),
        };
        let kind = said
            .name()
            .map_or(String::new(), |name| format!(" ({name})"));
        let message = format!("{} answered {status}{kind}: {words}", self.provider);
        let class = class::of(&said, status);
        self.failure(class, &message, Some((status, headers)))
    }

    /// An error that came inside an answer that had begun well.
    pub(crate) fn told(&self, headers: &HeaderMap, error: &str) -> Failure {
        let said = Said::read(error);
        let kind = said
            .name()
            .map_or(String::new(), |name| format!(" ({name})"));
        let message = format!("{} broke off{kind}: {}", self.provider, said.words);
        let class = class::of(&said, said.status.unwrap_or(500));
        self.failure(class, &message, Some((200, headers)))
    }

    /// An answer that makes no sense.
    pub(crate) fn nonsense(&self, headers: &HeaderMap, what: &str) -> Failure {
        let message = format!("{} makes no sense: {what}", self.provider);
        self.failure(FailureClass::Server, &message, Some((200, headers)))
    }

    /// An answer that is more than anybody can use: asking again brings it again.
    pub(crate) fn too_much(&self, headers: &HeaderMap, what: &str) -> Failure {
        let message = format!("{} says too much: {what}", self.provider);
        self.failure(FailureClass::InvalidRequest, &message, Some((200, headers)))
    }

    /// An answer that came whole and is no reply, such as a proxy's page.
    pub(crate) fn strange(&self, headers: &HeaderMap, what: &str, body: &[u8]) -> Failure {
        let body = &body[..body.len().min(QUOTED_BYTES)];
        let said = self.said(body).words;
        self.nonsense(headers, &format!("{what}; it says: {said}"))
    }

    /// A question that got lost on the way, or its answer.
    pub(crate) fn lost(&self, trouble: &Trouble, headers: Option<&HeaderMap>) -> Failure {
        let class = match trouble {
            Trouble::Address(_) | Trouble::Client(_) => FailureClass::InvalidRequest,
            Trouble::NoConnection(_)
            | Trouble::NoAnswer(_)
            | Trouble::Silence(_)
            | Trouble::Stall(_) => FailureClass::Timeout,
            Trouble::Connect(_) | Trouble::Closed(_) | Trouble::Broken(_) | Trouble::Cut => {
                FailureClass::Network
            }
            Trouble::TooLong(_) | Trouble::EventTooLong(_) | Trouble::Garbled => {
                FailureClass::Server
            }
        };
        let message = format!("{}: {trouble}", self.provider);
        self.failure(class, &message, headers.map(|headers| (200, headers)))
    }

    /// What a body says that may have been cut off, without the half of a secret at its end.
    fn said(&self, body: &[u8]) -> Said {
        let text = String::from_utf8_lossy(body);
        let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        Said::read(self.secrets.without_partial_end(text))
    }

    fn failure(
        &self,
        class: FailureClass,
        message: &str,
        head: Option<(u16, &HeaderMap)>,
    ) -> Failure {
        let retry_after = head.and_then(|(_, headers)| {
            let waits = matches!(class, FailureClass::RateLimit | FailureClass::Overloaded);
            wait::asked(headers, self.now, waits).filter(|_| class.may_pass())
        });
        Failure {
            status: head.map(|(status, _)| status),
            retry_after,
            request_id: head.and_then(|(_, headers)| self.request_id(headers)),
            ..Failure::new(class, self.words(message))
        }
    }

    /// What the provider calls the request. A name with a secret in it is none.
    fn request_id(&self, headers: &HeaderMap) -> Option<String> {
        let mut ids = REQUEST_IDS.iter().filter_map(|name| headers.get(*name));
        let id = ids.find_map(|value| value.to_str().ok())?;
        let plain = !id.is_empty() && id.len() <= REQUEST_ID_MAX && !self.secrets.finds(id);
        plain.then(|| id.to_owned())
    }

    /// A text for people: on one line, short, and without secrets. They go before
    /// the cut: half a key is a secret too.
    fn words(&self, text: &str) -> String {
        let text = self.secrets.redact(text);
        let text: String = text
            .chars()
            .map(|letter| if letter.is_control() { ' ' } else { letter })
            .collect();
        let text = text.trim();
        match text.char_indices().nth(LETTERS_MAX) {
            None => text.to_owned(),
            Some(_) => {
                let kept: String = text.chars().take(LETTERS_MAX - 1).collect();
                format!("{kept}…")
            }
        }
    }
}

fn redirect(status: u16, headers: &HeaderMap) -> Option<String> {
    let there = headers.get("location")?.to_str().ok()?;
    (300..400)
        .contains(&status)
        .then(|| format!("it sends us to {there}, which is not followed; set the base URL"))
}
