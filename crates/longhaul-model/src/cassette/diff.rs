//! Describes the first difference between a request and the recorded request, shortened for people.

use serde_json::Value;

/// Maximum number of differing lines that are shown of each of the two requests.
const LINES_MAX: usize = 4;

/// Maximum number of characters shown of a differing line.
const LINE_CHARS_MAX: usize = 160;

/// Result of a comparison. The error describes the first difference.
type Compared = Result<(), String>;

/// Compares the messages of a request with the recorded messages. The first `skipped` messages are
/// not compared again, because earlier turns have compared them.
pub(super) fn compare_messages(skipped: usize, recorded: &[&str], current: &[String]) -> Compared {
    for (index, pair) in recorded.iter().zip(current).enumerate() {
        compare_json(&format!("message {}", skipped + index + 1), pair.0, pair.1)?;
    }
    let (recorded_count, current_count) = (skipped + recorded.len(), skipped + current.len());
    if recorded.len() == current.len() {
        return Ok(());
    }
    let (sign, first) = match recorded.get(current.len()) {
        Some(missing) => ('-', (*missing).to_owned()),
        None => ('+', current.get(recorded.len()).cloned().unwrap_or_default()),
    };
    let lines = pretty_json(&first);
    let lines: Vec<String> = lines.lines().take(LINES_MAX).map(str::to_owned).collect();
    Err(format!(
        "the request has {current_count} messages, but the recording has {recorded_count}; the \
         first message that only one side has:\n{}",
        format_diff_lines(sign, &lines)
    ))
}

/// Compares two JSON texts after formatting them on several lines. The error describes the first
/// difference.
pub(super) fn compare_json(text_name: &str, recorded: &str, current: &str) -> Compared {
    match recorded == current {
        true => Ok(()),
        false => compare_texts(text_name, &pretty_json(recorded), &pretty_json(current)),
    }
}

/// Compares two texts line by line. The error describes the first difference.
pub(super) fn compare_texts(text_name: &str, recorded: &str, current: &str) -> Compared {
    if recorded == current {
        return Ok(());
    }
    let (old, new): (Vec<&str>, Vec<&str>) =
        (recorded.lines().collect(), current.lines().collect());
    let common_prefix = old.iter().zip(&new).take_while(|(old, new)| old == new);
    let line = common_prefix.count();
    let (old, new) = (&old[line..], &new[line..]);
    let common_suffix = old.iter().rev().zip(new.iter().rev());
    let common_suffix = common_suffix.take_while(|(old, new)| old == new).count();
    let differing_lines = |lines: &[&str]| -> Vec<String> {
        let lines = lines.iter().take((lines.len() - common_suffix).min(LINES_MAX));
        lines.map(|line| (*line).to_owned()).collect()
    };
    Err(format!(
        "{text_name} differs from line {} on:\n{}\n{}",
        line + 1,
        format_diff_lines('-', &differing_lines(old)),
        format_diff_lines('+', &differing_lines(new))
    ))
}

fn format_diff_lines(sign: char, lines: &[String]) -> String {
    if lines.is_empty() {
        return format!("{sign} (no lines)");
    }
    let truncate_line = |line: &String| match line.char_indices().nth(LINE_CHARS_MAX) {
        None => line.clone(),
        Some((end, _)) => format!("{}…", &line[..end]),
    };
    let lines = lines.iter().map(|line| format!("{sign} {}", truncate_line(line)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats JSON on several lines, with real line breaks instead of `\n` inside strings.
fn pretty_json(text: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return text.to_owned();
    };
    let formatted = serde_json::to_string_pretty(&value).unwrap_or_else(|_| text.to_owned());
    formatted.replace("\\n", "\n")
}
