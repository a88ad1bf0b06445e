//! What a program registers itself, beside what files and the environment name.
//!
//! Never: a name twice. What a program registers goes before what others bring.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_core::id::IdError;
use longhaul_core::port::context::ContextProvider;
use longhaul_core::port::model::Model;
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::store::Store;
use longhaul_core::port::tool::Tool;
use longhaul_engine::agent::config::PerceptionSource;
use longhaul_engine::agent::{Agent, AgentRegistry};
use longhaul_engine::context_providers::ContextProviderRegistry;
use longhaul_engine::services::{
    ContextProviders, ModelError, ModelResolver, NoContextProviders, ResolvedModel,
};
use longhaul_engine::tool_registry::{ToolRegistrationError, ToolRegistry};

use crate::agents::in_code;
use crate::agents::load_context::LoadContext;
use crate::assemble::model_choice::ModelSelector;
use crate::config::built_in_providers::{CASSETTE_PROVIDER, DEFAULT_ALIAS, SCRIPTED_PROVIDER};
use crate::config::settings::Config;
use crate::handler::Handler;

/// What a program registers.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    pub(crate) agents: Vec<Agent>,
    pub(crate) handlers: Vec<Handler>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    models: BTreeMap<String, Arc<dyn Model>>,
    context_providers: BTreeMap<String, Arc<dyn ContextProvider>>,
    first_duplicate: Option<(&'static str, String)>,
}

impl Registrations {
    pub(crate) fn add_model(&mut self, name: String, model: Arc<dyn Model>) {
        if self.models.insert(name.clone(), model).is_some() {
            self.first_duplicate = Some(("model", name));
        }
    }

    pub(crate) fn add_context_provider(&mut self, name: String, one: Arc<dyn ContextProvider>) {
        if self.context_providers.insert(name.clone(), one).is_some() {
            self.first_duplicate = Some(("context provider", name));
        }
    }

    /// A name that two have, and what they are.
    pub(crate) fn duplicate_name(&self) -> Option<(&'static str, String)> {
        let agents = self.agents.iter().map(|agent| agent.name.as_str());
        let handlers = self.handlers.iter().map(|handler| handler.name.as_str());
        let mut seen = BTreeSet::new();
        let mut names = agents.chain(handlers);
        let agent = names.find(|name| !seen.insert(*name));
        let agent = agent.map(|name| ("agent", name.to_owned()));
        agent.or_else(|| self.first_duplicate.clone())
    }

    /// Checks the agents by the rules for files, and the models and context providers that they
    /// name. The error is the name of one, and everything that is wrong with it.
    pub(crate) fn check(
        &mut self,
        config: &Config,
        shelf: &LoadContext<'_>,
    ) -> Result<(), (String, Vec<String>)> {
        let menu = ModelSelector::from_config(config);
        let providers = self.context_providers(Arc::new(NoContextProviders));
        for agent in &mut self.agents {
            let mut problems = in_code::check(agent, shelf);
            for model in agent.models.iter().chain(&agent.idle_models) {
                if !self.models.contains_key(model) {
                    problems.extend(unknown_model(menu.as_ref(), model));
                }
            }
            if let Some(eye @ PerceptionSource::Named(_)) =
                agent.perception.as_ref().map(|sight| &sight.source)
            {
                problems.extend(providers.resolve(eye).err());
            }
            if !problems.is_empty() {
                return Err((agent.name.to_string(), problems));
            }
        }
        Ok(())
    }

    /// The same with the parts of its handlers, over the store that has the journals.
    pub(crate) fn with_handlers<S>(mut self, store: &Arc<S>) -> Result<Self, IdError>
    where
        S: Store + RecordStore + 'static,
    {
        for handler in std::mem::take(&mut self.handlers) {
            let parts = handler.into_parts(store.clone(), store.clone())?;
            self.agents.push(parts.agent);
            self.tools.push(parts.tool);
            self.models.insert(parts.model_name, parts.model);
        }
        Ok(self)
    }

    /// These tools, and those that are registered. One that several agents share is one.
    pub(crate) fn tool_registry(
        &self,
        mut tools: ToolRegistry,
    ) -> Result<ToolRegistry, ToolRegistrationError> {
        for (place, tool) in self.tools.iter().enumerate() {
            let before = &self.tools[..place];
            if !before.iter().any(|known| Arc::ptr_eq(known, tool)) {
                tools = tools.with_tool(Arc::clone(tool))?;
            }
        }
        Ok(tools)
    }

    /// These agents, and those that are registered in the place of others of their names.
    pub(crate) fn agent_registry(&self, mut roster: AgentRegistry) -> AgentRegistry {
        for agent in &self.agents {
            roster.register(agent.clone());
        }
        roster
    }

    /// These models, after those that are registered.
    pub(crate) fn model_resolver(&self, others: Arc<dyn ModelResolver>) -> Arc<dyn ModelResolver> {
        Arc::new(RegisteredModels { models: self.models.clone(), fallback: others })
    }

    /// These context providers, after those that are registered.
    pub(crate) fn context_providers(
        &self,
        others: Arc<dyn ContextProviders>,
    ) -> Arc<dyn ContextProviders> {
        let mut providers = ContextProviderRegistry::with_fallback(others);
        for (name, provider) in &self.context_providers {
            providers.register(name, Arc::clone(provider));
        }
        Arc::new(providers)
    }
}

/// That no provider has the model of this name. Whether its key is set and its script is there
/// is looked at when it is asked for.
fn unknown_model(menu: Result<&ModelSelector, &String>, name: &str) -> Option<String> {
    if name == DEFAULT_ALIAS {
        return None;
    }
    let known = menu.map_err(String::clone).and_then(|menu| {
        let choice = menu.choose(Some(name), |_| None)?;
        match choice.name.split_once('/') {
            Some((SCRIPTED_PROVIDER | CASSETTE_PROVIDER, _)) | None => Ok(()),
            Some((provider, _)) => menu.providers.find(provider).map(drop),
        }
    });
    known.err()
}

/// The models of a program by name, and others behind them.
#[derive(Debug)]
struct RegisteredModels {
    models: BTreeMap<String, Arc<dyn Model>>,
    fallback: Arc<dyn ModelResolver>,
}

impl ModelResolver for RegisteredModels {
    fn resolve(&self, name: Option<&str>) -> Result<ResolvedModel, ModelError> {
        match name.and_then(|name| self.models.get_key_value(name)) {
            Some((name, model)) => {
                Ok(ResolvedModel { name: name.clone(), model: Arc::clone(model) })
            }
            None => self.fallback.resolve(name),
        }
    }

    fn idle_model(&self) -> Option<String> {
        self.fallback.idle_model()
    }
}
