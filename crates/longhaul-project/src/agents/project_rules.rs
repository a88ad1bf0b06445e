//! Project rules: `AGENTS.md` at the root of a project, which applies to all of its agents.
//!
//! The rules are never truncated, since a part of them could mean something else.

use std::path::Path;

use crate::agents::load_context::AgentLoadContext;
use crate::agents::problem::{AgentFileProblem, ProblemKind};
use crate::project_file::{self, ProjectFileError};

/// Name of the file with the project rules.
pub(crate) const RULES_FILE: &str = "AGENTS.md";

/// Maximum size of the project rules in bytes.
const RULES_BYTES_MAX: usize = 256 << 10;

/// Loads the project rules. If there is no file, the rules are empty.
pub(crate) fn load_agents_md_rules(ctx: &AgentLoadContext<'_>) -> Result<String, AgentFileProblem> {
    let problem = |message: String| AgentFileProblem {
        path: ctx.display_root.join(RULES_FILE),
        line: 1,
        column: 1,
        message: format!(
            "{message}; the file contains the rules of all agents, so no agent can be used"
        ),
        kind: ProblemKind::Invalid,
    };
    let bytes = match project_file::read_file_in_project(
        ctx.root,
        Path::new(RULES_FILE),
        RULES_BYTES_MAX,
    ) {
        Ok(bytes) => bytes,
        Err(ProjectFileError::Missing) => return Ok(String::new()),
        Err(error) => return Err(problem(error.to_string())),
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| problem("the file is not UTF-8: save it as UTF-8".to_owned()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(text.replace("\r\n", "\n").trim().to_owned())
}
