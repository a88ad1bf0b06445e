//! `longhaul trust`: shows which programs this project would start, where it would send data and
//! which network access it would open, and records whether the user trusts it.
//!
//! Invariant: neither silence nor a missing terminal counts as a yes.

pub(crate) mod confirm;
mod project;

use clap::{Args, Subcommand};
use longhaul_project::trust::decisions::TrustStatus;
use longhaul_project::trust::item::TrustItem;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::exit::Exit;
use crate::style::TextTone;
use crate::table::{self, TableCell};
use crate::trust::project::{ProjectTrust, decision_file_error};
use crate::{environment, output, sanitize};

const EXAMPLES: &str = "Examples:
  longhaul trust                   shows what this project would do and asks
  longhaul trust --yes             trusts all of it without asking
  longhaul trust ls --json
  longhaul trust revoke            deletes every decision about this project

What needs trust:
  .mcp.json           the servers, with the values that the project's .env sets
  agents              `perception: { command: ... }` or `{ url: ... }`, and unsandboxed `shell`
  longhaul.toml, .env commands and webhooks of send_message;
                      addresses that `[outbound] allow` opens;
                      providers at an unknown address or with a key that the project names;
                      `[server]` listen, hosts and open_loopback
  inbox/              folders whose files start runs

A decision covers what was shown and the project's files that it names. After a change you are
asked again, and the changed files are named. The newest 16 trusted versions of an agent with
`shell` stay trusted, so that runs which started with one can continue; `revoke` deletes them.

Decisions are stored outside the project, in ~/.local/state/longhaul/trust.json or below
XDG_STATE_HOME. Without a terminal nothing is trusted, unless LONGHAUL_TRUST=1 is set in the real
environment.";

/// Arguments of `longhaul trust`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct TrustCommand {
    #[command(subcommand)]
    command: Option<TrustSubcommand>,
    /// Trust everything that is shown, without asking
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Subcommand)]
enum TrustSubcommand {
    /// Lists what this project would do on its own and whether that is trusted; asks nothing
    Ls {
        /// Print the items as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Deletes every trust decision about this project
    Revoke,
}

impl TrustCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let config = environment::load_config(&environment::current_process_env()?)?;
        let project = ProjectTrust::new(&config, &environment::load_agents(&config)?);
        match &self.command {
            Some(TrustSubcommand::Ls { json: true }) => {
                let item_json = |item: &TrustItem| {
                    let TrustItem { kind, name, settings_digest, files, lines, used_by, .. } = item;
                    json!({
                        "kind": kind.as_str(), "name": name, "hash": settings_digest,
                        "lines": lines, "status": project.decisions.trust_status(item).as_str(),
                        "files": files.as_ref().ok(), "used_by": used_by,
                    })
                };
                output::print_json(&json!({
                    "items": project.items.iter().map(item_json).collect::<Value>(),
                    "decisions_file": project.decisions.decision_file_path_if_readable().ok(),
                }))
            }
            Some(TrustSubcommand::Revoke) => {
                let count =
                    project.decisions.revoke_all_and_count().map_err(decision_file_error)?;
                output::print_text(&match count {
                    0 => "Nothing of this project was trusted.".to_owned(),
                    1 => "1 decision about this project is deleted.".to_owned(),
                    count => format!("{count} decisions about this project are deleted."),
                })?;
                if count > 0 {
                    output::eprint_line(
                        "note: running programs keep running, but are not started again",
                    );
                }
                Ok(())
            }
            None | Some(TrustSubcommand::Ls { .. }) if project.items.is_empty() => {
                output::eprint_line(
                    "This project would run nothing on its own: there is nothing to trust.",
                );
                Ok(())
            }
            Some(TrustSubcommand::Ls { .. }) => print_trust_table(&project),
            None => review_untrusted_items(&project, self.yes),
        }
    }
}

/// Shows the items that are not trusted yet. Then asks about them or, if `--yes` is given, trusts
/// them without asking.
fn review_untrusted_items(project: &ProjectTrust, assume_yes: bool) -> anyhow::Result<()> {
    // Checked first, so that nobody reviews items whose decision can't be stored.
    project.decisions.decision_file_path_if_readable().map_err(decision_file_error)?;
    let mut unknown = Vec::new();
    for item in &project.items {
        match project.decisions.trust_status_by_decisions(item) {
            TrustStatus::Trusted => output::eprint_line(&sanitize::sanitize_line(&format!(
                "{item} is trusted already."
            ))),
            TrustStatus::Unknown(reason) => {
                unknown
                    .push(sanitize::sanitize_line(&format!("{item} can't be trusted: {reason}")));
            }
            TrustStatus::TrustedByVariable | TrustStatus::Undecided | TrustStatus::Changed(_) => {}
        }
    }
    let untrusted = project.untrusted_items();
    match assume_yes {
        true => {
            for item in &untrusted {
                confirm::print_trust_item(&project.decisions, item);
            }
            confirm::record_trust(&project.decisions, &untrusted)?;
        }
        false if untrusted.is_empty() => {}
        false => confirm::ask_for_trust(&project.decisions, &untrusted)?,
    }
    // Reported last, after the decisions about the other items.
    if !unknown.is_empty() {
        return Err(CliError::usage_error(unknown.join("; ")).into());
    }
    let message = match project.untrusted_items().len() {
        0 => return Ok(()),
        1 => "1 item of this project is not trusted and stays disabled".to_owned(),
        count => format!("{count} items of this project are not trusted and stay disabled"),
    };
    Err(CliError::usage_error(message)
        .with_exit_code(Exit::NotAllowed)
        .with_hint("see what they are", "longhaul trust ls")
        .with_hint("decide at a terminal", "longhaul trust")
        .with_hint("trust all that is shown", "longhaul trust --yes")
        .into())
}

fn print_trust_table(project: &ProjectTrust) -> anyhow::Result<()> {
    let row = |item: &TrustItem| {
        let (status, tone) = match project.decisions.trust_status(item) {
            TrustStatus::Trusted => ("trusted".to_owned(), TextTone::Good),
            TrustStatus::TrustedByVariable => {
                ("trusted by LONGHAUL_TRUST=1".to_owned(), TextTone::Good)
            }
            TrustStatus::Undecided => ("not trusted".to_owned(), TextTone::NeedsPerson),
            TrustStatus::Changed(_) => {
                ("changed since it was trusted".to_owned(), TextTone::NeedsPerson)
            }
            TrustStatus::Unknown(reason) => (format!("not trusted: {reason}"), TextTone::Bad),
        };
        let used_by = match item.used_by.is_empty() {
            true => "nobody".to_owned(),
            false => item.used_by.join(", "),
        };
        let [name, used_by] =
            [&item.name, &used_by].map(|text| TableCell::new(text).with_max_chars(60));
        table::row(&[&name, &item.kind.as_str(), &TableCell::toned(status, tone), &used_by])
    };
    let rows = project.items.iter().map(row);
    let titles = ["ITEM", "KIND", "STATUS", "USED BY"];
    table::print_table(&titles, rows)
}
