//! `longhaul models price`: what models cost by the list, and what you have set.
//!
//! Never: a guess. What is not known is said to be not known.

use clap::Args;
use longhaul::assemble::model_choice::ModelSelector;
use longhaul_model::prices::{ModelEntry, format_usd};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output;
use crate::style::Tone;
use crate::table::{self, Cell};

const UNKNOWN_NOTE: &str = "not known: tokens are counted, cost is not";

#[derive(Debug, Args)]
pub(crate) struct Price {
    /// Only these, as provider/model or by their short names
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A model that was asked for, and what is known of it.
#[derive(Debug)]
struct PricedModel<'a> {
    name: String,
    entry: Option<&'a ModelEntry>,
}

impl Price {
    pub(crate) fn run(&self, menu: &ModelSelector) -> anyhow::Result<()> {
        let (lines, unknown) = self.select(menu);
        // What is known is told before what is not.
        if !lines.is_empty() || unknown.is_empty() {
            self.print(menu, &lines)?;
        }
        match unknown.is_empty() {
            true => Ok(()),
            false => Err(CliError::usage(unknown.join("\n")).into()),
        }
    }

    fn print(&self, menu: &ModelSelector, lines: &[PricedModel<'_>]) -> anyhow::Result<()> {
        if self.json {
            let list = lines.iter().map(to_json);
            let told = json!({
                "as_of": menu.prices.as_of(),
                "unit": "USD for a million tokens",
                "models": list.collect::<Value>(),
            });
            return output::stdout_json(&told);
        }
        let head = ["MODEL", "INPUT", "OUTPUT", "CACHED", "WRITE", "WINDOW", "REPLY", "NOTE"];
        let rows = lines.iter().map(row);
        table::print(&head, rows)?;
        let day = menu.prices.as_of();
        output::stdout_line(&format!(
            "\nDollars for a million tokens, by the lists of {day}; WRITE is into a cache."
        ))?;
        let unknown = lines.iter().find(|line| entry_price(line).is_none());
        if let Some(line) = unknown {
            output::stdout_line("What is not known can be set in longhaul.toml:")?;
            output::stdout_text(&format!(
                "  [prices.\"{}\"]\n  input = 0.25\n  output = 2.0",
                line.name
            ))?;
        }
        Ok(())
    }

    /// The models that are meant, and what is said of names that mean none.
    fn select<'a>(&self, menu: &'a ModelSelector) -> (Vec<PricedModel<'a>>, Vec<String>) {
        if self.models.is_empty() {
            let all = menu
                .prices
                .models()
                .map(|entry| PricedModel { name: entry.name.clone(), entry: Some(entry) });
            return (all.collect(), Vec::new());
        }
        let (mut lines, mut unknown) = (Vec::new(), Vec::new());
        for said in &self.models {
            // A model's own name is enough where the table has it.
            let ending = format!("/{said}");
            let listed = menu.prices.models().find(|one| one.name.ends_with(&ending));
            let name = match listed.filter(|_| !menu.aliases.contains_key(said)) {
                Some(entry) => Ok(entry.name.clone()),
                None => menu.choose(Some(said), |_| None).map(|choice| choice.name),
            };
            match name {
                Ok(name) => {
                    let entry = menu.prices.find_by_name(&name);
                    lines.push(PricedModel { name, entry });
                }
                Err(why) => unknown.push(why),
            }
        }
        (lines, unknown)
    }
}

fn entry_price(line: &PricedModel<'_>) -> Option<longhaul_core::usage::Price> {
    line.entry.and_then(|entry| entry.price)
}

fn row(line: &PricedModel<'_>) -> Vec<Cell> {
    let money = |micros: u64| Cell::new(format_usd(micros));
    let count = |count: Option<u64>| Cell::new(count.map_or("?".to_owned(), format_thousands));
    let entry = line.entry.cloned().unwrap_or_default();
    let mut row = vec![Cell::new(&line.name)];
    match entry.price {
        Some(price) => row.extend([
            money(price.input),
            money(price.output),
            money(price.cached),
            money(price.cache_write),
        ]),
        None => row.extend(std::iter::repeat_n(Cell::new("?"), 4)),
    }
    let note = match (entry.price, entry.is_override) {
        (None, _) => Cell::new(UNKNOWN_NOTE).tone(Tone::NeedsPerson),
        (Some(_), true) => Cell::new("set by you").tone(Tone::Good),
        (Some(_), false) => Cell::new(entry.note.as_deref().unwrap_or_default()),
    };
    row.extend([count(entry.window), count(entry.max_output), note]);
    row
}

/// Tokens as people say them.
fn format_thousands(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        _ => format!("{}k", count / 1_000),
    }
}

fn to_json(line: &PricedModel<'_>) -> Value {
    let entry = line.entry.cloned().unwrap_or_default();
    let money = |micros: u64| format_usd(micros);
    json!({
        "model": line.name,
        "listed_as": line.entry.map(|entry| &entry.name),
        "price": entry.price.map(|price| json!({
            "input": money(price.input),
            "output": money(price.output),
            "cached": money(price.cached),
            "cache_write": money(price.cache_write),
        })),
        "window": entry.window,
        "max_output": entry.max_output,
        "set_by_you": entry.is_override,
        "note": entry.note,
    })
}
