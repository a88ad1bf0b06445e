//! The variables that a process was started with, for those who look one up by name.
//!
//! Never: shows a value, whoever prints what holds it. Keys stand among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::config::surroundings::Surroundings;

/// Variables by name.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Env {
    all: Arc<BTreeMap<String, String>>,
    /// Those of them that only the project's `.env` sets.
    filed: Arc<BTreeSet<String>>,
    /// What `.env` says, be it read for this command or not: to be taken out of what
    /// is kept, and for nothing else.
    hidden: Arc<BTreeMap<String, String>>,
}

impl Env {
    /// Those that are set here.
    pub fn of(here: &Surroundings) -> Self {
        Self {
            all: Arc::new(here.env.clone()),
            filed: Arc::new(here.filed.clone()),
            hidden: Arc::default(),
        }
    }

    /// These, and no others.
    pub(crate) fn only(values: BTreeMap<String, String>) -> Self {
        Self {
            all: Arc::new(values),
            ..Self::default()
        }
    }

    /// The same, which also knows these when somebody asks what is secret.
    pub(crate) fn hiding(self, values: BTreeMap<String, String>) -> Self {
        Self {
            hidden: Arc::new(values),
            ..self
        }
    }

    /// The same, where `.env` says what it says there: a value of it counts as it
    /// was looked at, and not as it stood at another time.
    pub(crate) fn refiled(&self, there: &Self) -> Self {
        let mut all = (*self.all).clone();
        for name in &*self.filed {
            all.remove(name);
            if let Some(value) = there.var(name) {
                all.insert(name.clone(), value.to_owned());
            }
        }
        Self {
            all: Arc::new(all),
            ..self.clone()
        }
    }

    /// A variable that is set to something; blanks are nothing.
    pub fn var(&self, name: &str) -> Option<&str> {
        said(&self.all, name)
    }

    /// A variable that the real environment sets, and not only the project's `.env`.
    pub fn real(&self, name: &str) -> Option<&str> {
        self.var(name).filter(|_| !self.is_filed(name))
    }

    /// Whether only the project's `.env` sets this variable.
    pub fn is_filed(&self, name: &str) -> bool {
        self.filed.contains(name)
    }

    /// All that are set to something.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = self.all.keys().map(String::as_str);
        names.filter_map(|name| Some((name, self.var(name)?)))
    }

    /// What this variable may hold that nobody is to read: here, or in the
    /// project's `.env`.
    pub fn secrets(&self, name: &str) -> Vec<&str> {
        let mut values: Vec<&str> = self.var(name).into_iter().collect();
        values.extend(said(&self.hidden, name));
        values.dedup();
        values
    }
}

fn said<'a>(values: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    let value = values.get(name).map(|value| value.trim());
    value.filter(|value| !value.is_empty())
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env(hidden)")
    }
}
