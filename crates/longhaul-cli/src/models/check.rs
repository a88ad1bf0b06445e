//! `longhaul models check`: fetches the model lists of providers, concurrently and with a timeout.
//! The check costs nothing and never shows an API key.

use std::time::Duration;

use clap::Args;
use futures_util::{StreamExt as _, stream};
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::{Stopwatch, SystemClock};
use longhaul_model::http::{HttpClient, HttpLimits};
use longhaul_model::model_list::{ModelListRequest, fetch_model_names};
use longhaul_model::providers::Provider;
use longhaul_model::providers::built_in::{ApiFormat, SCRIPTED_PROVIDER};
use longhaul_model::providers::model_choice::ModelSelector;
use longhaul_project::config::settings::Config;
use longhaul_project::trust::decisions::TrustDecisions;
use longhaul_project::trust::items;
use serde::Serialize;
use serde_json::json;

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

/// Result of checking one provider.
#[derive(Debug, Serialize)]
struct ProviderReport {
    provider: String,
    endpoint: String,
    /// Name of the variable with the API key. `None` if the provider needs no key.
    key: Option<String>,
    ok: bool,
    duration_ms: u64,
    /// Names of the models, if the check succeeded.
    models: Option<Vec<String>>,
    /// Class of the failure, if the check failed.
    failure: Option<&'static str>,
    /// The result in words and, if the check failed, what to do.
    message: String,
    #[serde(skip)]
    tone: TextTone,
    /// Exit code of the command for this result alone.
    #[serde(skip)]
    exit: Exit,
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
        let is_named = !self.names.is_empty();
        let decisions = TrustDecisions::new(config);
        let mut checks = Vec::new();
        for provider in self.selected_providers(selector, dotenv_selector)? {
            let item = items::provider_trust_item(config, &provider.name);
            match item.and_then(|item| decisions.check_trusted(&item).err()) {
                None => checks.push(check_provider(provider, selector, is_named)),
                Some(reason) if !is_named => output::eprint_line(&format!("note: {reason}")),
                Some(reason) => return Err(CliError::not_trusted(reason).into()),
            }
        }
        let checks = stream::iter(checks).buffered(CONCURRENCY).collect();
        let reports: Vec<ProviderReport> = runtime::block_on(async { Ok(checks.await) })?;
        output::show(self.json, &json!({ "checks": reports }), |_| {
            let checked = reports.iter().map(|report| {
                let key = report.key.as_deref().unwrap_or("not needed");
                let message = TableCell::toned(&report.message, report.tone);
                table::row(&[&report.provider, &key, &report.endpoint, &message])
            });
            let is_skipped = |one: &&Provider| !is_named && is_missing_api_key(one);
            let skipped = selector.providers.as_slice().iter().filter(is_skipped);
            let rows = checked.chain(skipped.map(skipped_provider_row));
            table::print_table(&["PROVIDER", "KEY", "ENDPOINT", "STATUS"], rows)
        })?;
        let worst_first = [Exit::NotAllowed, Exit::Usage, Exit::Busy];
        let is_result = |exit: &Exit| reports.iter().any(|report| report.exit == *exit);
        Ok(worst_first.into_iter().find(is_result).unwrap_or(Exit::Done))
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
            return Ok(all.filter(|one| !is_missing_api_key(one)).collect());
        }
        let mut providers = Vec::new();
        for name in &self.names {
            if name == SCRIPTED_PROVIDER {
                anyhow::bail!("`scripted` is built in: there is nothing to check");
            }
            let provider = selector.providers.find_provider(name).map_err(CliError::usage_error)?;
            if is_missing_api_key(provider) {
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

fn is_missing_api_key(provider: &Provider) -> bool {
    provider.needs_api_key() && provider.variable_and_api_key().is_none()
}

async fn check_provider(
    provider: &Provider,
    selector: &ModelSelector,
    is_named: bool,
) -> ProviderReport {
    let stopwatch = Stopwatch::start();
    let limits = HttpLimits {
        connect: provider.limits.connect.min(CONNECT_TIMEOUT),
        first_byte: provider.limits.first_byte.min(RESPONSE_TIMEOUT),
        idle: provider.limits.idle.min(RESPONSE_TIMEOUT),
        ..provider.limits
    };
    let key = provider.variable_and_api_key();
    let request = ModelListRequest {
        provider: &provider.name,
        api: provider.api,
        key: key.map(|(_, key)| key),
        headers: provider.unredacted_headers(),
        now: SystemClock.now(),
    };
    let outcome = match HttpClient::new(&provider.base_url, limits) {
        Err(error) => Err(Failure::new(FailureClass::InvalidRequest, error.to_string())),
        Ok(http) => {
            let names = tokio::time::timeout(CHECK_TIMEOUT, fetch_model_names(&http, &request));
            names.await.unwrap_or_else(|_| {
                let seconds = CHECK_TIMEOUT.as_secs();
                let message = format!("the provider sent no complete response within {seconds} s");
                Err(Failure::new(FailureClass::Timeout, message))
            })
        }
    };
    let duration_ms = stopwatch.elapsed_nanos() / 1_000_000;
    // A provider that the user neither named nor configured need not be available.
    let is_optional = !is_named && !provider.needs_api_key() && !provider.is_configured;
    let (tone, exit, message) = match &outcome {
        Ok(names) => {
            let message = success_message(provider, selector, names);
            (TextTone::Good, Exit::Done, format!("ok, {duration_ms} ms, {message}"))
        }
        Err(failure) => match explain_failure(provider, failure) {
            (Exit::Busy, _) if is_optional => (TextTone::Dim, Exit::Done, "not running".to_owned()),
            (exit, message) => {
                (TextTone::Bad, if is_optional { Exit::Done } else { exit }, message)
            }
        },
    };
    ProviderReport {
        provider: provider.name.clone(),
        endpoint: provider.base_url.clone(),
        key: key.map(|(variable, _)| variable.to_owned()),
        ok: outcome.is_ok(),
        duration_ms,
        failure: outcome.as_ref().err().map(|failure| failure.class.as_str()),
        models: outcome.ok(),
        message,
        tone,
        exit,
    }
}

/// Returns the table row of a provider that was not checked because it has no key.
fn skipped_provider_row(provider: &Provider) -> Vec<TableCell> {
    let note = format!("not checked: set {}", provider.joined_api_key_variable_names());
    let [key, note] = ["not set", &note].map(|text| TableCell::toned(text, TextTone::Dim));
    table::row(&[&provider.name, &key, &provider.base_url, &note])
}

fn success_message(provider: &Provider, selector: &ModelSelector, names: &[String]) -> String {
    let mut message = count_with_noun(names.len(), "model");
    if provider.name == "openrouter" {
        message.push_str("; the list is public, so the key was not checked");
    }
    let default_model = selector.default_model(&provider.name);
    let default_model = default_model.and_then(|model| Some(model.split_once('/')?.1.to_owned()));
    // Some providers list dated versions only.
    let is_listed = |model: &String| {
        names.iter().any(|one| one == model || one.starts_with(&format!("{model}-2")))
    };
    if let Some(model) = default_model.filter(|model| !names.is_empty() && !is_listed(model)) {
        message.push_str(&format!("; the default model `{model}` is not in the list"));
    }
    message
}

/// Returns the exit code for a failed check, and a message that says what to do: the provider was
/// busy or could not be reached, has rejected the key, or has not sent a list of models.
fn explain_failure(provider: &Provider, failure: &Failure) -> (Exit, String) {
    let message = &failure.message;
    // For example a login page. To repeat the request would not help.
    let is_other_page = failure.class == FailureClass::Server
        && failure.status.is_some_and(|status| (200..300).contains(&status));
    match (failure.class, provider.variable_and_api_key()) {
        (FailureClass::Auth | FailureClass::Quota, Some((variable, _))) => (
            Exit::NotAllowed,
            format!("the provider rejects the key in {variable}; use another key: {message}"),
        ),
        (FailureClass::Auth | FailureClass::Quota, None) => (
            Exit::NotAllowed,
            format!("the provider needs a key; name its variable in key_env: {message}"),
        ),
        (
            FailureClass::RateLimit
            | FailureClass::Overloaded
            | FailureClass::Timeout
            | FailureClass::Network
            | FailureClass::Server
            | FailureClass::Lost
            | FailureClass::Stopped,
            _,
        ) if !is_other_page => {
            let advice = match provider.name == "ollama" {
                true => "Ollama can't be reached; start it with `ollama serve`",
                false => "the provider can't be reached or is busy; try again",
            };
            (Exit::Busy, format!("{advice}: {message}"))
        }
        _ => {
            let summary = match is_other_page {
                true => "the server responds, but not like a provider",
                false => "the response is unexpected",
            };
            let path = match provider.api {
                ApiFormat::Anthropic => "without /v1",
                ApiFormat::Responses | ApiFormat::Chat => "with /v1",
            };
            let advice = format!("check base_url (it must be written {path})");
            (Exit::Usage, format!("{summary}; {advice}: {message}"))
        }
    }
}
