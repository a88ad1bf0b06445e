//! Checks that involve several settings: those of providers, aliases and prices. All errors are
//! collected, and values that may be secrets are not shown.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::raw::RawJson;
use longhaul_model::chat::ServerQuirks;
use longhaul_model::prices::PriceTable;
use longhaul_model::settings::ModelSettings;
use longhaul_model::{anthropic, chat, responses};
use longhaul_tool::message::DeliveryTarget;
use longhaul_tool::outbound::Allowlist;

use crate::config::error::SettingError;
use crate::config::price_overrides;
use crate::config::schema::DELIVER_KEY;
use crate::config::value::{Setting, SettingOrigin, SettingValue};
use crate::spanned::escape_to_one_line;
use longhaul_model::providers::built_in::{
    self, ApiFormat, CASSETTE_PROVIDER, DEFAULT_ALIAS, IDLE_ALIAS, SCRIPTED_PROVIDER,
};

/// Returns the errors of settings that are valid individually, but not together.
pub(crate) fn check_combinations(settings: &BTreeMap<String, Setting>) -> Vec<SettingError> {
    let checks = [
        check_provider_settings,
        check_model_aliases,
        check_price_overrides,
        check_outbound_settings,
    ];
    checks.into_iter().flat_map(|check| check(settings)).collect()
}

/// Checks the delivery target of messages and the outbound allowlist (hosts that agents may reach).
fn check_outbound_settings(settings: &BTreeMap<String, Setting>) -> Vec<SettingError> {
    let mut errors = Vec::new();
    if let Some(setting) = settings.get("outbound.allow") {
        let texts = setting.value.to_text_list();
        if let Err(error) = Allowlist::new(texts.iter().map(String::as_str), false) {
            errors.push(setting_error(setting, &format!("`outbound.allow`: {error}")));
        }
    }
    if let Some(setting) = settings.get(DELIVER_KEY)
        && let Some(text) = setting.value.as_str()
        && let Err(error) = text.parse::<DeliveryTarget>()
    {
        errors.push(setting_error(setting, &format!("`{DELIVER_KEY}`: {error}")));
    }
    errors
}

fn setting_error(setting: &Setting, message: &str) -> SettingError {
    SettingError {
        location: setting_error_location(&setting.origin),
        message: escape_to_one_line(message),
    }
}

/// Returns where a setting with this origin can be corrected.
pub(crate) fn setting_error_location(origin: &SettingOrigin) -> String {
    match origin {
        SettingOrigin::UserFile(path, line) | SettingOrigin::ProjectFile(path, line) => {
            format!("{}:{line}:1", path.display())
        }
        SettingOrigin::Environment(name)
        | SettingOrigin::Dotenv(name)
        | SettingOrigin::Flag(name) => name.clone(),
        SettingOrigin::Merged(both) => setting_error_location(&both[1]),
        SettingOrigin::Default => "the defaults".to_owned(),
    }
}

fn check_provider_settings(settings: &BTreeMap<String, Setting>) -> Vec<SettingError> {
    let mut errors = Vec::new();
    let mut keys_by_provider: BTreeMap<&str, (BTreeSet<&str>, &Setting)> = BTreeMap::new();
    for (setting_path, setting) in settings {
        let provider_path = setting_path.strip_prefix("providers.");
        let Some((name, key)) = provider_path.and_then(|path| path.split_once('.')) else {
            continue;
        };
        let (keys, _) = keys_by_provider.entry(name).or_insert((BTreeSet::new(), setting));
        keys.insert(key);
        let unsupported_message = || {
            let reason = unsupported_setting_error(
                provider_api_format(settings, name)?,
                key,
                &setting.value,
            )?;
            Some(format!("`{setting_path}`: {reason}"))
        };
        if let Some(message) =
            provider_setting_error(setting_path, key, setting).or_else(unsupported_message)
        {
            errors.push(setting_error(setting, &message));
        }
    }
    for (name, (keys, setting)) in keys_by_provider {
        if let Some(message) = provider_definition_error(name, &keys) {
            errors.push(setting_error(setting, &message));
        }
    }
    errors
}

/// Returns an error message if the name of a header is invalid, or if a base URL contains a user
/// name, a password or a query.
fn provider_setting_error(setting_path: &str, key: &str, setting: &Setting) -> Option<String> {
    if let Some(header) = key.strip_prefix("headers.") {
        return (!is_header_name(header)).then(|| format!("`{header}` is not a valid header name"));
    }
    let url = setting.value.as_str().filter(|_| key == "base_url")?;
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    let has_user_or_query = host.contains('@') || rest.contains(['?', '#']);
    has_user_or_query.then(|| {
        format!("`{setting_path}`: the URL must not contain a user name, password or query")
    })
}

/// Returns the API format of a provider. `None` means that the provider is unknown and sets no
/// format.
fn provider_api_format(settings: &BTreeMap<String, Setting>, name: &str) -> Option<ApiFormat> {
    let configured_api = settings.get(&format!("providers.{name}.api"));
    let configured_api = configured_api
        .and_then(|setting| ApiFormat::from_name(setting.value.to_text_list().first()?));
    configured_api.or_else(|| built_in::find_built_in_provider(name).map(|provider| provider.api))
}

/// Returns an error if the API format of a provider does not support one of its settings: request
/// fields that the adapter itself sets can't be overridden, and quirks exist only for `chat`.
fn unsupported_setting_error(api: ApiFormat, key: &str, value: &SettingValue) -> Option<String> {
    if key == "quirks" {
        let texts = value.to_text_list();
        return match api {
            ApiFormat::Chat => ServerQuirks::from_names(&texts).err(),
            ApiFormat::Anthropic | ApiFormat::Responses => texts.first().map(|quirk| {
                format!(
                    "`{quirk}` is only for the API `chat`, and this provider uses `{}`",
                    api.as_str()
                )
            }),
        };
    }
    let name = key.strip_prefix("fields.")?;
    let value = value.as_json()?;
    let settings = ModelSettings {
        fields: Some(RawJson::from_serialize(&BTreeMap::from([(name, value)]))),
        ..ModelSettings::new("", "", None)
    };
    let result = match api {
        ApiFormat::Anthropic => anthropic::check_request_fields(&settings),
        ApiFormat::Responses => responses::check_request_fields(&settings),
        ApiFormat::Chat => chat::check_request_fields(&settings),
    };
    result.err().map(|error| error.to_string())
}

/// Returns an error message if the name of a provider is invalid, if the provider can't have
/// settings, or if a provider that is not built in has no `api` or no `base_url`.
fn provider_definition_error(name: &str, keys: &BTreeSet<&str>) -> Option<String> {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(is_name_char) {
        return Some(format!(
            "`providers.{name}`: a provider's name may contain only letters, digits, `-` and `_`"
        ));
    }
    let dotted_key = keys.iter().find(|key| {
        let first = key.split('.').next().unwrap_or_default();
        key.contains('.') && !["headers", "fields"].contains(&first)
    });
    if dotted_key.is_some() {
        return Some(format!("`providers.{name}...`: a provider's name must not contain a dot"));
    }
    if [SCRIPTED_PROVIDER, CASSETTE_PROVIDER].contains(&name) {
        return Some(format!("the provider `{name}` is built in and has no settings"));
    }
    if built_in::find_built_in_provider(name).is_some() {
        return None;
    }
    let missing: Vec<&str> =
        ["api", "base_url"].into_iter().filter(|key| !keys.contains(key)).collect();
    (!missing.is_empty()).then(|| {
        let missing = missing.join("` and `");
        format!(
            "`[providers.{name}]` is a custom provider and needs `{missing}`, such as \
             api = \"chat\" and base_url = \"https://HOST/v1\""
        )
    })
}

/// Whether this is a valid name of an HTTP header.
pub(crate) fn is_header_name(name: &str) -> bool {
    let is_header_char = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.chars().all(is_header_char)
}

/// Checks the model aliases. An alias must refer to a model; only `default` may refer to another
/// alias, so that there are no cycles.
fn check_model_aliases(settings: &BTreeMap<String, Setting>) -> Vec<SettingError> {
    let is_alias =
        |name: &str| name == IDLE_ALIAS || settings.contains_key(&format!("models.{name}"));
    let is_model = |name: &str| {
        let parts = name.split_once('/');
        parts.is_some_and(|(provider, model)| !provider.is_empty() && !model.is_empty())
    };
    let errors = settings.iter().filter_map(|(path, setting)| {
        let name = path.strip_prefix("models.")?;
        let target = setting.value.as_str()?;
        let invalid_target = match (is_alias(target), name) {
            _ if is_model(target) => return None,
            _ if target == name => "itself".to_owned(),
            (true, DEFAULT_ALIAS) => return None,
            (true, _) => {
                format!("`{target}`, which is another short name (only `default` may refer to one)")
            }
            (false, _) => format!("`{target}`, which is not a model"),
        };
        let message = format!("`{path}` refers to {invalid_target}: write `provider/model`");
        Some(setting_error(setting, &message))
    });
    errors.collect()
}

fn check_price_overrides(settings: &BTreeMap<String, Setting>) -> Vec<SettingError> {
    let overrides = price_overrides::collect_price_overrides(settings);
    let Ok(mut prices) = PriceTable::load_built_in() else {
        return Vec::new();
    };
    let errors = overrides.into_iter().filter_map(|(model, (price_override, setting))| {
        let error = prices.set_price_override(model, price_override).err()?;
        let message = format!("`[prices.\"{model}\"]`: {error}");
        Some(setting_error(setting, &message))
    });
    errors.collect()
}
