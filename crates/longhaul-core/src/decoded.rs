//! Texts without their escapes, to find what is written as `%73`, `&#115;`, `&#x73;`,
//! `\u0073`, `\u{73}` or `\x73`, wholly or in part. What is looked for may have escapes
//! of its own, which are decoded with the others: it is looked for without them too.
//!
//! Invariant: a place in the decoded text is known in the source, and the source is
//! never changed by decoding it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use crate::spelling::HIDDEN_FROM;

/// Escapes may stand for escapes, as in a JSON text within a JSON text.
const PASSES_MAX: usize = 3;

/// Maximum number of digits of an HTML entity or of `\u{…}` that are read.
const DIGITS_MAX: usize = 8;

/// Characters that escapes begin with.
const MARKS: [char; 3] = ['%', '&', '\\'];

const ENTITIES: [(&str, char); 5] = [
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
];

/// A text without its escapes.
#[derive(Debug)]
pub struct DecodedText {
    text: String,
    /// For each pass, places of its result and of what it was given, where they part.
    passes: Vec<Vec<(usize, usize)>>,
}

impl DecodedText {
    /// Decodes a text; none: it has no escapes.
    pub fn new(source: &str) -> Option<Self> {
        let (mut text, places) = decode(source)?;
        let mut passes = vec![places];
        while passes.len() < PASSES_MAX
            && let Some((again, places)) = decode(&text)
        {
            text = again;
            passes.push(places);
        }
        Some(Self { text, passes })
    }

    /// Whether the decoded text contains this.
    pub fn contains(&self, part: &str) -> bool {
        forms(part).any(|form| self.text.contains(&*form))
    }

    /// The source with these parts replaced wherever they are in the decoded text; none:
    /// they are not in it. Of two that overlap the longer is replaced, or the first in
    /// the list.
    pub fn replace<'a>(
        &self,
        source: &str,
        parts: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Option<String> {
        let mut seen = HashSet::new();
        let parts = parts.into_iter();
        let all = parts.flat_map(|(part, stand_in)| forms(part).map(move |form| (form, stand_in)));
        let mut all: Vec<_> = all.filter(|(form, _)| seen.insert(form.clone())).collect();
        all.sort_by_key(|(form, _)| std::cmp::Reverse(form.len()));
        // Ends and stand-ins by starts; they do not overlap.
        let mut found: BTreeMap<usize, (usize, &str)> = BTreeMap::new();
        for (form, stand_in) in all {
            for (at, _) in self.text.match_indices(&*form) {
                let (start, end) = (self.source(at), self.source(at + form.len()));
                let before = found.range(..end).next_back();
                if before.is_none_or(|(_, (other_end, _))| *other_end <= start) {
                    found.insert(start, (end, stand_in));
                }
            }
        }
        if found.is_empty() {
            return None;
        }
        let mut replaced = String::with_capacity(source.len());
        let mut from = 0;
        for (start, (end, stand_in)) in found {
            replaced.push_str(source.get(from..start)?);
            replaced.push_str(stand_in);
            from = end;
        }
        replaced.push_str(source.get(from..)?);
        Some(replaced)
    }

    /// The place in the source of a place in the decoded text.
    fn source(&self, at: usize) -> usize {
        self.passes.iter().rev().fold(at, |at, places| {
            let before = places.partition_point(|(decoded, _)| *decoded <= at);
            let (decoded, source) = places[before.saturating_sub(1)];
            source + (at - decoded)
        })
    }
}

/// A part as it is, and without one layer after the other of its own escapes; not what is
/// so short that it is in many texts by chance.
fn forms(part: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let next = |form: &Cow<'_, str>| decode(form).map(|(text, _)| Cow::Owned(text));
    let decoded = std::iter::successors(next(&Cow::Borrowed(part)), next);
    let decoded = decoded.take(PASSES_MAX);
    let decoded = decoded.take_while(|form| form.len() >= HIDDEN_FROM);
    std::iter::once(Cow::Borrowed(part)).chain(decoded)
}

/// Number of bytes at the end of a text that may be the beginning of one of these, with
/// escapes in it. A text without escapes has none: it is searched as it is.
pub fn unfinished<'a>(text: &str, parts: impl IntoIterator<Item = &'a str>) -> usize {
    let mut parts = parts.into_iter().peekable();
    if parts.peek().is_none() || !text.contains(MARKS) {
        return 0;
    }
    let tail = partial_escape(text);
    let body = &text[..text.len() - tail];
    let decoded = DecodedText::new(body);
    let plain = decoded.as_ref().map_or(body, |decoded| &decoded.text);
    let forms = parts.flat_map(forms);
    let begun = forms.filter_map(|form| begun(plain, &form));
    let start = plain.len() - begun.max().unwrap_or(0);
    let start = decoded
        .as_ref()
        .map_or(start, |decoded| decoded.source(start));
    text.len() - start
}

/// Number of bytes at the end of a text that are the beginning of a part.
fn begun(text: &str, part: &str) -> Option<usize> {
    let ends = part.char_indices().map(|(end, _)| end);
    let ends = ends.take_while(|end| *end <= text.len());
    ends.filter(|end| text.ends_with(&part[..*end])).last()
}

/// Number of bytes at the end of a text that may be the beginning of an escape.
fn partial_escape(text: &str) -> usize {
    let from = text.floor_char_boundary(text.len().saturating_sub(DIGITS_MAX + 4));
    let marks = text[from..].match_indices(MARKS);
    let mut tails = marks.map(|(at, _)| &text[from + at..]);
    let is_partial = |tail: &&str| {
        let is_hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match tail.as_bytes()[0] {
            b'%' => tail.len() < 3 && is_hex(&tail[1..]) || continues_character(tail),
            b'&' => tail[1..]
                .bytes()
                .all(|byte| byte == b'#' || byte.is_ascii_alphanumeric()),
            _ => {
                let rest = &tail[1..];
                let digits = rest.strip_prefix(['u', 'x']);
                let braced = rest.strip_prefix("u{");
                rest.is_empty()
                    || braced.is_some_and(|digits| digits.len() <= DIGITS_MAX && is_hex(digits))
                    || digits.is_some_and(|digits| digits.len() < 4 && is_hex(digits))
                    || rest.len() < 11
                        && hex(rest.strip_prefix('u').unwrap_or(""), 4).is_some_and(is_high)
            }
        }
    };
    tails.find(is_partial).map_or(0, str::len)
}

/// Whether percent escapes are the beginning of one character.
fn continues_character(escapes: &str) -> bool {
    let bytes: Option<Vec<u8>> = (0..escapes.len().div_ceil(3))
        .map(|n| percent(escapes.get(n * 3..)?))
        .collect();
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
    while let Some(found) = source.get(at..).and_then(|rest| rest.find(MARKS)) {
        at += found;
        let Some((letter, length)) = escape(&source[at..]) else {
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
fn escape(text: &str) -> Option<(char, usize)> {
    match text.as_bytes()[0] {
        b'%' => percent_escape(text),
        b'&' => entity(&text[1..]).map(|(letter, length)| (letter, length + 1)),
        _ => backslash(&text[1..]).map(|(letter, length)| (letter, length + 1)),
    }
}

fn percent_escape(text: &str) -> Option<(char, usize)> {
    let length = match percent(text)? {
        0..=0x7f => 1,
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return None,
    };
    let bytes: Option<Vec<u8>> = (0..length).map(|n| percent(text.get(n * 3..)?)).collect();
    let bytes = bytes?;
    let letter = std::str::from_utf8(&bytes).ok()?.chars().next()?;
    Some((letter, length * 3))
}

fn percent(text: &str) -> Option<u8> {
    u8::try_from(hex(text.strip_prefix('%')?, 2)?).ok()
}

fn backslash(text: &str) -> Option<(char, usize)> {
    let short = |letter| Some((letter, 1));
    match text.as_bytes().first()? {
        b'u' if text[1..].starts_with('{') => {
            let digits = text[2..].bytes().take(DIGITS_MAX);
            let count = digits.take_while(u8::is_ascii_hexdigit).count();
            let letter = char::from_u32(hex(&text[2..], count)?)?;
            let is_closed = text[2 + count..].starts_with('}');
            is_closed.then_some((letter, count + 3))
        }
        b'u' => {
            let unit = hex(&text[1..], 4)?;
            if !is_high(unit) {
                return Some((char::from_u32(unit)?, 5));
            }
            let low = hex(text[5..].strip_prefix("\\u")?, 4)?;
            let pair = [unit, low].map(|unit| u16::try_from(unit).unwrap_or_default());
            let letter = char::decode_utf16(pair).next()?.ok()?;
            Some((letter, 11))
        }
        b'x' => Some((char::from_u32(hex(&text[1..], 2)?)?, 3)),
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

fn entity(text: &str) -> Option<(char, usize)> {
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
    let count = digits.bytes().take(DIGITS_MAX);
    let count = count
        .take_while(|byte| char::from(*byte).is_digit(radix))
        .count();
    let letter = char::from_u32(u32::from_str_radix(&digits[..count], radix).ok()?)?;
    let closed = usize::from(digits[count..].starts_with(';'));
    Some((letter, text.len() - digits.len() + count + closed))
}

/// The number that this many hex digits at the start of a text are.
fn hex(text: &str, digits: usize) -> Option<u32> {
    let digits = text.get(..digits)?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

/// Whether this is the first half of a character of two units.
const fn is_high(unit: u32) -> bool {
    0xd800 <= unit && unit < 0xdc00
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "sk-ä/\"x\"𝄞9";

    fn replaced(text: &str) -> Option<String> {
        DecodedText::new(text)?.replace(text, [(SECRET, "[key]")])
    }

    fn spelled(each: impl Fn(char) -> String) -> String {
        SECRET.chars().map(each).collect()
    }

    fn units(letter: char, digits: impl Fn(u16) -> String) -> String {
        letter
            .encode_utf16(&mut [0; 2])
            .iter()
            .map(|unit| digits(*unit))
            .collect()
    }

    #[test]
    fn secrets_are_found_in_every_escape_and_in_mixtures() {
        let percent = SECRET
            .bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect::<String>();
        let decimal = spelled(|letter| format!("&#{};", u32::from(letter)));
        let json = spelled(|letter| units(letter, |unit| format!("\\u{unit:04x}")));
        let twice = json.replace('\\', "\\\\");
        for text in [
            percent.to_uppercase(),
            percent.replace('%', "%25"),
            percent,
            decimal.replace(';', ""),
            decimal.replace('&', "&amp;"),
            decimal,
            spelled(|letter| format!("&#x{:x};", u32::from(letter))),
            spelled(|letter| format!("&#X{:06X};", u32::from(letter))),
            spelled(|letter| units(letter, |unit| format!("\\u{unit:04X}"))),
            spelled(|letter| format!("\\u{{{:x}}}", u32::from(letter))),
            json,
            twice.replace('\\', "\\\\"),
            twice,
            r#"s%6b-&#228;/\"&#x78;&quot;\ud834\udd1e9"#.to_owned(),
        ] {
            let around = format!("ü \\ & 5% {text} %zz &x; \\q");
            let expect = "ü \\ & 5% [key] %zz &x; \\q";
            assert_eq!(replaced(&around).as_deref(), Some(expect), "{text}");
        }
    }

    #[test]
    fn secrets_with_escapes_of_their_own_are_found_among_others() {
        let address = ("postgres://u:p%40ss@h", "[url]");
        let others = [
            address,
            (r"C:\new\table", "[path]"),
            ("%41%42%43", "[short]"),
        ];
        for (text, expect) in [
            ("&#112;ostgres://u:p%40ss@h", "[url]"),
            ("&amp;#112;ostgres://u:p%40ss@h", "[url]"),
            ("postgres%3a%2f%2fu:p%2540ss@h", "[url]"),
            ("%20postgres://u:p%40ss@h ABC", "%20[url] ABC"),
            (r"\u{43}:\new\table", "[path]"),
            (r"C:\\new\\table", "[path]"),
        ] {
            let decoded = DecodedText::new(text).unwrap();
            let replaced = decoded.replace(text, others);
            assert_eq!(replaced.as_deref().unwrap_or(text), expect);
            let is_found = others.iter().any(|(part, _)| decoded.contains(part));
            assert_eq!(is_found, text != expect, "{text}");
        }
        // The longer of two is found first, whichever has more escapes.
        let text = "%74oken-of-one-2";
        let parts = [("token%2Dof%2Done", "[1]"), ("token-of-one-2", "[2]")];
        let replaced = DecodedText::new(text).unwrap().replace(text, parts);
        assert_eq!(replaced.as_deref(), Some("[2]"));
        for (text, expect) in [
            ("see &#112;ostgres://u:p%4", "&#112;ostgres://u:p%4"),
            ("see &#112;ostgres://u:p%40s", "&#112;ostgres://u:p%40s"),
            (r"see \u{70}ostgres\u{3", r"\u{70}ostgres\u{3"),
        ] {
            let held = &text[text.len() - unfinished(text, [address.0])..];
            assert_eq!(held, expect, "{text}");
        }
        assert_eq!(unfinished("100%", []), 0);
    }

    #[test]
    fn many_secrets_in_one_text_are_replaced() {
        let text = "%73k-live-4711 ".repeat(100_000);
        let parts = [("sk-live-4711", "[key]"), ("live-4711 sk", "[other]")];
        let replaced = DecodedText::new(&text).unwrap().replace(&text, parts);
        assert_eq!(replaced, Some("[key] ".repeat(100_000)));
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
            assert!(DecodedText::new(text).is_none(), "{text}");
        }
        assert_eq!(replaced("%20 nothing"), None);
    }

    #[test]
    fn the_beginning_of_an_escaped_secret_is_seen_at_the_end_of_a_text() {
        for (text, expect) in [
            ("no mark", ""),
            ("100% of it.", ""),
            ("see %73%6b", "%73%6b"),
            ("see s%6b-%c3", "s%6b-%c3"),
            ("see s%6b-%c", "s%6b-%c"),
            ("see %7", "%7"),
            ("see &#115;&#10", "&#115;&#10"),
            (
                r"see \u0073\u006b\u002d\u00e4\/\",
                r"\u0073\u006b\u002d\u00e4\/\",
            ),
            (r#"sk-\u00e4/\"x\"\ud834"#, r#"sk-\u00e4/\"x\"\ud834"#),
            (
                r#"sk-\u00e4/\"x\"\ud834\udd"#,
                r#"sk-\u00e4/\"x\"\ud834\udd"#,
            ),
            ("%73%6b?", ""),
        ] {
            let held = &text[text.len() - unfinished(text, [SECRET])..];
            assert_eq!(held, expect, "{text}");
        }
    }
}
