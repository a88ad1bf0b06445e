//! Says where a question is another than the one that was recorded.
//!
//! Never: more than a person reads.

use serde_json::Value;

/// So many lines are shown of either side.
const LINES_MAX: usize = 4;

/// So many letters are shown of a line.
const LINE_CHARS_MAX: usize = 160;

/// Compares the messages behind the first `from`, which were compared in the turns
/// before.
pub(super) fn messages(from: usize, recorded: &[&str], now: &[String]) -> Result<(), String> {
    for (place, pair) in recorded.iter().zip(now).enumerate() {
        json(&format!("message {}", from + place + 1), pair.0, pair.1)?;
    }
    let (recorded_in_all, now_in_all) = (from + recorded.len(), from + now.len());
    if recorded.len() == now.len() {
        return Ok(());
    }
    let (sign, first) = match recorded.get(now.len()) {
        Some(missing) => ('-', (*missing).to_owned()),
        None => ('+', now.get(recorded.len()).cloned().unwrap_or_default()),
    };
    let lines = pretty(&first);
    let lines: Vec<String> = lines.lines().take(LINES_MAX).map(str::to_owned).collect();
    Err(format!(
        "{now_in_all} messages are asked, {recorded_in_all} were recorded; the first that only \
         one side has:\n{}",
        format_lines(sign, &lines)
    ))
}

/// Compares two texts that are JSON, and shows them in lines.
pub(super) fn json(what: &str, recorded: &str, now: &str) -> Result<(), String> {
    match recorded == now {
        true => Ok(()),
        false => texts(what, &pretty(recorded), &pretty(now)),
    }
}

/// Compares two texts line by line.
pub(super) fn texts(what: &str, recorded: &str, now: &str) -> Result<(), String> {
    if recorded == now {
        return Ok(());
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (recorded.lines().collect(), now.lines().collect());
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new);
    let line = same.count();
    let (old, new) = (&old[line..], &new[line..]);
    let ends = old.iter().rev().zip(new.iter().rev());
    let ends = ends.take_while(|(old, new)| old == new).count();
    let part = |lines: &[&str]| -> Vec<String> {
        let lines = lines.iter().take((lines.len() - ends).min(LINES_MAX));
        lines.map(|line| (*line).to_owned()).collect()
    };
    Err(format!(
        "{what} differs from line {} on:\n{}\n{}",
        line + 1,
        format_lines('-', &part(old)),
        format_lines('+', &part(new))
    ))
}

fn format_lines(sign: char, lines: &[String]) -> String {
    if lines.is_empty() {
        return format!("{sign} (nothing)");
    }
    let cut = |line: &String| match line.char_indices().nth(LINE_CHARS_MAX) {
        None => line.clone(),
        Some((end, _)) => format!("{}…", &line[..end]),
    };
    let lines = lines.iter().map(|line| format!("{sign} {}", cut(line)));
    lines.collect::<Vec<_>>().join("\n")
}

/// JSON over several lines, with texts as they are read.
fn pretty(text: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return text.to_owned();
    };
    let spelled = serde_json::to_string_pretty(&value).unwrap_or_else(|_| text.to_owned());
    spelled.replace("\\n", "\n")
}
