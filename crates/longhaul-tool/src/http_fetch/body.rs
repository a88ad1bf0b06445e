//! The body of an answer as text: which kind it is, how its letters are written,
//! and how it is best read.
//!
//! Never: bytes that are no text.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use serde::de::IgnoredAny;
use url::Url;

use crate::http_fetch::html::{TEXT_BYTES_MAX, html_to_text};

/// So far into a page its own word about its letters is looked for.
const META_BYTES_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Html,
    Json,
    Text,
    /// It must be looked at.
    Unknown,
    Bytes,
}

/// The body as text, or none if it is none.
pub(super) fn to_text(kind_said: &str, body: &[u8], url: &Url) -> Option<String> {
    let mut kind = kind_from_content_type(kind_said);
    if kind == BodyKind::Bytes {
        return None;
    }
    let is_guess = kind == BodyKind::Unknown;
    if is_guess && Encoding::for_bom(body).is_none() && std::str::from_utf8(body).is_err() {
        return None;
    }
    let decoded = decode(kind_said, kind, body);
    if decoded.contains('\0') {
        return None;
    }
    if is_guess {
        kind = sniff(&decoded);
    }
    Some(match kind {
        BodyKind::Html => html_to_text(&decoded, url),
        BodyKind::Json => truncated(pretty(&decoded)),
        BodyKind::Text | BodyKind::Unknown | BodyKind::Bytes => truncated(decoded),
    })
}

fn kind_from_content_type(said: &str) -> BodyKind {
    let mime = said.split(';').next().unwrap_or_default().trim();
    let mime = mime.to_ascii_lowercase();
    let (group, name) = mime.split_once('/').unwrap_or((&mime, ""));
    match (group, name) {
        ("text", "html") | ("application", "xhtml+xml") => BodyKind::Html,
        (_, "json") => BodyKind::Json,
        (_, name) if name.ends_with("+json") => BodyKind::Json,
        (_, "xml") | ("text", _) => BodyKind::Text,
        (_, name) if name.ends_with("+xml") || name.ends_with("+yaml") => BodyKind::Text,
        ("image" | "audio" | "video" | "font" | "model", _) => BodyKind::Bytes,
        ("application", "pdf" | "zip" | "gzip" | "x-tar" | "wasm" | "msword") => BodyKind::Bytes,
        // Also what calls itself nothing, or only bytes: scripts, lists, logs.
        _ => BodyKind::Unknown,
    }
}

/// What a text is that nobody gave a name.
fn sniff(text: &str) -> BodyKind {
    let start = text.trim_start();
    let start = &start[..start.floor_char_boundary(20)];
    let start = start.to_ascii_lowercase();
    if start.starts_with("<!doctype html") || start.starts_with("<html") {
        BodyKind::Html
    } else if start.starts_with(['{', '[']) {
        BodyKind::Json
    } else {
        BodyKind::Text
    }
}

fn decode(said: &str, kind: BodyKind, body: &[u8]) -> String {
    if let Some((encoding, skip)) = Encoding::for_bom(body) {
        let rest = body.get(skip..).unwrap_or_default();
        return encoding.decode_without_bom_handling(rest).0.into_owned();
    }
    let named = charset(said).or_else(|| match kind {
        BodyKind::Html => meta_charset(body),
        BodyKind::Json | BodyKind::Text | BodyKind::Unknown | BodyKind::Bytes => None,
    });
    let encoding = named.unwrap_or(match std::str::from_utf8(body) {
        Ok(_) => UTF_8,
        // What the oldest pages are written in, and every byte is a letter in it.
        Err(_) => WINDOWS_1252,
    });
    encoding.decode_without_bom_handling(body).0.into_owned()
}

/// The letters that are named after `charset=`.
fn charset(text: &str) -> Option<&'static Encoding> {
    let lower = text.to_ascii_lowercase();
    let (_, rest) = lower.split_once("charset")?;
    let rest = rest.trim_start().strip_prefix('=')?;
    let rest = rest.trim_start().trim_start_matches(['"', '\'']);
    let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && !"-_:.".contains(letter));
    Encoding::for_label(&rest.as_bytes()[..end.unwrap_or(rest.len())])
}

fn meta_charset(body: &[u8]) -> Option<&'static Encoding> {
    let head = &body[..body.len().min(META_BYTES_MAX)];
    let named = charset(&String::from_utf8_lossy(head))?;
    // It was read as single bytes, so it can't be what it says.
    let is_wide = named == UTF_16LE || named == UTF_16BE;
    Some(if is_wide { UTF_8 } else { named })
}

/// JSON in lines, with every word of it as it stands: numbers keep their spelling.
fn pretty(text: &str) -> String {
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    if !is_json || text.trim().contains('\n') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() * 2);
    let (mut deep, mut quoted, mut escaped) = (0_usize, false, false);
    let line = |out: &mut String, deep: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", deep));
    };
    let mut letters = text.chars().filter(|letter| *letter != '\r').peekable();
    // What stands deep is set in far: a short text may become a very long one.
    while out.len() <= TEXT_BYTES_MAX
        && let Some(letter) = letters.next()
    {
        if quoted {
            quoted = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
            out.push(letter);
            continue;
        }
        match letter {
            ' ' | '\t' => {}
            '{' | '[' => {
                out.push(letter);
                while letters.next_if(|next| matches!(next, ' ' | '\t')).is_some() {}
                if let Some(end) = letters.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    deep += 1;
                    line(&mut out, deep);
                }
            }
            '}' | ']' => {
                deep = deep.saturating_sub(1);
                line(&mut out, deep);
                out.push(letter);
            }
            ',' => {
                out.push(letter);
                line(&mut out, deep);
            }
            ':' => out.push_str(": "),
            _ => {
                quoted = letter == '"';
                out.push(letter);
            }
        }
    }
    out
}

fn truncated(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push_str("\n\n[The answer is longer; the rest is left out.]");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: &str, body: &[u8], expected: Option<&str>) {
        let url = Url::parse("https://site.example/").unwrap();
        assert_eq!(to_text(kind, body, &url).as_deref(), expected, "{kind} {body:?}");
    }

    #[test]
    fn bodies_are_decoded_by_content_type() {
        check("text/plain", b"a <b>", Some("a <b>"));
        check("text/html", b"a<p>b", Some("a\n\nb"));
        check("", b"<!DOCTYPE html><p>b", Some("b"));
        check("application/octet-stream", b"key = 1", Some("key = 1"));
        check("application/x-sh", b"#!/bin/sh\n", Some("#!/bin/sh\n"));
        check("image/svg+xml", b"<svg/>", Some("<svg/>"));
        check("image/png", b"text", None);
        check("application/pdf", b"%PDF-1.7", None);
        check("application/octet-stream", b"\x7fELF\0\xff", None);
        check("application/octet-stream", b"\xff\xd8\xff", None);
        check("text/plain", b"a\0b", None);
        check("", b"", Some(""));
    }

    #[test]
    fn charsets_are_decoded() {
        check("text/plain; charset=utf-8", "ü".as_bytes(), Some("ü"));
        check("text/plain; charset=\"ISO-8859-1\"", b"\xfc", Some("ü"));
        check("text/plain; Charset = latin1", b"\xfc", Some("ü"));
        check("text/plain", b"\xfc\x80", Some("ü€"));
        check("text/plain; charset=shift_jis", b"\x82\xa0", Some("あ"));
        check("text/plain; charset=nonsense", "ü".as_bytes(), Some("ü"));
        check("text/plain; charset=latin1", b"\xef\xbb\xbf\xc3\xbc", Some("ü"));
        check("text/plain", b"\xff\xfea\0b\0", Some("ab"));
        check("text/html", b"<meta charset=latin1>\xfc", Some("ü"));
        let old = b"<meta http-equiv=content-type content='text/html; charset=windows-1251'>\xe6";
        check("text/html", old, Some("ж"));
        check("text/html", "<meta charset=utf-16>ü".as_bytes(), Some("ü"));
    }

    #[test]
    fn json_is_indented_and_keeps_its_number_format() {
        let pretty = |text: &str| pretty(text);
        assert_eq!(
            pretty(r#"{"a":[1.10, {} ,[ ],"x:{\",\\"],"b": 12345678901234567890.0}"#),
            "{\n  \"a\": [\n    1.10,\n    {},\n    [],\n    \"x:{\\\",\\\\\"\n  ],\n  \"b\": 12345678901234567890.0\n}"
        );
        for same in ["{\n\"a\":1}", "no json", "{\"a\":", "", "7", "{}", "\"x\""] {
            assert_eq!(pretty(same), same);
        }
        let deep = "[".repeat(100_000);
        assert_eq!(pretty(&deep), deep);
        check("application/ld+json", b"[1]", Some("[\n  1\n]"));
    }
}
