//! `longhaul trust`: what this project would run, send or open on its own, and whether a person has
//! looked at it.
//!
//! Invariant: neither silence nor a missing terminal is a yes.

pub(crate) mod confirm;
mod project;

use clap::{Args, Subcommand};
use longhaul::trust::decisions::TrustStatus;
use longhaul::trust::item::TrustItem;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::exit::Exit;
use crate::style::Tone;
use crate::table::{self, Cell};
use crate::trust::project::{ProjectTrust, decision_file_error};
use crate::{environment, output, sanitize};

const EXAMPLES: &str = "Examples:
  longhaul trust                   shows what this project would do, and asks
  longhaul trust --yes             trusts all of it without asking
  longhaul trust ls --json
  longhaul trust revoke            forgets every decision about this project

What counts: the servers of .mcp.json with what the project's .env fills in for them; of agents,
`perception: { command: ... }` or `{ url: ... }` and `shell` without walls; of the project's
longhaul.toml and .env, where send_message delivers by command or webhook, what `[outbound] allow`
opens, providers at an address that is not a known one or with a key that the project names, and
`[server]` listen, hosts and open_loopback. A decision covers what was shown, and the files of the
project that it names: what changes is asked about again, and the files that changed are named. Of
an agent with `shell` the newest 16 versions that you trusted stay so, so that runs which began with
one go on; `revoke` forgets them. Decisions are kept outside the project, in
~/.local/state/longhaul/trust.json or below XDG_STATE_HOME. Without a terminal nothing is trusted,
unless LONGHAUL_TRUST=1 stands in the real environment.";

/// What this project would do on its own.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Trust {
    #[command(subcommand)]
    command: Option<Command>,
    /// Trust what is shown without asking
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists what this project would do, and whether it is trusted; asks nothing
    #[command(after_help = EXAMPLES)]
    Ls {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Forgets every decision about this project
    #[command(after_help = EXAMPLES)]
    Revoke,
}

impl Trust {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let config = environment::load_config(&environment::process_env()?)?;
        let project = ProjectTrust::new(&config, &environment::load_agents(&config)?);
        match &self.command {
            Some(Command::Ls { json: true }) => print_json(&project),
            Some(Command::Revoke) => revoke(&project),
            None | Some(Command::Ls { .. }) if project.items.is_empty() => {
                output::stderr_line(
                    "This project would run nothing on its own: there is nothing to trust.",
                );
                Ok(())
            }
            Some(Command::Ls { .. }) => print_table(&project),
            None => decide(&project, self.yes),
        }
    }
}

/// Goes through all of it.
fn decide(project: &ProjectTrust, yes: bool) -> anyhow::Result<()> {
    // Nobody is to look at something for nothing.
    project.decisions.file_path().map_err(decision_file_error)?;
    let mut unknown = Vec::new();
    for item in &project.items {
        match project.decisions.recorded_status(item) {
            TrustStatus::Trusted => {
                output::stderr_line(&sanitize::line(&format!("{item} is trusted already.")))
            }
            TrustStatus::Unknown(why) => {
                unknown.push(sanitize::line(&format!("{item} can't be trusted: {why}")));
            }
            TrustStatus::TrustedByVariable | TrustStatus::Undecided | TrustStatus::Changed(_) => {}
        }
    }
    let open = project.undecided_items();
    match yes {
        true => {
            for item in &open {
                confirm::print_item(&project.decisions, item);
            }
            confirm::record_trust(&project.decisions, &open)?;
        }
        false if open.is_empty() => {}
        false => confirm::ask(&project.decisions, &open)?,
    }
    // The others are decided about all the same.
    if !unknown.is_empty() {
        return Err(CliError::usage(unknown.join("; ")).into());
    }
    let many = match project.undecided_items().len() {
        0 => return Ok(()),
        1 => "1 thing of this project is not trusted, and not done".to_owned(),
        many => format!("{many} things of this project are not trusted, and not done"),
    };
    Err(CliError::usage(many)
        .with_exit(Exit::NotAllowed)
        .hint("see what they are", "longhaul trust ls")
        .hint("decide at a terminal", "longhaul trust")
        .hint("trust all that is shown", "longhaul trust --yes")
        .into())
}

fn print_json(project: &ProjectTrust) -> anyhow::Result<()> {
    let item = |item: &TrustItem| {
        json!({
            "kind": item.kind.as_str(),
            "name": item.name,
            "status": project.decisions.status(item).as_str(),
            "hash": item.settings,
            "files": item.files.as_ref().ok(),
            "lines": item.lines,
            "used_by": item.used_by,
        })
    };
    let data = json!({
        "items": project.items.iter().map(item).collect::<Value>(),
        "decisions_file": project.decisions.file_path().ok(),
    });
    output::stdout_json(&data)
}

fn print_table(project: &ProjectTrust) -> anyhow::Result<()> {
    let row = |item: &TrustItem| {
        let (status, tone) = match project.decisions.status(item) {
            TrustStatus::Trusted => ("trusted".to_owned(), Tone::Good),
            TrustStatus::TrustedByVariable => {
                ("trusted by LONGHAUL_TRUST=1".to_owned(), Tone::Good)
            }
            TrustStatus::Undecided => ("not trusted".to_owned(), Tone::NeedsPerson),
            TrustStatus::Changed(_) => {
                ("changed since it was trusted".to_owned(), Tone::NeedsPerson)
            }
            TrustStatus::Unknown(why) => (format!("not trusted: {why}"), Tone::Bad),
        };
        let used_by = match item.used_by.is_empty() {
            true => "nobody".to_owned(),
            false => item.used_by.join(", "),
        };
        vec![
            Cell::new(&item.name).truncated(60),
            Cell::new(item.kind.as_str()),
            Cell::new(status).tone(tone),
            Cell::new(used_by).truncated(60),
        ]
    };
    let rows = project.items.iter().map(row);
    let head = ["ITEM", "KIND", "STATUS", "USED BY"];
    table::print(&head, rows)
}

fn revoke(project: &ProjectTrust) -> anyhow::Result<()> {
    let gone = project.decisions.revoke().map_err(decision_file_error)?;
    output::stdout_text(&match gone {
        0 => "Nothing of this project was trusted.".to_owned(),
        1 => "1 decision about this project is forgotten.".to_owned(),
        many => format!("{many} decisions about this project are forgotten."),
    })?;
    if gone > 0 {
        output::stderr_line("note: what was started before goes on; nothing of it is started anew");
    }
    Ok(())
}
