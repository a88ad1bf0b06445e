//! `longhaul models price`: prints list prices and configured prices of models. Unknown prices are
//! marked as unknown.

use clap::Args;
use longhaul_core::usage::Price;
use longhaul_model::prices::{ModelPriceEntry, format_usd};
use longhaul_model::providers::model_choice::ModelSelector;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output;
use crate::style::TextTone;
use crate::table::{self, TableCell};

const UNKNOWN_NOTE: &str = "unknown: tokens are counted, cost is not";

#[derive(Debug, Args)]
pub(crate) struct ModelPricesCommand {
    /// Print only these models, as provider/model or by their short names
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    /// Print the prices as one JSON object
    #[arg(long)]
    json: bool,
}

/// The name of a model to print, and its entry in the price table, if it has one.
type PricedModel<'a> = (String, Option<&'a ModelPriceEntry>);

impl ModelPricesCommand {
    pub(crate) fn run(&self, selector: &ModelSelector) -> anyhow::Result<()> {
        let (models, unknown) = self.select_priced_models(selector);
        // Known models are printed before the error about unknown names.
        if !models.is_empty() || unknown.is_empty() {
            self.print_prices(selector, &models)?;
        }
        match unknown.is_empty() {
            true => Ok(()),
            false => Err(CliError::usage_error(unknown.join("\n")).into()),
        }
    }

    fn print_prices(
        &self,
        selector: &ModelSelector,
        models: &[PricedModel<'_>],
    ) -> anyhow::Result<()> {
        let day = selector.prices.price_date();
        let list = json!({
            "as_of": day, "unit": "USD for a million tokens",
            "models": models.iter().map(to_json).collect::<Value>(),
        });
        output::show(self.json, &list, |_| {
            let titles = ["MODEL", "INPUT", "OUTPUT", "CACHED", "WRITE", "WINDOW", "REPLY", "NOTE"];
            table::print_table(&titles, models.iter().map(price_row))?;
            output::print_line(&format!(
                "\nUS dollars per million tokens, list prices of {day}; WRITE is for writing to a cache."
            ))?;
            let has_no_price =
                |(_, entry): &&PricedModel<'_>| entry.is_none_or(|entry| entry.price.is_none());
            if let Some((name, _)) = models.iter().find(has_no_price) {
                output::print_text(&format!(
                    "Unknown prices can be set in longhaul.toml:
  [prices.\"{name}\"]\n  input = 0.25\n  output = 2.0"
                ))?;
            }
            Ok(())
        })
    }

    /// Returns the models to print, and an error message for each unknown model name.
    fn select_priced_models<'a>(
        &self,
        selector: &'a ModelSelector,
    ) -> (Vec<PricedModel<'a>>, Vec<String>) {
        if self.models.is_empty() {
            let all = selector.prices.model_entries();
            return (all.map(|entry| (entry.name.clone(), Some(entry))).collect(), Vec::new());
        }
        let (mut models, mut unknown) = (Vec::new(), Vec::new());
        for model in &self.models {
            // A model name without its provider is enough if the price table has it.
            let suffix = format!("/{model}");
            let listed_entry =
                selector.prices.model_entries().find(|one| one.name.ends_with(&suffix));
            let name = match listed_entry.filter(|_| !selector.aliases.contains_key(model)) {
                Some(entry) => Ok(entry.name.clone()),
                None => selector.choose_model(Some(model), |_| None).map(|choice| choice.name),
            };
            match name {
                Ok(name) => {
                    let entry = selector.prices.find_model_entry_by_name(&name);
                    models.push((name, entry));
                }
                Err(error) => unknown.push(error),
            }
        }
        (models, unknown)
    }
}

fn price_row((name, entry): &PricedModel<'_>) -> Vec<TableCell> {
    let count = |count: Option<u64>| match count {
        None => "?".to_owned(),
        Some(count @ 0..1_000) => count.to_string(),
        Some(count) => format!("{}k", count / 1_000),
    };
    let entry = entry.cloned().unwrap_or_default();
    let price =
        |part: fn(Price) -> u64| entry.price.map_or("?".into(), |one| format_usd(part(one)));
    let note = match (entry.price, entry.is_override) {
        (None, _) => TableCell::toned(UNKNOWN_NOTE, TextTone::NeedsPerson),
        (Some(_), true) => TableCell::toned("set by you", TextTone::Good),
        (Some(_), false) => TableCell::new(entry.note.as_deref().unwrap_or_default()),
    };
    table::row(&[
        name,
        &price(|price| price.input),
        &price(|price| price.output),
        &price(|price| price.cached),
        &price(|price| price.cache_write),
        &count(entry.window),
        &count(entry.max_output),
        &note,
    ])
}

fn to_json((name, listed): &PricedModel<'_>) -> Value {
    let entry = listed.cloned().unwrap_or_default();
    let price = entry.price.map(|price| {
        let [input, output, cached, cache_write] =
            [price.input, price.output, price.cached, price.cache_write].map(format_usd);
        json!({ "input": input, "output": output, "cached": cached, "cache_write": cache_write })
    });
    json!({
        "model": name, "listed_as": listed.map(|entry| &entry.name), "price": price,
        "window": entry.window, "max_output": entry.max_output, "set_by_you": entry.is_override,
        "note": entry.note,
    })
}
