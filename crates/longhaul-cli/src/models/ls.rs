//! `longhaul models ls`: providers, keys by name, short names and the default.
//!
//! Never: asks anybody. What is shown is what is set.

use clap::Args;
use longhaul::assemble::model_choice::{ChoiceReason, ModelChoice, ModelSelector};
use longhaul::assemble::providers::Provider;
use longhaul::config::built_in_providers::SCRIPTED_PROVIDER;
use serde_json::{Map, Value, json};

use crate::output;
use crate::style::Tone;
use crate::table::{self, Cell};

/// How the default is found where nothing is set.
const NO_DEFAULT: &str = "no key is set; Ollama's first model, if it answers";

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Ls {
    pub(crate) fn run(&self, menu: &ModelSelector) -> anyhow::Result<()> {
        // Ollama is asked by those who need a model, not by those who look.
        let chosen = menu.choose(None, |_| None);
        if self.json {
            return output::stdout_json(&to_json(menu, chosen.as_ref().ok()));
        }
        let head = ["PROVIDER", "KEY", "API", "ENDPOINT", "TO USE IT"];
        let mut rows: Vec<Vec<Cell>> =
            menu.providers.all().iter().map(|one| row(menu, one)).collect();
        rows.push(vec![
            Cell::new(SCRIPTED_PROVIDER),
            Cell::new("not needed"),
            Cell::new(SCRIPTED_PROVIDER),
            Cell::new("built in"),
            Cell::new("for demos and tests, no AI").tone(Tone::Dim),
        ]);
        table::print(&head, rows)?;
        output::stdout_line("")?;
        let head = ["NAME", "MODEL", "FROM"];
        table::print(&head, alias_rows(menu, chosen.as_ref().ok()))
    }
}

/// What is known of a provider's key, in a word and for the way on.
fn key_state(menu: &ModelSelector, provider: &Provider) -> (&'static str, Option<String>) {
    match provider.key(&menu.env) {
        Some((variable, _)) => ("set", Some(variable.to_owned())),
        None if provider.needs_key() => ("not_set", None),
        None => ("not_needed", None),
    }
}

fn row(menu: &ModelSelector, provider: &Provider) -> Vec<Cell> {
    let (state, variable) = key_state(menu, provider);
    let (said, way) = match (state, variable) {
        (_, Some(variable)) => (Cell::new(variable).tone(Tone::Good), String::new()),
        ("not_set", None) => {
            (Cell::new("not set").tone(Tone::Dim), format!("set {}", provider.key_variables()))
        }
        (_, None) => (Cell::new("not needed"), String::new()),
    };
    vec![
        Cell::new(&provider.name),
        said,
        Cell::new(provider.api.as_str()),
        Cell::new(&provider.base_url),
        Cell::new(way),
    ]
}

/// Short names with the default among them, whoever decided on it.
fn alias_rows(menu: &ModelSelector, chosen: Option<&ModelChoice>) -> Vec<Vec<Cell>> {
    let first = match chosen {
        Some(choice) => vec![
            Cell::new("default"),
            Cell::new(&choice.name),
            Cell::new(format_reason(&choice.reason)),
        ],
        None => vec![
            Cell::new("default"),
            Cell::new("none").tone(Tone::NeedsPerson),
            Cell::new(NO_DEFAULT),
        ],
    };
    let others = menu.aliases.iter().filter(|(name, _)| *name != "default");
    let others = others
        .map(|(name, (model, origin))| vec![Cell::new(name), Cell::new(model), Cell::new(origin)]);
    std::iter::once(first).chain(others).collect()
}

fn format_reason(reason: &ChoiceReason) -> String {
    match reason {
        ChoiceReason::Named => "named".to_owned(),
        ChoiceReason::Default(origin) => origin.clone(),
        ChoiceReason::Key(variable) => format!("{variable} is set"),
        ChoiceReason::Ollama => "Ollama answers".to_owned(),
    }
}

fn to_json(menu: &ModelSelector, chosen: Option<&ModelChoice>) -> Value {
    let providers = menu.providers.all().iter().map(|provider| {
        let (state, variable) = key_state(menu, provider);
        json!({
            "name": provider.name,
            "api": provider.api.as_str(),
            "endpoint": provider.base_url,
            "key": { "state": state, "variable": variable, "variables": provider.key_env },
            "default_model": menu.default_model(&provider.name),
        })
    });
    let names = menu.aliases.iter().map(|(name, (model, origin))| {
        let told = json!({ "model": model, "from": origin });
        (name.clone(), told)
    });
    json!({
        "providers": providers.collect::<Value>(),
        "names": names.collect::<Map<_, _>>(),
        "default": chosen.map(|choice| json!({
            "model": choice.name,
            "from": format_reason(&choice.reason),
        })),
    })
}
