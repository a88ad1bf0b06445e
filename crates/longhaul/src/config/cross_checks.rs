//! Checks what can only be judged together: providers, short names and prices as wholes.
//!
//! Never: stops at the first fault, or quotes a value that may be a secret.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::raw::RawJson;
use longhaul_model::chat::Quirks;
use longhaul_model::prices::PriceTable;
use longhaul_model::settings::Settings;
use longhaul_model::{anthropic, chat, responses};
use longhaul_tool::message::DeliveryTarget;
use longhaul_tool::outbound::Allowlist;
use serde_json::Value as Json;

use crate::config::built_in_providers::{
    self, Api, CASSETTE_PROVIDER, DEFAULT_ALIAS, IDLE_ALIAS, SCRIPTED_PROVIDER,
};
use crate::config::error::{ErrorLocation, SettingError};
use crate::config::price_overrides;
use crate::config::schema::DELIVER_KEY;
use crate::config::value::{Origin, Setting, Value};
use crate::spanned::{Position, escape_line};

/// What is wrong with settings that are right one by one.
pub(crate) fn check(settings: &BTreeMap<String, Setting>) -> Vec<SettingError> {
    let mut faults = check_providers(settings);
    faults.extend(check_aliases(settings));
    faults.extend(check_prices(settings));
    faults.extend(check_outbound(settings));
    faults
}

/// Where messages go, and which doors are open.
fn check_outbound(settings: &BTreeMap<String, Setting>) -> Vec<SettingError> {
    let mut faults = Vec::new();
    if let Some(setting) = settings.get("outbound.allow") {
        let words = setting.value.texts();
        if let Err(bad) = Allowlist::new(words.iter().map(String::as_str), false) {
            faults.push(setting_error(setting, &format!("`outbound.allow`: {bad}")));
        }
    }
    if let Some(setting) = settings.get(DELIVER_KEY)
        && let Value::Any(Json::String(text)) = &setting.value
        && let Err(bad) = text.parse::<DeliveryTarget>()
    {
        faults.push(setting_error(setting, &format!("`{DELIVER_KEY}`: {bad}")));
    }
    faults
}

fn setting_error(setting: &Setting, message: &str) -> SettingError {
    SettingError { location: error_location(&setting.origin), message: escape_line(message) }
}

/// Where it is mended.
pub(crate) fn error_location(origin: &Origin) -> ErrorLocation {
    let at = |path: &std::path::Path, line| {
        ErrorLocation::File(path.to_path_buf(), Some(Position { line, column: 1 }))
    };
    match origin {
        Origin::UserFile(path, line) | Origin::ProjectFile(path, line) => at(path, *line),
        Origin::Environment(name) | Origin::Dotenv(name) => {
            ErrorLocation::Environment(name.clone())
        }
        Origin::Flag(name) => ErrorLocation::Flag(name.clone()),
        Origin::Merged(all) => all.last().map_or(ErrorLocation::Default, error_location),
        Origin::Default => ErrorLocation::Default,
    }
}

fn check_providers(settings: &BTreeMap<String, Setting>) -> Vec<SettingError> {
    let mut faults = Vec::new();
    let mut seen: BTreeMap<&str, (BTreeSet<&str>, &Setting)> = BTreeMap::new();
    for (path, setting) in settings {
        let below = path.strip_prefix("providers.");
        let Some((name, key)) = below.and_then(|below| below.split_once('.')) else {
            continue;
        };
        let (keys, _) = seen.entry(name).or_insert((BTreeSet::new(), setting));
        keys.insert(key);
        let unsaid = || {
            let why = unsupported_by_api(provider_api(settings, name)?, key, &setting.value)?;
            Some(format!("`{path}`: {why}"))
        };
        if let Some(message) = provider_setting_error(path, key, setting).or_else(unsaid) {
            faults.push(setting_error(setting, &message));
        }
    }
    for (name, (keys, setting)) in seen {
        if let Some(message) = incomplete_provider_error(name, &keys) {
            faults.push(setting_error(setting, &message));
        }
    }
    faults
}

/// What is wrong with one setting of a provider that its kind can't see.
fn provider_setting_error(path: &str, key: &str, setting: &Setting) -> Option<String> {
    if let Some(header) = key.strip_prefix("headers.") {
        return (!is_header_name(header)).then(|| format!("`{header}` is no name of a header"));
    }
    let Value::Text(url) = &setting.value else {
        return None;
    };
    if key != "base_url" {
        return None;
    }
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    let more = host.contains('@') || rest.contains(['?', '#']);
    more.then(|| format!("`{path}`: a name, a password or a query has no place in it"))
}

/// The wire format of a provider; none: nobody says so.
fn provider_api(settings: &BTreeMap<String, Setting>, name: &str) -> Option<Api> {
    let set = settings.get(&format!("providers.{name}.api"));
    let set = set.and_then(|setting| Api::parse(setting.value.texts().first()?));
    set.or_else(|| built_in_providers::find(name).map(|known| known.api))
}

/// What a provider's wire format can't say: its own fields are not the user's to
/// set, and quirks are those of `chat`.
fn unsupported_by_api(api: Api, key: &str, value: &Value) -> Option<String> {
    if key == "quirks" {
        let words = value.texts();
        return match api {
            Api::Chat => Quirks::parse(&words).err(),
            Api::Anthropic | Api::Responses => words.first().map(|word| {
                format!(
                    "`{word}` is for servers that speak `chat`, and this one speaks `{}`",
                    api.as_str()
                )
            }),
        };
    }
    let name = key.strip_prefix("fields.")?;
    let Value::Any(value) = value else {
        return None;
    };
    let settings = Settings {
        fields: Some(RawJson::from_serialize(&BTreeMap::from([(name, value)]))),
        ..Settings::new("", "", None)
    };
    let fits = match api {
        Api::Anthropic => anthropic::check_fields(&settings),
        Api::Responses => responses::check_fields(&settings),
        Api::Chat => chat::check_fields(&settings),
    };
    fits.err().map(|bad| bad.to_string())
}

/// What is wrong with a provider as a whole.
fn incomplete_provider_error(name: &str, keys: &BTreeSet<&str>) -> Option<String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if name.is_empty() || !name.chars().all(plain) {
        return Some(format!(
            "`providers.{name}`: a provider's name has letters, digits, `-` and `_`"
        ));
    }
    let strange = keys.iter().find(|key| {
        let first = key.split('.').next().unwrap_or_default();
        key.contains('.') && !["headers", "fields"].contains(&first)
    });
    if strange.is_some() {
        return Some(format!("`providers.{name}...`: a provider's name has no point in it"));
    }
    if [SCRIPTED_PROVIDER, CASSETTE_PROVIDER].contains(&name) {
        return Some(format!("`{name}` is built in, and nothing of it can be set"));
    }
    if built_in_providers::find(name).is_some() {
        return None;
    }
    let missing: Vec<&str> =
        ["api", "base_url"].into_iter().filter(|key| !keys.contains(key)).collect();
    (!missing.is_empty()).then(|| {
        let missing = missing.join("` and `");
        format!(
            "`[providers.{name}]` is a provider of your own and needs `{missing}`, such as \
             api = \"chat\" and base_url = \"https://HOST/v1\""
        )
    })
}

fn is_header_name(name: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter);
    !name.is_empty() && name.chars().all(fits)
}

/// A short name stands for a model. Only the default may stand for another short
/// name, so that nobody goes in circles.
fn check_aliases(settings: &BTreeMap<String, Setting>) -> Vec<SettingError> {
    let is_short =
        |name: &str| name == IDLE_ALIAS || settings.contains_key(&format!("models.{name}"));
    let is_model = |name: &str| {
        let parts = name.split_once('/');
        parts.is_some_and(|(provider, model)| !provider.is_empty() && !model.is_empty())
    };
    let faults = settings.iter().filter_map(|(path, setting)| {
        let name = path.strip_prefix("models.")?;
        let Value::Text(meant) = &setting.value else {
            return None;
        };
        let why = match (is_short(meant), name) {
            _ if is_model(meant) => return None,
            _ if meant == name => "itself".to_owned(),
            (true, DEFAULT_ALIAS) => return None,
            (true, _) => format!("`{meant}`, another short name, which only `default` may"),
            (false, _) => format!("`{meant}`, which is no model"),
        };
        let message = format!("`{path}` stands for {why}: write `provider/model`");
        Some(setting_error(setting, &message))
    });
    faults.collect()
}

fn check_prices(settings: &BTreeMap<String, Setting>) -> Vec<SettingError> {
    let own = price_overrides::collect(settings);
    let Ok(mut prices) = PriceTable::built_in() else {
        return Vec::new();
    };
    let faults = own.into_iter().filter_map(|(model, (own, setting))| {
        let bad = prices.set_override(model, own).err()?;
        let message = format!("`[prices.\"{model}\"]`: {bad}");
        Some(setting_error(setting, &message))
    });
    faults.collect()
}
