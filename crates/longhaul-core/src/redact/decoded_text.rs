//! A text without its escapes (`%73`, `&#115;`, `&#x73;`, `\u0073`, `\u{73}` and `\x73`) or without
//! its line breaks.
//!
//! Invariant: every position in the decoded text can be mapped back to the source text.

use std::borrow::Cow;
use std::ops::Range;

/// Minimum length of a secret in bytes. Shorter strings would match by chance almost everywhere.
pub const SECRET_BYTES_MIN: usize = 6;

/// Maximum number of escape layers that are decoded. Escapes may be nested, as in JSON within JSON.
const DECODE_PASSES_MAX: usize = 3;

/// Maximum number of digits of an HTML entity or of `\u{…}`.
const ESCAPE_DIGITS_MAX: usize = 8;

/// Characters that an escape can start with.
const ESCAPE_STARTS: [char; 3] = ['%', '&', '\\'];

const ENTITIES: [(&str, char); 5] =
    [("amp", '&'), ("lt", '<'), ("gt", '>'), ("quot", '"'), ("apos", '\'')];

const LINE_ENDS: [char; 2] = ['\n', '\r'];

/// A decoded text, with the mapping of its positions to the source text.
#[derive(Debug)]
pub(super) struct DecodedText<'a> {
    pub(super) text: Cow<'a, str>,
    /// Whether the lines of the source text were joined by removing its line breaks.
    pub(super) is_joined: bool,
    /// For each decoding pass, the positions at which the offset between its input and its output
    /// changes: pairs of a position in the output and the same position in the input.
    offset_maps: Vec<Vec<(usize, usize)>>,
}

impl<'a> DecodedText<'a> {
    /// Wraps a source text without decoding it.
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text: Cow::Borrowed(text), is_joined: false, offset_maps: Vec::new() }
    }

    /// Creates a text in which the lines of `text` are joined. Returns `None` if it has only one
    /// line.
    pub(super) fn try_join_lines(text: &str) -> Option<Self> {
        let first = text.find(LINE_ENDS)?;
        let mut joined = text[..first].to_owned();
        let mut offsets = vec![(0, 0)];
        for (at, _) in text.match_indices(LINE_ENDS) {
            let rest = &text[at + 1..];
            offsets.push((joined.len(), at + 1));
            joined.push_str(&rest[..rest.find(LINE_ENDS).unwrap_or(rest.len())]);
        }
        Some(Self { text: Cow::Owned(joined), is_joined: true, offset_maps: vec![offsets] })
    }

    /// Decodes one layer of escapes. Returns `false` if the text has no escapes, or if the maximum
    /// number of layers is reached.
    pub(super) fn try_decode_escape_layer(&mut self) -> bool {
        if self.offset_maps.len() >= DECODE_PASSES_MAX {
            return false;
        }
        let Some((text, offsets)) = decode_escapes_with_offset_changes(&self.text) else {
            return false;
        };
        self.text = Cow::Owned(text);
        self.offset_maps.push(offsets);
        true
    }

    /// Removes an incomplete escape at the end of the text, and returns its position in the source
    /// text. `None` if there is no such escape.
    pub(super) fn truncate_partial_escape_and_get_offset(&mut self) -> Option<usize> {
        let partial = partial_escape_len(&self.text);
        let end = self.text.len() - partial;
        match &mut self.text {
            Cow::Borrowed(text) => *text = &text[..end],
            Cow::Owned(text) => text.truncate(end),
        }
        (partial > 0).then(|| self.source_offset(end))
    }

    /// Maps a position in the decoded text to the source text.
    pub(super) fn source_offset(&self, decoded_offset: usize) -> usize {
        self.offset_maps.iter().rev().fold(decoded_offset, |decoded_offset, offsets| {
            let before =
                offsets.partition_point(|(decoded_start, _)| *decoded_start <= decoded_offset);
            let (decoded_start, source) = offsets[before.saturating_sub(1)];
            source + (decoded_offset - decoded_start)
        })
    }

    /// Maps a range of the decoded text to the source text, without line breaks at its end.
    pub(super) fn source_range(&self, source: &str, decoded_range: Range<usize>) -> Range<usize> {
        let (start, end) =
            (self.source_offset(decoded_range.start), self.source_offset(decoded_range.end));
        // A secret may end at the end of a line, but never contains the line break after it.
        let secret = source[start..end].trim_end_matches(LINE_ENDS);
        start..start + secret.len()
    }
}

/// Returns the forms of a text after removing one, two or more layers of escapes. Forms that are
/// too short to be searched for are left out.
pub(super) fn unescaped_forms(text: &str) -> impl Iterator<Item = String> {
    let next = |form: &str| decode_escapes_with_offset_changes(form).map(|(text, _)| text);
    let forms = std::iter::successors(next(text), move |form| next(form));
    forms.take(DECODE_PASSES_MAX).take_while(|form| form.len() >= SECRET_BYTES_MIN)
}

/// Returns the number of bytes at the end of a text that may be the beginning of an escape.
fn partial_escape_len(text: &str) -> usize {
    let from = text.floor_char_boundary(text.len().saturating_sub(ESCAPE_DIGITS_MAX + 4));
    let escape_starts = text[from..].match_indices(ESCAPE_STARTS);
    let mut suffixes = escape_starts.map(|(at, _)| &text[from + at..]);
    let is_partial = |suffix: &&str| {
        let is_hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match suffix.as_bytes()[0] {
            b'%' => suffix.len() < 3 && is_hex(&suffix[1..]) || is_partial_utf8_char(suffix),
            b'&' => suffix[1..].bytes().all(|byte| byte == b'#' || byte.is_ascii_alphanumeric()),
            _ => {
                let rest = &suffix[1..];
                let digits = rest.strip_prefix(['u', 'x']);
                let braced_digits = rest.strip_prefix("u{");
                rest.is_empty()
                    || braced_digits
                        .is_some_and(|digits| digits.len() <= ESCAPE_DIGITS_MAX && is_hex(digits))
                    || digits.is_some_and(|digits| digits.len() < 4 && is_hex(digits))
                    || rest.len() < 11
                        && parse_hex(rest.strip_prefix('u').unwrap_or(""), 4)
                            .is_some_and(is_high_surrogate)
            }
        }
    };
    suffixes.find(is_partial).map_or(0, str::len)
}

/// Returns whether a sequence of percent escapes is the incomplete beginning of one UTF-8
/// character.
fn is_partial_utf8_char(percent_escapes: &str) -> bool {
    let bytes: Option<Vec<u8>> = (0..percent_escapes.len().div_ceil(3))
        .map(|n| parse_percent_byte(percent_escapes.get(n * 3..)?))
        .collect();
    bytes.is_some_and(|bytes| {
        std::str::from_utf8(&bytes)
            .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    })
}

/// Decodes one layer of escapes. Also returns the positions at which the offset between the decoded
/// text and the source text changes, as pairs. `None` if there are no escapes.
fn decode_escapes_with_offset_changes(source: &str) -> Option<(String, Vec<(usize, usize)>)> {
    let mut text = String::new();
    let mut offsets = vec![(0, 0)];
    let mut from = 0;
    let mut at = 0;
    while let Some(escape_offset) = source.get(at..).and_then(|rest| rest.find(ESCAPE_STARTS)) {
        at += escape_offset;
        let Some((c, length)) = parse_escaped_char_and_len(&source[at..]) else {
            at += 1;
            continue;
        };
        text.push_str(&source[from..at]);
        offsets.push((text.len(), at));
        text.push(c);
        at += length;
        from = at;
        offsets.push((text.len(), at));
    }
    if from == 0 {
        return None;
    }
    text.push_str(&source[from..]);
    Some((text, offsets))
}

/// Parses the escape at the start of a text. Returns the decoded character and the length of the
/// escape in bytes. `None` if the text does not start with a valid escape.
fn parse_escaped_char_and_len(text: &str) -> Option<(char, usize)> {
    match text.as_bytes()[0] {
        b'%' => parse_percent_escape_and_len(text),
        b'&' => parse_html_entity_and_len(&text[1..]).map(|(c, length)| (c, length + 1)),
        _ => parse_backslash_escape_and_len(&text[1..]).map(|(c, length)| (c, length + 1)),
    }
}

/// Parses percent escapes, such as `%C3%A9`, at the start of a text. Returns the decoded character
/// and the length of its escapes in bytes. `None` if they are invalid.
fn parse_percent_escape_and_len(text: &str) -> Option<(char, usize)> {
    let length = match parse_percent_byte(text)? {
        0..=0x7f => 1,
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return None,
    };
    let bytes: Option<Vec<u8>> =
        (0..length).map(|n| parse_percent_byte(text.get(n * 3..)?)).collect();
    let bytes = bytes?;
    let c = std::str::from_utf8(&bytes).ok()?.chars().next()?;
    Some((c, length * 3))
}

fn parse_percent_byte(text: &str) -> Option<u8> {
    u8::try_from(parse_hex(text.strip_prefix('%')?, 2)?).ok()
}

/// Parses the part of a backslash escape after the backslash. Returns the decoded character and the
/// length of the part in bytes. `None` if the escape is invalid.
fn parse_backslash_escape_and_len(text: &str) -> Option<(char, usize)> {
    let short = |ch| Some((ch, 1));
    match text.as_bytes().first()? {
        b'u' if text[1..].starts_with('{') => {
            let digits = text[2..].bytes().take(ESCAPE_DIGITS_MAX);
            let count = digits.take_while(u8::is_ascii_hexdigit).count();
            let ch = char::from_u32(parse_hex(&text[2..], count)?)?;
            let is_closed = text[2 + count..].starts_with('}');
            is_closed.then_some((ch, count + 3))
        }
        b'u' => {
            let unit = parse_hex(&text[1..], 4)?;
            if !is_high_surrogate(unit) {
                return Some((char::from_u32(unit)?, 5));
            }
            let low = parse_hex(text[5..].strip_prefix("\\u")?, 4)?;
            let pair = [unit, low].map(|unit| u16::try_from(unit).unwrap_or_default());
            let ch = char::decode_utf16(pair).next()?.ok()?;
            Some((ch, 11))
        }
        b'x' => Some((char::from_u32(parse_hex(&text[1..], 2)?)?, 3)),
        b'n' => short('\n'),
        b'r' => short('\r'),
        b't' => short('\t'),
        b'b' => short('\u{8}'),
        b'f' => short('\u{c}'),
        b'"' => short('"'),
        b'/' => short('/'),
        b'\\' => short('\\'),
        _ => None,
    }
}

/// Parses the part of an HTML entity after the `&`. Returns the decoded character and the length of
/// the part in bytes. `None` if the entity is invalid or unknown.
fn parse_html_entity_and_len(text: &str) -> Option<(char, usize)> {
    let Some(number) = text.strip_prefix('#') else {
        let named = ENTITIES.iter().find(|(name, _)| {
            let rest = text.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(';'))
        });
        return named.map(|(name, c)| (*c, name.len() + 1));
    };
    let (digits, radix) = match number.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    let count = digits.bytes().take(ESCAPE_DIGITS_MAX);
    let count = count.take_while(|byte| char::from(*byte).is_digit(radix)).count();
    let c = char::from_u32(u32::from_str_radix(&digits[..count], radix).ok()?)?;
    let closed = usize::from(digits[count..].starts_with(';'));
    Some((c, text.len() - digits.len() + count + closed))
}

/// Parses the given number of hex digits at the start of a text. `None` if there are fewer.
fn parse_hex(text: &str, digit_count: usize) -> Option<u32> {
    let digits = text.get(..digit_count)?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

/// Returns whether a UTF-16 code unit is the first half of a surrogate pair.
const fn is_high_surrogate(unit: u32) -> bool {
    0xd800 <= unit && unit < 0xdc00
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::redact::Redact as _;
    use crate::redact::Redactor;

    const SECRET: &str = "sk-ä/\"x\"𝄞9";

    fn redactor(secrets: &[(&str, &str)]) -> Redactor {
        let secrets = secrets.iter();
        Redactor::with_placeholders(secrets.map(|(value, name)| (format!("[{name}]"), *value)))
    }

    fn escape_secret(escape_char: impl Fn(char) -> String) -> String {
        SECRET.chars().map(escape_char).collect()
    }

    fn escape_utf16_units(c: char, format_unit: impl Fn(u16) -> String) -> String {
        c.encode_utf16(&mut [0; 2]).iter().map(|unit| format_unit(*unit)).collect()
    }

    #[test]
    fn secrets_are_found_in_every_escape_and_in_mixtures() {
        let percent = SECRET.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let decimal = escape_secret(|c| format!("&#{};", u32::from(c)));
        let json = escape_secret(|c| escape_utf16_units(c, |unit| format!("\\u{unit:04x}")));
        let escaped_twice = json.replace('\\', "\\\\");
        for text in [
            percent.to_uppercase(),
            percent.replace('%', "%25"),
            percent,
            decimal.replace(';', ""),
            decimal.replace('&', "&amp;"),
            decimal,
            escape_secret(|c| format!("&#x{:x};", u32::from(c))),
            escape_secret(|c| format!("&#X{:06X};", u32::from(c))),
            escape_secret(|c| escape_utf16_units(c, |unit| format!("\\u{unit:04X}"))),
            escape_secret(|c| format!("\\u{{{:x}}}", u32::from(c))),
            json,
            escaped_twice.replace('\\', "\\\\"),
            escaped_twice,
            r#"s%6b-&#228;/\"&#x78;&quot;\ud834\udd1e9"#.to_owned(),
        ] {
            let embedded = format!("ü \\ & 5% {text} %zz &x; \\q");
            let expect = "ü \\ & 5% [key] %zz &x; \\q";
            let redacted = redactor(&[(SECRET, "key")]).redact(&embedded).into_owned();
            assert_eq!(redacted, expect, "{text}");
        }
    }

    #[test]
    fn secrets_that_contain_escapes_are_found() {
        let address = ("postgres://u:p%40ss@h", "url");
        let redactor_of_all =
            redactor(&[address, (r"C:\new\table", "path"), ("%41%42%43", "short")]);
        for (text, expect) in [
            ("&#112;ostgres://u:p%40ss@h", "[url]"),
            ("&amp;#112;ostgres://u:p%40ss@h", "[url]"),
            ("postgres%3a%2f%2fu:p%2540ss@h", "[url]"),
            ("%20postgres://u:p%40ss@h ABC", "%20[url] ABC"),
            (r"\u{43}:\new\table", "[path]"),
            (r"C:\\new\\table", "[path]"),
        ] {
            assert_eq!(redactor_of_all.redact(text), expect);
        }
        for (text, expect) in [
            ("see &#112;ostgres://u:p%4", "&#112;ostgres://u:p%4"),
            ("see &#112;ostgres://u:p%40s", "&#112;ostgres://u:p%40s"),
            (r"see \u{70}ostgres\u{3", r"\u{70}ostgres\u{3"),
        ] {
            let held = &text[text.len() - redactor(&[address]).partial_secret_suffix_len(text)..];
            assert_eq!(held, expect, "{text}");
        }
    }

    #[test]
    fn texts_without_escapes_are_not_decoded() {
        for text in [
            "",
            "plain",
            "5 % of it & \\ more",
            "%zz &; &#; &#x; \\u12 \\ud834 %ff",
            r"\u{} \u{d834} \u{110000} \u{0000000073} \u{73 \u{7g}",
        ] {
            assert!(!DecodedText::new(text).try_decode_escape_layer(), "{text}");
        }
    }

    #[test]
    fn a_partial_escaped_secret_at_the_end_of_a_text_is_detected() {
        for (text, expect) in [
            ("no mark", ""),
            ("100% of it.", ""),
            ("see %73%6b", "%73%6b"),
            ("see s%6b-%c3", "s%6b-%c3"),
            ("see s%6b-%c", "s%6b-%c"),
            ("see %7", "%7"),
            // Nested escapes.
            ("see %2573%25", "%2573%25"),
            ("see &#115;&#10", "&#115;&#10"),
            (r"see \u0073\u006b\u002d\u00e4\/\", r"\u0073\u006b\u002d\u00e4\/\"),
            (r#"sk-\u00e4/\"x\"\ud834"#, r#"sk-\u00e4/\"x\"\ud834"#),
            (r#"sk-\u00e4/\"x\"\ud834\udd"#, r#"sk-\u00e4/\"x\"\ud834\udd"#),
            ("%73%6b?", ""),
        ] {
            let unfinished = redactor(&[(SECRET, "key")]).partial_secret_suffix_len(text);
            let held = &text[text.len() - unfinished..];
            assert_eq!(held, expect, "{text}");
        }
    }
}
