//! `longhaul models ls`: lists providers, key variables, short names and the default model. The
//! command contacts no provider.

use longhaul_model::providers::Provider;
use longhaul_model::providers::built_in::SCRIPTED_PROVIDER;
use longhaul_model::providers::model_choice::{ModelChoice, ModelChoiceReason, ModelSelector};
use serde_json::{Map, Value, json};

use crate::output;
use crate::style::TextTone;
use crate::table::{self, JsonArgs, TableCell};

/// Text of the default model's row if no default model could be chosen.
const NO_DEFAULT: &str = "no key is set; the first Ollama model, if Ollama is running";

pub(super) fn run(output: &JsonArgs, selector: &ModelSelector) -> anyhow::Result<()> {
    // Listing does not contact Ollama; only commands that need a model do.
    let default_choice = selector.choose_model(None, |_| None).ok();
    let list = model_list_to_json(selector, default_choice.as_ref());
    output::show(output.json, &list, |_| {
        let scripted = table::row(&[
            &SCRIPTED_PROVIDER,
            &"not needed",
            &SCRIPTED_PROVIDER,
            &"built in",
            &TableCell::toned("for demos and tests, no AI", TextTone::Dim),
        ]);
        let rows = selector.providers.as_slice().iter().map(provider_row).chain([scripted]);
        table::print_table(&["PROVIDER", "KEY", "API", "ENDPOINT", "TO USE IT"], rows)?;
        output::print_line("")?;
        let (model, reason) = match &default_choice {
            Some(choice) => (TableCell::new(&choice.name), format_choice_reason(&choice.reason)),
            None => (TableCell::toned("none", TextTone::NeedsPerson), NO_DEFAULT.to_owned()),
        };
        let aliases = selector.aliases.iter().filter(|(name, _)| *name != "default");
        let aliases = aliases.map(|(name, (model, origin))| table::row(&[name, model, origin]));
        let rows = std::iter::once(table::row(&[&"default", &model, &reason])).chain(aliases);
        table::print_table(&["NAME", "MODEL", "FROM"], rows)
    })
}

fn provider_row(provider: &Provider) -> Vec<TableCell> {
    let (key, hint) = match provider.variable_and_api_key() {
        Some((variable, _)) => (TableCell::toned(variable, TextTone::Good), String::new()),
        None if provider.needs_api_key() => {
            let names = provider.joined_api_key_variable_names();
            (TableCell::toned("not set", TextTone::Dim), format!("set {names}"))
        }
        None => (TableCell::new("not needed"), String::new()),
    };
    table::row(&[&provider.name, &key, &provider.api.as_str(), &provider.base_url, &hint])
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
        let variable = provider.variable_and_api_key().map(|(variable, _)| variable);
        let state = match (variable, provider.needs_api_key()) {
            (Some(_), _) => "set",
            (None, true) => "not_set",
            (None, false) => "not_needed",
        };
        json!({
            "name": provider.name,
            "api": provider.api.as_str(),
            "endpoint": provider.base_url,
            "key": { "state": state, "variable": variable, "variables": provider.key_env },
            "default_model": selector.default_model(&provider.name),
        })
    });
    let names = selector
        .aliases
        .iter()
        .map(|(name, (model, origin))| (name.clone(), json!({ "model": model, "from": origin })));
    json!({
        "providers": providers.collect::<Value>(),
        "names": names.collect::<Map<_, _>>(),
        "default": default_choice.map(|choice| json!({
            "model": choice.name,
            "from": format_choice_reason(&choice.reason),
        })),
    })
}
