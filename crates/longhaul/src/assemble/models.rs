//! The models of a project by name. This build knows the scripted ones.
//!
//! Never: takes the scripted model because another is missing. It is asked for
//! by its name or not at all.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::port::model::Model;
use longhaul_core::time::Clock;
use longhaul_engine::ports::{Found, Models};
use longhaul_model::scripted::{Script, ScriptedModel};

use crate::config::settings::Config;

/// The models of a project.
#[derive(Debug)]
pub(crate) struct ModelShelf {
    scripts: PathBuf,
    default: Option<String>,
    names: BTreeMap<String, String>,
    clock: Arc<dyn Clock>,
    opened: Mutex<BTreeMap<String, Arc<dyn Model>>>,
}

impl ModelShelf {
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> Self {
        let models = config.models();
        Self {
            scripts: config.root.join("scripts"),
            default: models.default,
            names: models.names,
            clock,
            opened: Mutex::default(),
        }
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Model>, String> {
        let Some((provider, model)) = name.split_once('/') else {
            return Err(format!(
                "There is no model `{name}`. Name one as `provider/model`, or give `{name}` a \
                 meaning in `[models]` of longhaul.toml."
            ));
        };
        if provider != "scripted" {
            return Err(format!(
                "This build can't ask `{provider}` yet. It plays scripts: set the model to \
                 `scripted/NAME` and write scripts/NAME.yaml."
            ));
        }
        let script = self.script(model)?;
        Ok(Arc::new(ScriptedModel::new(
            model,
            script,
            Arc::clone(&self.clock),
        )))
    }

    /// The project's script of this name.
    fn script(&self, name: &str) -> Result<Script, String> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return Err(format!(
                "`{name}` is no name of a script: it has letters, digits, `-`, `_` and `.`."
            ));
        }
        let path = self.scripts.join(format!("{name}.yaml"));
        if !path.exists() {
            return Err(format!(
                "There is no script for the model `scripted/{name}`. Write scripts/{name}.yaml."
            ));
        }
        Script::load(&path).map_err(|why| format!("The script can't be played: {why}"))
    }
}

impl Models for ModelShelf {
    fn find(&self, name: Option<&str>) -> Result<Found, String> {
        let named = name.or(self.default.as_deref());
        let Some(named) = named else {
            return Err(
                "No model is named. Set `model:` in the agent's file, `[models] default` \
                in longhaul.toml, or give --model; `longhaul demo` needs none."
                    .to_owned(),
            );
        };
        let name = self.names.get(named).map_or(named, String::as_str);
        let known = self
            .opened
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned();
        let model = match known {
            Some(model) => model,
            None => {
                let model = self.open(name)?;
                let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
                opened.insert(name.to_owned(), Arc::clone(&model));
                model
            }
        };
        Ok(Found {
            name: name.to_owned(),
            model,
        })
    }
}
