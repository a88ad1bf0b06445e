//! The variables that a process was started with, for those who look one up by name.
//!
//! Never: shows a value, whoever prints what holds it. Keys stand among them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::config::surroundings::Surroundings;

/// Variables by name.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Env(Arc<BTreeMap<String, String>>);

impl Env {
    /// Those that are set here.
    pub fn of(here: &Surroundings) -> Self {
        Self(Arc::new(here.env.clone()))
    }

    /// A variable that is set to something; blanks are nothing.
    pub fn var(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name).map(|value| value.trim());
        value.filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env(hidden)")
    }
}
