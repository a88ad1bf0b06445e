//! Shows a person exactly what would be run, and takes the decision.
//!
//! Never: asks where nobody sits at a terminal, takes anything but a clear yes for
//! one, or lets what is shown look like a line of ours.

use longhaul::config::settings::Config;
use longhaul::trust::thing::Thing;
use longhaul::trust::warden::{Verdict, Warden};
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;

use crate::trust::project::{Project, unwritten};
use crate::{plain, say};

/// Asks the person at the terminal about everything that agents would have run,
/// or this one of them, unless nobody is to be asked. Returns what stays shut, in
/// sentences.
pub(crate) fn before(
    config: &Config,
    agent: Option<&str>,
    nobody: bool,
) -> anyhow::Result<Vec<String>> {
    let mut shut = Vec::new();
    for (warden, thing) in open(config, agent)? {
        if !nobody && say::is_somebody_there() {
            ask(&warden, &thing)?;
        }
        let verdict = warden.may(&thing);
        if !verdict.allows() {
            shut.push(plain::line(&verdict.sentence(&thing)));
        }
    }
    Ok(shut)
}

fn open(config: &Config, agent: Option<&str>) -> anyhow::Result<Vec<(Warden, Thing)>> {
    let Project { warden, things } = Project::of(config)?;
    let is_meant = |thing: &Thing| match agent {
        Some(agent) => thing.used_by.iter().any(|user| user == agent),
        None => !thing.used_by.is_empty(),
    };
    let open = things
        .into_iter()
        .filter(|thing| is_meant(thing) && !warden.may(thing).allows());
    Ok(open.map(|thing| (warden.clone(), thing)).collect())
}

/// Shows what would be run.
pub(crate) fn show(warden: &Warden, thing: &Thing) {
    let word = match warden.may(thing) {
        Verdict::Changed => "It has CHANGED since it was trusted. ",
        Verdict::Trusted | Verdict::Unasked | Verdict::New | Verdict::Unknown(_) => "",
    };
    talk(&format!(
        "{word}{} ({}):",
        heading(thing),
        thing.kind.about()
    ));
    for line in &thing.shown {
        talk(&format!("  {line}"));
    }
    if !thing.used_by.is_empty() {
        talk(&format!("  used by: {}", thing.used_by.join(", ")));
    }
}

/// One line, whatever a stranger wrote into it.
fn talk(line: &str) {
    say::talk(&plain::line(line));
}

fn heading(thing: &Thing) -> String {
    format!("This project would {} {thing}", thing.kind.does())
}

/// Shows a thing and asks; a yes is kept. Without a terminal it only shows.
pub(crate) fn ask(warden: &Warden, thing: &Thing) -> anyhow::Result<()> {
    show(warden, thing);
    if !say::is_somebody_there() {
        return Ok(());
    }
    let agrees = |line: String| matches!(line.trim(), "y" | "yes");
    match say::ask("Trust it? [y/N]").is_some_and(agrees) {
        true => trust(warden, thing),
        false => Ok(()),
    }
}

/// Keeps a yes.
pub(crate) fn trust(warden: &Warden, thing: &Thing) -> anyhow::Result<()> {
    warden.trust(thing, SystemClock.now()).map_err(unwritten)?;
    talk(&match thing.kind.kept() {
        1 => format!("{thing} is trusted until it changes."),
        many => format!(
            "{thing} is trusted as it stands now. The newest {many} versions of it that you \
             trusted stay so until `longhaul trust revoke`."
        ),
    });
    Ok(())
}
