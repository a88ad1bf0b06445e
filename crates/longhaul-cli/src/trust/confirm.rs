//! Shows a person what a project would do on its own, and records the decision to trust it. Values
//! that may be secrets are named but not shown.
//!
//! Invariants: only an explicit yes at a terminal counts, and no text of the project can look like
//! a line printed by Longhaul.

use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use longhaul_project::agents::loaded_agents::LoadedAgents;
use longhaul_project::config::settings::Config;
use longhaul_project::trust::decisions::{SHELL_VERSIONS_MAX, TrustDecisions, TrustStatus};
use longhaul_project::trust::item::{TrustItem, TrustKind};

use crate::trust::project::{ProjectTrust, decision_file_error};
use crate::{output, sanitize};

/// Asks the person at the terminal to trust the untrusted items that this agent needs, or that any
/// agent needs if no agent is given. Nobody is asked if `unattended` is set. Returns a message for
/// each item that stays untrusted.
pub(crate) fn ask_for_trust_before_run(
    (config, agents): (&Config, &LoadedAgents),
    agent: Option<&str>,
    unattended: bool,
) -> anyhow::Result<Vec<String>> {
    let project = ProjectTrust::new(config, agents);
    let is_needed = |item: &&TrustItem| match agent {
        Some(agent) => item.used_by.iter().any(|user| user == agent),
        None => !item.used_by.is_empty(),
    };
    let needed: Vec<&TrustItem> = project.items.iter().filter(is_needed).collect();
    // A yes covers only what is needed now, not what other agents would do.
    let undecided = needed.iter().copied().filter(|item| {
        let status = project.decisions.trust_status(item);
        matches!(status, TrustStatus::Undecided | TrustStatus::Changed(_))
    });
    let undecided: Vec<&TrustItem> = undecided.collect();
    if !undecided.is_empty() && !unattended && output::is_interactive() {
        ask_for_trust(&project.decisions, &undecided)?;
    }
    let refusals = needed.iter().filter_map(|item| project.decisions.check_trusted(item).err());
    Ok(refusals.map(|message| sanitize::sanitize_line(&message)).collect())
}

/// Shows these items, asks once whether to trust all of them, and records a yes. Without a terminal
/// the items are only shown.
pub(crate) fn ask_for_trust(
    decisions: &TrustDecisions,
    items: &[&TrustItem],
) -> anyhow::Result<()> {
    for item in items {
        print_trust_item(decisions, item);
    }
    match output::confirms("Trust it? [y/N]") {
        true => record_trust(decisions, items),
        false => Ok(()),
    }
}

/// Records that the user trusts these items. The files of the items must be readable.
pub(crate) fn record_trust(decisions: &TrustDecisions, items: &[&TrustItem]) -> anyhow::Result<()> {
    let result = decisions.record_trust(items, SystemClock.now());
    result.map_err(decision_file_error)?;
    for item in items {
        eprint_sanitized_line(&match item.kind {
            TrustKind::Shell => format!(
                "{item} is trusted as it is now; the newest {SHELL_VERSIONS_MAX} versions that \
                 you trusted stay trusted."
            ),
            TrustKind::Run | TrustKind::Send | TrustKind::Open => {
                format!("{item} is trusted until it changes.")
            }
        });
    }
    Ok(())
}

/// Prints what the project would do with an item that needs trust.
pub(crate) fn print_trust_item(decisions: &TrustDecisions, item: &TrustItem) {
    if let TrustStatus::Changed(files) = decisions.trust_status_by_decisions(item) {
        eprint_sanitized_line(&format!(
            "This item has CHANGED since it was trusted: {}.",
            files.join(", ")
        ));
    }
    eprint_sanitized_line(&match item.kind {
        TrustKind::Run => format!("This project would run {item} outside any sandbox:"),
        TrustKind::Shell => {
            format!("This project would let {item} run commands outside any sandbox:")
        }
        TrustKind::Send => format!("This project would send your data to {item}:"),
        TrustKind::Open => format!("This project would allow more access through {item}:"),
    });
    let files = item.joined_file_names();
    let files = files.map(|names| format!("files of this project: {names}"));
    let used_by = match item.used_by.is_empty() {
        true => None,
        false => Some(format!("used by: {}", item.used_by.join(", "))),
    };
    for line in item.lines.iter().chain(&files).chain(&used_by) {
        eprint_sanitized_line(&format!("  {line}"));
    }
}

/// Prints one line to stderr. Line breaks in the project's text are replaced.
fn eprint_sanitized_line(line: &str) {
    output::eprint_line(&sanitize::sanitize_line(line));
}
