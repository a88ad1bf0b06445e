//! Replays every journal of a store to find invalid events.

use longhaul_core::event::entry::JournalEntry;
use longhaul_run::Run;
use longhaul_store::JournalChecker;

/// Replays the journal of one run at a time. Holds the run's state so far.
#[derive(Debug, Default)]
pub(super) struct JournalReplayer(Option<Run>);

impl JournalChecker for JournalReplayer {
    fn check_next_entry(&mut self, entry: &JournalEntry) -> Result<(), String> {
        let result = match &mut self.0 {
            Some(run) => run.apply(entry),
            None => Run::from_first_entry(entry).map(|run| self.0 = Some(run)),
        };
        result.map_err(|error| error.to_string())
    }

    fn finish_journal_check(&mut self, run_ended: bool) -> Result<(), String> {
        let status = self.0.take().map(|run| run.status());
        match status {
            None => Err("the journal is empty".to_owned()),
            Some(status) if status.is_terminal() == run_ended => Ok(()),
            Some(status) => {
                let row_status = if run_ended { "ended" } else { "not ended" };
                Err(format!(
                    "the run's head row says {row_status}, but the journal says {}",
                    status.as_str()
                ))
            }
        }
    }
}
