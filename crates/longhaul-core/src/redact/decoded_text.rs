//! A text as it reads without its escapes, which are `%73`, `&#115;`, `&#x73;`, `\u0073`,
//! `\u{73}` and `\x73`, or without the ends of its lines.
//!
//! Invariant: a place in a reading is known in the source, and the source is never changed.

use std::borrow::Cow;
use std::ops::Range;

/// Minimum length of a secret: a shorter text is in every other text by chance.
pub const SECRET_BYTES_MIN: usize = 6;

/// Escapes may stand for escapes, as in a JSON text within a JSON text.
const DECODE_PASSES_MAX: usize = 3;

/// Maximum number of digits of an HTML entity or of `\u{…}` that are read.
const ESCAPE_DIGITS_MAX: usize = 8;

/// Characters that escapes begin with.
const ESCAPE_STARTS: [char; 3] = ['%', '&', '\\'];

const ENTITIES: [(&str, char); 5] =
    [("amp", '&'), ("lt", '<'), ("gt", '>'), ("quot", '"'), ("apos", '\'')];

const LINE_ENDS: [char; 2] = ['\n', '\r'];

/// A text as somebody reads it.
#[derive(Debug)]
pub(super) struct DecodedText<'a> {
    pub(super) text: Cow<'a, str>,
    /// Whether its lines were joined to one.
    pub(super) is_joined: bool,
    /// For each pass, places of its result and of what it was given, where they part.
    offset_maps: Vec<Vec<(usize, usize)>>,
}

impl<'a> DecodedText<'a> {
    /// The text as it is.
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text: Cow::Borrowed(text), is_joined: false, offset_maps: Vec::new() }
    }

    /// The text as if its lines were one; none: it has one line.
    pub(super) fn joining_lines(text: &str) -> Option<Self> {
        let first = text.find(LINE_ENDS)?;
        let mut joined = text[..first].to_owned();
        let mut places = vec![(0, 0)];
        for (at, _) in text.match_indices(LINE_ENDS) {
            let rest = &text[at + 1..];
            places.push((joined.len(), at + 1));
            joined.push_str(&rest[..rest.find(LINE_ENDS).unwrap_or(rest.len())]);
        }
        Some(Self { text: Cow::Owned(joined), is_joined: true, offset_maps: vec![places] })
    }

    /// Decodes one layer of escapes. False: there are none, or no more are decoded.
    pub(super) fn decode_layer(&mut self) -> bool {
        if self.offset_maps.len() >= DECODE_PASSES_MAX {
            return false;
        }
        let Some((text, places)) = decode(&self.text) else {
            return false;
        };
        self.text = Cow::Owned(text);
        self.offset_maps.push(places);
        true
    }

    /// Leaves out an escape that has only begun at the end, and says where in the source.
    pub(super) fn truncate_partial_escape(&mut self) -> Option<usize> {
        let partial = partial_escape_len(&self.text);
        let end = self.text.len() - partial;
        match &mut self.text {
            Cow::Borrowed(text) => *text = &text[..end],
            Cow::Owned(text) => text.truncate(end),
        }
        (partial > 0).then(|| self.source_offset(end))
    }

    /// The place in the source of a place in the reading.
    pub(super) fn source_offset(&self, at: usize) -> usize {
        self.offset_maps.iter().rev().fold(at, |at, places| {
            let before = places.partition_point(|(read, _)| *read <= at);
            let (read, source) = places[before.saturating_sub(1)];
            source + (at - read)
        })
    }

    /// The part of the source that a part of the reading stands for, without the ends of
    /// lines around it.
    pub(super) fn source_range(&self, source: &str, part: Range<usize>) -> Range<usize> {
        let (start, end) = (self.source_offset(part.start), self.source_offset(part.end));
        // A secret may end where its line does, but it never ends in the end of a line.
        let found = source[start..end].trim_end_matches(LINE_ENDS);
        start..start + found.len()
    }
}

/// A text without one layer after the other of its own escapes; not what is so short that it
/// is in many texts by chance.
pub(super) fn decoded_forms(text: &str) -> impl Iterator<Item = String> {
    let next = |form: &str| decode(form).map(|(text, _)| text);
    let forms = std::iter::successors(next(text), move |form| next(form));
    forms.take(DECODE_PASSES_MAX).take_while(|form| form.len() >= SECRET_BYTES_MIN)
}

/// Number of bytes at the end of a text that may be the beginning of an escape.
fn partial_escape_len(text: &str) -> usize {
    let from = text.floor_char_boundary(text.len().saturating_sub(ESCAPE_DIGITS_MAX + 4));
    let marks = text[from..].match_indices(ESCAPE_STARTS);
    let mut tails = marks.map(|(at, _)| &text[from + at..]);
    let is_partial = |tail: &&str| {
        let is_hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match tail.as_bytes()[0] {
            b'%' => tail.len() < 3 && is_hex(&tail[1..]) || is_partial_character(tail),
            b'&' => tail[1..].bytes().all(|byte| byte == b'#' || byte.is_ascii_alphanumeric()),
            _ => {
                let rest = &tail[1..];
                let digits = rest.strip_prefix(['u', 'x']);
                let braced = rest.strip_prefix("u{");
                rest.is_empty()
                    || braced
                        .is_some_and(|digits| digits.len() <= ESCAPE_DIGITS_MAX && is_hex(digits))
                    || digits.is_some_and(|digits| digits.len() < 4 && is_hex(digits))
                    || rest.len() < 11
                        && parse_hex(rest.strip_prefix('u').unwrap_or(""), 4)
                            .is_some_and(is_high_surrogate)
            }
        }
    };
    tails.find(is_partial).map_or(0, str::len)
}

/// Whether percent escapes are the beginning of one character.
fn is_partial_character(escapes: &str) -> bool {
    let bytes: Option<Vec<u8>> =
        (0..escapes.len().div_ceil(3)).map(|n| parse_percent_byte(escapes.get(n * 3..)?)).collect();
    bytes.is_some_and(|bytes| {
        std::str::from_utf8(&bytes)
            .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    })
}

/// A text with its escapes replaced, and where the places of both part.
fn decode(source: &str) -> Option<(String, Vec<(usize, usize)>)> {
    let mut text = String::new();
    let mut places = vec![(0, 0)];
    let mut from = 0;
    let mut at = 0;
    while let Some(found) = source.get(at..).and_then(|rest| rest.find(ESCAPE_STARTS)) {
        at += found;
        let Some((letter, length)) = parse_escape(&source[at..]) else {
            at += 1;
            continue;
        };
        text.push_str(&source[from..at]);
        places.push((text.len(), at));
        text.push(letter);
        at += length;
        from = at;
        places.push((text.len(), at));
    }
    if from == 0 {
        return None;
    }
    text.push_str(&source[from..]);
    Some((text, places))
}

/// The character that an escape at the start of a text stands for, and its length.
fn parse_escape(text: &str) -> Option<(char, usize)> {
    match text.as_bytes()[0] {
        b'%' => parse_percent_escape(text),
        b'&' => parse_entity(&text[1..]).map(|(letter, length)| (letter, length + 1)),
        _ => parse_backslash_escape(&text[1..]).map(|(letter, length)| (letter, length + 1)),
    }
}

fn parse_percent_escape(text: &str) -> Option<(char, usize)> {
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
    let letter = std::str::from_utf8(&bytes).ok()?.chars().next()?;
    Some((letter, length * 3))
}

fn parse_percent_byte(text: &str) -> Option<u8> {
    u8::try_from(parse_hex(text.strip_prefix('%')?, 2)?).ok()
}

fn parse_backslash_escape(text: &str) -> Option<(char, usize)> {
    let short = |letter| Some((letter, 1));
    match text.as_bytes().first()? {
        b'u' if text[1..].starts_with('{') => {
            let digits = text[2..].bytes().take(ESCAPE_DIGITS_MAX);
            let count = digits.take_while(u8::is_ascii_hexdigit).count();
            let letter = char::from_u32(parse_hex(&text[2..], count)?)?;
            let is_closed = text[2 + count..].starts_with('}');
            is_closed.then_some((letter, count + 3))
        }
        b'u' => {
            let unit = parse_hex(&text[1..], 4)?;
            if !is_high_surrogate(unit) {
                return Some((char::from_u32(unit)?, 5));
            }
            let low = parse_hex(text[5..].strip_prefix("\\u")?, 4)?;
            let pair = [unit, low].map(|unit| u16::try_from(unit).unwrap_or_default());
            let letter = char::decode_utf16(pair).next()?.ok()?;
            Some((letter, 11))
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

fn parse_entity(text: &str) -> Option<(char, usize)> {
    let Some(number) = text.strip_prefix('#') else {
        let named = ENTITIES.iter().find(|(name, _)| {
            let rest = text.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(';'))
        });
        return named.map(|(name, letter)| (*letter, name.len() + 1));
    };
    let (digits, radix) = match number.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    let count = digits.bytes().take(ESCAPE_DIGITS_MAX);
    let count = count.take_while(|byte| char::from(*byte).is_digit(radix)).count();
    let letter = char::from_u32(u32::from_str_radix(&digits[..count], radix).ok()?)?;
    let closed = usize::from(digits[count..].starts_with(';'));
    Some((letter, text.len() - digits.len() + count + closed))
}

/// The number that this many hex digits at the start of a text are.
fn parse_hex(text: &str, digits: usize) -> Option<u32> {
    let digits = text.get(..digits)?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

/// Whether this is the first half of a character of two units.
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

    fn escaped(each: impl Fn(char) -> String) -> String {
        SECRET.chars().map(each).collect()
    }

    fn units(letter: char, digits: impl Fn(u16) -> String) -> String {
        letter.encode_utf16(&mut [0; 2]).iter().map(|unit| digits(*unit)).collect()
    }

    #[test]
    fn secrets_are_found_in_every_escape_and_in_mixtures() {
        let percent = SECRET.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let decimal = escaped(|letter| format!("&#{};", u32::from(letter)));
        let json = escaped(|letter| units(letter, |unit| format!("\\u{unit:04x}")));
        let twice = json.replace('\\', "\\\\");
        for text in [
            percent.to_uppercase(),
            percent.replace('%', "%25"),
            percent,
            decimal.replace(';', ""),
            decimal.replace('&', "&amp;"),
            decimal,
            escaped(|letter| format!("&#x{:x};", u32::from(letter))),
            escaped(|letter| format!("&#X{:06X};", u32::from(letter))),
            escaped(|letter| units(letter, |unit| format!("\\u{unit:04X}"))),
            escaped(|letter| format!("\\u{{{:x}}}", u32::from(letter))),
            json,
            twice.replace('\\', "\\\\"),
            twice,
            r#"s%6b-&#228;/\"&#x78;&quot;\ud834\udd1e9"#.to_owned(),
        ] {
            let around = format!("ü \\ & 5% {text} %zz &x; \\q");
            let expect = "ü \\ & 5% [key] %zz &x; \\q";
            let redacted = redactor(&[(SECRET, "key")]).redact(&around).into_owned();
            assert_eq!(redacted, expect, "{text}");
        }
    }

    #[test]
    fn secrets_that_contain_escapes_are_found() {
        let address = ("postgres://u:p%40ss@h", "url");
        let all = redactor(&[address, (r"C:\new\table", "path"), ("%41%42%43", "short")]);
        for (text, expect) in [
            ("&#112;ostgres://u:p%40ss@h", "[url]"),
            ("&amp;#112;ostgres://u:p%40ss@h", "[url]"),
            ("postgres%3a%2f%2fu:p%2540ss@h", "[url]"),
            ("%20postgres://u:p%40ss@h ABC", "%20[url] ABC"),
            (r"\u{43}:\new\table", "[path]"),
            (r"C:\\new\\table", "[path]"),
        ] {
            assert_eq!(all.redact(text), expect);
        }
        for (text, expect) in [
            ("see &#112;ostgres://u:p%4", "&#112;ostgres://u:p%4"),
            ("see &#112;ostgres://u:p%40s", "&#112;ostgres://u:p%40s"),
            (r"see \u{70}ostgres\u{3", r"\u{70}ostgres\u{3"),
        ] {
            let held = &text[text.len() - redactor(&[address]).partial_match_len(text)..];
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
            assert!(!DecodedText::new(text).decode_layer(), "{text}");
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
            // Escapes of escapes too.
            ("see %2573%25", "%2573%25"),
            ("see &#115;&#10", "&#115;&#10"),
            (r"see \u0073\u006b\u002d\u00e4\/\", r"\u0073\u006b\u002d\u00e4\/\"),
            (r#"sk-\u00e4/\"x\"\ud834"#, r#"sk-\u00e4/\"x\"\ud834"#),
            (r#"sk-\u00e4/\"x\"\ud834\udd"#, r#"sk-\u00e4/\"x\"\ud834\udd"#),
            ("%73%6b?", ""),
        ] {
            let unfinished = redactor(&[(SECRET, "key")]).partial_match_len(text);
            let held = &text[text.len() - unfinished..];
            assert_eq!(held, expect, "{text}");
        }
    }
}
