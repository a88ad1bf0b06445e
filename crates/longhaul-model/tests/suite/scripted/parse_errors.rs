//! Invalid scripts: each error has one message with a position and a hint.

use longhaul_model::scripted::{SCRIPT_BYTES_MAX, Script};

use super::harness::TIDY;

fn parse_message(text: &str) -> String {
    match Script::parse_yaml("s.yaml", text) {
        Ok(script) => format!("fine: {script:?}"),
        Err(error) => error.to_string(),
    }
}

const MISTAKES: &[(&str, &str)] = &[
    ("", "s.yaml:1:1: it is empty: start with `replies:`"),
    ("# nothing\n", "s.yaml:2:1: it is empty: start with `replies:`"),
    ("replies: []", "s.yaml:1:10: a script needs at least one reply"),
    ("replies:", "s.yaml:1:8: a script needs at least one reply"),
    ("replies: 3", "s.yaml:1:10: expected sequence start"),
    ("reply:\n  - text: a", "s.yaml:1:1: unknown key `reply`, did you mean `replies`?"),
    ("replies:\n  - txt: a", "s.yaml:2:5: unknown key `txt`, did you mean `text`?"),
    (
        "replies:\n  - text: a\n    zebra: 1",
        "s.yaml:3:5: unknown key `zebra`, expected one of `text`, `tools`, `delay`, `usage`, `error`",
    ),
    (
        "replies:\n  - text: a\n    tools: [{ nam: x }]",
        "s.yaml:3:15: unknown key `nam`, did you mean `name`?",
    ),
    ("replies:\n  - text: a\n    tools: [{ input: {} }]", "s.yaml:3:15: the key `name` is missing"),
    ("replies:\n  - text: a\n    tools: [{ name: '' }]", "s.yaml:3:21: a tool needs a name"),
    (
        "replies:\n  - text: a\n    text: b",
        "s.yaml:3:5: duplicate mapping key: text not allowed here",
    ),
    ("replies:\n  - text: [a]", "s.yaml:2:11: expected string scalar"),
    (
        "replies:\n  - delay: 1s",
        "s.yaml:2:5: replies[0] is empty; add `text` or `tools` (an `error` only precedes the reply)",
    ),
    (
        "replies:\n  - error: { status: 529 }",
        "s.yaml:2:5: replies[0] is empty; add `text` or `tools` (an `error` only precedes the reply)",
    ),
    (
        "replies:\n  - text: a\n    delay: soon",
        "s.yaml:3:12: delay: `soon` is not a duration; use one such as 50ms or 2s",
    ),
    (
        "replies:\n  - text: a\n    delay: 50",
        "s.yaml:3:12: delay: `50` is not a duration; use one such as 50ms or 2s",
    ),
    (
        "replies:\n  - text: a\n    delay: -1s",
        "s.yaml:3:12: delay: `-1s` is not a duration; use one such as 50ms or 2s",
    ),
    (
        "replies:\n  - text: a\n    error: { status: 200 }",
        "s.yaml:3:22: error: status 200 is not an error status; use one from 400 to 599",
    ),
    (
        "replies:\n  - text: a\n    error: { status: abc }",
        "s.yaml:3:22: expected a whole number, not negative and not too large",
    ),
    ("replies:\n  - text: a\n    error: { times: 2 }", "s.yaml:3:14: the key `status` is missing"),
    (
        "replies:\n  - text: a\n    usage: { output: 2 }",
        "s.yaml:3:14: unknown key `output`, did you mean `output_tokens`?",
    ),
    (
        "replies:\n  - text: a\n    usage: { output_tokens: -2 }",
        "s.yaml:3:29: expected a whole number, not negative and not too large",
    ),
    (
        "replies: [{ text: a }]\nloop: { from: 1, to: 1, times: 2 }",
        "s.yaml:2:7: loop: `from: 1` must be less than `to: 1`, the index after the last reply of the loop",
    ),
    (
        "replies: [{ text: a }]\nloop: { from: 0, to: 2, times: 2 }",
        "s.yaml:2:7: loop: `to` is 2, but the script has 1 replies",
    ),
    (
        "replies: [{ text: a }]\nloop: { from: 0, to: 1, times: 0 }",
        "s.yaml:2:7: loop: `times: 0` would skip the replies of the loop; use at least 1",
    ),
    (
        "replies: [{ text: a }]\nloop: { from: 0, until: 1, times: 1 }",
        "s.yaml:2:18: unknown key `until`, expected one of `from`, `to`, `times`",
    ),
    (
        "replies:\n  - text: 'a {{ input'",
        "s.yaml:2:11: replies[0]: invalid template: syntax error: unexpected end of input, expected end of variable block",
    ),
    (
        "replies:\n  - text: 'a {{ inptu }}'",
        "s.yaml:2:11: replies[0]: the variable `inptu` is unknown; available: `input` and `last_result`",
    ),
    (
        "replies:\n  - text: a\n    tools: [{ name: x, input: { a: ['{{ env }}'] } }]",
        "s.yaml:3:31: replies[0]: the variable `env` is unknown; available: `input` and `last_result`",
    ),
    (
        "replies:\n  - &a { text: a }\n  - *a\nloop: { from: 0, to: 1, times: *a }",
        "s.yaml:4:32: expected string scalar",
    ),
    ("replies:\n  - text: \"a", "s.yaml:2:11: unclosed quote"),
    (
        "replies:\n - text: a\n---\nreplies: []",
        "s.yaml:4:1: only single YAML document expected but multiple found",
    ),
    ("replies:\n  - text: *a", "s.yaml:2:11: reference to unknown value"),
];

#[test]
fn a_script_error_has_its_position_and_a_hint() {
    for (text, expected) in MISTAKES {
        assert_eq!(parse_message(text), *expected, "{text}");
    }
}

#[test]
fn a_script_of_more_than_a_mebibyte_is_not_read() {
    let text = format!("replies: [{{ text: '{}' }}]", "a".repeat(SCRIPT_BYTES_MAX));
    assert_eq!(parse_message(&text), "s.yaml: the script is larger than 1048576 bytes");
}

#[test]
fn a_deep_script_is_refused_before_it_fills_the_stack() {
    let parse_nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        parse_message(&format!("replies: [{{ tools: [{{ name: x, input: {open}{close} }}] }}]"))
    };
    assert!(parse_nested(25).starts_with("fine"), "{}", parse_nested(25));
    for depth in [33, 65, 100, 1_000, 200_000] {
        assert!(parse_nested(depth).starts_with("s.yaml:1:"), "{}", parse_nested(depth));
    }
}

#[test]
fn a_deep_template_is_refused_before_it_fills_the_stack() {
    for depth in [100, 1_000, 100_000] {
        let text = format!("{{{{ {}1{} }}}}", "(".repeat(depth), ")".repeat(depth));
        let error = parse_message(&format!("replies: [{{ text: '{text}' }}]"));
        assert!(error.contains("invalid template: ") || depth == 100, "{error}");
    }
}

#[test]
fn an_unreadable_script_file_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.yaml");
    let load_summary = || match Script::load_script_file(&path) {
        Ok(script) => format!("{} replies", script.reply_count()),
        Err(error) => error.to_string().replace(&path.display().to_string(), "s.yaml"),
    };
    let missing_summary = load_summary();
    assert!(missing_summary.starts_with("s.yaml: the script can't be read: "), "{missing_summary}");
    let table: &[(&[u8], &str)] = &[
        (TIDY.as_bytes(), "4 replies"),
        (b"replies:\n  - text: \xff", "s.yaml: the script is not UTF-8"),
        (b"replies:\n  - txt: a", "s.yaml:2:5: unknown key `txt`, did you mean `text`?"),
        (&[b'#'; SCRIPT_BYTES_MAX + 1], "s.yaml: the script is larger than 1048576 bytes"),
    ];
    for (bytes, expected) in table {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(load_summary(), *expected);
    }
}

#[test]
fn yaml_aliases_can_not_expand_a_script() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let aliases = format!("*a{}, ", level - 1).repeat(9);
        text += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    let body = text.replace('\n', "\n        ");
    let script =
        format!("replies:\n  - text: a\n    tools:\n    - name: x\n      input:\n        {body}");
    let error = parse_message(&script);
    assert!(error.starts_with("s.yaml:") && error.contains("too large"), "{error}");
}
