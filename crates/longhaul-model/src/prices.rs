//! Price table: list prices and context windows of models, as of a date, with overrides by the
//! user.
//!
//! Invariant: prices are never guessed from similar names. A model that is not in the table has no
//! price, and its tokens are counted without a cost.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use longhaul_core::usage::{ModelPricing, Price};
use serde::Deserialize;

const TABLE_TOML: &str = include_str!("prices.toml");

const MICROS_PER_USD: u64 = 1_000_000;

/// Maximum number of decimal places of a price in dollars: one micro-dollar has six.
const USD_DECIMALS: usize = 6;

/// Error for an invalid price or price table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PriceError(String);

/// Price table with the prices and limits of all known models.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PriceTable {
    as_of: String,
    providers: BTreeMap<String, ProviderPrices>,
}

/// Part of the price table with the models of one provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ProviderPrices {
    default: Option<String>,
    idle: Option<String>,
    /// Whether all models of the provider that have no entry of their own are free.
    free: bool,
    /// Entry for those models. `None` means that those models are unknown.
    #[serde(skip)]
    fallback: Option<ModelPriceEntry>,
    models: BTreeMap<String, ModelPriceEntry>,
}

/// Default maximum number of output tokens per reply. The budget reserves the worst-case cost of
/// each call, and with the real maximum of some models one call would reserve the whole budget.
const DEFAULT_OUTPUT_MAX: u64 = 32_000;

/// Entry of the price table: price and limits of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "PriceTableRow")]
pub struct ModelPriceEntry {
    /// Full name of the model, `provider/model`. An entry without a date in its name also applies
    /// to all dated versions of the model.
    pub name: String,
    /// List price of the model. `None` means that the price is unknown.
    pub price: Option<Price>,
    /// Size of the context window in tokens, for request and reply together. `None` means unknown.
    pub window: Option<u64>,
    /// Maximum number of tokens that the model can return in a reply. `None` means unknown.
    pub max_output: Option<u64>,
    /// Maximum number of tokens of a reply, as set by the user. `None` means not set.
    pub requested_output: Option<u64>,
    /// Remark about the price or the limits that is shown to people.
    pub note: Option<String>,
    /// Whether the user has overridden the price or limits of the model.
    pub is_override: bool,
}

/// Price and limits of a model, set by the user. Prices are in micro-dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PriceOverride {
    /// Price of input tokens, in micro-dollars per million tokens. `None` means not set.
    pub input: Option<u64>,
    /// Price of output tokens, in micro-dollars per million tokens. `None` means not set.
    pub output: Option<u64>,
    /// Price of input tokens read from the provider's prompt cache. `None` means the input price.
    pub cached: Option<u64>,
    /// Price of input tokens written to the provider's prompt cache. `None` means the input price.
    pub cache_write: Option<u64>,
    /// Size of the context window in tokens. `None` means not set.
    pub window: Option<u64>,
    /// Maximum number of tokens that the model can return in a reply. `None` means not set.
    pub max_output: Option<u64>,
}

impl PriceTable {
    /// Returns the price table that is built into this program.
    pub fn load_built_in() -> Result<Self, PriceError> {
        // Parsed once, because a command loads its configuration several times.
        static BUILT_IN: LazyLock<Result<PriceTable, PriceError>> =
            LazyLock::new(|| PriceTable::parse_toml(TABLE_TOML));
        BUILT_IN.clone()
    }

    fn parse_toml(text: &str) -> Result<Self, PriceError> {
        let mut table: Self =
            toml::from_str(text).map_err(|error| PriceError(error.to_string()))?;
        for (provider, prices) in &mut table.providers {
            for (model, entry) in &mut prices.models {
                entry.name = format!("{provider}/{model}");
            }
            prices.fallback = prices.free.then(|| ModelPriceEntry {
                name: format!("{provider}/*"),
                price: Some(Price::default()),
                ..ModelPriceEntry::default()
            });
        }
        Ok(table)
    }

    /// Returns the date on which the prices were looked up.
    pub fn price_date(&self) -> &str {
        &self.as_of
    }

    /// Returns the name of a provider's default model, or `None` if the table has none.
    pub fn default_model(&self, provider: &str) -> Option<&str> {
        self.providers.get(provider)?.default.as_deref()
    }

    /// Returns the name of a provider's model for runs that are started by an `idle_tick` event,
    /// which is sent when an agent has nothing else to do. `None` if the table has none.
    pub fn model_for_idle_tick_events(&self, provider: &str) -> Option<&str> {
        self.providers.get(provider)?.idle.as_deref()
    }

    /// Returns the entry of a model: by its exact name, by the longest name of which it is a dated
    /// version, or else the entry for all other models of the provider.
    pub fn find_model_entry(&self, provider: &str, model: &str) -> Option<&ModelPriceEntry> {
        let table = self.providers.get(provider)?;
        let exact = table.models.get(model);
        let find_dated_version = || {
            let candidates = table.models.iter();
            let candidates = candidates.filter(|(name, _)| is_dated_version(name, model));
            candidates.max_by_key(|(name, _)| name.len()).map(|(_, one)| one)
        };
        exact.or_else(find_dated_version).or(table.fallback.as_ref())
    }

    /// Returns the entry of a model named as `provider/model`.
    pub fn find_model_entry_by_name(&self, name: &str) -> Option<&ModelPriceEntry> {
        let (provider, model) = name.split_once('/')?;
        self.find_model_entry(provider, model)
    }

    /// Iterates over the entries of all models in the table, sorted by name.
    pub fn model_entries(&self) -> impl Iterator<Item = &ModelPriceEntry> {
        let tables = self.providers.values();
        tables.flat_map(|table| table.models.values())
    }

    /// Overrides the price and limits of a model. Input and output prices must be set together.
    /// Cache prices default to the input price.
    pub fn set_price_override(&mut self, name: &str, new: PriceOverride) -> Result<(), PriceError> {
        let parts = name.split_once('/');
        let parts = parts.filter(|(provider, model)| !provider.is_empty() && !model.is_empty());
        let Some((provider, model)) = parts else {
            let message = "write the model as `provider/model`, such as `openai/gpt-5-mini`";
            return Err(PriceError(message.to_owned()));
        };
        let current = self.find_model_entry(provider, model).cloned().unwrap_or_default();
        let price = new.to_price()?;
        let entry = ModelPriceEntry {
            name: name.to_owned(),
            price: price.or(current.price),
            window: new.window.or(current.window),
            max_output: new.max_output.or(current.max_output),
            requested_output: new.max_output.or(current.requested_output),
            note: current.note.filter(|_| price.is_none()),
            is_override: true,
        };
        let pricing = entry.pricing();
        if pricing.max_output_tokens >= pricing.window_tokens {
            return Err(PriceError(format!(
                "a reply of {} tokens leaves no room for the request in a window of {}",
                pricing.max_output_tokens, pricing.window_tokens
            )));
        }
        let table = self.providers.entry(provider.to_owned()).or_default();
        table.models.insert(model.to_owned(), entry);
        Ok(())
    }
}

impl ModelPriceEntry {
    /// Returns the model's price and limits, from which the budget to reserve for a call is
    /// computed.
    pub fn pricing(&self) -> ModelPricing {
        let default_pricing = ModelPricing::default();
        let default_output = self.max_output.map(|max| max.min(DEFAULT_OUTPUT_MAX));
        let requested = self.requested_output.or(default_output);
        ModelPricing {
            price: self.price,
            window_tokens: self.window.unwrap_or(default_pricing.window_tokens),
            max_output_tokens: requested.unwrap_or(default_pricing.max_output_tokens),
            ..default_pricing
        }
    }
}

impl PriceOverride {
    fn to_price(self) -> Result<Option<Price>, PriceError> {
        let missing = |problem: &str| Err(PriceError(problem.to_owned()));
        match (self.input, self.output) {
            (Some(input), Some(output)) => Ok(Some(Price {
                input,
                output,
                cached: self.cached.unwrap_or(input),
                cache_write: self.cache_write.unwrap_or(input),
            })),
            (None, None) if self.cached.is_none() && self.cache_write.is_none() => Ok(None),
            (Some(_), None) => missing("`input` is set, but `output` is missing"),
            (None, Some(_)) => missing("`output` is set, but `input` is missing"),
            (None, None) => missing("`input` and `output` are missing"),
        }
    }
}

/// Whether `model` is a dated version of the model `base_name`: the base name followed by a date or
/// `latest`. With any other suffix it is a different model.
fn is_dated_version(base_name: &str, model: &str) -> bool {
    let rest = model.strip_prefix(base_name);
    rest.and_then(|rest| rest.strip_prefix('-'))
        .is_some_and(|rest| rest == "latest" || is_version_date(rest))
}

/// Whether a text is a date such as `20250929`, `2025-08-07` or `0905`.
fn is_version_date(text: &str) -> bool {
    let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    let mut parts = text.split('-');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    (4..=8).contains(&first.len())
        && digits(first)
        && rest.len() <= 2
        && rest.iter().all(|part| part.len() == 2 && digits(part))
}

/// Parses an amount in dollars and returns it in micro-dollars. `None` means that the amount is
/// invalid or has too many decimal places.
pub fn parse_usd(dollars: &str) -> Option<u64> {
    let (whole, decimals) = dollars.split_once('.').unwrap_or((dollars, "0"));
    let digits = |text: &str| !text.is_empty() && text.chars().all(|one| one.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > USD_DECIMALS {
        return None;
    }
    let micros: u64 = format!("{decimals:0<USD_DECIMALS$}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(MICROS_PER_USD)?.checked_add(micros)
}

/// Formats an amount of micro-dollars in dollars, with at least two decimal places.
pub fn format_usd(micros: u64) -> String {
    let decimals = format!("{:0USD_DECIMALS$}", micros % MICROS_PER_USD);
    let (cents, further_decimals) = decimals.split_at(2);
    let further_decimals = further_decimals.trim_end_matches('0');
    format!("{}.{cents}{further_decimals}", micros / MICROS_PER_USD)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceTableRow {
    input: Usd,
    output: Usd,
    cached: Option<Usd>,
    cache_write: Option<Usd>,
    window: u64,
    max_output: u64,
    note: Option<String>,
}

/// An amount in micro-dollars, written in dollars.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Usd(u64);

impl TryFrom<String> for Usd {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_usd(&text).map(Self).ok_or_else(|| format!("`{text}` is not a valid price"))
    }
}

impl From<PriceTableRow> for ModelPriceEntry {
    fn from(row: PriceTableRow) -> Self {
        let Usd(input) = row.input;
        Self {
            price: Some(Price {
                input,
                output: row.output.0,
                cached: row.cached.map_or(input, |Usd(cached)| cached),
                cache_write: row.cache_write.map_or(input, |Usd(cache_write)| cache_write),
            }),
            window: Some(row.window),
            max_output: Some(row.max_output),
            note: row.note,
            ..Self::default()
        }
    }
}
