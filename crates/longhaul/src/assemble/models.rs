//! The models of a project by name, each opened once, over one way to each provider.
//!
//! Never: takes the scripted model because another is missing: it is asked for by
//! its name or not at all. And never sends a key where only a stranger's file says.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::port::model::Model;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::services::{ModelError, ModelResolver, ResolvedModel};
use longhaul_model::http::Http;
use longhaul_model::image_source::ImageSource;
use longhaul_model::scripted::{SCRIPT_BYTES_MAX, Script, ScriptedModel};

use crate::agents::built_in;
use crate::assemble::adapter::{self, AdapterContext, ModelSpec};
use crate::assemble::cassettes;
use crate::assemble::model_choice::ModelSelector;
use crate::assemble::ollama;
use crate::assemble::providers::Provider;
use crate::config::built_in_providers::{CASSETTE_PROVIDER, SCRIPTED_PROVIDER};
use crate::config::settings::Config;
use crate::project_file::{self, ProjectFileError};
use crate::trust::decisions::Decisions;
use crate::trust::egress;

/// The folder of scripts, in the project.
const SCRIPTS_FOLDER: &str = "scripts";

/// So many models are kept open; then all are let go of.
const OPEN_MODELS_MAX: usize = 256;

/// A model that was opened, from a file that looked so.
#[derive(Debug)]
struct OpenModel {
    model: Arc<dyn Model>,
    stamp: Option<FileStamp>,
}

/// When a file was written, and how long it is.
type FileStamp = (std::time::SystemTime, u64);

/// The models of a project.
#[derive(Debug)]
pub(crate) struct ModelRegistry {
    config: Config,
    decisions: Decisions,
    selector: Result<ModelSelector, String>,
    clock: Arc<dyn Clock>,
    image_source: Option<Arc<dyn ImageSource>>,
    open_models: Mutex<BTreeMap<String, OpenModel>>,
    http_clients: Mutex<BTreeMap<String, Http>>,
    ollama_cache: Mutex<Option<(Millis, Option<String>)>>,
}

impl ModelRegistry {
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> Self {
        Self {
            config: config.clone(),
            decisions: Decisions::new(config),
            selector: ModelSelector::from_config(config),
            clock,
            image_source: None,
            open_models: Mutex::default(),
            http_clients: Mutex::default(),
            ollama_cache: Mutex::default(),
        }
    }

    /// The same, for conversations with pictures.
    #[must_use]
    pub(crate) fn with_images(self, pictures: Arc<dyn ImageSource>) -> Self {
        Self { image_source: Some(pictures), ..self }
    }

    fn open(&self, menu: &ModelSelector, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let (provider, model) = name.split_once('/').unwrap_or((name, ""));
        if provider == SCRIPTED_PROVIDER {
            if !is_script_name(model) {
                return Err(ModelError::NotConfigured(format!(
                    "`{model}` is no name of a script: it has letters, digits, `-`, `_` and `.`."
                )));
            }
            let script = load_script(&self.config.root, model).ok_or_else(|| {
                ModelError::NotConfigured(format!(
                    "There is no script for the model `scripted/{model}`. Write \
                     scripts/{model}.yaml."
                ))
            })?;
            let script = script.map_err(ModelError::InvalidScript)?;
            let clock = Arc::clone(&self.clock);
            let played = ScriptedModel::new(model, script, clock);
            return Ok(Arc::new(match menu.prices.find(SCRIPTED_PROVIDER, model) {
                Some(own) => played.with_pricing(own),
                None => played,
            }));
        }
        if provider == CASSETTE_PROVIDER {
            return Ok(Arc::new(cassettes::open(&self.config, model)?));
        }
        let provider = menu.providers.find(provider)?;
        let key = provider.key(&menu.env);
        if provider.needs_key() && key.is_none() {
            return Err(ModelError::NotConfigured(format!(
                "There is no key for `{}`: set {}.",
                provider.name,
                provider.key_variables()
            )));
        }
        let wanted = ModelSpec {
            provider,
            model,
            key: key.map(|(_, key)| key),
            pricing: menu.pricing(&provider.name, model),
        };
        let around = AdapterContext {
            http: self.http_client(provider)?,
            clock: Arc::clone(&self.clock),
            image_source: self.image_source.clone(),
        };
        Ok(adapter::open(wanted, around)?)
    }

    /// How the file of a model looks that is played from one.
    fn file_stamp(&self, name: &str) -> Option<FileStamp> {
        let file = match name.split_once('/')? {
            (SCRIPTED_PROVIDER, script) => {
                let folder = self.config.root.join(SCRIPTS_FOLDER);
                folder.join(format!("{script}.yaml"))
            }
            (CASSETTE_PROVIDER, said) => cassettes::file_for_model(&self.config, said)?,
            _ => return None,
        };
        let about = std::fs::metadata(file).ok()?;
        Some((about.modified().ok()?, about.len()))
    }

    /// The way to a provider's server, the same for all its models: they share
    /// its connections.
    fn http_client(&self, provider: &Provider) -> Result<Http, String> {
        let mut ways = lock(&self.http_clients);
        if let Some(way) = ways.get(&provider.name) {
            return Ok(way.clone());
        }
        let way = Http::new(&provider.base_url, provider.limits);
        let way =
            way.map_err(|trouble| format!("`{}` can't be asked: {trouble}.", provider.name))?;
        ways.insert(provider.name.clone(), way.clone());
        Ok(way)
    }

    /// Whether a provider may be sent what is yours. It is asked about each time: a
    /// model that is open does not outlive the trust in it.
    fn check_trust(&self, provider: &str) -> Result<(), String> {
        let item = egress::provider_item(&self.config, provider);
        item.map_or(Ok(()), |item| self.decisions.check(&item))
    }

    /// The model that Ollama lists first, if it answers.
    fn first_ollama_model(&self, provider: &Provider) -> Option<String> {
        let now = self.clock.monotonic();
        let known = lock(&self.ollama_cache).clone();
        if let Some((at, answer)) = known
            && now.minus(at) < ollama::cache_ttl(answer.as_deref())
        {
            return answer;
        }
        // Nobody is kept waiting for the lock while the question is out.
        let answer = ollama::first_model(provider, self.clock.now());
        *lock(&self.ollama_cache) = Some((now, answer.clone()));
        answer
    }
}

/// The script `name`: the project's, else the one that ships with the agent of that name.
/// `None` if there is neither; the error says what is wrong with the script.
pub fn load_script(root: &Path, name: &str) -> Option<Result<Script, String>> {
    let path = Path::new(SCRIPTS_FOLDER).join(format!("{name}.yaml"));
    let said = path.display();
    let bytes = match project_file::read(root, &path, SCRIPT_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(ProjectFileError::Missing) => {
            let text = built_in::script(name)?;
            let script = Script::parse(&format!("built-in/{name}.yaml"), text);
            return Some(script.map_err(|why| why.to_string()));
        }
        Err(unread) => return Some(Err(format!("{said} {unread}"))),
    };
    Some(match String::from_utf8(bytes) {
        Ok(text) => Script::parse(&said.to_string(), &text).map_err(|why| why.to_string()),
        Err(_) => Err(format!("{said} is not UTF-8")),
    })
}

/// Whether this can be the name of a script: it leads to no other folder.
fn is_script_name(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ModelResolver for ModelRegistry {
    fn resolve(&self, name: Option<&str>) -> Result<ResolvedModel, ModelError> {
        let menu = self.selector.as_ref().map_err(Clone::clone)?;
        let choice = menu.choose(name, |provider| {
            self.check_trust(&provider.name).ok()?;
            self.first_ollama_model(provider)
        })?;
        let name = choice.name;
        let provider = name.split_once('/').map_or("", |(provider, _)| provider);
        self.check_trust(provider)?;
        let stamp = self.file_stamp(&name);
        if let Some(known) = lock(&self.open_models).get(&name)
            && known.stamp == stamp
        {
            let model = Arc::clone(&known.model);
            return Ok(ResolvedModel { name, model });
        }
        let model = self.open(menu, &name)?;
        let mut opened = lock(&self.open_models);
        // Names come from outside; whoever asks a model holds it himself.
        if opened.len() >= OPEN_MODELS_MAX {
            opened.clear();
        }
        let kept = OpenModel { model: Arc::clone(&model), stamp };
        opened.insert(name.clone(), kept);
        Ok(ResolvedModel { name, model })
    }

    fn idle_model(&self) -> Option<String> {
        self.selector.as_ref().ok()?.idle_model()
    }
}
