//! `longhaul models check`: fetches the model lists of providers, concurrently and with a timeout.
//! The check costs nothing and never shows an API key.

use std::time::Duration;

use clap::Args;
use futures_util::{StreamExt as _, stream};
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::{Stopwatch, SystemClock};
use longhaul_model::http::{HttpClient, HttpLimits};
use longhaul_model::model_list::{ModelListApi, ModelListRequest, fetch_model_names};
use longhaul_model::providers::Provider;
use longhaul_model::providers::built_in::{ApiFormat, SCRIPTED_PROVIDER};
use longhaul_model::providers::model_choice::ModelSelector;
use longhaul_project::config::settings::Config;
use longhaul_project::trust::decisions::TrustDecisions;
use longhaul_project::trust::items;
use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::exit::Exit;
use crate::format::count_with_noun;
use crate::style::TextTone;
use crate::table::{self, TableCell};
use crate::{output, runtime};

/// Timeout for the connection to a provider.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for each part of a provider's response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Timeout for the complete check of one provider.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of providers that are checked concurrently.
const CONCURRENCY: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct CheckProvidersCommand {
    /// Check only these providers; by default all that have a key or need none
    #[arg(value_name = "PROVIDER")]
    names: Vec<String>,
    /// Print the results as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug)]
struct ProviderCheckResult<'a> {
    provider: &'a Provider,
    duration: Millis,
    outcome: Result<Vec<String>, Failure>,
    /// True if the user neither named nor configured the provider, so that a failed check is no
    /// error.
    is_optional: bool,
}

impl CheckProvidersCommand {
    /// Checks the providers and prints the results. `dotenv_selector` is like `selector`, but also
    /// has the API keys in the project's `.env`.
    pub(crate) fn run(
        &self,
        config: &Config,
        selector: &ModelSelector,
        dotenv_selector: &ModelSelector,
    ) -> anyhow::Result<Exit> {
        let providers =
            self.trusted_providers(config, self.selected_providers(selector, dotenv_selector)?)?;
        let is_named = !self.names.is_empty();
        let reports = runtime::build_single_thread_tokio()?.block_on(async {
            let checks = providers.into_iter().map(|provider| check_provider(provider, is_named));
            let checks = stream::iter(checks).buffered(CONCURRENCY);
            checks.collect::<Vec<_>>().await
        });
        let list = reports.iter().map(|report| report.to_json(selector)).collect::<Value>();
        output::show(self.json, &json!({ "checks": list }), |_| {
            let checked = reports.iter().map(|report| report.table_row(selector));
            let is_skipped = |one: &&Provider| {
                !is_named && one.needs_api_key() && one.variable_and_api_key().is_none()
            };
            let skipped = selector.providers.as_slice().iter().filter(is_skipped);
            let rows = checked.chain(skipped.map(skipped_provider_row));
            table::print_table(&["PROVIDER", "KEY", "ENDPOINT", "STATUS"], rows)
        })?;
        Ok(exit_for_worst_result(&reports))
    }

    /// Returns the providers that are trusted with an API key. For an untrusted provider a note is
    /// printed, or an error is returned if the user named it.
    fn trusted_providers<'a>(
        &self,
        config: &Config,
        providers: Vec<&'a Provider>,
    ) -> anyhow::Result<Vec<&'a Provider>> {
        let decisions = TrustDecisions::new(config);
        let mut trusted = Vec::new();
        for provider in providers {
            let item = items::provider_trust_item(config, &provider.name);
            let reason = item.and_then(|item| decisions.check_trusted(&item).err());
            match reason {
                None => trusted.push(provider),
                Some(reason) if self.names.is_empty() => {
                    output::eprint_line(&format!("note: {reason}"))
                }
                Some(reason) => {
                    return Err(CliError::usage_error(reason)
                        .with_exit_code(Exit::NotAllowed)
                        .with_hint("review it and decide", "longhaul trust")
                        .into());
                }
            }
        }
        Ok(trusted)
    }

    /// Returns the providers to check: those that the user named, or all that have a key or need
    /// none.
    fn selected_providers<'a>(
        &self,
        selector: &'a ModelSelector,
        dotenv_selector: &ModelSelector,
    ) -> anyhow::Result<Vec<&'a Provider>> {
        if self.names.is_empty() {
            let all = selector.providers.as_slice().iter();
            return Ok(all
                .filter(|one| !one.needs_api_key() || one.variable_and_api_key().is_some())
                .collect());
        }
        let mut providers = Vec::new();
        for name in &self.names {
            if name == SCRIPTED_PROVIDER {
                anyhow::bail!("`scripted` is built in: there is nothing to check");
            }
            let provider = selector.providers.find_provider(name).map_err(CliError::usage_error)?;
            if provider.needs_api_key() && provider.variable_and_api_key().is_none() {
                let names = provider.joined_api_key_variable_names();
                let mut message = format!("there is no key for `{name}`: set {names}");
                let in_dotenv = dotenv_selector.providers.find_provider(name).ok();
                if let Some((variable, _)) = in_dotenv.and_then(Provider::variable_and_api_key) {
                    message.push_str(&format!(
                        "; .env sets {variable}, but this command does not read that file"
                    ));
                }
                return fail(message, "see which are set", "longhaul models");
            }
            providers.push(provider);
        }
        Ok(providers)
    }
}

async fn check_provider<'a>(provider: &'a Provider, is_named: bool) -> ProviderCheckResult<'a> {
    let stopwatch = Stopwatch::start();
    let limits = HttpLimits {
        connect: provider.limits.connect.min(CONNECT_TIMEOUT),
        first_byte: provider.limits.first_byte.min(RESPONSE_TIMEOUT),
        idle: provider.limits.idle.min(RESPONSE_TIMEOUT),
        ..provider.limits
    };
    let (key, headers) = (provider.variable_and_api_key(), provider.unredacted_headers());
    let request = ModelListRequest {
        provider: &provider.name,
        api: match provider.api {
            ApiFormat::Anthropic => ModelListApi::Anthropic,
            ApiFormat::Responses | ApiFormat::Chat => ModelListApi::OpenAi,
        },
        key: key.map(|(_, key)| key),
        headers,
        now: SystemClock.now(),
    };
    let outcome = match HttpClient::new(&provider.base_url, limits) {
        Err(error) => Err(Failure::new(FailureClass::InvalidRequest, error.to_string())),
        Ok(http) => {
            let result =
                tokio::time::timeout(CHECK_TIMEOUT, fetch_model_names(&http, &request)).await;
            let message = format!(
                "the provider sent no complete response within {} s",
                CHECK_TIMEOUT.as_secs()
            );
            result.unwrap_or_else(|_| Err(Failure::new(FailureClass::Timeout, message)))
        }
    };
    ProviderCheckResult {
        provider,
        duration: Millis(stopwatch.elapsed_nanos() / 1_000_000),
        outcome,
        is_optional: !is_named && !provider.needs_api_key() && !provider.is_configured,
    }
}

/// Returns the table row of a provider that was not checked because it has no key.
fn skipped_provider_row(provider: &Provider) -> Vec<TableCell> {
    let note = format!("not checked: set {}", provider.joined_api_key_variable_names());
    let [key, note] = ["not set", &note].map(|text| TableCell::toned(text, TextTone::Dim));
    table::row(&[&provider.name, &key, &provider.base_url, &note])
}

/// Grade of a provider's check, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ProviderHealth {
    /// The provider returned its model list.
    Healthy,
    /// The provider could not be reached or was busy.
    Unreachable,
    /// The provider responded, but not with a model list.
    Unexpected,
    /// The provider rejected the API key.
    KeyRefused,
}

impl ProviderCheckResult<'_> {
    fn provider_health(&self) -> ProviderHealth {
        let Err(failure) = &self.outcome else {
            return ProviderHealth::Healthy;
        };
        if is_non_api_response(failure) {
            return ProviderHealth::Unexpected;
        }
        match failure.class {
            FailureClass::Auth | FailureClass::Quota => ProviderHealth::KeyRefused,
            FailureClass::InvalidRequest
            | FailureClass::ContextOverflow
            | FailureClass::Refused
            | FailureClass::HandlerFailed
            | FailureClass::HandlerFailedTransiently => ProviderHealth::Unexpected,
            FailureClass::RateLimit
            | FailureClass::Overloaded
            | FailureClass::Timeout
            | FailureClass::Network
            | FailureClass::Server
            | FailureClass::Lost
            | FailureClass::Stopped => ProviderHealth::Unreachable,
        }
    }

    /// Describes the result of the check and, if it failed, what to do.
    fn result_message(&self, selector: &ModelSelector) -> String {
        let failure = match &self.outcome {
            Ok(names) => return self.success_message(selector, names),
            Err(failure) => failure,
        };
        let (provider, message) = (self.provider, &failure.message);
        match self.provider_health() {
            ProviderHealth::Healthy => String::new(),
            ProviderHealth::Unreachable if self.is_optional => "not running".to_owned(),
            ProviderHealth::Unreachable if provider.name == "ollama" => {
                format!("Ollama can't be reached; start it with `ollama serve`: {message}")
            }
            ProviderHealth::Unreachable => {
                format!("the provider can't be reached or is busy; try again: {message}")
            }
            ProviderHealth::Unexpected => {
                let summary = match is_non_api_response(failure) {
                    true => "the server responds, but not like a provider;",
                    false => "the response is unexpected;",
                };
                let with_or_without_v1 = match provider.api {
                    ApiFormat::Anthropic => "without /v1",
                    ApiFormat::Responses | ApiFormat::Chat => "with /v1",
                };
                format!(
                    "{summary} check base_url (it must be written {with_or_without_v1}): {message}"
                )
            }
            ProviderHealth::KeyRefused => match provider.variable_and_api_key() {
                Some((variable, _)) => {
                    format!(
                        "the provider rejects the key in {variable}; use another key: {message}"
                    )
                }
                None => {
                    format!("the provider needs a key; name its variable in key_env: {message}")
                }
            },
        }
    }

    fn success_message(&self, selector: &ModelSelector, names: &[String]) -> String {
        let model_count = count_with_noun(names.len(), "model");
        let mut message = format!("ok, {} ms, {model_count}", self.duration.0);
        if self.provider.name == "openrouter" {
            message.push_str("; the list is public, so the key was not checked");
        }
        if let Some(default_model) = self.unlisted_default_model(selector, names) {
            message.push_str(&format!("; the default model `{default_model}` is not in the list"));
        }
        message
    }

    /// Returns the provider's default model if the provider does not list that model.
    fn unlisted_default_model(&self, selector: &ModelSelector, names: &[String]) -> Option<String> {
        let name = &self.provider.name;
        let default_model = selector.default_model(name)?;
        let model = default_model.strip_prefix(&format!("{name}/"))?.to_owned();
        // Some providers list dated versions only.
        let is_listed =
            names.iter().any(|one| *one == model || one.starts_with(&format!("{model}-2")));
        (!is_listed && !names.is_empty()).then_some(model)
    }

    fn table_row(&self, selector: &ModelSelector) -> Vec<TableCell> {
        let key = self.provider.variable_and_api_key();
        let key = key.map_or("not needed", |(variable, _)| variable);
        let tone = match self.provider_health() {
            ProviderHealth::Healthy => TextTone::Good,
            ProviderHealth::Unreachable if self.is_optional => TextTone::Dim,
            ProviderHealth::Unreachable
            | ProviderHealth::Unexpected
            | ProviderHealth::KeyRefused => TextTone::Bad,
        };
        let message = TableCell::toned(self.result_message(selector), tone);
        table::row(&[&self.provider.name, &key, &self.provider.base_url, &message])
    }

    fn to_json(&self, selector: &ModelSelector) -> Value {
        let failure = self.outcome.as_ref().err();
        json!({
            "provider": self.provider.name,
            "endpoint": self.provider.base_url,
            "key": self.provider.variable_and_api_key().map(|(variable, _)| variable),
            "ok": self.outcome.is_ok(),
            "duration_ms": self.duration.0,
            "models": self.outcome.as_ref().ok(),
            "failure": failure.map(|failure| failure.class.as_str()),
            "message": self.result_message(selector),
        })
    }
}

/// Returns whether the request succeeded but the body is not an API response, such as a login page.
/// Repeating the request would not help.
fn is_non_api_response(failure: &Failure) -> bool {
    let is_success = failure.status.is_some_and(|status| (200..300).contains(&status));
    is_success && failure.class == FailureClass::Server
}

/// Returns the exit code for the worst result of all checks.
fn exit_for_worst_result(reports: &[ProviderCheckResult<'_>]) -> Exit {
    let required_reports = reports.iter().filter(|report| !report.is_optional);
    match required_reports.map(ProviderCheckResult::provider_health).max() {
        None | Some(ProviderHealth::Healthy) => Exit::Done,
        Some(ProviderHealth::Unreachable) => Exit::Busy,
        Some(ProviderHealth::Unexpected) => Exit::Usage,
        Some(ProviderHealth::KeyRefused) => Exit::NotAllowed,
    }
}
