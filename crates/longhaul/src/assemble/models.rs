//! The models of a project by name, each opened once, over one way to each provider.
//!
//! Never: takes the scripted model because another is missing: it is asked for by
//! its name or not at all. And never sends a key where only a stranger's file says.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::port::model::Model;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::ports::{Found, Models, NoModel};
use longhaul_model::http::Http;
use longhaul_model::pictures::Pictures;
use longhaul_model::scripted::{SCRIPT_BYTES_MAX, Script, ScriptedModel};

use crate::agents::shipped;
use crate::assemble::adapter::{self, Around, Wanted};
use crate::assemble::cassettes;
use crate::assemble::menu::Menu;
use crate::assemble::ollama;
use crate::assemble::providers::Provider;
use crate::config::known::{CASSETTE, SCRIPTED};
use crate::config::settings::Config;
use crate::inside::{self, Unread};
use crate::trust::decisions::Decisions;
use crate::trust::sends;

/// The folder of scripts, in the project.
const SCRIPTS: &str = "scripts";

/// So many models are kept open; then all are let go of.
const OPENED_MAX: usize = 256;

/// A model that was opened, from a file that looked so.
#[derive(Debug)]
struct Opened {
    model: Arc<dyn Model>,
    stamp: Option<Stamp>,
}

/// When a file was written, and how long it is.
type Stamp = (std::time::SystemTime, u64);

/// The models of a project.
#[derive(Debug)]
pub(crate) struct ModelShelf {
    config: Config,
    decisions: Decisions,
    menu: Result<Menu, String>,
    clock: Arc<dyn Clock>,
    pictures: Option<Arc<dyn Pictures>>,
    opened: Mutex<BTreeMap<String, Opened>>,
    ways: Mutex<BTreeMap<String, Http>>,
    ollama: Mutex<Option<(Millis, Option<String>)>>,
}

impl ModelShelf {
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> Self {
        Self {
            config: config.clone(),
            decisions: Decisions::new(config),
            menu: Menu::of(config),
            clock,
            pictures: None,
            opened: Mutex::default(),
            ways: Mutex::default(),
            ollama: Mutex::default(),
        }
    }

    /// The same, for conversations with pictures.
    #[must_use]
    pub(crate) fn with_pictures(self, pictures: Arc<dyn Pictures>) -> Self {
        Self {
            pictures: Some(pictures),
            ..self
        }
    }

    fn open(&self, menu: &Menu, name: &str) -> Result<Arc<dyn Model>, NoModel> {
        let (provider, model) = name.split_once('/').unwrap_or((name, ""));
        if provider == SCRIPTED {
            if !is_script_name(model) {
                return Err(NoModel::Unset(format!(
                    "`{model}` is no name of a script: it has letters, digits, `-`, `_` and `.`."
                )));
            }
            let script = script(&self.config.root, model).ok_or_else(|| {
                NoModel::Unset(format!(
                    "There is no script for the model `scripted/{model}`. Write \
                     scripts/{model}.yaml."
                ))
            })?;
            let script = script.map_err(NoModel::BrokenScript)?;
            let clock = Arc::clone(&self.clock);
            let played = ScriptedModel::new(model, script, clock);
            return Ok(Arc::new(match menu.prices.find(SCRIPTED, model) {
                Some(own) => played.with(own),
                None => played,
            }));
        }
        if provider == CASSETTE {
            return Ok(Arc::new(cassettes::open(&self.config, model)?));
        }
        let provider = menu.providers.find(provider)?;
        let key = provider.key(&menu.env);
        if provider.needs_key() && key.is_none() {
            return Err(NoModel::Unset(format!(
                "There is no key for `{}`: set {}.",
                provider.name,
                provider.variables()
            )));
        }
        let wanted = Wanted {
            provider,
            model,
            key: key.map(|(_, key)| key),
            tariff: menu.tariff(&provider.name, model),
        };
        let around = Around {
            http: self.way(provider)?,
            clock: Arc::clone(&self.clock),
            pictures: self.pictures.clone(),
        };
        Ok(adapter::open(wanted, around)?)
    }

    /// How the file of a model looks that is played from one.
    fn stamp(&self, name: &str) -> Option<Stamp> {
        let file = match name.split_once('/')? {
            (SCRIPTED, script) => {
                let folder = self.config.root.join(SCRIPTS);
                folder.join(format!("{script}.yaml"))
            }
            (CASSETTE, said) => cassettes::file_of(&self.config, said)?,
            _ => return None,
        };
        let about = std::fs::metadata(file).ok()?;
        Some((about.modified().ok()?, about.len()))
    }

    /// The way to a provider's server, the same for all its models: they share
    /// its connections.
    fn way(&self, provider: &Provider) -> Result<Http, String> {
        let mut ways = held(&self.ways);
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
    fn trusted(&self, provider: &str) -> Result<(), String> {
        let item = sends::provider(&self.config, provider);
        item.map_or(Ok(()), |item| self.decisions.check(&item))
    }

    /// The model that Ollama lists first, if it answers.
    fn ask_ollama(&self, provider: &Provider) -> Option<String> {
        let now = self.clock.monotonic();
        let known = held(&self.ollama).clone();
        if let Some((at, answer)) = known
            && now.minus(at) < ollama::age(answer.as_deref())
        {
            return answer;
        }
        // Nobody is kept waiting for the lock while the question is out.
        let answer = ollama::first_model(provider, self.clock.now());
        *held(&self.ollama) = Some((now, answer.clone()));
        answer
    }
}

/// The script `name`: the project's, else the one that ships with the agent of that name.
/// `None` if there is neither; the error says what is wrong with the script.
pub fn script(root: &Path, name: &str) -> Option<Result<Script, String>> {
    let path = Path::new(SCRIPTS).join(format!("{name}.yaml"));
    let said = path.display();
    let bytes = match inside::read(root, &path, SCRIPT_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(Unread::Missing) => {
            let text = shipped::script(name)?;
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

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Models for ModelShelf {
    fn find(&self, name: Option<&str>) -> Result<Found, NoModel> {
        let menu = self.menu.as_ref().map_err(Clone::clone)?;
        let choice = menu.choose(name, |provider| {
            self.trusted(&provider.name).ok()?;
            self.ask_ollama(provider)
        })?;
        let name = choice.name;
        let provider = name.split_once('/').map_or("", |(provider, _)| provider);
        self.trusted(provider)?;
        let stamp = self.stamp(&name);
        if let Some(known) = held(&self.opened).get(&name)
            && known.stamp == stamp
        {
            let model = Arc::clone(&known.model);
            return Ok(Found { name, model });
        }
        let model = self.open(menu, &name)?;
        let mut opened = held(&self.opened);
        // Names come from outside; whoever asks a model holds it himself.
        if opened.len() >= OPENED_MAX {
            opened.clear();
        }
        let kept = Opened {
            model: Arc::clone(&model),
            stamp,
        };
        opened.insert(name.clone(), kept);
        Ok(Found { name, model })
    }

    fn idle(&self) -> Option<String> {
        self.menu.as_ref().ok()?.idle()
    }
}
