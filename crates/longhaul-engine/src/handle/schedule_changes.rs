//! Pauses, resumes and edits schedules.
//!
//! Invariant: a firing that happens at the same time is neither lost nor repeated, because a change
//! names the due time that it has read.

use longhaul_api::schedule::{ScheduleChangeBody, ScheduleView};
use longhaul_core::port::schedules::ScheduleUpdate;
use longhaul_core::schedule::{ScheduleRow, ScheduleSpec};
use longhaul_core::time::Timestamp;

use crate::background::schedule::Calendar;
use crate::error::{Error, Result};
use crate::handle::Longhaul;
use crate::handle::schedules::ATTEMPTS_MAX;

/// Maximum number of principals that have changed a schedule.
const AUTHORS_MAX: usize = 32;

/// A change of a schedule.
#[derive(Debug)]
enum ScheduleEdit {
    /// Pauses or resumes the schedule.
    SetPaused(bool),
    /// Changes the definition, on behalf of a principal.
    Change(Box<ScheduleChangeBody>, Option<String>),
}

/// Definition and due time of a changed schedule.
type ChangedSchedule = (ScheduleSpec, Option<Timestamp>);

impl Longhaul {
    /// Pauses a schedule, so that it does not fire, or resumes it. A resumed schedule fires at its
    /// next time; the firings during the pause are not made up for.
    pub async fn set_schedule_paused(&self, name: &str, paused: bool) -> Result<ScheduleView> {
        self.update_schedule(name, &ScheduleEdit::SetPaused(paused)).await
    }

    /// Changes the definition of a schedule. The schedule stays paused if it is. `by` is the
    /// principal that changes it and for which its runs count from now on.
    pub async fn edit_schedule(
        &self,
        name: &str,
        change: ScheduleChangeBody,
        by: Option<&str>,
    ) -> Result<ScheduleView> {
        let by = by.map(|by| self.redact(by));
        self.update_schedule(name, &ScheduleEdit::Change(Box::new(change), by)).await
    }

    /// Changes a schedule. Starts again if the schedule has fired meanwhile.
    async fn update_schedule(&self, name: &str, edit: &ScheduleEdit) -> Result<ScheduleView> {
        for _ in 0..ATTEMPTS_MAX {
            let row = self.schedule_row(name).await?;
            let (spec, next_due) = match edit {
                ScheduleEdit::SetPaused(paused) if row.spec.paused == *paused => {
                    return self.schedule_view(&row).await;
                }
                ScheduleEdit::SetPaused(paused) => self.paused_schedule(&row, *paused).await?,
                ScheduleEdit::Change(change, by) => {
                    self.changed_schedule(&row, change, by.as_deref()).await?
                }
            };
            let update = ScheduleUpdate { name: row.name, due: row.due, spec, next_due };
            if self.services.schedules.update_schedule(update).await? {
                return self.schedule(name).await;
            }
        }
        Err(Error::InvalidSchedule(format!("the schedule `{name}` is being fired; try again")))
    }

    async fn paused_schedule(&self, row: &ScheduleRow, paused: bool) -> Result<ChangedSchedule> {
        let now = self.store_time().await?;
        let calendar = Calendar::parse(&row.spec.timing, now).map_err(Error::InvalidSchedule)?;
        let due = calendar.next_firing_after(now).filter(|_| !paused);
        Ok((ScheduleSpec { paused, ..row.spec.clone() }, due))
    }

    async fn changed_schedule(
        &self,
        row: &ScheduleRow,
        change: &ScheduleChangeBody,
        by: Option<&str>,
    ) -> Result<ChangedSchedule> {
        let old = &row.spec;
        let body = change.clone().apply_to(ScheduleView::new(row, None));
        let (_, spec, due) = self.check_schedule(body, None).await?;
        let mut authors = old.earlier_authors.clone();
        authors.extend(old.created_by.clone().filter(|author| by != Some(author)));
        authors.sort();
        authors.dedup();
        if authors.len() > AUTHORS_MAX {
            let message = "too many people have changed this schedule: remove it and add it again";
            return Err(Error::InvalidSchedule(message.to_owned()));
        }
        // The time of the next firing changes only with the times of the schedule.
        let due = if old.timing == spec.timing { row.due } else { Some(due) };
        let spec = ScheduleSpec {
            created_by: by.map(str::to_owned).or(old.created_by.clone()),
            earlier_authors: authors,
            paused: old.paused,
            ..spec
        };
        Ok((spec, due.filter(|_| !old.paused)))
    }
}
