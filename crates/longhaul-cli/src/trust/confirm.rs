//! Shows a person what a project would do, and takes the decision. Only values that may be secrets
//! are named and not shown.
//!
//! Invariant: only a clear yes at a terminal counts as one, and no text of the project looks like
//! a line of ours.

use longhaul::agents::loaded_agents::LoadedAgents;
use longhaul::config::settings::Config;
use longhaul::trust::decisions::{Decisions, SHELL_VERSIONS_MAX, TrustStatus};
use longhaul::trust::item::{TrustItem, TrustKind};
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;

use crate::trust::project::{ProjectTrust, decision_file_error};
use crate::{output, sanitize};

/// Asks the person at the terminal about what is not trusted and this agent needs, or any agent,
/// unless nobody is to be asked. Returns what stays refused, in sentences.
pub(crate) fn ask_before_run(
    (config, agents): (&Config, &LoadedAgents),
    agent: Option<&str>,
    nobody: bool,
) -> anyhow::Result<Vec<String>> {
    let project = ProjectTrust::new(config, agents);
    let is_needed = |item: &&TrustItem| match agent {
        Some(agent) => item.used_by.iter().any(|user| user == agent),
        None => !item.used_by.is_empty(),
    };
    let needed: Vec<&TrustItem> = project.items.iter().filter(is_needed).collect();
    // A yes covers what is needed now, not what other agents would do.
    let open = needed.iter().copied().filter(|item| {
        let status = project.decisions.status(item);
        matches!(status, TrustStatus::Undecided | TrustStatus::Changed(_))
    });
    let open: Vec<&TrustItem> = open.collect();
    if !open.is_empty() && !nobody && output::is_interactive() {
        ask(&project.decisions, &open)?;
    }
    let refused = needed.iter().filter_map(|item| project.decisions.check(item).err());
    Ok(refused.map(|sentence| sanitize::line(&sentence)).collect())
}

/// Shows these items and asks once about all of them; a yes is kept. Without a terminal it only
/// shows them.
pub(crate) fn ask(decisions: &Decisions, items: &[&TrustItem]) -> anyhow::Result<()> {
    for item in items {
        print_item(decisions, item);
    }
    let agrees = |line: String| matches!(line.trim(), "y" | "yes");
    match output::is_interactive() && output::prompt("Trust it? [y/N]").is_some_and(agrees) {
        true => record_trust(decisions, items),
        false => Ok(()),
    }
}

/// Keeps a yes. The files of these items can be read.
pub(crate) fn record_trust(decisions: &Decisions, items: &[&TrustItem]) -> anyhow::Result<()> {
    let kept = decisions.trust(items, SystemClock.now());
    kept.map_err(decision_file_error)?;
    for item in items {
        print_line(&match item.kind {
            TrustKind::Shell => format!(
                "{item} is trusted as it is now; the newest {SHELL_VERSIONS_MAX} versions that \
                 you trusted stay so."
            ),
            TrustKind::Run | TrustKind::Send | TrustKind::Open => {
                format!("{item} is trusted until it changes.")
            }
        });
    }
    Ok(())
}

/// Shows what would be done.
pub(crate) fn print_item(decisions: &Decisions, item: &TrustItem) {
    if let TrustStatus::Changed(files) = decisions.recorded_status(item) {
        print_line(&format!("It has CHANGED since it was trusted: {}.", files.join(", ")));
    }
    print_line(&match item.kind {
        TrustKind::Run => format!("This project would run {item} outside any sandbox:"),
        TrustKind::Shell => {
            format!("This project would let {item} run commands outside any sandbox:")
        }
        TrustKind::Send => format!("This project would send what is yours to {item}:"),
        TrustKind::Open => format!("This project would open {item}:"),
    });
    let files = item.file_names();
    let files = files.map(|names| format!("files of this project: {names}"));
    let used_by = match item.used_by.is_empty() {
        true => None,
        false => Some(format!("used by: {}", item.used_by.join(", "))),
    };
    for line in item.lines.iter().chain(&files).chain(&used_by) {
        print_line(&format!("  {line}"));
    }
}

/// One line, whatever the project wrote into it.
fn print_line(line: &str) {
    output::stderr_line(&sanitize::line(line));
}
