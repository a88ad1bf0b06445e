//! `longhaul models check`: asks providers for their models, all at once.
//!
//! Never: costs anything, waits without an end, or shows a key.

use std::time::Duration;

use clap::Args;
use futures_util::{StreamExt as _, stream};
use longhaul::assemble::menu::Menu;
use longhaul::assemble::providers::Provider;
use longhaul::config::known::{Api, SCRIPTED};
use longhaul::config::settings::Config;
use longhaul::trust::decisions::Decisions;
use longhaul::trust::sends;
use longhaul_core::failure::{Failure as Failed, FailureClass};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::{Stopwatch, SystemClock};
use longhaul_model::http::{Http, Limits};
use longhaul_model::roll::{Asker, Manner, models};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::exit::Exit;
use crate::paint::Tone;
use crate::table::{self, Cell};
use crate::{runtime, say};

/// So long is waited for a connection, and for each piece of an answer.
const CONNECT_MAX: Duration = Duration::from_secs(5);
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// So long is waited for the whole of one answer.
const WHOLE_MAX: Duration = Duration::from_secs(30);

/// So many are asked at once.
const AT_ONCE: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Only these; without, all that have a key or need none
    #[arg(value_name = "PROVIDER")]
    names: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What came of asking one.
#[derive(Debug)]
struct Report<'a> {
    provider: &'a Provider,
    took: Millis,
    outcome: Result<Vec<String>, Failed>,
    /// Nobody named it or set anything of it, so that it may well not be there.
    is_optional: bool,
}

impl Check {
    /// Asks; `filed` is the menu with the keys of the project's `.env`.
    pub(crate) fn run(&self, config: &Config, menu: &Menu, filed: &Menu) -> anyhow::Result<Exit> {
        let asked = self.trusted(config, self.asked(menu, filed)?)?;
        let named = !self.names.is_empty();
        let reports = runtime::small()?.block_on(async {
            let asking = asked.into_iter().map(|provider| ask(menu, provider, named));
            let asking = stream::iter(asking).buffered(AT_ONCE);
            asking.collect::<Vec<_>>().await
        });
        if self.json {
            let list = reports.iter().map(|report| report.shown(menu));
            say::json(&json!({ "checks": list.collect::<Value>() }))?;
            return Ok(exit(&reports));
        }
        let head = ["PROVIDER", "KEY", "ENDPOINT", "STATUS"];
        let mut rows: Vec<Vec<Cell>> = reports.iter().map(|report| report.row(menu)).collect();
        if !named {
            let idle = menu.providers.all().iter();
            let idle = idle.filter(|one| one.needs_key() && one.key(&menu.env).is_none());
            rows.extend(idle.map(unasked));
        }
        table::print(&head, rows)?;
        Ok(exit(&reports))
    }

    /// Those that may be sent a key. Whoever names another is told why it is not asked.
    fn trusted<'a>(
        &self,
        config: &Config,
        asked: Vec<&'a Provider>,
    ) -> anyhow::Result<Vec<&'a Provider>> {
        let decisions = Decisions::new(config);
        let mut trusted = Vec::new();
        for provider in asked {
            let item = sends::provider(config, &provider.name);
            let why = item.and_then(|item| decisions.check(&item).err());
            match why {
                None => trusted.push(provider),
                Some(why) if self.names.is_empty() => say::talk(&format!("note: {why}")),
                Some(why) => {
                    return Err(CliError::usage(why)
                        .exit(Exit::NotAllowed)
                        .hint("look at it and decide", "longhaul trust")
                        .into());
                }
            }
        }
        Ok(trusted)
    }

    /// Who is asked.
    fn asked<'a>(&self, menu: &'a Menu, filed: &Menu) -> anyhow::Result<Vec<&'a Provider>> {
        if self.names.is_empty() {
            let all = menu.providers.all().iter();
            return Ok(all
                .filter(|one| !one.needs_key() || one.key(&menu.env).is_some())
                .collect());
        }
        let mut asked = Vec::new();
        for name in &self.names {
            if name == SCRIPTED {
                return Err(
                    CliError::usage("`scripted` is built in: there is nobody to ask").into(),
                );
            }
            let provider = menu.providers.find(name).map_err(CliError::usage)?;
            if provider.needs_key() && provider.key(&menu.env).is_none() {
                let mut words =
                    format!("there is no key for `{name}`: set {}", provider.variables());
                if let Some((variable, _)) = provider.key(&filed.env) {
                    words.push_str(&format!(
                        "; .env sets {variable}, but this command does not read that file"
                    ));
                }
                return Err(CliError::usage(words)
                    .hint("see which are set", "longhaul models")
                    .into());
            }
            asked.push(provider);
        }
        Ok(asked)
    }
}

async fn ask<'a>(menu: &Menu, provider: &'a Provider, named: bool) -> Report<'a> {
    let watch = Stopwatch::start();
    let limits = Limits {
        connect: provider.limits.connect.min(CONNECT_MAX),
        first_byte: provider.limits.first_byte.min(ANSWER_MAX),
        idle: provider.limits.idle.min(ANSWER_MAX),
        ..provider.limits
    };
    let (key, headers) = (provider.key(&menu.env), provider.headers());
    let asker = Asker {
        provider: &provider.name,
        manner: match provider.api {
            Api::Anthropic => Manner::Anthropic,
            Api::Responses | Api::Chat => Manner::OpenAi,
        },
        key: key.as_ref().map(|(_, key)| key),
        headers: &headers,
        now: SystemClock.now(),
    };
    let outcome = match Http::new(&provider.base_url, limits) {
        Err(trouble) => Err(Failed::new(
            FailureClass::InvalidRequest,
            trouble.to_string(),
        )),
        Ok(http) => {
            let asking = tokio::time::timeout(WHOLE_MAX, models(&http, &asker)).await;
            let late = format!("no whole answer in {} s", WHOLE_MAX.as_secs());
            asking.unwrap_or_else(|_| Err(Failed::new(FailureClass::Timeout, late)))
        }
    };
    Report {
        provider,
        took: Millis(watch.nanos() / 1_000_000),
        outcome,
        is_optional: !named && !provider.needs_key() && !provider.is_set,
    }
}

/// One that was not asked, and what it lacks.
fn unasked(provider: &Provider) -> Vec<Cell> {
    vec![
        Cell::new(&provider.name),
        Cell::new("not set").tone(Tone::Faint),
        Cell::new(&provider.base_url),
        Cell::new(format!("not asked: set {}", provider.variables())).tone(Tone::Faint),
    ]
}

/// What is wrong, for people and for the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    /// Nothing.
    Well,
    /// It can't be reached now.
    Away,
    /// It is there, and something else answers than was hoped for.
    Odd,
    /// It does not take the key.
    Refused,
}

impl Report<'_> {
    fn grade(&self) -> Grade {
        let Err(failed) = &self.outcome else {
            return Grade::Well;
        };
        if is_a_page(failed) {
            return Grade::Odd;
        }
        match failed.class {
            FailureClass::Auth | FailureClass::Quota => Grade::Refused,
            FailureClass::InvalidRequest
            | FailureClass::ContextOverflow
            | FailureClass::Refused => Grade::Odd,
            FailureClass::RateLimit
            | FailureClass::Overloaded
            | FailureClass::Timeout
            | FailureClass::Network
            | FailureClass::Server
            | FailureClass::Lost
            | FailureClass::Stopped => Grade::Away,
        }
    }

    /// In a sentence, with what to do where something is to be done.
    fn said(&self, menu: &Menu) -> String {
        let failed = match &self.outcome {
            Ok(names) => return self.praise(menu, names),
            Err(failed) => failed,
        };
        let (provider, why) = (self.provider, &failed.message);
        match self.grade() {
            Grade::Well => String::new(),
            Grade::Away if self.is_optional => "does not run here".to_owned(),
            Grade::Away if provider.name == "ollama" => {
                format!("can't be reached, start it with `ollama serve`: {why}")
            }
            Grade::Away => format!("can't be reached or is busy, try again: {why}"),
            Grade::Odd => {
                let how = match is_a_page(failed) {
                    true => "answers, but not as a provider does:",
                    false => "answers otherwise,",
                };
                let version = match provider.api {
                    Api::Anthropic => "without /v1",
                    Api::Responses | Api::Chat => "with /v1",
                };
                format!("{how} look at base_url ({version}): {why}")
            }
            Grade::Refused => match provider.key(&menu.env) {
                Some((variable, _)) => {
                    format!("refuses the key in {variable}, put in another: {why}")
                }
                None => format!("wants a key, name its variable in key_env: {why}"),
            },
        }
    }

    fn praise(&self, menu: &Menu, names: &[String]) -> String {
        let many = match names.len() {
            1 => "1 model".to_owned(),
            many => format!("{many} models"),
        };
        let mut said = format!("ok, {} ms, {many}", self.took.0);
        if self.provider.name == "openrouter" {
            said.push_str("; the list is public, so the key was not tried");
        }
        if let Some(missing) = self.missing(menu, names) {
            said.push_str(&format!("; `{missing}`, its default, is not among them"));
        }
        said
    }

    /// The provider's default model, where the provider does not have it.
    fn missing(&self, menu: &Menu, names: &[String]) -> Option<String> {
        let name = &self.provider.name;
        let full = menu.default_of(name)?;
        let model = full.strip_prefix(&format!("{name}/"))?.to_owned();
        // Some lists have the dated editions only.
        let has = names
            .iter()
            .any(|one| *one == model || one.starts_with(&format!("{model}-2")));
        (!has && !names.is_empty()).then_some(model)
    }

    fn row(&self, menu: &Menu) -> Vec<Cell> {
        let key = match self.provider.key(&menu.env) {
            Some((variable, _)) => variable.to_owned(),
            None => "not needed".to_owned(),
        };
        let tone = match self.grade() {
            Grade::Well => Tone::Good,
            Grade::Away if self.is_optional => Tone::Faint,
            Grade::Away | Grade::Odd | Grade::Refused => Tone::Bad,
        };
        vec![
            Cell::new(&self.provider.name),
            Cell::new(key),
            Cell::new(&self.provider.base_url),
            Cell::new(self.said(menu)).tone(tone),
        ]
    }

    fn shown(&self, menu: &Menu) -> Value {
        let failed = self.outcome.as_ref().err();
        json!({
            "provider": self.provider.name,
            "endpoint": self.provider.base_url,
            "key": self.provider.key(&menu.env).map(|(variable, _)| variable),
            "ok": self.outcome.is_ok(),
            "millis": self.took.0,
            "models": self.outcome.as_ref().ok(),
            "failure": failed.map(|failed| failed.class.as_str()),
            "message": self.said(menu),
        })
    }
}

/// Whether all went well but for what was said, such as a login page: asking again
/// will bring the same.
fn is_a_page(failed: &Failed) -> bool {
    let is_well = failed
        .status
        .is_some_and(|status| (200..300).contains(&status));
    is_well && failed.class == FailureClass::Server
}

/// What is worst decides.
fn exit(reports: &[Report<'_>]) -> Exit {
    let counted = reports.iter().filter(|report| !report.is_optional);
    match counted.map(Report::grade).max() {
        None | Some(Grade::Well) => Exit::Done,
        Some(Grade::Away) => Exit::Busy,
        Some(Grade::Odd) => Exit::Usage,
        Some(Grade::Refused) => Exit::NotAllowed,
    }
}
