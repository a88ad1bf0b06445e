//! The banner that a server prints when it starts: its addresses and files. The banner is never
//! written to a log file, because it contains a one-time login link.

use longhaul::project::ProjectRuntime;
use longhaul_engine::secret::Secret;
use longhaul_project::assemble::sqlite_store_path;

use crate::output;

/// Prints the banner of a server that listens at this URL. The ticket is the secret of the login
/// link.
pub(crate) fn print_banner(runtime: &ProjectRuntime, url: &str, ticket: &Secret) {
    let data = sqlite_store_path(&runtime.config)
        .map(|file| display_path(runtime, &file))
        .unwrap_or_default();
    let model = match runtime.longhaul.services().models.resolve_model_name(None) {
        Ok(model) => model.name,
        Err(_) => "none by default".to_owned(),
    };
    let agents = runtime.loaded.agents.len();
    let lines = [
        ("API", format!("{url}/v1"), "described at /openapi.json"),
        ("Data", data, "survives restarts"),
        ("Agents", agents.to_string(), "longhaul agents"),
        ("Model", model, "if an agent names none"),
        ("Stop", "Ctrl-C".to_owned(), "runs continue after a restart"),
    ];
    output::eprint_line(&format!("\n  Longhaul {}\n", env!("CARGO_PKG_VERSION")));
    output::eprint_line(&format!("  Pages    {url}/?t={}", ticket.reveal()));
    output::eprint_line(
        "           one-time link, valid for 10 minutes; another one: longhaul keys link",
    );
    for (name, value, note) in lines {
        output::eprint_line(&format!("  {name:<8} {value:<36} {note}"));
    }
    output::eprint_line("");
}

/// Returns the path of a file, relative to the project if the file is inside it.
fn display_path(runtime: &ProjectRuntime, file: &std::path::Path) -> String {
    let relative_path = file.strip_prefix(&runtime.config.root);
    relative_path.unwrap_or(file).display().to_string()
}
