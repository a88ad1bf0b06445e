//! How long a provider asks us to wait, in any of the ways they say it.
//!
//! Never: longer than a day, whatever a header says; and the time is handed in.

use jiff::fmt::rfc2822;
use jiff::{Span, SpanRelativeTo};
use longhaul_core::time::{Millis, Timestamp};
use reqwest::header::HeaderMap;

const DELAY_MAX: Millis = Millis::from_secs(24 * 60 * 60);

/// From here on a bare number is a point in time, in seconds or milliseconds.
const EPOCH_SECONDS: f64 = 1e9;
const EPOCH_MILLIS: f64 = 1e12;

/// What the headers ask for. The times at which limits are filled up again are
/// only looked at when a limit is what `limited` us.
pub(super) fn from_headers(headers: &HeaderMap, now: Timestamp, limited: bool) -> Option<Millis> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let exact = text("retry-after-ms").and_then(|text| parse_number(text).and_then(ceil_millis));
    let exact = exact.or_else(|| text("retry-after").and_then(|text| parse_delay(text, now)));
    let asked = exact.or_else(|| limited.then(|| rate_limit_reset(headers, now)).flatten());
    asked.map(|span| span.min(DELAY_MAX))
}

/// The limit that is used up decides, the latest of them. Where none says that
/// it is, the first that is filled up again may be the one.
fn rate_limit_reset(headers: &HeaderMap, now: Timestamp) -> Option<Millis> {
    let mut empty = None;
    let mut first = None;
    for (name, value) in headers {
        let Some(remaining) = remaining_header(name.as_str()) else {
            continue;
        };
        let Some(wait) = value.to_str().ok().and_then(|text| parse_delay(text.trim(), now)) else {
            continue;
        };
        let left = headers.get(remaining).and_then(|left| left.to_str().ok());
        if left.is_some_and(|left| left.trim() == "0") {
            empty = empty.max(Some(wait));
        }
        first = Some(first.map_or(wait, |first: Millis| first.min(wait)));
    }
    empty.or(first)
}

/// The header beside one that says when a limit is filled up, if it is one.
fn remaining_header(name: &str) -> Option<String> {
    if let Some(limit) = name.strip_prefix("x-ratelimit-reset") {
        return Some(format!("x-ratelimit-remaining{limit}"));
    }
    let limit = name.strip_prefix("anthropic-ratelimit-")?.strip_suffix("-reset")?;
    Some(format!("anthropic-ratelimit-{limit}-remaining"))
}

/// A span in seconds, as `6m0s`, as a date of HTTP or as one of RFC 3339.
fn parse_delay(text: &str, now: Timestamp) -> Option<Millis> {
    if let Some(seconds) = parse_number(text) {
        return match seconds {
            _ if seconds >= EPOCH_MILLIS => Some(delay_until(seconds * 1e3, now)),
            _ if seconds >= EPOCH_SECONDS => Some(delay_until(seconds * 1e6, now)),
            _ => ceil_millis(seconds * 1e3),
        };
    }
    let days = SpanRelativeTo::days_are_24_hours();
    let parsed = text.parse::<Span>();
    if let Ok(duration) = parsed.and_then(|span| span.to_duration(days)) {
        return ceil_millis(duration.as_secs_f64() * 1e3);
    }
    // The end of the last year lies beyond what can be read, and is what servers
    // say when they mean never. An earlier leap year has the same days.
    let at = parse_date(text).or_else(|| parse_date(&text.replacen("9999", "9996", 1)))?;
    Some(at.since(now))
}

fn parse_date(text: &str) -> Option<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(at);
    }
    // A wrong day of the week is no reason to ask too early.
    let parser = rfc2822::DateTimeParser::new().relaxed_weekday(true);
    let at = parser.parse_timestamp(text).ok()?;
    Some(Timestamp::from_micros(at.as_microsecond()))
}

fn delay_until(micros: f64, now: Timestamp) -> Millis {
    Timestamp::from_micros(micros as i64).since(now)
}

fn parse_number(text: &str) -> Option<f64> {
    let digits = |letter: char| letter.is_ascii_digit() || letter == '.';
    let plain = !text.is_empty() && text.chars().all(digits);
    plain.then(|| text.parse().ok()).flatten()
}

/// Milliseconds, rounded up: to ask too early is to be told to wait again.
fn ceil_millis(millis: f64) -> Option<Millis> {
    (millis >= 0.0).then(|| Millis(millis.ceil() as u64))
}
