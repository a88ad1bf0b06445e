//! The models of a project by name: those of providers, scripted models and cassettes; and the
//! reasons why a model can never be used, such as an invalid script.
//!
//! Invariant: the scripted model is used only if it is named, never as a fallback. An API key is
//! not sent to a server that only an untrusted project file names.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use longhaul_core::port::model::Model;
use longhaul_core::time::Clock;
use longhaul_engine::services::{ModelResolver, ResolveModelError, ResolvedModel};
use longhaul_model::image_source::ImageSource;
use longhaul_model::providers::Providers;
use longhaul_model::providers::built_in::{CASSETTE_PROVIDER, SCRIPTED_PROVIDER};
use longhaul_model::providers::model_choice::ModelSelector;
use longhaul_model::providers::open::ProviderModels;
use longhaul_model::scripted::{SCRIPT_BYTES_MAX, Script, ScriptedModel};

use crate::agents::built_in;
use crate::agents::load_context::ModelNames;
use crate::assemble::cassettes::{self, unplayable_cassette_reason};
use crate::config::settings::Config;
use crate::project_file::{self, ProjectFileError};
use crate::trust::decisions::TrustDecisions;
use crate::trust::items;

/// Folder of the scripts for scripted models, relative to the project root.
const SCRIPTS_FOLDER: &str = "scripts";

/// Maximum number of scripts and cassettes that are kept open. When it is reached, all of them are
/// closed.
const OPEN_FILES_MAX: usize = 256;

/// An open script or cassette, with the time and size that its file had when it was opened.
#[derive(Debug)]
struct OpenedFile {
    model: Arc<dyn Model>,
    stamp: Option<(SystemTime, u64)>,
}

/// Creates the selector for the models of a project.
///
/// # Errors
/// A price of the project is invalid.
pub fn model_selector(config: &Config) -> Result<ModelSelector, String> {
    let prices = config.price_table().map_err(|error| error.to_string())?;
    let aliases = config.model_aliases().aliases.into_iter().map(|(name, model)| {
        let origin = config.settings.get(&format!("models.{name}"));
        let origin = origin.map_or(String::new(), |setting| setting.origin.to_string());
        (name, (model, origin))
    });
    let var = |name: &str| config.env.var(name).map(str::to_owned);
    let providers = Providers::new(&config.provider_settings(), var);
    Ok(ModelSelector::new(providers, prices, aliases.collect(), var))
}

/// Opens the models of a project by name and keeps them open.
#[derive(Debug)]
pub(crate) struct ModelRegistry {
    config: Config,
    decisions: TrustDecisions,
    selector: Result<ModelSelector, String>,
    clock: Arc<dyn Clock>,
    provider_models: ProviderModels,
    open_files: Mutex<BTreeMap<String, OpenedFile>>,
}

impl ModelRegistry {
    pub(crate) fn new(
        config: &Config,
        clock: Arc<dyn Clock>,
        image_source: Option<Arc<dyn ImageSource>>,
    ) -> Self {
        Self {
            config: config.clone(),
            decisions: TrustDecisions::new(config),
            selector: model_selector(config),
            provider_models: ProviderModels::new(Arc::clone(&clock), image_source),
            clock,
            open_files: Mutex::default(),
        }
    }

    /// Opens the script or cassette with this name by calling `open`, or returns the open one if
    /// its file has not changed.
    fn open_file(
        &self,
        full_name: &str,
        path: &Path,
        open: impl FnOnce() -> Result<Arc<dyn Model>, ResolveModelError>,
    ) -> Result<Arc<dyn Model>, ResolveModelError> {
        let metadata = std::fs::metadata(path).ok();
        let stamp = metadata.and_then(|data| Some((data.modified().ok()?, data.len())));
        if let Some(cached) = lock_ignoring_poison(&self.open_files).get(full_name)
            && cached.stamp == stamp
        {
            return Ok(Arc::clone(&cached.model));
        }
        let model = open()?;
        let mut open_files = lock_ignoring_poison(&self.open_files);
        // Names come from outside, so the cache is bounded. A model in use is kept alive by its
        // users.
        if open_files.len() >= OPEN_FILES_MAX {
            open_files.clear();
        }
        open_files.insert(full_name.to_owned(), OpenedFile { model: Arc::clone(&model), stamp });
        Ok(model)
    }

    fn open_script(
        &self,
        selector: &ModelSelector,
        name: &str,
    ) -> Result<Arc<dyn Model>, ResolveModelError> {
        if !is_script_name(name) {
            return Err(ResolveModelError::NotConfigured(format!(
                "`{name}` is not a valid script name: use letters, digits, `-`, `_` and `.`."
            )));
        }
        let script = load_model_script(&self.config.root, name).ok_or_else(|| {
            ResolveModelError::NotConfigured(format!(
                "There is no script for the model `scripted/{name}`. Write scripts/{name}.yaml."
            ))
        })?;
        let script = script.map_err(ResolveModelError::InvalidScript)?;
        let model = ScriptedModel::new(name, script, Arc::clone(&self.clock));
        Ok(Arc::new(match selector.prices.find_model_entry(SCRIPTED_PROVIDER, name) {
            Some(price_entry) => model.with_pricing(price_entry),
            None => model,
        }))
    }

    /// Checks that the user's data may be sent to a provider. Called on every use, so that revoked
    /// trust also affects open models.
    fn check_provider_trust(&self, provider: &str) -> Result<(), String> {
        let item = items::provider_trust_item(&self.config, provider);
        item.map_or(Ok(()), |item| self.decisions.check_trusted(&item))
    }
}

/// Loads the script `name` of the project or, if the project has none, of the built-in agent.
/// `None` means that there is neither; the error describes an invalid script.
pub fn load_model_script(root: &Path, name: &str) -> Option<Result<Script, String>> {
    let path = Path::new(SCRIPTS_FOLDER).join(format!("{name}.yaml"));
    let display_path = path.display();
    let bytes = match project_file::read_file_in_project(root, &path, SCRIPT_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(ProjectFileError::Missing) => {
            let text = built_in::built_in_model_script(name)?;
            let script = Script::parse_yaml(&format!("built-in/{name}.yaml"), text);
            return Some(script.map_err(|error| error.to_string()));
        }
        Err(error) => return Some(Err(format!("{display_path}: {error}"))),
    };
    Some(match String::from_utf8(bytes) {
        Ok(text) => {
            Script::parse_yaml(&display_path.to_string(), &text).map_err(|error| error.to_string())
        }
        Err(_) => Err(format!("{display_path} is not UTF-8")),
    })
}

/// Whether this is a valid script name. A valid name can't refer to a file in another folder.
pub(crate) fn is_script_name(name: &str) -> bool {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_name_char)
}

fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ModelResolver for ModelRegistry {
    fn resolve_model_name(&self, name: Option<&str>) -> Result<ResolvedModel, ResolveModelError> {
        let selector = self.selector.as_ref().map_err(Clone::clone)?;
        let choice = selector.choose_model(name, |provider| {
            self.check_provider_trust(&provider.name).ok()?;
            self.provider_models.first_ollama_model(provider)
        })?;
        let name = choice.name;
        let (provider, model) = name.split_once('/').unwrap_or_default();
        self.check_provider_trust(provider)?;
        let model = match provider {
            SCRIPTED_PROVIDER => {
                let path = self.config.root.join(SCRIPTS_FOLDER).join(format!("{model}.yaml"));
                self.open_file(&name, &path, || self.open_script(selector, model))?
            }
            CASSETTE_PROVIDER => {
                let path = cassettes::path_of_model(&self.config, model)?;
                let open = || Ok(Arc::new(cassettes::open_cassette(&self.config, model)?) as _);
                self.open_file(&name, &path, open)?
            }
            _ => self.provider_models.open(selector, &name)?,
        };
        Ok(ResolvedModel { name, model })
    }

    fn idle_tick_model_override(&self) -> Option<String> {
        self.selector.as_ref().ok()?.idle_tick_model_override()
    }

    fn idle_tick_model_of_same_provider(&self, model_name: Option<&str>) -> Option<String> {
        self.selector.as_ref().ok()?.idle_tick_model_of_same_provider(model_name)
    }
}

/// The model names of a project.
#[derive(Debug)]
pub struct ProjectModelNames<'a> {
    config: &'a Config,
    /// Created when the first name is checked, so that commands that check no name start faster.
    /// `None` means that the prices are invalid, which is reported elsewhere.
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
