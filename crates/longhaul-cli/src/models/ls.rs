//! `longhaul models ls`: lists providers, key variables, short names and the default model. The
//! command contacts no provider.

use clap::Args;
use longhaul_model::providers::Provider;
use longhaul_model::providers::built_in::SCRIPTED_PROVIDER;
use longhaul_model::providers::model_choice::{ModelChoice, ModelChoiceReason, ModelSelector};
use serde_json::{Map, Value, json};

use crate::output;
use crate::style::TextTone;
use crate::table::{self, TableCell};

/// Text of the default model's row if no default model could be chosen.
const NO_DEFAULT: &str = "no key is set; the first Ollama model, if Ollama is running";

#[derive(Debug, Args)]
pub(crate) struct ListModelsCommand {
    /// Print the list as one JSON object
    #[arg(long)]
    json: bool,
}

impl ListModelsCommand {
    pub(crate) fn run(&self, selector: &ModelSelector) -> anyhow::Result<()> {
        // Listing does not contact Ollama; only commands that need a model do.
        let default_choice = selector.choose_model(None, |_| None);
        if self.json {
            return output::print_json(&model_list_to_json(selector, default_choice.as_ref().ok()));
        }
        let titles = ["PROVIDER", "KEY", "API", "ENDPOINT", "TO USE IT"];
        let mut rows: Vec<Vec<TableCell>> =
            selector.providers.as_slice().iter().map(provider_row).collect();
        rows.push(vec![
            TableCell::new(SCRIPTED_PROVIDER),
            TableCell::new("not needed"),
            TableCell::new(SCRIPTED_PROVIDER),
            TableCell::new("built in"),
            TableCell::new("for demos and tests, no AI").with_tone(TextTone::Dim),
        ]);
        table::print_table(&titles, rows)?;
        output::print_line("")?;
        let titles = ["NAME", "MODEL", "FROM"];
        table::print_table(&titles, alias_rows(selector, default_choice.as_ref().ok()))
    }
}

/// Returns the state of a provider's API key (`set`, `not_set` or `not_needed`), and the name of
/// the environment variable with the key if it is set.
fn api_key_state_and_variable(provider: &Provider) -> (&'static str, Option<String>) {
    match provider.variable_and_api_key() {
        Some((variable, _)) => ("set", Some(variable.to_owned())),
        None if provider.needs_api_key() => ("not_set", None),
        None => ("not_needed", None),
    }
}

fn provider_row(provider: &Provider) -> Vec<TableCell> {
    let (state, variable) = api_key_state_and_variable(provider);
    let (key_cell, hint) = match (state, variable) {
        (_, Some(variable)) => (TableCell::new(variable).with_tone(TextTone::Good), String::new()),
        ("not_set", None) => (
            TableCell::new("not set").with_tone(TextTone::Dim),
            format!("set {}", provider.joined_api_key_variable_names()),
        ),
        (_, None) => (TableCell::new("not needed"), String::new()),
    };
    vec![
        TableCell::new(&provider.name),
        key_cell,
        TableCell::new(provider.api.as_str()),
        TableCell::new(&provider.base_url),
        TableCell::new(hint),
    ]
}

/// Returns the table rows of the short names of models, with the default model first.
fn alias_rows(
    selector: &ModelSelector,
    default_choice: Option<&ModelChoice>,
) -> Vec<Vec<TableCell>> {
    let default_row = match default_choice {
        Some(choice) => vec![
            TableCell::new("default"),
            TableCell::new(&choice.name),
            TableCell::new(format_choice_reason(&choice.reason)),
        ],
        None => vec![
            TableCell::new("default"),
            TableCell::new("none").with_tone(TextTone::NeedsPerson),
            TableCell::new(NO_DEFAULT),
        ],
    };
    let other_rows = selector.aliases.iter().filter(|(name, _)| *name != "default");
    let other_rows = other_rows.map(|(name, (model, origin))| {
        vec![TableCell::new(name), TableCell::new(model), TableCell::new(origin)]
    });
    std::iter::once(default_row).chain(other_rows).collect()
}

fn format_choice_reason(reason: &ModelChoiceReason) -> String {
    match reason {
        ModelChoiceReason::Named => "named".to_owned(),
        ModelChoiceReason::Default(origin) => origin.clone(),
        ModelChoiceReason::Key(variable) => format!("{variable} is set"),
        ModelChoiceReason::Ollama => "Ollama is running".to_owned(),
    }
}

fn model_list_to_json(selector: &ModelSelector, default_choice: Option<&ModelChoice>) -> Value {
    let providers = selector.providers.as_slice().iter().map(|provider| {
        let (state, variable) = api_key_state_and_variable(provider);
        json!({
            "name": provider.name,
            "api": provider.api.as_str(),
            "endpoint": provider.base_url,
            "key": { "state": state, "variable": variable, "variables": provider.key_env },
            "default_model": selector.default_model(&provider.name),
        })
    });
    let names = selector.aliases.iter().map(|(name, (model, origin))| {
        let value = json!({ "model": model, "from": origin });
        (name.clone(), value)
    });
    json!({
        "providers": providers.collect::<Value>(),
        "names": names.collect::<Map<_, _>>(),
        "default": default_choice.map(|choice| json!({
            "model": choice.name,
            "from": format_choice_reason(&choice.reason),
        })),
    })
}
