//! `longhaul models price`: prints list prices and configured prices of models. Unknown prices are
//! marked as unknown.

use clap::Args;
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

/// A model to print, and its entry in the price table, if it has one.
#[derive(Debug)]
struct PricedModel<'a> {
    name: String,
    entry: Option<&'a ModelPriceEntry>,
}

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
        if self.json {
            let list = models.iter().map(to_json);
            let value = json!({
                "as_of": selector.prices.price_date(),
                "unit": "USD for a million tokens",
                "models": list.collect::<Value>(),
            });
            return output::print_json(&value);
        }
        let titles = ["MODEL", "INPUT", "OUTPUT", "CACHED", "WRITE", "WINDOW", "REPLY", "NOTE"];
        let rows = models.iter().map(price_row);
        table::print_table(&titles, rows)?;
        let day = selector.prices.price_date();
        output::print_line(&format!(
            "\nUS dollars per million tokens, list prices of {day}; WRITE is for writing to a cache."
        ))?;
        let unpriced = models.iter().find(|model| listed_price(model).is_none());
        if let Some(model) = unpriced {
            output::print_line("Unknown prices can be set in longhaul.toml:")?;
            output::print_text(&format!(
                "  [prices.\"{}\"]\n  input = 0.25\n  output = 2.0",
                model.name
            ))?;
        }
        Ok(())
    }

    /// Returns the models to print, and an error message for each unknown model name.
    fn select_priced_models<'a>(
        &self,
        selector: &'a ModelSelector,
    ) -> (Vec<PricedModel<'a>>, Vec<String>) {
        if self.models.is_empty() {
            let all = selector
                .prices
                .model_entries()
                .map(|entry| PricedModel { name: entry.name.clone(), entry: Some(entry) });
            return (all.collect(), Vec::new());
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
                    models.push(PricedModel { name, entry });
                }
                Err(error) => unknown.push(error),
            }
        }
        (models, unknown)
    }
}

fn listed_price(model: &PricedModel<'_>) -> Option<longhaul_core::usage::Price> {
    model.entry.and_then(|entry| entry.price)
}

fn price_row(model: &PricedModel<'_>) -> Vec<TableCell> {
    let usd_cell = |micros: u64| TableCell::new(format_usd(micros));
    let count = |count: Option<u64>| TableCell::new(count.map_or("?".to_owned(), format_thousands));
    let entry = model.entry.cloned().unwrap_or_default();
    let mut row = vec![TableCell::new(&model.name)];
    match entry.price {
        Some(price) => row.extend([
            usd_cell(price.input),
            usd_cell(price.output),
            usd_cell(price.cached),
            usd_cell(price.cache_write),
        ]),
        None => row.extend(std::iter::repeat_n(TableCell::new("?"), 4)),
    }
    let note = match (entry.price, entry.is_override) {
        (None, _) => TableCell::new(UNKNOWN_NOTE).with_tone(TextTone::NeedsPerson),
        (Some(_), true) => TableCell::new("set by you").with_tone(TextTone::Good),
        (Some(_), false) => TableCell::new(entry.note.as_deref().unwrap_or_default()),
    };
    row.extend([count(entry.window), count(entry.max_output), note]);
    row
}

/// Formats a number of tokens in thousands.
fn format_thousands(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        _ => format!("{}k", count / 1_000),
    }
}

fn to_json(model: &PricedModel<'_>) -> Value {
    let entry = model.entry.cloned().unwrap_or_default();
    let format_price = |micros: u64| format_usd(micros);
    json!({
        "model": model.name,
        "listed_as": model.entry.map(|entry| &entry.name),
        "price": entry.price.map(|price| json!({
            "input": format_price(price.input),
            "output": format_price(price.output),
            "cached": format_price(price.cached),
            "cache_write": format_price(price.cache_write),
        })),
        "window": entry.window,
        "max_output": entry.max_output,
        "set_by_you": entry.is_override,
        "note": entry.note,
    })
}
