//! Parses how long a provider asks the client to wait before a retry.
//!
//! Invariant: the delay is never longer than a day.

use jiff::fmt::rfc2822;
use jiff::{Span, SpanRelativeTo};
use longhaul_core::time::{Millis, Timestamp};
use reqwest::header::HeaderMap;

const DELAY_MAX: Millis = Millis::from_secs(24 * 60 * 60);

/// Smallest number that is read as a Unix time. Numbers from `EPOCH_MILLIS` on are in milliseconds,
/// others in seconds. A number below this one is a delay in seconds.
const EPOCH_SECONDS: f64 = 1e9;
const EPOCH_MILLIS: f64 = 1e12;

/// Returns the delay before a retry that the response headers ask for. The reset times of rate
/// limits are used only if `limited` is set: the request was rejected because of a rate limit or an
/// overload.
pub(super) fn retry_delay(headers: &HeaderMap, now: Timestamp, limited: bool) -> Option<Millis> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let exact = text("retry-after-ms").and_then(|text| parse_number(text).and_then(ceil_millis));
    let exact = exact.or_else(|| text("retry-after").and_then(|text| parse_delay(text, now)));
    let delay = exact.or_else(|| limited.then(|| rate_limit_reset_delay(headers, now)).flatten());
    delay.map(|delay_millis| delay_millis.min(DELAY_MAX))
}

/// Returns the delay until the last of the exhausted rate limits resets. If no limit is reported as
/// exhausted, returns the delay until the first limit resets.
fn rate_limit_reset_delay(headers: &HeaderMap, now: Timestamp) -> Option<Millis> {
    let mut exhausted_delay = None;
    let mut earliest_delay = None;
    for (name, value) in headers {
        let Some(remaining_header) = remaining_header_name(name.as_str()) else {
            continue;
        };
        let Some(wait) = value.to_str().ok().and_then(|text| parse_delay(text.trim(), now)) else {
            continue;
        };
        let remaining_count = headers.get(remaining_header).and_then(|count| count.to_str().ok());
        if remaining_count.is_some_and(|count| count.trim() == "0") {
            exhausted_delay = exhausted_delay.max(Some(wait));
        }
        earliest_delay = Some(earliest_delay.map_or(wait, |earliest: Millis| earliest.min(wait)));
    }
    exhausted_delay.or(earliest_delay)
}

/// Returns the name of the `remaining` header that belongs to the given `reset` header of a rate
/// limit. `None` means that the given header is not a `reset` header.
fn remaining_header_name(reset_header: &str) -> Option<String> {
    if let Some(limit_suffix) = reset_header.strip_prefix("x-ratelimit-reset") {
        return Some(format!("x-ratelimit-remaining{limit_suffix}"));
    }
    let limit_name = reset_header.strip_prefix("anthropic-ratelimit-")?.strip_suffix("-reset")?;
    Some(format!("anthropic-ratelimit-{limit_name}-remaining"))
}

/// Parses a delay, given as seconds, as a Unix time, as a duration such as `6m0s`, as an HTTP date
/// or as an RFC 3339 date.
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
    // Some servers send the end of the year 9999 to mean never, which is out of the parser's range.
    // The leap year 9996 is used instead, since it has every date.
    let at = parse_date(text).or_else(|| parse_date(&text.replacen("9999", "9996", 1)))?;
    Some(at.duration_since(now))
}

fn parse_date(text: &str) -> Option<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(at);
    }
    // A wrong weekday is ignored. Without the date the retry would come too early.
    let parser = rfc2822::DateTimeParser::new().relaxed_weekday(true);
    let at = parser.parse_timestamp(text).ok()?;
    Some(Timestamp::from_micros(at.as_microsecond()))
}

fn delay_until(unix_micros: f64, now: Timestamp) -> Millis {
    Timestamp::from_micros(unix_micros as i64).duration_since(now)
}

fn parse_number(text: &str) -> Option<f64> {
    let is_digit_or_dot = |c: char| c.is_ascii_digit() || c == '.';
    let is_number = !text.is_empty() && text.chars().all(is_digit_or_dot);
    is_number.then(|| text.parse().ok()).flatten()
}

/// Rounds a delay up to whole milliseconds, so that a retry does not come too early.
fn ceil_millis(millis: f64) -> Option<Millis> {
    (millis >= 0.0).then(|| Millis(millis.ceil() as u64))
}
