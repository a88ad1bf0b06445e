//! Secrets in requests of programs: which hosts they are for, and how they replace placeholders.
//!
//! Invariant: the value of a secret is put only into a request to a host of the secret.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use longhaul_core::port::redact::Redact;
use longhaul_core::port::sandbox::SandboxSecret;
use longhaul_core::redact::Redactor;
use url::form_urlencoded::byte_serialize;

use crate::egress::hosts::{HostList, Target};

/// Text that every placeholder begins with.
const PREFIX: &str = "lh-placeholder-";

/// Maximum number of placeholders that are replaced in one request, because secrets can be much
/// longer than their placeholders.
const REPLACEMENTS_MAX: usize = 100;

/// The secrets of one sandbox.
pub(super) struct Secrets {
    secrets: Vec<Secret>,
    redactor: Redactor,
}

struct Secret {
    name: String,
    value: String,
    hosts: HostList,
    /// Text of the list of hosts for messages.
    hosts_text: String,
}

/// How text is written at the place of a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Plain,
    Url,
    Json,
}

impl std::fmt::Debug for Secrets {
    /// Formats the names without the values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.secrets.iter().map(|secret| &secret.name)).finish()
    }
}

impl Secrets {
    pub(super) fn new(secrets: Vec<SandboxSecret>) -> Result<Self, String> {
        let placeholders = secrets.iter().map(|secret| (secret.placeholder(), &*secret.value));
        let redactor = Redactor::with_placeholders(placeholders);
        let parse = |secret: SandboxSecret| {
            let SandboxSecret { name, value, hosts } = secret;
            if name.is_empty() || !name.bytes().all(is_name_byte) {
                return Err(format!(
                    "`{name}` is not a valid name of a secret: use letters, digits and `_`"
                ));
            }
            if value.is_empty() {
                return Err(format!("the secret `{name}` is empty: set its value or remove it"));
            }
            let hosts_text = hosts.join(", ");
            let hosts = HostList::parse(&hosts)
                .map_err(|reason| format!("the hosts of the secret `{name}`: {reason}"))?;
            Ok(Secret { name, value, hosts, hosts_text })
        };
        Ok(Self { secrets: secrets.into_iter().map(parse).collect::<Result<_, _>>()?, redactor })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Returns whether some secret may be sent to this target.
    pub(super) fn has_secret_for(&self, target: &Target) -> bool {
        self.secrets.iter().any(|secret| secret.hosts.access(target).is_ok())
    }

    /// Replaces the values of secrets in the header of a response by their placeholders.
    pub(super) fn hide(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            let text = String::from_utf8_lossy(value.as_bytes());
            let redacted = self.redactor.redact(&text);
            if redacted != text {
                *value = HeaderValue::from_bytes(redacted.as_bytes())
                    .unwrap_or_else(|_| HeaderValue::from_static("redacted"));
            }
        }
    }

    /// Starts the replacement of placeholders in a request to a target.
    pub(super) fn replacement<'a>(
        &'a self,
        target: &'a Target,
        is_secure: bool,
    ) -> Replacement<'a> {
        Replacement { secrets: &self.secrets, target, is_secure, count: 0, kept: BTreeSet::new() }
    }
}

/// The replacement of placeholders in one request.
pub(super) struct Replacement<'a> {
    secrets: &'a [Secret],
    target: &'a Target,
    /// Whether the request is sent through TLS.
    is_secure: bool,
    /// Number of placeholders that were replaced.
    count: usize,
    /// Why placeholders were not replaced, each a sentence for the model.
    pub(super) kept: BTreeSet<String>,
}

impl Replacement<'_> {
    /// Returns the path and query of a URL with its placeholders replaced.
    pub(super) fn url(&mut self, url: &str) -> Option<String> {
        self.text(url, Encoding::Url)
    }

    /// Replaces the placeholders in all headers. The error says which header can't be sent.
    pub(super) fn headers(&mut self, headers: &mut HeaderMap) -> Result<(), String> {
        for (name, value) in headers.iter_mut() {
            let Ok(text) = std::str::from_utf8(value.as_bytes()) else { continue };
            let replaced = match text.split_once(' ') {
                Some((scheme, credentials))
                    if *name == AUTHORIZATION && scheme.eq_ignore_ascii_case("basic") =>
                {
                    let decoded = STANDARD.decode(credentials.trim()).unwrap_or_default();
                    let decoded = String::from_utf8(decoded).unwrap_or_default();
                    let replaced = self.text(&decoded, Encoding::Plain);
                    replaced.map(|text| format!("{scheme} {}", STANDARD.encode(text)))
                }
                _ => self.text(text, Encoding::Plain),
            };
            if let Some(replaced) = replaced {
                *value = HeaderValue::from_bytes(replaced.as_bytes()).map_err(|_| {
                    format!(
                        "The header `{name}` can't contain the secret: the value of the secret has a \
                         line break or another control character. The owner of the agent can remove \
                         it from the value."
                    )
                })?;
            }
        }
        Ok(())
    }

    /// Returns the body with its placeholders replaced. `None` if it contains no placeholder or is
    /// not text.
    pub(super) fn body(&mut self, headers: &HeaderMap, body: &[u8]) -> Option<String> {
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        let encoding = if content_type.contains("json") {
            Encoding::Json
        } else if content_type.starts_with("application/x-www-form-urlencoded") {
            Encoding::Url
        } else {
            Encoding::Plain
        };
        self.text(std::str::from_utf8(body).ok()?, encoding)
    }

    /// Returns the text with its placeholders replaced. `None` if nothing was replaced.
    fn text(&mut self, text: &str, encoding: Encoding) -> Option<String> {
        let mut output = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(PREFIX) {
            let name_start = start + PREFIX.len();
            let name_len = rest[name_start..].bytes().take_while(|byte| is_name_byte(*byte));
            let end = name_start + name_len.count();
            match self.value(&rest[name_start..end]) {
                Some(value) => {
                    output.push_str(&rest[..start]);
                    output.push_str(&encode(value, encoding));
                }
                None => output.push_str(&rest[..end]),
            }
            rest = &rest[end..];
        }
        output.push_str(rest);
        (output != text).then_some(output)
    }

    /// Returns the value of the secret with this name if it may be sent to the target.
    fn value(&mut self, name: &str) -> Option<&str> {
        let secret = self.secrets.iter().find(|secret| secret.name == name)?;
        let target = self.target;
        let reason = match (secret.hosts.access(target), self.is_secure) {
            (Ok(_), true) if self.count < REPLACEMENTS_MAX => {
                self.count += 1;
                return Some(&secret.value);
            }
            (Ok(_), true) => format!("a request can contain {REPLACEMENTS_MAX} secrets at most"),
            (Ok(_), false) => "secrets are put only into requests with https://".to_owned(),
            (Err(_), _) => format!("the secret is only for {}", secret.hosts_text),
        };
        self.kept.insert(format!(
            "The sandbox sent the placeholder of the secret `{name}` to `{target}` instead of the \
             secret: {reason}."
        ));
        None
    }
}

fn encode(value: &str, encoding: Encoding) -> String {
    match encoding {
        Encoding::Plain => value.to_owned(),
        // Unlike `+`, `%20` is a space in forms and in paths.
        Encoding::Url => byte_serialize(value.as_bytes()).collect::<String>().replace('+', "%20"),
        Encoding::Json => {
            let quoted = serde_json::Value::from(value).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        }
    }
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
