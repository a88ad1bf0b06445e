//! The agents, handlers, tools, models and context providers that a program registers. They take
//! precedence over those of files and of the environment. Two registrations with the same name are
//! an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_core::port::context::ContextProvider;
use longhaul_core::port::model::Model;
use longhaul_core::port::sandbox::Sandboxes;
use longhaul_core::port::tool::Tool;
use longhaul_engine::agent::config::PerceptionSource;
use longhaul_engine::agent::{Agent, check};
use longhaul_engine::services::{
    ContextProviderRegistry, ContextProviders, ModelResolver, NoContextProviders,
    ResolveModelError, ResolvedModel,
};
use longhaul_model::providers::model_choice::ModelSelector;

use crate::error::Error;
use crate::handler::function::Handler;

/// Everything that a program registers before it opens a runtime.
#[derive(Debug, Default)]
pub(crate) struct RuntimeRegistrations {
    pub(crate) agents: Vec<Agent>,
    pub(crate) handlers: Vec<Handler>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) models: BTreeMap<String, Arc<dyn Model>>,
    context_providers: BTreeMap<String, Arc<dyn ContextProvider>>,
    pub(crate) sandboxes: BTreeMap<String, Arc<dyn Sandboxes>>,
    first_duplicate: Option<(&'static str, String)>,
}

impl RuntimeRegistrations {
    pub(crate) fn add_model(&mut self, name: String, model: Arc<dyn Model>) {
        if self.models.insert(name.clone(), model).is_some() {
            self.first_duplicate = Some(("model", name));
        }
    }

    pub(crate) fn add_context(&mut self, name: String, provider: Arc<dyn ContextProvider>) {
        if self.context_providers.insert(name.clone(), provider).is_some() {
            self.first_duplicate = Some(("context provider", name));
        }
    }

    pub(crate) fn add_sandboxes(&mut self, provider: Arc<dyn Sandboxes>) {
        let name = provider.name().to_owned();
        if self.sandboxes.insert(name.clone(), provider).is_some() {
            self.first_duplicate = Some(("sandbox provider", name));
        }
    }

    /// Returns the kind (such as `agent`) and the name of the first registration whose name is used
    /// twice. `None` means that all names are unique.
    pub(crate) fn find_duplicate_kind_and_name(&self) -> Option<(&'static str, String)> {
        let agents = self.agents.iter().map(|agent| agent.name.as_str());
        let handlers = self.handlers.iter().map(|handler| handler.name.as_str());
        let mut seen = BTreeSet::new();
        let mut names = agents.chain(handlers);
        let agent = names.find(|name| !seen.insert(*name));
        let agent = agent.map(|name| ("agent", name.to_owned()));
        agent.or_else(|| self.first_duplicate.clone())
    }

    /// Checks the registered agents by the rules for agent files, and that the models and context
    /// providers they name exist. `tool_problem` returns why a tool with this name can't be used.
    pub(crate) fn check_registered_agents(
        &mut self,
        selector: Result<&ModelSelector, &String>,
        tool_problem: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), Error> {
        let providers = self.context_providers_with_fallback(Arc::new(NoContextProviders));
        for agent in &mut self.agents {
            let mut problems = check::check_agent_and_canonicalize_schema(agent, tool_problem);
            for model in agent.models.iter().chain(&agent.idle_models) {
                if !self.models.contains_key(model) {
                    problems.extend(match selector {
                        Ok(selector) => selector.unknown_model_message(model),
                        Err(reason) => Some(reason.clone()),
                    });
                }
            }
            if let Some(source @ PerceptionSource::Named(_)) =
                agent.perception.as_ref().map(|perception| &perception.source)
            {
                problems.extend(providers.resolve_provider(source).err());
            }
            if !problems.is_empty() {
                return Err(Error::BrokenAgent { name: agent.name.to_string(), problems });
            }
        }
        Ok(())
    }

    /// Returns the registered context providers (sources of data about the outside world).
    /// Providers that are not registered are looked up in `others`.
    pub(crate) fn context_providers_with_fallback(
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

/// Resolver for the registered models by name, with a second resolver for all other names.
#[derive(Debug)]
pub(crate) struct RegisteredModelResolver {
    pub(crate) models: BTreeMap<String, Arc<dyn Model>>,
    pub(crate) fallback: Arc<dyn ModelResolver>,
}

impl ModelResolver for RegisteredModelResolver {
    fn resolve_model_name(&self, name: Option<&str>) -> Result<ResolvedModel, ResolveModelError> {
        match name.and_then(|name| self.models.get_key_value(name)) {
            Some((name, model)) => {
                Ok(ResolvedModel { name: name.clone(), model: Arc::clone(model) })
            }
            None => self.fallback.resolve_model_name(name),
        }
    }

    fn idle_tick_model_override(&self) -> Option<String> {
        self.fallback.idle_tick_model_override()
    }

    fn idle_tick_model_of_same_provider(&self, model_name: Option<&str>) -> Option<String> {
        match model_name.is_some_and(|name| self.models.contains_key(name)) {
            true => None,
            false => self.fallback.idle_tick_model_of_same_provider(model_name),
        }
    }
}
