//! Selects a model: by name, by alias, or by the API keys that are set on this machine.
//!
//! Invariant: the scripted model is never a fallback for a missing model. This module makes no
//! network requests: the caller passes a function that queries Ollama.

use std::collections::BTreeMap;

use longhaul_core::suggest::most_similar_name;
use longhaul_core::usage::{MicroUsd, ModelPricing};

use crate::prices::{PriceTable, format_usd};
use crate::providers::built_in::{CASSETTE_PROVIDER, DEFAULT_ALIAS, IDLE_ALIAS, SCRIPTED_PROVIDER};
use crate::providers::{Provider, Providers};

/// Providers that can be selected because their API key is set, in order of precedence.
const PROVIDER_ORDER: &[&str] = &["anthropic", "openai", "moonshot", "openrouter"];

/// The provider whose default models can be set by environment variables.
const MOONSHOT_PROVIDER: &str = "moonshot";
const CONVERSATION_MODEL_VAR: &str = "KIMI_CONVERSATION_MODEL";
const IDLE_MODEL_VAR: &str = "KIMI_IDLE_MODEL";

/// Reason why a model was selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelChoiceReason {
    /// The caller named the model.
    Named,
    /// The model is the configured default. The text says where the default is set.
    Default(String),
    /// The environment variable with this name contains an API key, and the provider of the key has
    /// a default model.
    Key(String),
    /// An Ollama server is running on this machine.
    Ollama,
}

/// A selected model, with the reason for the selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice {
    /// Name of the model as `provider/model`.
    pub name: String,
    /// Reason why this model was selected.
    pub reason: ModelChoiceReason,
}

/// Selects models from the configured providers, prices and aliases.
#[derive(Debug, Clone)]
pub struct ModelSelector {
    /// The model providers of the project.
    pub providers: Providers,
    /// Prices and limits of the known models.
    pub prices: PriceTable,
    /// Models by alias. The second text of each pair says where the alias is set.
    pub aliases: BTreeMap<String, (String, String)>,
    /// Moonshot models that environment variables set: for conversations, and for runs that an
    /// `idle_tick` event starts.
    moonshot_conversation: Option<String>,
    moonshot_idle: Option<String>,
}

/// Returns the full name of a model of this provider: for Moonshot the one that an environment
/// variable sets, or else the one of the price table.
fn provider_model(provider: &str, set: Option<&String>, listed: Option<&str>) -> Option<String> {
    let set = set.filter(|_| provider == MOONSHOT_PROVIDER).map(String::as_str);
    let prefix = format!("{provider}/");
    let model = set.or(listed)?;
    Some(format!("{prefix}{}", model.strip_prefix(&prefix).unwrap_or(model)))
}

impl ModelSelector {
    /// Creates a selector. `aliases` has the model of each alias, and where the alias is set. `var`
    /// returns the value of an environment variable.
    pub fn new(
        providers: Providers,
        prices: PriceTable,
        mut aliases: BTreeMap<String, (String, String)>,
        var: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let (moonshot_conversation, moonshot_idle) =
            (var(CONVERSATION_MODEL_VAR), var(IDLE_MODEL_VAR));
        let listed = prices.model_for_idle_tick_events(MOONSHOT_PROVIDER);
        let origin = match moonshot_idle {
            Some(_) => format!("environment {IDLE_MODEL_VAR}"),
            None => "default".to_owned(),
        };
        if let Some(model) = provider_model(MOONSHOT_PROVIDER, moonshot_idle.as_ref(), listed) {
            aliases.entry(IDLE_ALIAS.to_owned()).or_insert((model, origin));
        }
        Self { providers, prices, aliases, moonshot_conversation, moonshot_idle }
    }

    /// Returns the model that the environment sets for runs that an `idle_tick` event (the agent
    /// has nothing else to do) starts. It overrides the model in the agent's file.
    pub fn idle_tick_model_override(&self) -> Option<String> {
        provider_model(MOONSHOT_PROVIDER, self.moonshot_idle.as_ref(), None)
    }

    /// Returns a provider's model for runs that an `idle_tick` event (the agent has nothing else to
    /// do) starts, which is used if the agent's file sets none. The provider is that of the model
    /// `name`, or of the default model if `name` is `None`.
    pub fn idle_tick_model_of_same_provider(&self, model_name: Option<&str>) -> Option<String> {
        let choice = self.choose_model(model_name, |_| None).ok()?;
        let (provider, _) = choice.name.split_once('/')?;
        let listed = self.prices.model_for_idle_tick_events(provider);
        provider_model(provider, self.moonshot_idle.as_ref(), listed)
    }

    /// Selects a model. `ollama` returns the first model of a running Ollama server; it is called
    /// only if nothing else is configured.
    ///
    /// # Errors
    /// No model can be selected. The message lists all ways to configure one.
    pub fn choose_model(
        &self,
        model_name: Option<&str>,
        ollama: impl FnOnce(&Provider) -> Option<String>,
    ) -> Result<ModelChoice, String> {
        let name = model_name.unwrap_or(DEFAULT_ALIAS);
        let reason = match self.aliases.get(DEFAULT_ALIAS) {
            _ if name != DEFAULT_ALIAS => Some(ModelChoiceReason::Named),
            alias => alias.map(|(_, origin)| ModelChoiceReason::Default(origin.clone())),
        };
        if let Some(reason) = reason {
            return Ok(ModelChoice { name: self.resolve_model_name(name)?, reason });
        }
        if let Some(choice) = self.choose_model_by_api_key() {
            return Ok(choice);
        }
        let local = self.providers.find_provider("ollama").ok();
        match local.and_then(ollama) {
            Some(model) => Ok(ModelChoice {
                name: format!("ollama/{model}"),
                reason: ModelChoiceReason::Ollama,
            }),
            None => Err(self.no_model_configured_message()),
        }
    }

    /// Selects the default model of the first provider that has one and whose API key is set.
    /// `None` means that there is no such provider.
    fn choose_model_by_api_key(&self) -> Option<ModelChoice> {
        PROVIDER_ORDER.iter().find_map(|name| {
            let provider = self.providers.find_provider(name).ok()?;
            let (variable, _) = provider.variable_and_api_key()?;
            Some(ModelChoice {
                name: self.default_model(name)?,
                reason: ModelChoiceReason::Key(variable.to_owned()),
            })
        })
    }

    /// Returns the default model of a provider as `provider/model`. `None` means that it has none.
    pub fn default_model(&self, provider_name: &str) -> Option<String> {
        let listed = self.prices.default_model(provider_name);
        provider_model(provider_name, self.moonshot_conversation.as_ref(), listed)
    }

    /// Resolves a model name or alias to `provider/model`. An alias must refer to a model; only
    /// `default` may refer to another alias.
    ///
    /// # Errors
    /// There is no such alias, or it does not refer to a model. The message has a suggestion.
    pub fn resolve_model_name(&self, name_or_alias: &str) -> Result<String, String> {
        let alias_target = |name: &str| self.aliases.get(name).map(|(model, _)| model.as_str());
        let target = alias_target(name_or_alias);
        let target = match name_or_alias {
            DEFAULT_ALIAS => target.map(|target| alias_target(target).unwrap_or(target)),
            _ => target,
        };
        let full_name = target.unwrap_or(name_or_alias);
        match (full_name.split_once('/'), target) {
            (Some((provider, model)), _) if !provider.is_empty() && !model.is_empty() => {
                Ok(full_name.to_owned())
            }
            (_, Some(target)) => Err(format!(
                "`{name_or_alias}` refers to `{target}` in `[models]`, which is not a model: write \
                 `provider/model`."
            )),
            (_, None) => {
                let suggestion =
                    most_similar_name(name_or_alias, self.aliases.keys().map(String::as_str));
                let suggestion = suggestion
                    .map_or(String::new(), |suggestion| format!(" Did you mean `{suggestion}`?"));
                Err(format!(
                    "There is no model `{name_or_alias}`.{suggestion} Name one as `provider/model`, or define \
                     `{name_or_alias}` in `[models]` of longhaul.toml."
                ))
            }
        }
    }

    /// Returns an error message if no provider has the model `name`. Its API key or script is checked
    /// later, when the model is used.
    pub fn unknown_model_message(&self, name: &str) -> Option<String> {
        if name == DEFAULT_ALIAS {
            return None;
        }
        let provider_exists = |choice: ModelChoice| match choice.name.split_once('/') {
            Some((SCRIPTED_PROVIDER | CASSETTE_PROVIDER, _)) | None => Ok(()),
            Some((provider, _)) => self.providers.find_provider(provider).map(drop),
        };
        self.choose_model(Some(name), |_| None).and_then(provider_exists).err()
    }

    /// Returns the prices and limits of a model. Unknown limits are estimated; an unknown price
    /// stays unknown.
    pub fn model_pricing(&self, provider: &str, model: &str) -> ModelPricing {
        let entry = self.prices.find_model_entry(provider, model);
        entry.map_or_else(ModelPricing::default, |entry| entry.pricing())
    }

    /// Returns a warning if a budget in dollars can't limit some of these models because they have
    /// no price.
    pub fn unpriced_models_warning(
        &self,
        model_names: &[String],
        budget: Option<MicroUsd>,
    ) -> Option<String> {
        let has_no_price = |name: &&String| {
            let (provider, model) = name.split_once('/').unwrap_or((name, ""));
            // Scripted and recorded models cost nothing.
            let is_free = [SCRIPTED_PROVIDER, CASSETTE_PROVIDER].contains(&provider);
            !is_free && self.model_pricing(provider, model).price.is_none()
        };
        let model_names: Vec<&str> =
            model_names.iter().filter(has_no_price).map(String::as_str).collect();
        let budget = format_usd(budget?.0);
        let (verb, pronoun) = match model_names.as_slice() {
            [] => return None,
            [_] => ("has", "it"),
            [_, ..] => ("have", "them"),
        };
        Some(format!(
            "{} {verb} no price, so the budget of ${budget} does not limit {pronoun}; caps on \
             tokens and turns do. To set a price: longhaul models price {}",
            model_names.join(" and "),
            model_names.join(" ")
        ))
    }

    /// Returns the error message that no model is configured. It lists all ways to configure one.
    fn no_model_configured_message(&self) -> String {
        let with_default = PROVIDER_ORDER.iter().filter(|name| self.default_model(name).is_some());
        let variables: Vec<String> = with_default
            .filter_map(|name| self.providers.find_provider(name).ok())
            .filter(|provider| provider.needs_api_key())
            .map(Provider::joined_api_key_variable_names)
            .collect();
        let mut message = format!(
            "No model is named, and none is found. Set {}; or start Ollama; or name one: \
             --model PROVIDER/MODEL, `model:` in the agent's file, or `default` in `[models]` of \
             longhaul.toml.",
            variables.join(", ")
        );
        // A provider with many models has no default, so its key alone does not select a model.
        for name in PROVIDER_ORDER {
            if let Ok(provider) = self.providers.find_provider(name)
                && let Some((variable, _)) = provider.variable_and_api_key()
                && self.default_model(name).is_none()
            {
                message.push_str(&format!(
                    " {variable} is set, but {name} has no default: name a model as \
                     `{name}/VENDOR/MODEL`."
                ));
            }
        }
        message
    }
}
