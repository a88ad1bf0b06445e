//! What a person sees first: where everything is.
//!
//! Never: in a log file. The link in it opens the pages, once.

use longhaul::assemble::{ProjectRuntime, store_file};
use longhaul_engine::secret::Secret;

use crate::output;

/// Shows where everything is.
pub(crate) fn print_banner(house: &ProjectRuntime, url: &str, ticket: &Secret) {
    let data = store_file(&house.config).map(|file| display_path(house, &file)).unwrap_or_default();
    let model = match house.longhaul.services().models.resolve(None) {
        Ok(found) => found.name,
        Err(_) => "none by default".to_owned(),
    };
    let agents = house.loaded.agents.len();
    let lines = [
        ("API", format!("{url}/v1"), "described at /openapi.json"),
        ("Data", data, "survives restarts"),
        ("Agents", agents.to_string(), "longhaul agents"),
        ("Model", model, "where an agent names none"),
        ("Stop", "Ctrl-C".to_owned(), "runs go on when it starts again"),
    ];
    output::stderr_line(&format!("\n  Longhaul {}\n", env!("CARGO_PKG_VERSION")));
    output::stderr_line(&format!("  Pages    {url}/?t={}", ticket.reveal()));
    output::stderr_line(
        "           opens once, within 10 minutes; another one: longhaul keys link",
    );
    for (name, what, more) in lines {
        output::stderr_line(&format!("  {name:<8} {what:<36} {more}"));
    }
    output::stderr_line("");
}

/// A file as it is said to people: relative to the project where it is inside.
fn display_path(house: &ProjectRuntime, file: &std::path::Path) -> String {
    let inside = file.strip_prefix(&house.config.root);
    inside.unwrap_or(file).display().to_string()
}
