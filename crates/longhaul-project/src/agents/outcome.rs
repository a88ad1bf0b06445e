//! Parses `outcome:`, the rubric against which the results of an agent are graded, inline or from a
//! file.

use std::path::Path;

use longhaul_engine::agent::check::rubric_error;
use longhaul_engine::agent::config::GradingConfig;

use crate::agents::diagnostics::{Diagnostics, Fields, integer};
use crate::project_file;
use crate::spanned::TableEntry;

/// Parses the field `outcome` of an agent file: how the results of the agent are graded.
pub(crate) fn parse_outcome_field(
    diagnostics: &mut Diagnostics<'_>,
    entry: &TableEntry,
) -> Option<GradingConfig> {
    let mut fields = Fields::new(diagnostics, entry, "rubric")?;
    if fields.get("rubric").is_none() {
        let message = "`outcome` needs a `rubric`: the path of a file such as ./rubric.md, or the \
            text itself";
        fields.diagnostics.report_invalid(entry.position, message);
    }
    let rubric = fields.parse("rubric", parse_rubric);
    let grader = fields.parse("grader", |diagnostics, entry| {
        let grader = diagnostics.text(entry)?;
        diagnostics.report_unusable_model(entry.node.position, &grader);
        Some(grader)
    });
    let mut max_rounds = GradingConfig::MAX_ROUNDS_DEFAULT;
    fields.set("max_rounds", &mut max_rounds, parse_max_grading_rounds);
    fields.finish();
    Some(GradingConfig { rubric: rubric?, grader, max_rounds })
}

fn parse_max_grading_rounds(diagnostics: &mut Diagnostics<'_>, entry: &TableEntry) -> Option<u32> {
    let rounds: u32 = integer(1)(diagnostics, entry)?;
    if rounds > GradingConfig::MAX_ROUNDS_MAX {
        let message = format!("`max_rounds` is above {}", GradingConfig::MAX_ROUNDS_MAX);
        return diagnostics.reject(entry.node.position, message);
    }
    Some(rounds)
}

/// Parses a rubric (the criteria for grading a result): its text, or the path of the file that
/// contains the text.
fn parse_rubric(diagnostics: &mut Diagnostics<'_>, entry: &TableEntry) -> Option<String> {
    let text = diagnostics.text(entry)?;
    let rubric = match is_rubric_file_path(&text) {
        true => {
            diagnostics.add_read_file(&text);
            load_rubric_file(&text, diagnostics.ctx.root)
        }
        false => Ok(text),
    };
    let rubric = rubric.and_then(|rubric| rubric_error(&rubric).map_or(Ok(rubric), Err));
    rubric.map_or_else(|message| diagnostics.reject(entry.node.position, message), Some)
}

/// Returns whether a rubric is a path: it is one word that starts with `./` or ends with `.md` or
/// `.txt`.
fn is_rubric_file_path(rubric: &str) -> bool {
    let is_word = !rubric.contains(char::is_whitespace);
    let has_text_ending = [".md", ".txt"].iter().any(|ending| rubric.ends_with(ending));
    is_word && (rubric.starts_with("./") || has_text_ending)
}

fn load_rubric_file(file_name: &str, root: &Path) -> Result<String, String> {
    let max = GradingConfig::RUBRIC_BYTES_MAX;
    let unusable_message =
        |reason: String| format!("the rubric `{file_name}` can't be used: {reason}");
    let bytes = project_file::read_file_in_project(root, Path::new(file_name), max)
        .map_err(|error| unusable_message(error.to_string()))?;
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let text =
        std::str::from_utf8(bytes).map_err(|_| unusable_message("it is not UTF-8".to_owned()))?;
    Ok(text.trim_end().to_owned())
}
