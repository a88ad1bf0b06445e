//! `longhaul models check`: asks providers for their models, all at once.
//!
//! Never: costs anything, waits without an end, or shows a key.

use std::time::Duration;

use clap::Args;
use futures_util::{StreamExt as _, stream};
use longhaul::assemble::model_choice::ModelSelector;
use longhaul::assemble::providers::Provider;
use longhaul::config::built_in_providers::{Api, SCRIPTED_PROVIDER};
use longhaul::config::settings::Config;
use longhaul::trust::decisions::Decisions;
use longhaul::trust::egress;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::{Stopwatch, SystemClock};
use longhaul_model::http::{Http, Limits};
use longhaul_model::model_list::{ListApi, ListRequest, fetch};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::exit::Exit;
use crate::style::Tone;
use crate::table::{self, Cell};
use crate::{output, runtime};

/// So long is waited for a connection, and for each piece of an answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// So long is waited for the whole of one answer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// So many are asked at once.
const CONCURRENCY: usize = 8;

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
struct ProviderCheck<'a> {
    provider: &'a Provider,
    duration: Millis,
    outcome: Result<Vec<String>, Failure>,
    /// Nobody named it or set anything of it, so that it may well not be there.
    is_optional: bool,
}

impl Check {
    /// Asks; `filed` is the menu with the keys of the project's `.env`.
    pub(crate) fn run(
        &self,
        config: &Config,
        menu: &ModelSelector,
        filed: &ModelSelector,
    ) -> anyhow::Result<Exit> {
        let asked = self.trusted_providers(config, self.selected_providers(menu, filed)?)?;
        let named = !self.names.is_empty();
        let reports = runtime::current_thread()?.block_on(async {
            let asking = asked.into_iter().map(|provider| check_provider(menu, provider, named));
            let asking = stream::iter(asking).buffered(CONCURRENCY);
            asking.collect::<Vec<_>>().await
        });
        if self.json {
            let list = reports.iter().map(|report| report.to_json(menu));
            output::stdout_json(&json!({ "checks": list.collect::<Value>() }))?;
            return Ok(worst_exit(&reports));
        }
        let head = ["PROVIDER", "KEY", "ENDPOINT", "STATUS"];
        let mut rows: Vec<Vec<Cell>> = reports.iter().map(|report| report.row(menu)).collect();
        if !named {
            let idle = menu.providers.all().iter();
            let idle = idle.filter(|one| one.needs_key() && one.key(&menu.env).is_none());
            rows.extend(idle.map(skipped_row));
        }
        table::print(&head, rows)?;
        Ok(worst_exit(&reports))
    }

    /// Those that may be sent a key. Whoever names another is told why it is not asked.
    fn trusted_providers<'a>(
        &self,
        config: &Config,
        asked: Vec<&'a Provider>,
    ) -> anyhow::Result<Vec<&'a Provider>> {
        let decisions = Decisions::new(config);
        let mut trusted = Vec::new();
        for provider in asked {
            let item = egress::provider_item(config, &provider.name);
            let why = item.and_then(|item| decisions.check(&item).err());
            match why {
                None => trusted.push(provider),
                Some(why) if self.names.is_empty() => output::stderr_line(&format!("note: {why}")),
                Some(why) => {
                    return Err(CliError::usage(why)
                        .with_exit(Exit::NotAllowed)
                        .hint("look at it and decide", "longhaul trust")
                        .into());
                }
            }
        }
        Ok(trusted)
    }

    /// Who is asked.
    fn selected_providers<'a>(
        &self,
        menu: &'a ModelSelector,
        filed: &ModelSelector,
    ) -> anyhow::Result<Vec<&'a Provider>> {
        if self.names.is_empty() {
            let all = menu.providers.all().iter();
            return Ok(all
                .filter(|one| !one.needs_key() || one.key(&menu.env).is_some())
                .collect());
        }
        let mut asked = Vec::new();
        for name in &self.names {
            if name == SCRIPTED_PROVIDER {
                return Err(
                    CliError::usage("`scripted` is built in: there is nobody to ask").into()
                );
            }
            let provider = menu.providers.find(name).map_err(CliError::usage)?;
            if provider.needs_key() && provider.key(&menu.env).is_none() {
                let mut words =
                    format!("there is no key for `{name}`: set {}", provider.key_variables());
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

async fn check_provider<'a>(
    menu: &ModelSelector,
    provider: &'a Provider,
    named: bool,
) -> ProviderCheck<'a> {
    let watch = Stopwatch::start();
    let limits = Limits {
        connect: provider.limits.connect.min(CONNECT_TIMEOUT),
        first_byte: provider.limits.first_byte.min(RESPONSE_TIMEOUT),
        idle: provider.limits.idle.min(RESPONSE_TIMEOUT),
        ..provider.limits
    };
    let (key, headers) = (provider.key(&menu.env), provider.headers());
    let asker = ListRequest {
        provider: &provider.name,
        api: match provider.api {
            Api::Anthropic => ListApi::Anthropic,
            Api::Responses | Api::Chat => ListApi::OpenAi,
        },
        key: key.as_ref().map(|(_, key)| key),
        headers: &headers,
        now: SystemClock.now(),
    };
    let outcome = match Http::new(&provider.base_url, limits) {
        Err(trouble) => Err(Failure::new(FailureClass::InvalidRequest, trouble.to_string())),
        Ok(http) => {
            let asking = tokio::time::timeout(CHECK_TIMEOUT, fetch(&http, &asker)).await;
            let late = format!("no whole answer in {} s", CHECK_TIMEOUT.as_secs());
            asking.unwrap_or_else(|_| Err(Failure::new(FailureClass::Timeout, late)))
        }
    };
    ProviderCheck {
        provider,
        duration: Millis(watch.nanos() / 1_000_000),
        outcome,
        is_optional: !named && !provider.needs_key() && !provider.is_configured,
    }
}

/// One that was not asked, and what it lacks.
fn skipped_row(provider: &Provider) -> Vec<Cell> {
    vec![
        Cell::new(&provider.name),
        Cell::new("not set").tone(Tone::Dim),
        Cell::new(&provider.base_url),
        Cell::new(format!("not asked: set {}", provider.key_variables())).tone(Tone::Dim),
    ]
}

/// What is wrong, for people and for the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CheckGrade {
    /// Nothing.
    Healthy,
    /// It can't be reached now.
    Unreachable,
    /// It is there, and something else answers than was hoped for.
    Unexpected,
    /// It does not take the key.
    KeyRefused,
}

impl ProviderCheck<'_> {
    fn grade(&self) -> CheckGrade {
        let Err(failed) = &self.outcome else {
            return CheckGrade::Healthy;
        };
        if is_non_api_response(failed) {
            return CheckGrade::Unexpected;
        }
        match failed.class {
            FailureClass::Auth | FailureClass::Quota => CheckGrade::KeyRefused,
            FailureClass::InvalidRequest
            | FailureClass::ContextOverflow
            | FailureClass::Refused => CheckGrade::Unexpected,
            FailureClass::RateLimit
            | FailureClass::Overloaded
            | FailureClass::Timeout
            | FailureClass::Network
            | FailureClass::Server
            | FailureClass::Lost
            | FailureClass::Stopped => CheckGrade::Unreachable,
        }
    }

    /// In a sentence, with what to do where something is to be done.
    fn message(&self, menu: &ModelSelector) -> String {
        let failed = match &self.outcome {
            Ok(names) => return self.success_message(menu, names),
            Err(failed) => failed,
        };
        let (provider, why) = (self.provider, &failed.message);
        match self.grade() {
            CheckGrade::Healthy => String::new(),
            CheckGrade::Unreachable if self.is_optional => "does not run here".to_owned(),
            CheckGrade::Unreachable if provider.name == "ollama" => {
                format!("can't be reached, start it with `ollama serve`: {why}")
            }
            CheckGrade::Unreachable => format!("can't be reached or is busy, try again: {why}"),
            CheckGrade::Unexpected => {
                let how = match is_non_api_response(failed) {
                    true => "answers, but not as a provider does:",
                    false => "answers otherwise,",
                };
                let version = match provider.api {
                    Api::Anthropic => "without /v1",
                    Api::Responses | Api::Chat => "with /v1",
                };
                format!("{how} look at base_url ({version}): {why}")
            }
            CheckGrade::KeyRefused => match provider.key(&menu.env) {
                Some((variable, _)) => {
                    format!("refuses the key in {variable}, put in another: {why}")
                }
                None => format!("wants a key, name its variable in key_env: {why}"),
            },
        }
    }

    fn success_message(&self, menu: &ModelSelector, names: &[String]) -> String {
        let many = match names.len() {
            1 => "1 model".to_owned(),
            many => format!("{many} models"),
        };
        let mut said = format!("ok, {} ms, {many}", self.duration.0);
        if self.provider.name == "openrouter" {
            said.push_str("; the list is public, so the key was not tried");
        }
        if let Some(missing) = self.missing_default(menu, names) {
            said.push_str(&format!("; `{missing}`, its default, is not among them"));
        }
        said
    }

    /// The provider's default model, where the provider does not have it.
    fn missing_default(&self, menu: &ModelSelector, names: &[String]) -> Option<String> {
        let name = &self.provider.name;
        let full = menu.default_model(name)?;
        let model = full.strip_prefix(&format!("{name}/"))?.to_owned();
        // Some lists have the dated editions only.
        let has = names.iter().any(|one| *one == model || one.starts_with(&format!("{model}-2")));
        (!has && !names.is_empty()).then_some(model)
    }

    fn row(&self, menu: &ModelSelector) -> Vec<Cell> {
        let key = match self.provider.key(&menu.env) {
            Some((variable, _)) => variable.to_owned(),
            None => "not needed".to_owned(),
        };
        let tone = match self.grade() {
            CheckGrade::Healthy => Tone::Good,
            CheckGrade::Unreachable if self.is_optional => Tone::Dim,
            CheckGrade::Unreachable | CheckGrade::Unexpected | CheckGrade::KeyRefused => Tone::Bad,
        };
        vec![
            Cell::new(&self.provider.name),
            Cell::new(key),
            Cell::new(&self.provider.base_url),
            Cell::new(self.message(menu)).tone(tone),
        ]
    }

    fn to_json(&self, menu: &ModelSelector) -> Value {
        let failed = self.outcome.as_ref().err();
        json!({
            "provider": self.provider.name,
            "endpoint": self.provider.base_url,
            "key": self.provider.key(&menu.env).map(|(variable, _)| variable),
            "ok": self.outcome.is_ok(),
            "duration_ms": self.duration.0,
            "models": self.outcome.as_ref().ok(),
            "failure": failed.map(|failed| failed.class.as_str()),
            "message": self.message(menu),
        })
    }
}

/// Whether all went well but for what was said, such as a login page: asking again
/// will bring the same.
fn is_non_api_response(failed: &Failure) -> bool {
    let is_well = failed.status.is_some_and(|status| (200..300).contains(&status));
    is_well && failed.class == FailureClass::Server
}

/// What is worst decides.
fn worst_exit(reports: &[ProviderCheck<'_>]) -> Exit {
    let counted = reports.iter().filter(|report| !report.is_optional);
    match counted.map(ProviderCheck::grade).max() {
        None | Some(CheckGrade::Healthy) => Exit::Done,
        Some(CheckGrade::Unreachable) => Exit::Busy,
        Some(CheckGrade::Unexpected) => Exit::Usage,
        Some(CheckGrade::KeyRefused) => Exit::NotAllowed,
    }
}
