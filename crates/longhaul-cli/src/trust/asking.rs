//! Shows a person what a project would do, and takes the decision. Only values that may be secrets
//! are named and not shown.
//!
//! Invariant: only a clear yes at a terminal counts as one, and no text of the project looks like
//! a line of ours.

use longhaul::agents::loaded::Loaded;
use longhaul::config::settings::Config;
use longhaul::trust::decisions::{Decisions, SHELL_VERSIONS_MAX, Status};
use longhaul::trust::item::{Item, Kind};
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;

use crate::trust::project::{Project, no_decisions};
use crate::{plain, say};

/// Asks the person at the terminal about what is not trusted and this agent needs, or any agent,
/// unless nobody is to be asked. Returns what stays refused, in sentences.
pub(crate) fn before(
    (config, agents): (&Config, &Loaded),
    agent: Option<&str>,
    nobody: bool,
) -> anyhow::Result<Vec<String>> {
    let project = Project::new(config, agents);
    let is_needed = |item: &&Item| match agent {
        Some(agent) => item.used_by.iter().any(|user| user == agent),
        None => !item.used_by.is_empty(),
    };
    let needed: Vec<&Item> = project.items.iter().filter(is_needed).collect();
    // A yes covers what is needed now, not what other agents would do.
    let open = needed.iter().copied().filter(|item| {
        let status = project.decisions.status(item);
        matches!(status, Status::New | Status::Changed(_))
    });
    let open: Vec<&Item> = open.collect();
    if !open.is_empty() && !nobody && say::is_somebody_there() {
        ask(&project.decisions, &open)?;
    }
    let refused = needed
        .iter()
        .filter_map(|item| project.decisions.check(item).err());
    Ok(refused.map(|sentence| plain::line(&sentence)).collect())
}

/// Shows these items and asks once about all of them; a yes is kept. Without a terminal it only
/// shows them.
pub(crate) fn ask(decisions: &Decisions, items: &[&Item]) -> anyhow::Result<()> {
    for item in items {
        show(decisions, item);
    }
    let agrees = |line: String| matches!(line.trim(), "y" | "yes");
    match say::is_somebody_there() && say::ask("Trust it? [y/N]").is_some_and(agrees) {
        true => trust(decisions, items),
        false => Ok(()),
    }
}

/// Keeps a yes. The files of these items can be read.
pub(crate) fn trust(decisions: &Decisions, items: &[&Item]) -> anyhow::Result<()> {
    let kept = decisions.trust(items, SystemClock.now());
    kept.map_err(no_decisions)?;
    for item in items {
        talk(&match item.kind {
            Kind::Shell => format!(
                "{item} is trusted as it is now; the newest {SHELL_VERSIONS_MAX} versions that \
                 you trusted stay so."
            ),
            Kind::Run | Kind::Send | Kind::Open => {
                format!("{item} is trusted until it changes.")
            }
        });
    }
    Ok(())
}

/// Shows what would be done.
pub(crate) fn show(decisions: &Decisions, item: &Item) {
    if let Status::Changed(files) = decisions.decided(item) {
        talk(&format!(
            "It has CHANGED since it was trusted: {}.",
            files.join(", ")
        ));
    }
    talk(&match item.kind {
        Kind::Run => format!("This project would run {item} outside any sandbox:"),
        Kind::Shell => format!("This project would let {item} run commands outside any sandbox:"),
        Kind::Send => format!("This project would send what is yours to {item}:"),
        Kind::Open => format!("This project would open {item}:"),
    });
    let files = item.file_names();
    let files = files.map(|names| format!("files of this project: {names}"));
    let used_by = match item.used_by.is_empty() {
        true => None,
        false => Some(format!("used by: {}", item.used_by.join(", "))),
    };
    for line in item.shown.iter().chain(&files).chain(&used_by) {
        talk(&format!("  {line}"));
    }
}

/// One line, whatever the project wrote into it.
fn talk(line: &str) {
    say::talk(&plain::line(line));
}
