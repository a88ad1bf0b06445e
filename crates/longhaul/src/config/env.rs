//! The variables that a process was started with, for those who look one up by name.
//!
//! Never: shows a value, whoever prints what holds it. Keys stand among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::config::process_env::ProcessEnv;

/// Variables by name.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Env {
    vars: Arc<BTreeMap<String, String>>,
    /// Those of them that only the project's `.env` sets.
    from_dotenv: Arc<BTreeSet<String>>,
    /// What `.env` says, be it read for this command or not: to be taken out of what
    /// is kept, and for nothing else.
    dotenv_secrets: Arc<BTreeMap<String, String>>,
}

impl Env {
    /// Those that are set here.
    pub fn new(here: &ProcessEnv) -> Self {
        Self {
            vars: Arc::new(here.env.clone()),
            from_dotenv: Arc::new(here.from_dotenv.clone()),
            dotenv_secrets: Arc::default(),
        }
    }

    /// These, and no others.
    pub(crate) fn from_vars(values: BTreeMap<String, String>) -> Self {
        Self { vars: Arc::new(values), ..Self::default() }
    }

    /// The same, which also knows these when somebody asks what is secret.
    pub(crate) fn with_dotenv_secrets(self, values: BTreeMap<String, String>) -> Self {
        Self { dotenv_secrets: Arc::new(values), ..self }
    }

    /// The same, where `.env` says what it says there: a value of it counts as it
    /// was looked at, and not as it stood at another time.
    pub(crate) fn with_dotenv_of(&self, there: &Self) -> Self {
        let mut all = (*self.vars).clone();
        for name in &*self.from_dotenv {
            all.remove(name);
            if let Some(value) = there.var(name) {
                all.insert(name.clone(), value.to_owned());
            }
        }
        Self { vars: Arc::new(all), ..self.clone() }
    }

    /// A variable that is set to something; blanks are nothing.
    pub fn var(&self, name: &str) -> Option<&str> {
        non_blank(&self.vars, name)
    }

    /// A variable that the real environment sets, and not only the project's `.env`.
    pub fn process_var(&self, name: &str) -> Option<&str> {
        self.var(name).filter(|_| !self.is_from_dotenv(name))
    }

    /// Whether only the project's `.env` sets this variable.
    pub fn is_from_dotenv(&self, name: &str) -> bool {
        self.from_dotenv.contains(name)
    }

    /// All that are set to something.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = self.vars.keys().map(String::as_str);
        names.filter_map(|name| Some((name, self.var(name)?)))
    }

    /// What this variable may hold that nobody is to read: here, or in the
    /// project's `.env`.
    pub fn secret_values(&self, name: &str) -> Vec<&str> {
        let mut values: Vec<&str> = self.var(name).into_iter().collect();
        values.extend(non_blank(&self.dotenv_secrets, name));
        values.dedup();
        values
    }
}

fn non_blank<'a>(values: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    let value = values.get(name).map(|value| value.trim());
    value.filter(|value| !value.is_empty())
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env(hidden)")
    }
}
