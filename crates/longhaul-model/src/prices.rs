//! What models charge by the list, and how much fits into them: one table with a
//! date, and what the user knows better.
//!
//! Never: a price by likeness. A model that is not in the table has none, and its
//! tokens are counted without a cost.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use longhaul_core::usage::{ModelPricing, Price};
use serde::Deserialize;

const TABLE_TOML: &str = include_str!("prices.toml");

/// A dollar in the unit that is counted.
const MICROS_PER_USD: u64 = 1_000_000;

/// So many digits stand behind the point of a dollar.
const USD_DECIMALS: usize = 6;

/// A price that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PriceError(String);

/// All that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceTable {
    as_of: String,
    providers: BTreeMap<String, ProviderPrices>,
}

/// What is known of one provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ProviderPrices {
    source: Option<String>,
    default: Option<String>,
    idle: Option<String>,
    /// What holds for every model that is not in the list.
    fallback: Option<ModelEntry>,
    models: BTreeMap<String, ModelEntry>,
}

/// No longer reply is asked for unless the user wants it. The worst case of each call
/// is held in the budget, and a model that could write a book would hold all of it.
const DEFAULT_OUTPUT_MAX: u64 = 32_000;

/// What is known of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelEntry {
    /// Its full name, `provider/model`; without a date where it stands for all dates.
    pub name: String,
    /// The list price; none where nobody knows.
    pub price: Option<Price>,
    /// How many tokens fit in, question and reply together.
    pub window: Option<u64>,
    /// The most tokens of one reply.
    pub max_output: Option<u64>,
    /// The longest reply that the user asks for.
    pub requested_output: Option<u64>,
    /// What else one should know.
    pub note: Option<String>,
    /// Whether the user said so.
    pub is_override: bool,
}

/// What a user says of a model; money in micro-dollars for a million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PriceOverride {
    /// For tokens read.
    pub input: Option<u64>,
    /// For tokens written.
    pub output: Option<u64>,
    /// For tokens read from a cache.
    pub cached: Option<u64>,
    /// For tokens written to a cache.
    pub cache_write: Option<u64>,
    /// How many tokens fit in.
    pub window: Option<u64>,
    /// The most tokens of one reply.
    pub max_output: Option<u64>,
}

impl PriceTable {
    /// The table of this build.
    pub fn built_in() -> Result<Self, PriceError> {
        // A command reads its settings several times, and the table is longer than they are.
        static BUILT_IN: LazyLock<Result<PriceTable, PriceError>> =
            LazyLock::new(|| PriceTable::parse(TABLE_TOML));
        BUILT_IN.clone()
    }

    fn parse(text: &str) -> Result<Self, PriceError> {
        let table: TableText =
            toml::from_str(text).map_err(|error| PriceError(error.to_string()))?;
        let mut providers = BTreeMap::new();
        for (name, section) in table.providers {
            providers.insert(name.clone(), section.into_provider(&name)?);
        }
        Ok(Self { as_of: table.as_of, providers })
    }

    /// The day on which the table was right.
    pub fn as_of(&self) -> &str {
        &self.as_of
    }

    /// Where a provider's prices were read; none where there are none.
    pub fn source(&self, provider: &str) -> Option<&str> {
        self.providers.get(provider)?.source.as_deref()
    }

    /// The model of a provider that is asked where none is named.
    pub fn default_model(&self, provider: &str) -> Option<&str> {
        self.providers.get(provider)?.default.as_deref()
    }

    /// The model of a provider for when nothing happens.
    pub fn idle_model(&self, provider: &str) -> Option<&str> {
        self.providers.get(provider)?.idle.as_deref()
    }

    /// What is known of a model: by its very name, or by the longest name that
    /// it is a dated edition of.
    pub fn find(&self, provider: &str, model: &str) -> Option<&ModelEntry> {
        let shelf = self.providers.get(provider)?;
        let exact = shelf.models.get(model);
        let dated = || {
            let known = shelf.models.iter();
            let known = known.filter(|(name, _)| is_dated_version(name, model));
            known.max_by_key(|(name, _)| name.len()).map(|(_, one)| one)
        };
        exact.or_else(dated).or(shelf.fallback.as_ref())
    }

    /// What is known of a model that is named as `provider/model`.
    pub fn find_by_name(&self, name: &str) -> Option<&ModelEntry> {
        let (provider, model) = name.split_once('/')?;
        self.find(provider, model)
    }

    /// Every model of the table, by name.
    pub fn models(&self) -> impl Iterator<Item = &ModelEntry> {
        let shelves = self.providers.values();
        shelves.flat_map(|shelf| shelf.models.values())
    }

    /// Takes the user's word for a model. A price is taken whole: input and output
    /// belong together, and what is cached costs as much as input unless it is said.
    pub fn set_override(&mut self, name: &str, own: PriceOverride) -> Result<(), PriceError> {
        let parts = name.split_once('/');
        let parts = parts.filter(|(provider, model)| !provider.is_empty() && !model.is_empty());
        let Some((provider, model)) = parts else {
            let words = "write the model as `provider/model`, such as `openai/gpt-5-mini`";
            return Err(PriceError(words.to_owned()));
        };
        let known = self.find(provider, model).cloned().unwrap_or_default();
        let price = own.to_price()?;
        let entry = ModelEntry {
            name: name.to_owned(),
            price: price.or(known.price),
            window: own.window.or(known.window),
            max_output: own.max_output.or(known.max_output),
            requested_output: own.max_output.or(known.requested_output),
            note: known.note.filter(|_| price.is_none()),
            is_override: true,
        };
        let tariff = entry.pricing();
        if tariff.max_output_tokens >= tariff.window_tokens {
            return Err(PriceError(format!(
                "a reply of {} tokens leaves nothing of a window of {} for the question",
                tariff.max_output_tokens, tariff.window_tokens
            )));
        }
        let shelf = self.providers.entry(provider.to_owned()).or_default();
        shelf.models.insert(model.to_owned(), entry);
        Ok(())
    }
}

impl ModelEntry {
    /// What the runtime needs to know to set money aside.
    pub fn pricing(&self) -> ModelPricing {
        let unknown = ModelPricing::default();
        let listed = self.max_output.map(|listed| listed.min(DEFAULT_OUTPUT_MAX));
        let asked = self.requested_output.or(listed);
        ModelPricing {
            price: self.price,
            window_tokens: self.window.unwrap_or(unknown.window_tokens),
            max_output_tokens: asked.unwrap_or(unknown.max_output_tokens),
            ..unknown
        }
    }
}

impl PriceOverride {
    fn to_price(self) -> Result<Option<Price>, PriceError> {
        match (self.input, self.output) {
            (Some(input), Some(output)) => Ok(Some(Price {
                input,
                output,
                cached: self.cached.unwrap_or(input),
                cache_write: self.cache_write.unwrap_or(input),
            })),
            (None, None) if self.cached.is_none() && self.cache_write.is_none() => Ok(None),
            (Some(_), None) => Err(PriceError("`output` is missing beside `input`".to_owned())),
            (None, Some(_)) => Err(PriceError("`input` is missing beside `output`".to_owned())),
            (None, None) => Err(PriceError("`input` and `output` are missing".to_owned())),
        }
    }
}

/// Whether a model is an edition of a known one: its name, and then a date or
/// `latest`. Other words and short numbers make another model.
fn is_dated_version(known: &str, model: &str) -> bool {
    let rest = model.strip_prefix(known);
    rest.and_then(|rest| rest.strip_prefix('-'))
        .is_some_and(|rest| rest == "latest" || is_date(rest))
}

/// `20250929`, `2025-08-07` or `0905`.
fn is_date(text: &str) -> bool {
    let digits = |part: &str| part.chars().all(|letter| letter.is_ascii_digit());
    let mut parts = text.split('-');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    (4..=8).contains(&first.len())
        && digits(first)
        && rest.len() <= 2
        && rest.iter().all(|part| part.len() == 2 && digits(part))
}

/// Dollars as the millionths that are counted: exactly, or not at all.
pub fn parse_usd(dollars: &str) -> Option<u64> {
    let (whole, part) = dollars.split_once('.').unwrap_or((dollars, "0"));
    let digits = |text: &str| !text.is_empty() && text.chars().all(|one| one.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > USD_DECIMALS {
        return None;
    }
    let part: u64 = format!("{part:0<USD_DECIMALS$}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(MICROS_PER_USD)?.checked_add(part)
}

/// Millionths as dollars, with cents and as many digits more as there are.
pub fn format_usd(micros: u64) -> String {
    let part = format!("{:0USD_DECIMALS$}", micros % MICROS_PER_USD);
    let (cents, rest) = part.split_at(2);
    let rest = rest.trim_end_matches('0');
    format!("{}.{cents}{rest}", micros / MICROS_PER_USD)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableText {
    as_of: String,
    providers: BTreeMap<String, ProviderText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderText {
    source: String,
    default: Option<String>,
    idle: Option<String>,
    #[serde(default)]
    free: bool,
    #[serde(default)]
    models: Vec<PriceRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceRow {
    name: String,
    input: String,
    output: String,
    cached: Option<String>,
    cache_write: Option<String>,
    window: u64,
    max_output: u64,
    note: Option<String>,
}

impl ProviderText {
    fn into_provider(self, provider: &str) -> Result<ProviderPrices, PriceError> {
        let mut entries = BTreeMap::new();
        for row in self.models {
            let model = row.name.clone();
            let entry = row.into_entry(provider)?;
            let name = entry.name.clone();
            if entries.insert(model, entry).is_some() {
                return Err(PriceError(format!("`{name}` stands in the table twice")));
            }
        }
        let free = || ModelEntry {
            name: format!("{provider}/*"),
            price: Some(Price::default()),
            ..ModelEntry::default()
        };
        Ok(ProviderPrices {
            source: Some(self.source),
            default: self.default,
            idle: self.idle,
            fallback: self.free.then(free),
            models: entries,
        })
    }
}

impl PriceRow {
    fn into_entry(self, provider: &str) -> Result<ModelEntry, PriceError> {
        let name = format!("{provider}/{}", self.name);
        let read = |text: &String| {
            parse_usd(text).ok_or_else(|| PriceError(format!("`{name}`: `{text}` is no price")))
        };
        let own = PriceOverride {
            input: Some(read(&self.input)?),
            output: Some(read(&self.output)?),
            cached: self.cached.as_ref().map(read).transpose()?,
            cache_write: self.cache_write.as_ref().map(read).transpose()?,
            window: Some(self.window),
            max_output: Some(self.max_output),
        };
        Ok(ModelEntry {
            price: own.to_price()?,
            window: own.window,
            max_output: own.max_output,
            requested_output: None,
            note: self.note,
            is_override: false,
            name,
        })
    }
}
