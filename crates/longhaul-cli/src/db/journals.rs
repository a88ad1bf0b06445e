//! Folds every journal of a store to find events that do not fit.

use longhaul_core::event::entry::Entry;
use longhaul_run::Run;
use longhaul_store::JournalCheck;

/// The run whose journal is being read.
#[derive(Debug, Default)]
pub(super) struct JournalFold(Option<Run>);

impl JournalCheck for JournalFold {
    fn entry(&mut self, entry: &Entry) -> Result<(), String> {
        let folded = match &mut self.0 {
            Some(run) => run.apply(entry),
            None => Run::from_first_entry(entry).map(|run| self.0 = Some(run)),
        };
        folded.map_err(|misfit| misfit.to_string())
    }

    fn finish(&mut self, ended: bool) -> Result<(), String> {
        let status = self.0.take().map(|run| run.status());
        match status {
            None => Err("its journal is empty".to_owned()),
            Some(status) if status.is_terminal() == ended => Ok(()),
            Some(status) => {
                let head = if ended { "ended" } else { "not ended" };
                Err(format!("its head says {head}, its journal {}", status.as_str()))
            }
        }
    }
}
