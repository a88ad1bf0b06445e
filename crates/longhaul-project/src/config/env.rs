//! The environment variables of the process, looked up by name.
//!
//! Invariant: `Debug` never shows values, since some of them are API keys.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::config::process_env::ProcessEnv;

/// Environment variables by name, with those of the project's `.env`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Env {
    vars: Arc<BTreeMap<String, String>>,
    /// Names of the variables that only the project's `.env` sets.
    from_dotenv: Arc<BTreeSet<String>>,
    /// All values of `.env`, even if this command does not use that file. They are used only to
    /// redact secrets.
    dotenv_secrets: Arc<BTreeMap<String, String>>,
}

impl Env {
    /// Creates the environment with the variables of this process.
    pub fn new(process_env: &ProcessEnv) -> Self {
        Self {
            vars: Arc::new(process_env.env.clone()),
            from_dotenv: Arc::new(process_env.from_dotenv.clone()),
            dotenv_secrets: Arc::default(),
        }
    }

    /// Creates an environment with only these variables.
    pub(crate) fn from_vars(values: BTreeMap<String, String>) -> Self {
        Self { vars: Arc::new(values), ..Self::default() }
    }

    /// Sets all values of `.env`, which are used only to find and redact secrets in texts.
    pub(crate) fn with_dotenv_secrets(self, values: BTreeMap<String, String>) -> Self {
        Self { dotenv_secrets: Arc::new(values), ..self }
    }

    /// Returns a copy in which the variables that only `.env` sets have the values of `other` (the
    /// values of `.env` that were read together with `.mcp.json`). A variable that `other` does not
    /// have is removed.
    pub(crate) fn with_dotenv_values_of(&self, other: &Self) -> Self {
        let mut all = (*self.vars).clone();
        for name in &*self.from_dotenv {
            all.remove(name);
            if let Some(value) = other.var(name) {
                all.insert(name.clone(), value.to_owned());
            }
        }
        Self { vars: Arc::new(all), ..self.clone() }
    }

    /// Returns the value of a variable. `None` means that the variable is unset or blank.
    pub fn var(&self, name: &str) -> Option<&str> {
        non_blank_value(&self.vars, name)
    }

    /// Returns the value of a variable that the process environment sets. `None` means that it is
    /// unset or blank, or that only the project's `.env` sets it.
    pub fn process_var(&self, name: &str) -> Option<&str> {
        self.var(name).filter(|_| !self.is_from_dotenv(name))
    }

    /// Whether only the project's `.env` sets this variable.
    pub fn is_from_dotenv(&self, name: &str) -> bool {
        self.from_dotenv.contains(name)
    }

    /// Returns the names and values of all variables that are not blank.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = self.vars.keys().map(String::as_str);
        names.filter_map(|name| Some((name, self.var(name)?)))
    }

    /// Returns the values of this variable that must be redacted: from the environment and from the
    /// project's `.env`.
    pub fn values_to_redact(&self, name: &str) -> Vec<&str> {
        let mut values: Vec<&str> = self.var(name).into_iter().collect();
        values.extend(non_blank_value(&self.dotenv_secrets, name));
        values.dedup();
        values
    }
}

fn non_blank_value<'a>(values: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    let value = values.get(name).map(|value| value.trim());
    value.filter(|value| !value.is_empty())
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env(hidden)")
    }
}
