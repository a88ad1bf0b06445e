//! Parses `outcome:`, the rubric against which the results of an agent are graded, inline or from a
//! file.

use std::path::Path;

use longhaul_engine::agent::check::rubric_error;
use longhaul_engine::agent::config::GradingConfig;

use crate::agents::diagnostics::{Diagnostics, FieldReader};
use crate::agents::load_context::AgentLoadContext;
use crate::project_file;
use crate::spanned::TableEntry;

/// Parses the field `outcome` of an agent file: how the results of the agent are graded.
pub(crate) fn parse_outcome_field(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
    ctx: &AgentLoadContext<'_>,
) -> Option<GradingConfig> {
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "rubric")?;
    if fields.get("rubric").is_none() {
        let message = "`outcome` needs a `rubric`: the path of a file such as ./rubric.md, or the \
            text itself";
        fields.diagnostics.report_invalid(entry.position, message);
    }
    let rubric = fields
        .parse_field_with("rubric", |diagnostics, entry| parse_rubric(diagnostics, entry, ctx));
    let grader = fields.parse_field_with("grader", |diagnostics, entry| {
        let grader = diagnostics.parse_nonempty_text(entry)?;
        diagnostics.report_unusable_model(entry.node.position, &grader, ctx);
        Some(grader)
    });
    let max_rounds = fields.parse_field_with("max_rounds", parse_max_grading_rounds);
    fields.report_unknown_fields();
    Some(GradingConfig {
        rubric: rubric?,
        grader,
        max_rounds: max_rounds.unwrap_or(GradingConfig::MAX_ROUNDS_DEFAULT),
    })
}

fn parse_max_grading_rounds(diagnostics: &mut Diagnostics, entry: &TableEntry) -> Option<u32> {
    let rounds: u32 = diagnostics.parse_integer(entry, 1)?;
    if rounds > GradingConfig::MAX_ROUNDS_MAX {
        let message = format!("`max_rounds` is above {}", GradingConfig::MAX_ROUNDS_MAX);
        diagnostics.report_invalid(entry.node.position, message);
        return None;
    }
    Some(rounds)
}

/// Parses a rubric (the criteria for grading a result): its text, or the path of the file that
/// contains the text.
fn parse_rubric(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
    ctx: &AgentLoadContext<'_>,
) -> Option<String> {
    let text = diagnostics.parse_nonempty_text(entry)?;
    let rubric = match is_rubric_file_path(&text) {
        true => {
            diagnostics.add_path_of_read_file(ctx.root, &text);
            load_rubric_file(&text, ctx)
        }
        false => Ok(text),
    };
    let rubric = rubric.and_then(|rubric| rubric_error(&rubric).map_or(Ok(rubric), Err));
    match rubric {
        Ok(rubric) => Some(rubric),
        Err(message) => {
            diagnostics.report_invalid(entry.node.position, message);
            None
        }
    }
}

/// Returns whether a rubric is a path: it is one word that starts with `./` or ends with `.md` or
/// `.txt`.
fn is_rubric_file_path(rubric: &str) -> bool {
    let is_word = !rubric.contains(char::is_whitespace);
    let has_text_ending = [".md", ".txt"].iter().any(|ending| rubric.ends_with(ending));
    is_word && (rubric.starts_with("./") || has_text_ending)
}

fn load_rubric_file(file_name: &str, ctx: &AgentLoadContext<'_>) -> Result<String, String> {
    let max = GradingConfig::RUBRIC_BYTES_MAX;
    let unusable_message =
        |reason: String| format!("the rubric `{file_name}` can't be used: {reason}");
    let bytes = project_file::read_file_in_project(ctx.root, Path::new(file_name), max)
        .map_err(|error| unusable_message(error.to_string()))?;
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let text =
        std::str::from_utf8(bytes).map_err(|_| unusable_message("it is not UTF-8".to_owned()))?;
    Ok(text.trim_end().to_owned())
}
