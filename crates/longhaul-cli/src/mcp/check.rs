//! `longhaul mcp check`: starts the servers that are trusted, all at once, and
//! lists their tools.
//!
//! Never: a server that nobody trusts, and never waits without an end.

use std::time::Duration;

use clap::Args;
use futures_util::{StreamExt as _, stream};
use longhaul::assemble::line::{Line, Report, Unheard};
use longhaul::assemble::{clients, slow, supplies};
use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::trust::decisions::Decisions;
use longhaul::trust::item::Item;
use longhaul_core::policy::effect::EffectClass;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::exit::Exit;
use crate::mcp::report::{nothing, project, tell};
use crate::paint::{Paint, Tone};
use crate::table::{Cell, table};
use crate::trust::asking;
use crate::{here, plain, runtime, say};

/// So long is waited for one server. It may be greeted twice, half a minute each, and
/// why that came to nothing is worth more than that it took long.
const WHOLE_MAX: Duration = Duration::from_secs(75);

/// So many are asked at once.
const AT_ONCE: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Only these; without, all that are not disabled
    #[arg(value_name = "SERVER")]
    names: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What came of asking one.
struct Checked {
    name: String,
    outcome: Result<Report, Trouble>,
}

/// Why one did not answer.
struct Trouble {
    exit: Exit,
    why: String,
    needs_login: bool,
}

impl Check {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (config, file) = project()?;
        if let Some(problem) = file.problems.first() {
            return Err(CliError::usage(problem.to_string())
                .hint("see all that is wrong", "longhaul mcp ls")
                .into());
        }
        let names = self.names(&file)?;
        if names.is_empty() {
            nothing(&file);
            if self.json {
                say::json(&json!({ "checks": [] }))?;
            }
            return Ok(Exit::Done);
        }
        allowed(&config, &file)?;
        let checks = runtime::driving()?.block_on(check(&config, &file, names));
        let troubles = checks.iter().filter_map(|one| one.outcome.as_ref().err());
        let exits: Vec<Exit> = troubles.map(|trouble| trouble.exit).collect();
        // What is to be mended comes before what may pass.
        let exit = match exits.contains(&Exit::Usage) {
            true => Some(Exit::Usage),
            false => exits.first().copied(),
        };
        if self.json {
            let list = checks.iter().map(shown);
            say::json(&json!({ "checks": list.collect::<Value>() }))?;
        } else {
            for one in &checks {
                told(one)?;
            }
            tell(&file);
        }
        Ok(exit.unwrap_or(Exit::Done))
    }

    /// Who is asked.
    fn names(&self, file: &McpFile) -> anyhow::Result<Vec<String>> {
        if self.names.is_empty() {
            let used = file.servers.iter().filter(|server| !server.disabled);
            return Ok(used.map(|server| server.name.clone()).collect());
        }
        for name in &self.names {
            file.find(name)
                .map_err(|why| CliError::usage(why).hint("all servers", "longhaul mcp ls"))?;
        }
        Ok(self.names.clone())
    }
}

/// Asks the person at the terminal, if there is one; nobody else can be asked.
pub(crate) fn allowed(config: &Config, file: &McpFile) -> anyhow::Result<()> {
    let Some(item) = Item::mcp(file) else {
        return Ok(());
    };
    let decisions = Decisions::new(config);
    if decisions.check(&item).is_err() && say::is_somebody_there() {
        asking::ask(&decisions, &[&item])?;
    }
    decisions.check(&item).map_err(|why| {
        CliError::usage(why)
            .exit(Exit::NotAllowed)
            .hint("look at it and decide", "longhaul trust")
            .hint("see what it names", "longhaul mcp ls")
            .into()
    })
}

async fn check(config: &Config, file: &McpFile, names: Vec<String>) -> Vec<Checked> {
    let line = clients::line(config, file, &here::system_clock());
    let served = supplies::Served::new(config, file.clone(), line.clone());
    let asked = names.into_iter().map(|name| {
        let (served, line) = (&served, &*line);
        async move {
            let outcome = match served.may(&name) {
                Err(why) => Err(Trouble {
                    exit: Exit::Usage,
                    why,
                    needs_login: false,
                }),
                Ok(()) => ask(line, &name).await,
            };
            Checked { name, outcome }
        }
    });
    let checks = stream::iter(asked).buffered(AT_ONCE).collect().await;
    served.close().await;
    checks
}

async fn ask(line: &dyn Line, name: &str) -> Result<Report, Trouble> {
    say::talk(&format!("{name}: starting ..."));
    let most = WHOLE_MAX.as_secs();
    let asked = slow::wait(tokio::time::timeout(WHOLE_MAX, line.check(name)), || {
        say::talk(&format!(
            "{name}: no answer yet; it is waited for, {most} s at most"
        ));
    });
    let asked = asked.await;
    let late = || {
        Err(Unheard {
            why: format!("no whole answer in {most} s"),
            needs_login: false,
        })
    };
    let asked = asked.unwrap_or_else(|_| late());
    asked.map_err(|Unheard { why, needs_login }| Trouble {
        exit: Exit::Busy,
        why,
        needs_login,
    })
}

const fn class(class: EffectClass) -> &'static str {
    match class {
        EffectClass::Pure => "pure",
        EffectClass::Keyed => "keyed",
        EffectClass::Once => "once",
        EffectClass::Session => "session",
    }
}

fn told(one: &Checked) -> anyhow::Result<()> {
    let paint = Paint::for_stdout();
    let report = match &one.outcome {
        Ok(report) => report,
        Err(trouble) => {
            let bad = paint.tone(Tone::Bad, "failed");
            return say::data(&format!(
                "{}  {bad}: {}",
                one.name,
                plain::text(&trouble.why)
            ));
        }
    };
    let many = match report.tools.len() {
        1 => "1 tool".to_owned(),
        many => format!("{many} tools"),
    };
    let good = paint.tone(Tone::Good, "ok");
    let said = format!(
        ", {} ms, {} {}, protocol {}, {many}",
        report.took.0, report.name, report.version, report.protocol
    );
    say::data(&format!("{}  {good}{}", one.name, plain::line(&said)))?;
    let rows: Vec<Vec<Cell>> = report
        .tools
        .iter()
        .map(|tool| {
            let name = format!("  {}", tool.name);
            vec![Cell::new(name), Cell::new(class(tool.class))]
        })
        .collect();
    if !rows.is_empty() {
        for line in table(&["  TOOL", "CLASS"], &rows, paint) {
            say::data(&line)?;
        }
    }
    for note in &report.notes {
        say::talk(&format!("note: {}: {note}", one.name));
    }
    Ok(())
}

fn shown(one: &Checked) -> Value {
    match &one.outcome {
        Ok(report) => {
            let tools = report.tools.iter().map(|tool| {
                json!({
                    "name": tool.name,
                    "class": class(tool.class),
                })
            });
            json!({
                "server": one.name,
                "ok": true,
                "name": report.name,
                "version": report.version,
                "protocol": report.protocol,
                "tools": tools.collect::<Value>(),
                "notes": report.notes,
                "millis": report.took.0,
                "message": null,
                "needs_login": false,
            })
        }
        Err(trouble) => json!({
            "server": one.name,
            "ok": false,
            "tools": [],
            "notes": [],
            "message": trouble.why,
            "needs_login": trouble.needs_login,
        }),
    }
}
