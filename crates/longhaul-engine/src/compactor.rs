//! Who sums up the conversations of a run, if not its own model.
//!
//! Never: a reason to stop. Without it the run's own model does the work.

use longhaul_core::event::run::Compactor;
use longhaul_core::port::model::ModelRequest;
use longhaul_core::raw::StoredText;

use crate::services::ModelResolver;

/// The short name under which a project sets it.
const COMPACTOR_ALIAS: &str = "compact";

/// What is played back is played whole: nobody else is asked beside it.
const REPLAY_PREFIXES: [&str; 2] = ["scripted/", "cassette/"];

/// The model that a project has set for summing up, where it is not the run's own.
pub(crate) fn compactor(models: &dyn ModelResolver, ask: &ModelRequest) -> Option<Compactor> {
    if REPLAY_PREFIXES.iter().any(|played| ask.model.starts_with(played)) {
        return None;
    }
    let found = models.resolve(Some(COMPACTOR_ALIAS)).ok()?;
    if found.name == ask.model {
        return None;
    }
    let question =
        ModelRequest { model: found.name.clone(), tools: StoredText::inline("[]"), ..ask.clone() };
    Some(Compactor { pricing: found.model.estimate(&question).pricing, model: found.name })
}
