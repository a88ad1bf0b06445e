//! What a person sees first: where everything is.
//!
//! Never: in a log file. The link in it opens the pages, once.

use longhaul::assemble::{House, store_file};
use longhaul_engine::secret::Secret;

use crate::say;

/// Shows where everything is.
pub(crate) fn banner(house: &House, url: &str, ticket: &Secret) {
    let data = store_file(&house.config)
        .map(|file| shown(house, &file))
        .unwrap_or_default();
    let model = match house.longhaul.ports().models.find(None) {
        Ok(found) => found.name,
        Err(_) => "none by default".to_owned(),
    };
    let agents = house.loaded.agents.len();
    let lines = [
        ("API", format!("{url}/v1"), "described at /openapi.json"),
        ("Data", data, "survives restarts"),
        ("Agents", agents.to_string(), "longhaul agents"),
        ("Model", model, "where an agent names none"),
        (
            "Stop",
            "Ctrl-C".to_owned(),
            "runs go on when it starts again",
        ),
    ];
    say::talk(&format!("\n  Longhaul {}\n", env!("CARGO_PKG_VERSION")));
    say::talk(&format!("  Pages    {url}/?t={}", ticket.reveal()));
    say::talk("           opens once, within 10 minutes; another one: longhaul keys link");
    for (name, what, more) in lines {
        say::talk(&format!("  {name:<8} {what:<36} {more}"));
    }
    say::talk("");
}

/// A file as it is said to people: relative to the project where it is inside.
fn shown(house: &House, file: &std::path::Path) -> String {
    let inside = file.strip_prefix(&house.config.root);
    inside.unwrap_or(file).display().to_string()
}
