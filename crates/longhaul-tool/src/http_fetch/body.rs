//! Converts a response body to text: detects its kind and charset and formats it.
//!
//! Invariant: binary data is never returned as text.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use serde::de::IgnoredAny;
use url::Url;

use crate::http_fetch::html::{TEXT_BYTES_MAX, html_to_text};

/// Number of bytes at the start of a page that are searched for a charset declaration.
const META_BYTES_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Html,
    Json,
    Text,
    /// The content type is missing or unknown, so the kind is determined from the content.
    Unknown,
    Bytes,
}

/// Returns a response body as text. `None` if the body is not text.
pub(super) fn body_to_text(content_type: &str, body: &[u8], url: &Url) -> Option<String> {
    let mut kind = content_type_kind(content_type);
    if kind == BodyKind::Bytes {
        return None;
    }
    let is_guess = kind == BodyKind::Unknown;
    if is_guess && Encoding::for_bom(body).is_none() && std::str::from_utf8(body).is_err() {
        return None;
    }
    let decoded = decode_body(content_type, kind, body);
    if decoded.contains('\0') {
        return None;
    }
    if is_guess {
        kind = guess_body_kind(&decoded);
    }
    Some(match kind {
        BodyKind::Html => html_to_text(&decoded, url),
        BodyKind::Json => truncate_body_text(indent_json(&decoded)),
        BodyKind::Text | BodyKind::Unknown | BodyKind::Bytes => truncate_body_text(decoded),
    })
}

fn content_type_kind(content_type: &str) -> BodyKind {
    let mime = content_type.split(';').next().unwrap_or_default().trim();
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
        // Also a missing or generic type: scripts, lists and logs often have one.
        _ => BodyKind::Unknown,
    }
}

/// Guesses the kind of a text body from its content.
fn guess_body_kind(text: &str) -> BodyKind {
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

fn decode_body(content_type: &str, kind: BodyKind, body: &[u8]) -> String {
    if let Some((encoding, skip)) = Encoding::for_bom(body) {
        let rest = body.get(skip..).unwrap_or_default();
        return encoding.decode_without_bom_handling(rest).0.into_owned();
    }
    let charset = parse_charset(content_type).or_else(|| match kind {
        BodyKind::Html => find_meta_charset(body),
        BodyKind::Json | BodyKind::Text | BodyKind::Unknown | BodyKind::Bytes => None,
    });
    let encoding = charset.unwrap_or(match std::str::from_utf8(body) {
        Ok(_) => UTF_8,
        // The charset of many old pages; every byte is a valid character in it.
        Err(_) => WINDOWS_1252,
    });
    encoding.decode_without_bom_handling(body).0.into_owned()
}

/// Returns the charset named after `charset=` in this text. `None` means that the text names no
/// known charset.
fn parse_charset(text: &str) -> Option<&'static Encoding> {
    let lower = text.to_ascii_lowercase();
    let (_, rest) = lower.split_once("charset")?;
    let rest = rest.trim_start().strip_prefix('=')?;
    let rest = rest.trim_start().trim_start_matches(['"', '\'']);
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-_:.".contains(c));
    Encoding::for_label(&rest.as_bytes()[..end.unwrap_or(rest.len())])
}

fn find_meta_charset(body: &[u8]) -> Option<&'static Encoding> {
    let head = &body[..body.len().min(META_BYTES_MAX)];
    let charset = parse_charset(&String::from_utf8_lossy(head))?;
    // The declaration was read as single bytes, so the page can't be UTF-16.
    let is_utf16 = charset == UTF_16LE || charset == UTF_16BE;
    Some(if is_utf16 { UTF_8 } else { charset })
}

/// Indents JSON that is on a single line. Values stay as written, so numbers keep their format.
fn indent_json(text: &str) -> String {
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    if !is_json || text.trim().contains('\n') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    let new_line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    let mut chars = text.chars().filter(|c| *c != '\r').peekable();
    // Indentation of deep nesting can make a short text very long.
    while out.len() <= TEXT_BYTES_MAX
        && let Some(c) = chars.next()
    {
        if quoted {
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
            out.push(c);
            continue;
        }
        match c {
            ' ' | '\t' => {}
            '{' | '[' => {
                out.push(c);
                while chars.next_if(|next| matches!(next, ' ' | '\t')).is_some() {}
                if let Some(end) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => {
                quoted = c == '"';
                out.push(c);
            }
        }
    }
    out
}

fn truncate_body_text(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push_str("\n\n[The response is longer; the rest is left out.]");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_body_text(kind: &str, body: &[u8], expected: Option<&str>) {
        let url = Url::parse("https://site.example/").unwrap();
        assert_eq!(body_to_text(kind, body, &url).as_deref(), expected, "{kind} {body:?}");
    }

    #[test]
    fn bodies_are_decoded_by_content_type() {
        check_body_text("text/plain", b"a <b>", Some("a <b>"));
        check_body_text("text/html", b"a<p>b", Some("a\n\nb"));
        check_body_text("", b"<!DOCTYPE html><p>b", Some("b"));
        check_body_text("application/octet-stream", b"key = 1", Some("key = 1"));
        check_body_text("application/x-sh", b"#!/bin/sh\n", Some("#!/bin/sh\n"));
        check_body_text("image/svg+xml", b"<svg/>", Some("<svg/>"));
        check_body_text("image/png", b"text", None);
        check_body_text("application/pdf", b"%PDF-1.7", None);
        check_body_text("application/octet-stream", b"\x7fELF\0\xff", None);
        check_body_text("application/octet-stream", b"\xff\xd8\xff", None);
        check_body_text("text/plain", b"a\0b", None);
        check_body_text("", b"", Some(""));
    }

    #[test]
    fn charsets_are_decoded() {
        check_body_text("text/plain; charset=utf-8", "ü".as_bytes(), Some("ü"));
        check_body_text("text/plain; charset=\"ISO-8859-1\"", b"\xfc", Some("ü"));
        check_body_text("text/plain; Charset = latin1", b"\xfc", Some("ü"));
        check_body_text("text/plain", b"\xfc\x80", Some("ü€"));
        check_body_text("text/plain; charset=shift_jis", b"\x82\xa0", Some("あ"));
        check_body_text("text/plain; charset=nonsense", "ü".as_bytes(), Some("ü"));
        check_body_text("text/plain; charset=latin1", b"\xef\xbb\xbf\xc3\xbc", Some("ü"));
        check_body_text("text/plain", b"\xff\xfea\0b\0", Some("ab"));
        check_body_text("text/html", b"<meta charset=latin1>\xfc", Some("ü"));
        let old = b"<meta http-equiv=content-type content='text/html; charset=windows-1251'>\xe6";
        check_body_text("text/html", old, Some("ж"));
        check_body_text("text/html", "<meta charset=utf-16>ü".as_bytes(), Some("ü"));
    }

    #[test]
    fn json_is_indented_and_keeps_its_number_format() {
        let indent = |text: &str| indent_json(text);
        assert_eq!(
            indent(r#"{"a":[1.10, {} ,[ ],"x:{\",\\"],"b": 12345678901234567890.0}"#),
            "{\n  \"a\": [\n    1.10,\n    {},\n    [],\n    \"x:{\\\",\\\\\"\n  ],\n  \"b\": 12345678901234567890.0\n}"
        );
        for unchanged in ["{\n\"a\":1}", "no json", "{\"a\":", "", "7", "{}", "\"x\""] {
            assert_eq!(indent(unchanged), unchanged);
        }
        let nested = "[".repeat(100_000);
        assert_eq!(indent(&nested), nested);
        check_body_text("application/ld+json", b"[1]", Some("[\n  1\n]"));
    }
}
