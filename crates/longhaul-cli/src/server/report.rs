//! The banner of a server with its addresses and files. It is never written to a log file, because it
//! contains a one-time login link.

use longhaul::project::ProjectRuntime;
use longhaul_engine::secret::Secret;
use longhaul_project::assemble::sqlite_store_path;

use crate::output;

/// Prints the banner of a server that listens at this URL. The ticket is the secret of the login
/// link.
pub(crate) fn print_banner(runtime: &ProjectRuntime, url: &str, ticket: &Secret) {
    let store = sqlite_store_path(&runtime.config).unwrap_or_default();
    let data = store.strip_prefix(&runtime.config.root).unwrap_or(&store).display().to_string();
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
