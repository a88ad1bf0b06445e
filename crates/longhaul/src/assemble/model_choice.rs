//! Which model is meant: by name, by short name, or by what this machine has.
//!
//! Never: the scripted model where another is missing, and never the network: who
//! can ask Ollama hands that in.

use std::collections::BTreeMap;

use longhaul_core::suggest::closest;
use longhaul_core::usage::{MicroUsd, ModelPricing};
use longhaul_model::prices::{PriceTable, format_usd};

use crate::assemble::providers::{Provider, Providers};
use crate::config::built_in_providers::{
    CASSETTE_PROVIDER, DEFAULT_ALIAS, IDLE_ALIAS, SCRIPTED_PROVIDER,
};
use crate::config::env::Env;
use crate::config::settings::Config;

/// Providers whose key alone is enough, in the order in which they are looked at.
const PROVIDER_ORDER: &[&str] = &["anthropic", "openai", "moonshot", "openrouter"];

/// Moonshot's models by variable, which win over those of the table.
const MOONSHOT: &str = "moonshot";
const CONVERSATION_MODEL_VAR: &str = "KIMI_CONVERSATION_MODEL";
const IDLE_MODEL_VAR: &str = "KIMI_IDLE_MODEL";

/// Why it is this model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChoiceReason {
    /// It was named.
    Named,
    /// It is the default that somebody set, here.
    Default(String),
    /// This variable holds a key, and the provider has a default.
    Key(String),
    /// Ollama answered.
    Ollama,
}

/// A model, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice {
    /// As `provider/model`.
    pub name: String,
    /// Why.
    pub reason: ChoiceReason,
}

/// What there is to choose from.
#[derive(Debug, Clone)]
pub struct ModelSelector {
    /// Who can be asked.
    pub providers: Providers,
    /// What it costs.
    pub prices: PriceTable,
    /// Short names with what they stand for and who said so.
    pub aliases: BTreeMap<String, (String, String)>,
    /// Where keys are.
    pub env: Env,
}

impl ModelSelector {
    /// What this project can choose from.
    ///
    /// # Errors
    /// A price of the project's own can't be used.
    pub fn from_config(config: &Config) -> Result<Self, String> {
        let prices = config.prices().map_err(|bad| bad.to_string())?;
        let mut names = BTreeMap::new();
        for (name, model) in config.model_aliases().aliases {
            let origin = config.settings.get(&format!("models.{name}"));
            let origin = origin.map_or(String::new(), |setting| setting.origin.to_string());
            names.insert(name, (model, origin));
        }
        let env = config.env.clone();
        if let Some((model, origin)) =
            moonshot_model(&env, IDLE_MODEL_VAR, || prices.idle_model(MOONSHOT))
        {
            names.entry(IDLE_ALIAS.to_owned()).or_insert((model, origin));
        }
        Ok(Self { providers: Providers::from_config(config), prices, aliases: names, env })
    }

    /// The model that the environment names for idle ticks: it wins over what an
    /// agent's file says.
    pub fn idle_model(&self) -> Option<String> {
        moonshot_model(&self.env, IDLE_MODEL_VAR, || None).map(|(model, _)| model)
    }

    /// The model that is meant. `ollama` is asked only when nothing else is there,
    /// and says which model it lists first.
    ///
    /// # Errors
    /// No model is meant, in sentences that say every way to one.
    pub fn choose(
        &self,
        named: Option<&str>,
        ollama: impl FnOnce(&Provider) -> Option<String>,
    ) -> Result<ModelChoice, String> {
        if let Some(named) = named.filter(|named| *named != DEFAULT_ALIAS) {
            let name = self.resolve_name(named)?;
            let reason = ChoiceReason::Named;
            return Ok(ModelChoice { name, reason });
        }
        if let Some((_, origin)) = self.aliases.get(DEFAULT_ALIAS) {
            let name = self.resolve_name(DEFAULT_ALIAS)?;
            let reason = ChoiceReason::Default(origin.clone());
            return Ok(ModelChoice { name, reason });
        }
        if let Some(choice) = self.choose_by_key() {
            return Ok(choice);
        }
        let local = self.providers.find("ollama").ok();
        match local.and_then(ollama) {
            Some(model) => {
                Ok(ModelChoice { name: format!("ollama/{model}"), reason: ChoiceReason::Ollama })
            }
            None => Err(self.no_model_message()),
        }
    }

    /// The first provider with a key and a model that is asked where none is named.
    fn choose_by_key(&self) -> Option<ModelChoice> {
        PROVIDER_ORDER.iter().find_map(|name| {
            let provider = self.providers.find(name).ok()?;
            let (variable, _) = provider.key(&self.env)?;
            Some(ModelChoice {
                name: self.default_model(name)?,
                reason: ChoiceReason::Key(variable.to_owned()),
            })
        })
    }

    /// The model of a provider that is asked where none is named.
    pub fn default_model(&self, provider: &str) -> Option<String> {
        let listed = || self.prices.default_model(provider);
        if provider == MOONSHOT {
            return moonshot_model(&self.env, CONVERSATION_MODEL_VAR, listed)
                .map(|(model, _)| model);
        }
        listed().map(|model| format!("{provider}/{model}"))
    }

    /// What a name stands for, as `provider/model`. A short name stands for a
    /// model, not for another short name; only the default may be one.
    fn resolve_name(&self, named: &str) -> Result<String, String> {
        let look = |name: &str| self.aliases.get(name).map(|(model, _)| model.as_str());
        let meant = look(named);
        let meant = match named {
            DEFAULT_ALIAS => meant.map(|meant| look(meant).unwrap_or(meant)),
            _ => meant,
        };
        let full = meant.unwrap_or(named);
        match (full.split_once('/'), meant) {
            (Some((provider, model)), _) if !provider.is_empty() && !model.is_empty() => {
                Ok(full.to_owned())
            }
            (_, Some(meant)) => Err(format!(
                "`{named}` stands for `{meant}` in `[models]`, and that is no model: write \
                 `provider/model`."
            )),
            (_, None) => {
                let like = closest(named, self.aliases.keys().map(String::as_str));
                let like = like.map_or(String::new(), |like| format!(" Did you mean `{like}`?"));
                Err(format!(
                    "There is no model `{named}`.{like} Name one as `provider/model`, or give \
                     `{named}` a meaning in `[models]` of longhaul.toml."
                ))
            }
        }
    }

    /// What the runtime needs to know of a model; what nobody knows is guessed,
    /// but for its price.
    pub fn pricing(&self, provider: &str, model: &str) -> ModelPricing {
        let entry = self.prices.find(provider, model);
        entry.map_or_else(ModelPricing::default, |entry| entry.pricing())
    }

    /// That a budget in dollars can't hold models without a price, if there are
    /// some among these.
    pub fn unpriced_warning(&self, names: &[String], budget: Option<MicroUsd>) -> Option<String> {
        let is_unbound = |name: &&String| {
            let (provider, model) = name.split_once('/').unwrap_or((name, ""));
            // What is played costs nothing.
            let is_played = [SCRIPTED_PROVIDER, CASSETTE_PROVIDER].contains(&provider);
            !is_played && self.pricing(provider, model).price.is_none()
        };
        let names: Vec<&str> = names.iter().filter(is_unbound).map(String::as_str).collect();
        let budget = format_usd(budget?.0);
        let (has, it) = match names.as_slice() {
            [] => return None,
            [_] => ("has", "it"),
            [_, ..] => ("have", "them"),
        };
        Some(format!(
            "{} {has} no price here, so the budget of ${budget} can't hold {it}; caps of tokens \
             and turns can. To set a price: longhaul models price {}",
            names.join(" and "),
            names.join(" ")
        ))
    }

    /// That there is no model, and every way to one.
    fn no_model_message(&self) -> String {
        let with_default = PROVIDER_ORDER.iter().filter(|name| self.default_model(name).is_some());
        let variables: Vec<String> = with_default
            .filter_map(|name| self.providers.find(name).ok())
            .filter(|provider| provider.needs_key())
            .map(Provider::key_variables)
            .collect();
        let mut said = format!(
            "No model is named, and none is found. Set {}; or start Ollama; or name one: \
             --model PROVIDER/MODEL, `model:` in the agent's file, or `default` in `[models]` of \
             longhaul.toml.",
            variables.join(", ")
        );
        // A key for many models is no model.
        for name in PROVIDER_ORDER {
            if let Ok(provider) = self.providers.find(name)
                && let Some((variable, _)) = provider.key(&self.env)
                && self.default_model(name).is_none()
            {
                said.push_str(&format!(
                    " {variable} is set, but {name} has no default: name a model as \
                     `{name}/VENDOR/MODEL`."
                ));
            }
        }
        said
    }
}

/// A model of Moonshot's with who says so: a variable, or the table.
fn moonshot_model<'a>(
    env: &Env,
    variable: &str,
    listed: impl FnOnce() -> Option<&'a str>,
) -> Option<(String, String)> {
    let (model, origin) = match env.var(variable) {
        Some(model) => (model, format!("environment {variable}")),
        None => (listed()?, "default".to_owned()),
    };
    let own = model.strip_prefix("moonshot/").unwrap_or(model);
    Some((format!("{MOONSHOT}/{own}"), origin))
}
