//! The models of a project by name. Each model is opened once, and all models of a provider share
//! one HTTP client.
//!
//! Invariant: the scripted model is used only if it is named, never as a fallback. An API key is
//! not sent to a server that only an untrusted project file names.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::port::model::Model;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::services::{ModelResolver, ResolveModelError, ResolvedModel};
use longhaul_model::http::HttpClient;
use longhaul_model::image_source::ImageSource;
use longhaul_model::scripted::{SCRIPT_BYTES_MAX, Script, ScriptedModel};

use crate::agents::built_in;
use crate::assemble::adapter::{self, ModelAdapterContext, ModelSpec};
use crate::assemble::cassettes;
use crate::assemble::model_choice::ModelSelector;
use crate::assemble::ollama;
use crate::assemble::providers::Provider;
use crate::config::built_in_providers::{CASSETTE_PROVIDER, SCRIPTED_PROVIDER};
use crate::config::settings::Config;
use crate::project_file::{self, ProjectFileError};
use crate::trust::decisions::TrustDecisions;
use crate::trust::egress;

/// Folder of the scripts for scripted models, relative to the project root.
const SCRIPTS_FOLDER: &str = "scripts";

/// Maximum number of models that are kept open. When it is reached, all of them are closed.
const OPEN_MODELS_MAX: usize = 256;

/// An open model, with the time and size that its script or cassette file had when it was opened.
#[derive(Debug)]
struct OpenedModel {
    model: Arc<dyn Model>,
    stamp: Option<FileTimeAndSize>,
}

/// Modification time and size of a file, to detect that it has changed.
type FileTimeAndSize = (std::time::SystemTime, u64);

/// Opens the models of a project by name and keeps them open.
#[derive(Debug)]
pub(crate) struct ModelRegistry {
    config: Config,
    decisions: TrustDecisions,
    selector: Result<ModelSelector, String>,
    clock: Arc<dyn Clock>,
    image_source: Option<Arc<dyn ImageSource>>,
    open_models: Mutex<BTreeMap<String, OpenedModel>>,
    http_clients: Mutex<BTreeMap<String, HttpClient>>,
    ollama_cache: Mutex<Option<(Millis, Option<String>)>>,
}

impl ModelRegistry {
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> Self {
        Self {
            config: config.clone(),
            decisions: TrustDecisions::new(config),
            selector: ModelSelector::from_config(config),
            clock,
            image_source: None,
            open_models: Mutex::default(),
            http_clients: Mutex::default(),
            ollama_cache: Mutex::default(),
        }
    }

    /// Sets the source of the images in conversations.
    #[must_use]
    pub(crate) fn with_image_source(self, image_source: Arc<dyn ImageSource>) -> Self {
        Self { image_source: Some(image_source), ..self }
    }

    fn open_model(
        &self,
        selector: &ModelSelector,
        name: &str,
    ) -> Result<Arc<dyn Model>, ResolveModelError> {
        let (provider, model) = name.split_once('/').unwrap_or((name, ""));
        if provider == SCRIPTED_PROVIDER {
            if !is_script_name(model) {
                return Err(ResolveModelError::NotConfigured(format!(
                    "`{model}` is not a valid script name: use letters, digits, `-`, `_` and `.`."
                )));
            }
            let script = load_model_script(&self.config.root, model).ok_or_else(|| {
                ResolveModelError::NotConfigured(format!(
                    "There is no script for the model `scripted/{model}`. Write \
                     scripts/{model}.yaml."
                ))
            })?;
            let script = script.map_err(ResolveModelError::InvalidScript)?;
            let clock = Arc::clone(&self.clock);
            let scripted_model = ScriptedModel::new(model, script, clock);
            return Ok(Arc::new(
                match selector.prices.find_model_entry(SCRIPTED_PROVIDER, model) {
                    Some(price_entry) => scripted_model.with_pricing(price_entry),
                    None => scripted_model,
                },
            ));
        }
        if provider == CASSETTE_PROVIDER {
            return Ok(Arc::new(cassettes::open_cassette(&self.config, model)?));
        }
        let provider = selector.providers.find_provider(provider)?;
        let key = provider.variable_and_api_key(&selector.env);
        if provider.needs_api_key() && key.is_none() {
            return Err(ResolveModelError::NotConfigured(format!(
                "There is no key for `{}`: set {}.",
                provider.name,
                provider.joined_api_key_variable_names()
            )));
        }
        let spec = ModelSpec {
            provider,
            model,
            key: key.map(|(_, key)| key),
            pricing: selector.model_pricing(&provider.name, model),
        };
        let ctx = ModelAdapterContext {
            http: self.provider_http_client(provider)?,
            clock: Arc::clone(&self.clock),
            image_source: self.image_source.clone(),
        };
        Ok(adapter::create_model_adapter(spec, ctx)?)
    }

    /// Returns the modification time and size of the script or cassette file of a model. `None`
    /// means that the model has no file.
    fn model_file_time_and_size(&self, model_name: &str) -> Option<FileTimeAndSize> {
        let file = match model_name.split_once('/')? {
            (SCRIPTED_PROVIDER, script) => {
                let folder = self.config.root.join(SCRIPTS_FOLDER);
                folder.join(format!("{script}.yaml"))
            }
            (CASSETTE_PROVIDER, cassette_name) => {
                cassettes::cassette_path_of_model(&self.config, cassette_name)?
            }
            _ => return None,
        };
        let metadata = std::fs::metadata(file).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    /// Returns the HTTP client of a provider. All models of the provider share it and its
    /// connections.
    fn provider_http_client(&self, provider: &Provider) -> Result<HttpClient, String> {
        let mut clients = lock_ignoring_poison(&self.http_clients);
        if let Some(client) = clients.get(&provider.name) {
            return Ok(client.clone());
        }
        let client = HttpClient::new(&provider.base_url, provider.limits);
        let client = client
            .map_err(|error| format!("The provider `{}` can't be used: {error}.", provider.name))?;
        clients.insert(provider.name.clone(), client.clone());
        Ok(client)
    }

    /// Checks that the user's data may be sent to a provider. Called on every use, so that revoked
    /// trust also affects open models.
    fn check_provider_trust(&self, provider: &str) -> Result<(), String> {
        let item = egress::provider_trust_item(&self.config, provider);
        item.map_or(Ok(()), |item| self.decisions.check_trusted(&item))
    }

    /// Returns the first model that Ollama lists. `None` means that Ollama does not respond or has
    /// no model.
    fn first_ollama_model(&self, provider: &Provider) -> Option<String> {
        let now = self.clock.monotonic_time();
        let cached = lock_ignoring_poison(&self.ollama_cache).clone();
        if let Some((at, model)) = cached
            && now.minus(at) < ollama::first_ollama_model_cache_ttl(model.as_deref())
        {
            return model;
        }
        // The lock is not held during the request.
        let model = ollama::fetch_first_ollama_model(provider, self.clock.now());
        *lock_ignoring_poison(&self.ollama_cache) = Some((now, model.clone()));
        model
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
            self.first_ollama_model(provider)
        })?;
        let name = choice.name;
        let provider = name.split_once('/').map_or("", |(provider, _)| provider);
        self.check_provider_trust(provider)?;
        let stamp = self.model_file_time_and_size(&name);
        if let Some(cached) = lock_ignoring_poison(&self.open_models).get(&name)
            && cached.stamp == stamp
        {
            let model = Arc::clone(&cached.model);
            return Ok(ResolvedModel { name, model });
        }
        let model = self.open_model(selector, &name)?;
        let mut open_models = lock_ignoring_poison(&self.open_models);
        // Names come from outside, so the cache is bounded. A model in use is kept alive by its
        // users.
        if open_models.len() >= OPEN_MODELS_MAX {
            open_models.clear();
        }
        let opened_model = OpenedModel { model: Arc::clone(&model), stamp };
        open_models.insert(name.clone(), opened_model);
        Ok(ResolvedModel { name, model })
    }

    fn idle_tick_model_override(&self) -> Option<String> {
        self.selector.as_ref().ok()?.idle_tick_model_override()
    }

    fn idle_tick_model_of_same_provider(&self, model_name: Option<&str>) -> Option<String> {
        self.selector.as_ref().ok()?.idle_tick_model_of_same_provider(model_name)
    }
}
