//! `longhaul models ls`: providers, keys by name, short names and the default.
//!
//! Never: asks anybody. What is shown is what is set.

use clap::Args;
use longhaul::assemble::menu::{Choice, Menu, Reason};
use longhaul::assemble::providers::Provider;
use longhaul::config::known::SCRIPTED;
use serde_json::{Map, Value, json};

use crate::paint::Tone;
use crate::say;
use crate::table::{self, Cell};

/// How the default is found where nothing is set.
const NOTHING: &str = "no key is set; Ollama's first model, if it answers";

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Ls {
    pub(crate) fn run(&self, menu: &Menu) -> anyhow::Result<()> {
        // Ollama is asked by those who need a model, not by those who look.
        let chosen = menu.choose(None, |_| None);
        if self.json {
            return say::json(&shown(menu, chosen.as_ref().ok()));
        }
        let head = ["PROVIDER", "KEY", "API", "ENDPOINT", "TO USE IT"];
        let mut rows: Vec<Vec<Cell>> = menu
            .providers
            .all()
            .iter()
            .map(|one| row(menu, one))
            .collect();
        rows.push(vec![
            Cell::new(SCRIPTED),
            Cell::new("not needed"),
            Cell::new(SCRIPTED),
            Cell::new("built in"),
            Cell::new("for demos and tests, no AI").tone(Tone::Faint),
        ]);
        table::print(&head, rows)?;
        say::data("")?;
        let head = ["NAME", "MODEL", "FROM"];
        table::print(&head, names(menu, chosen.as_ref().ok()))
    }
}

/// What is known of a provider's key, in a word and for the way on.
fn key(menu: &Menu, provider: &Provider) -> (&'static str, Option<String>) {
    match provider.key(&menu.env) {
        Some((variable, _)) => ("set", Some(variable.to_owned())),
        None if provider.needs_key() => ("not_set", None),
        None => ("not_needed", None),
    }
}

fn row(menu: &Menu, provider: &Provider) -> Vec<Cell> {
    let (state, variable) = key(menu, provider);
    let (said, way) = match (state, variable) {
        (_, Some(variable)) => (Cell::new(variable).tone(Tone::Good), String::new()),
        ("not_set", None) => (
            Cell::new("not set").tone(Tone::Faint),
            format!("set {}", provider.variables()),
        ),
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
fn names(menu: &Menu, chosen: Option<&Choice>) -> Vec<Vec<Cell>> {
    let first = match chosen {
        Some(choice) => vec![
            Cell::new("default"),
            Cell::new(&choice.name),
            Cell::new(reason(&choice.reason)),
        ],
        None => vec![
            Cell::new("default"),
            Cell::new("none").tone(Tone::You),
            Cell::new(NOTHING),
        ],
    };
    let others = menu.names.iter().filter(|(name, _)| *name != "default");
    let others = others
        .map(|(name, (model, origin))| vec![Cell::new(name), Cell::new(model), Cell::new(origin)]);
    std::iter::once(first).chain(others).collect()
}

fn reason(reason: &Reason) -> String {
    match reason {
        Reason::Named => "named".to_owned(),
        Reason::Set(origin) => origin.clone(),
        Reason::Key(variable) => format!("{variable} is set"),
        Reason::Ollama => "Ollama answers".to_owned(),
    }
}

fn shown(menu: &Menu, chosen: Option<&Choice>) -> Value {
    let providers = menu.providers.all().iter().map(|provider| {
        let (state, variable) = key(menu, provider);
        json!({
            "name": provider.name,
            "api": provider.api.as_str(),
            "endpoint": provider.base_url,
            "key": { "state": state, "variable": variable, "variables": provider.key_env },
            "default_model": menu.default_of(&provider.name),
        })
    });
    let names = menu.names.iter().map(|(name, (model, origin))| {
        let told = json!({ "model": model, "from": origin });
        (name.clone(), told)
    });
    json!({
        "providers": providers.collect::<Value>(),
        "names": names.collect::<Map<_, _>>(),
        "default": chosen.map(|choice| json!({
            "model": choice.name,
            "from": reason(&choice.reason),
        })),
    })
}
