//! Chooses the model that summarizes the conversations of a run, if that is not the run's own
//! model.

use longhaul_core::event::run::CompactionModel;
use longhaul_core::port::model::ModelRequest;
use longhaul_core::raw::StoredText;

use crate::services::ModelResolver;

/// Model alias under which a project configures the model for summaries.
const COMPACTOR_ALIAS: &str = "compact";

/// Model name prefixes of providers that replay recorded replies. Runs with such a model use the
/// same model for summaries, so that the whole run is replayed.
const REPLAY_PREFIXES: [&str; 2] = ["scripted/", "cassette/"];

/// Returns the name and pricing of the model that the project configures for summaries of
/// conversations. `None` means that the run's own model is used.
pub(crate) fn resolve_compaction_model(
    models: &dyn ModelResolver,
    request: &ModelRequest,
) -> Option<CompactionModel> {
    if REPLAY_PREFIXES.iter().any(|prefix| request.model.starts_with(prefix)) {
        return None;
    }
    let found = models.resolve_model_name(Some(COMPACTOR_ALIAS)).ok()?;
    if found.name == request.model {
        return None;
    }
    let summary_request = ModelRequest {
        model: found.name.clone(),
        tools: StoredText::new_inline("[]"),
        ..request.clone()
    };
    Some(CompactionModel {
        pricing: found.model.estimate(&summary_request).pricing,
        model: found.name,
    })
}
