//! `longhaul trust`: what this project would run on its own, and whether a person
//! has looked at it.
//!
//! Never: takes silence, or a missing terminal, for a yes.

pub(crate) mod asking;
mod project;

use clap::{Args, Subcommand};
use longhaul::trust::thing::Thing;
use longhaul::trust::warden::Verdict;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::fail::Failure;
use crate::paint::{Paint, Tone};
use crate::table::{Cell, table};
use crate::trust::project::{Project, unwritten};
use crate::{here, plain, say};

const EXAMPLES: &str = "Examples:
  longhaul trust                   shows what this project would run, and asks about each
  longhaul trust --yes             trusts all of it without asking
  longhaul trust ls --json
  longhaul trust add .mcp.json     asks about one thing
  longhaul trust revoke            forgets every decision about this project
  longhaul trust revoke .mcp.json

What counts: the servers of .mcp.json with what the project's .env fills in for them; of agents,
`perception: { command: ... }` or `{ url: ... }` and `shell` without walls; of the project's
longhaul.toml and .env, where send_message delivers by command or webhook, what `[outbound] allow`
opens, providers at an address that is not a known one or with a key that the project names, and
`[server]` listen, hosts and open_loopback. A decision is bound to what was shown, and to the files of the project that it
names: what changes is asked about again. Of an agent with `shell` the newest 16 versions that you
trusted stay so, so that runs which began with one go on; `revoke` forgets them. Decisions are kept
outside the project, in ~/.local/state/longhaul/trust.json or below XDG_STATE_HOME. Without a
terminal nothing is trusted, unless LONGHAUL_TRUST=1 stands in the real environment.";

/// What this project would run.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Trust {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    all: Yes,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists what this project would run, and how it stands; asks nothing
    #[command(after_help = EXAMPLES)]
    Ls(Ls),
    /// Asks about some of it
    #[command(after_help = EXAMPLES)]
    Add(Add),
    /// Forgets decisions about this project
    #[command(after_help = EXAMPLES)]
    Revoke(Revoke),
}

#[derive(Debug, Args)]
struct Yes {
    /// Trust what is shown without asking
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct Ls {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Add {
    /// Only these, by their names in the list
    #[arg(value_name = "THING", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    yes: Yes,
}

#[derive(Debug, Args)]
struct Revoke {
    /// Only these, by their names in the list; without, all of this project
    #[arg(value_name = "THING")]
    names: Vec<String>,
}

impl Trust {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let config = here::config(&here::surroundings()?)?;
        let project = Project::of(&config)?;
        match &self.command {
            None => decide(&project, self.all.yes),
            Some(Command::Ls(ls)) => ls.run(&project),
            Some(Command::Add(add)) => decide(&project.named(&add.names)?, add.yes.yes),
            Some(Command::Revoke(revoke)) => revoke.run(&project),
        }
    }
}

/// Goes through all of it.
fn decide(project: &Project, yes: bool) -> anyhow::Result<Exit> {
    if project.things.is_empty() {
        say::talk("This project would run nothing on its own: there is nothing to trust.");
        return Ok(Exit::Done);
    }
    // Nobody is to look at something for nothing.
    project.warden.book().map_err(unwritten)?;
    project.warden.decided().map_err(unwritten)?;
    for thing in &project.things {
        match project.warden.may(thing) {
            Verdict::Trusted => say::talk(&plain::line(&format!("{thing} is trusted already."))),
            Verdict::Unknown(why) => {
                let said = plain::line(&format!("{thing} can't be trusted: {why}"));
                return Err(Failure::usage(said).into());
            }
            Verdict::Unasked | Verdict::New | Verdict::Changed if yes => {
                asking::show(&project.warden, thing);
                asking::trust(&project.warden, thing)?;
            }
            Verdict::Unasked | Verdict::New | Verdict::Changed => {
                asking::ask(&project.warden, thing)?;
            }
        }
    }
    // A variable of this process is no decision that stays.
    let decided = project.warden.decided().map_err(unwritten)?;
    let is_open = |thing: &&Thing| {
        let hash = thing.hash.as_ref().ok();
        !decided.iter().any(|entry| {
            entry.kind == thing.kind && entry.name == thing.name && Some(&entry.hash) == hash
        })
    };
    let open = project.things.iter().filter(is_open).count();
    if open == 0 {
        return Ok(Exit::Done);
    }
    let many = match open {
        1 => "1 thing of this project is not trusted, and not run".to_owned(),
        many => format!("{many} things of this project are not trusted, and not run"),
    };
    Err(Failure::usage(many)
        .exit(Exit::NotAllowed)
        .hint("see how it stands", "longhaul trust ls")
        .hint("decide at a terminal", "longhaul trust")
        .hint("trust all that is shown", "longhaul trust --yes")
        .into())
}

impl Ls {
    fn run(&self, project: &Project) -> anyhow::Result<Exit> {
        let stands = |thing: &Thing| project.warden.may(thing);
        if self.json {
            let list = project.things.iter().map(|thing| {
                json!({
                    "kind": thing.kind.as_str(),
                    "name": thing.name,
                    "status": stands(thing).as_str(),
                    "hash": thing.hash.as_ref().ok(),
                    "runs": thing.shown,
                    "used_by": thing.used_by,
                })
            });
            let data = json!({
                "things": list.collect::<Value>(),
                "kept_in": project.warden.book().ok(),
            });
            say::json(&data.to_string())?;
            return Ok(Exit::Done);
        }
        if project.things.is_empty() {
            say::talk("This project would run nothing on its own: there is nothing to trust.");
            return Ok(Exit::Done);
        }
        let rows: Vec<Vec<Cell>> = project
            .things
            .iter()
            .map(|thing| {
                let (said, tone) = said(&stands(thing));
                let used_by = match thing.used_by.is_empty() {
                    true => "nobody".to_owned(),
                    false => thing.used_by.join(", "),
                };
                vec![
                    Cell::new(&thing.name).at_most(60),
                    Cell::new(thing.kind.as_str()),
                    Cell::new(said).tone(tone),
                    Cell::new(used_by).at_most(60),
                ]
            })
            .collect();
        let head = ["THING", "KIND", "STATUS", "USED BY"];
        for line in table(&head, &rows, Paint::for_stdout()) {
            say::data(&line)?;
        }
        Ok(Exit::Done)
    }
}

fn said(verdict: &Verdict) -> (String, Tone) {
    match verdict {
        Verdict::Trusted => ("trusted".to_owned(), Tone::Good),
        Verdict::Unasked => ("trusted by LONGHAUL_TRUST=1".to_owned(), Tone::Good),
        Verdict::New => ("not trusted".to_owned(), Tone::You),
        Verdict::Changed => ("changed since it was trusted".to_owned(), Tone::You),
        Verdict::Unknown(why) => (format!("not trusted: {why}"), Tone::Bad),
    }
}

impl Revoke {
    fn run(&self, project: &Project) -> anyhow::Result<Exit> {
        let decided = project.warden.decided().map_err(unwritten)?;
        // What the project names no more may still have been trusted once.
        for name in &self.names {
            if !decided.iter().any(|entry| entry.name == *name) {
                return Err(
                    Failure::usage(format!("nothing called `{name}` is trusted here"))
                        .hint("see what is", "longhaul trust ls")
                        .into(),
                );
            }
        }
        let which = |name: &String| self.names.is_empty() || self.names.contains(name);
        let gone = match decided.is_empty() {
            true => 0,
            false => project
                .warden
                .revoke(|entry| which(&entry.name))
                .map_err(unwritten)?,
        };
        say::words(&match gone {
            0 => "Nothing of this project was trusted.".to_owned(),
            1 => "1 decision about this project is forgotten.".to_owned(),
            many => format!("{many} decisions about this project are forgotten."),
        })?;
        if gone > 0 {
            say::talk("note: what was started before goes on; nothing of it is started anew");
        }
        Ok(Exit::Done)
    }
}
