//! Finds model names that can never be used: without a provider, or with a script that is missing or
//! invalid. A missing API key is no such reason.

use std::sync::OnceLock;

use crate::agents::load_context::ModelNames;
use crate::assemble::cassettes::unplayable_cassette_reason;
use crate::assemble::models::{is_script_name, load_model_script, model_selector};
use crate::config::settings::Config;
use longhaul_model::providers::built_in::{CASSETTE_PROVIDER, SCRIPTED_PROVIDER};
use longhaul_model::providers::model_choice::ModelSelector;

/// The model names of a project.
#[derive(Debug)]
pub struct ProjectModelNames<'a> {
    config: &'a Config,
    /// Created when the first name is checked, because that takes a part of the time in which a
    /// command starts. `None` means that the prices are invalid, which is reported elsewhere.
    selector: OnceLock<Option<ModelSelector>>,
}

impl<'a> ProjectModelNames<'a> {
    /// Creates the model names of a project.
    pub const fn new(config: &'a Config) -> Self {
        Self { config, selector: OnceLock::new() }
    }
}

impl ModelNames for ProjectModelNames<'_> {
    fn unusable_reason(&self, model_name: &str) -> Option<String> {
        let selector = self.selector.get_or_init(|| model_selector(self.config).ok());
        let full_name = match selector.as_ref()?.resolve_model_name(model_name) {
            Ok(full_name) => full_name,
            Err(reason) => return Some(reason),
        };
        match full_name.split_once('/')? {
            (SCRIPTED_PROVIDER, script) if !is_script_name(script) => {
                Some(format!("`{script}` is not a valid script name"))
            }
            (SCRIPTED_PROVIDER, script) => match load_model_script(&self.config.root, script) {
                Some(script) => script.err(),
                None => Some(format!("there is no script: write scripts/{script}.yaml")),
            },
            (CASSETTE_PROVIDER, cassette) => unplayable_cassette_reason(self.config, cassette),
            (provider, _) => selector.as_ref()?.providers.missing_provider_message(provider),
        }
    }
}
