//! Who sums up the conversations of a run, if not its own model.
//!
//! Never: a reason to stop. Without it the run's own model does the work.

use longhaul_core::event::run::Compactor;
use longhaul_core::port::model::Ask;
use longhaul_core::raw::Body;

use crate::ports::Models;

/// The short name under which a project sets it.
const NAME: &str = "compact";

/// What is played back is played whole: nobody else is asked beside it.
const PLAYED: [&str; 2] = ["scripted/", "cassette/"];

/// The model that a project has set for summing up, where it is not the run's own.
pub(crate) fn compactor(models: &dyn Models, ask: &Ask) -> Option<Compactor> {
    if PLAYED.iter().any(|played| ask.model.starts_with(played)) {
        return None;
    }
    let found = models.find(Some(NAME)).ok()?;
    if found.name == ask.model {
        return None;
    }
    let question = Ask {
        model: found.name.clone(),
        tools: Body::inline("[]"),
        ..ask.clone()
    };
    Some(Compactor {
        tariff: found.model.quote(&question).tariff,
        model: found.name,
    })
}
