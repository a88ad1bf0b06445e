//! The principals that have added work to a run: who submitted it, added a task or a message to
//! it, made or fired its schedule, retried it, or did so with its parent or a step before it.
//!
//! Invariant: a full list excludes all principals, so that its limit lets nobody approve their own work.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_core::policy::gate::GateRow;
use longhaul_core::task::TaskSpec;
use serde::{Deserialize, Serialize};

/// Maximum number of submitters that are known by name.
const SUBMITTERS_MAX: usize = 100;

/// Entry of a full list that matches every principal.
const ANY_PRINCIPAL: &str = "*";

/// Principals that have added work to a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitters(Arc<BTreeSet<String>>);

impl Submitters {
    /// Returns the principals that the task of a new run names.
    pub(crate) fn from_task(task: &TaskSpec) -> Self {
        let mut submitters = Self::default();
        let names = task.submitter.iter().chain(&task.earlier_submitters);
        names.for_each(|name| submitters.add(name));
        submitters
    }

    /// Adds a principal. An empty name is not recorded.
    pub(crate) fn add(&mut self, principal: &str) {
        if principal.is_empty() || self.contains(principal) {
            return;
        }
        let is_full = self.0.len() >= SUBMITTERS_MAX;
        let name = if is_full { ANY_PRINCIPAL } else { principal };
        Arc::make_mut(&mut self.0).insert(name.to_owned());
    }

    /// Returns whether this principal has added work to the run.
    pub(crate) fn contains(&self, principal: &str) -> bool {
        self.0.contains(principal) || self.0.contains(ANY_PRINCIPAL)
    }

    /// Returns the names of all of them but this one, in order.
    pub fn names_except(&self, submitter: Option<&str>) -> Vec<String> {
        let others = self.0.iter().filter(|name| Some(name.as_str()) != submitter);
        others.cloned().collect()
    }
}

/// Returns whether this principal has added work to the run of a gate, as far as its row says.
pub(crate) fn is_submitter(gate: &GateRow, principal: &str) -> bool {
    let mut others = gate.spec.earlier_submitters.iter();
    gate.submitter.as_deref() == Some(principal)
        || others.any(|name| name == principal || name == ANY_PRINCIPAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_contains_all_principals() {
        let mut submitters = Submitters::default();
        submitters.add("");
        (0..SUBMITTERS_MAX).for_each(|index| submitters.add(&format!("key:{index}")));
        assert!(submitters.contains("key:0") && !submitters.contains("key:anna"));
        assert_eq!(submitters.names_except(Some("key:0")).len(), SUBMITTERS_MAX - 1);
        submitters.add("key:anna");
        assert!(submitters.contains("key:anna") && submitters.contains("key:bob"));
        submitters.add("key:bob");
        assert_eq!(submitters.names_except(None).len(), SUBMITTERS_MAX + 1);
    }
}
