//! Spend caps: how much of each cap is used, and raising the limit of a cap for its current window
//! (such as a day).

use longhaul_api::spend::{RaiseCapBody, SpendCapAmount, SpendCapUsageView, SpendCapView};
use longhaul_core::glob;
use longhaul_core::policy::spend_cap::{
    CapCounterKey, CapCounterRow, CapLimitChange, CapRefusal, CapUsageGrouping, CapWithWindow,
    SPEND_ROWS_MAX,
};
use longhaul_core::port::store::CreateRunsRequest;
use longhaul_core::suggest::most_similar_name;
use longhaul_run::spend_caps::{SUBJECT_BYTES_MAX, reservations_for_task};

use crate::error::{Error, Result};
use crate::handle::Longhaul;

/// Maximum number of keys, actors, agents or models that an error message about a spend cap lists.
const NAMED_SUBJECTS_MAX: usize = 10;

impl Longhaul {
    /// Returns the configured spend caps, each with the usage in its current window (such as a
    /// day).
    pub async fn list_spend_caps(&self) -> Result<Vec<SpendCapView>> {
        let rows = self.services.records.cap_counter_rows().await?;
        let caps = self.services.caps.caps_with_windows_at(self.store_time().await?);
        Ok(caps.iter().map(|current| cap_view(current, &rows)).collect())
    }

    /// Raises the limit of a spend cap for one key, actor, agent or model, or for all runs if the
    /// cap counts them together, until the current window (such as a day) ends. Runs that wait at
    /// the cap continue if the new limit covers their next call.
    pub async fn raise_cap(&self, id: &str, raise: &RaiseCapBody) -> Result<SpendCapView> {
        let caps = self.services.caps.caps_with_windows_at(self.store_time().await?);
        let ids: Vec<String> = caps.iter().map(|current| current.cap.cap_id()).collect();
        let Some(current) = caps.iter().find(|current| current.cap.cap_id() == id) else {
            let suggestion = most_similar_name(id, ids.iter().map(String::as_str));
            return Err(Error::CapNotFound {
                id: id.to_owned(),
                suggestion: suggestion.map(str::to_owned),
            });
        };
        let limit = raise.limit_in_store_unit(current.cap.unit).map_err(Error::InvalidRaise)?;
        let subject = subject_of_raised_cap(current, raise.subject.as_deref())?;
        let key = CapCounterKey { cap: id.to_owned(), subject, window_start: current.period.start };
        let rows = self.services.records.cap_counter_rows().await?;
        check_cap_counts_subject(current, &key, &rows).map_err(Error::InvalidRaise)?;
        let row = rows.into_iter().find(|row| row.key == key);
        let row = row.unwrap_or_else(|| new_count(current, key));
        let current_limit = row.effective_limit().max(current.cap.limit);
        if limit <= current_limit {
            let current_limit = SpendCapAmount::new(current.cap.unit, current_limit);
            let reason = format!("the limit is {current_limit} already: give a higher one");
            return Err(Error::InvalidRaise(reason));
        }
        let change = CapLimitChange {
            cap: row.key.cap,
            subject: Some(row.key.subject),
            period: current.period,
            limit,
        };
        self.services.records.set_cap_limit(change).await?;
        let rows = self.services.records.cap_counter_rows().await?;
        Ok(cap_view(current, &rows))
    }

    /// Adds to each run of a request the spend caps that apply to its task. The store refuses to
    /// create a run whose cap is reached.
    pub(super) async fn add_cap_reservations(
        &self,
        mut request: CreateRunsRequest,
    ) -> Result<CreateRunsRequest> {
        if !self.services.caps.is_empty() {
            let caps = self.services.caps.caps_with_windows_at(self.store_time().await?);
            for run in &mut request.runs {
                run.caps = reservations_for_task(&caps, &run.task);
            }
        }
        Ok(request)
    }

    /// Returns the error for a task that a spend cap refuses.
    pub(super) fn over_cap_error(&self, refusal: CapRefusal) -> Error {
        let CapRefusal { key, window_end, .. } = refusal;
        let retry_after = window_end.duration_since(self.services.clock.now());
        Error::OverCap { cap: key.cap, subject: key.subject, until: window_end, retry_after }
    }
}

/// Returns the key, actor, agent or model whose limit is raised. Empty for a cap that counts all
/// usage together. Fails if `subject` is missing, or given for a cap that counts all usage
/// together.
fn subject_of_raised_cap(current: &CapWithWindow, subject: Option<&str>) -> Result<String> {
    let per = current.cap.per.as_str();
    let reason = match (current.cap.per == CapUsageGrouping::All, subject) {
        (true, None) => return Ok(String::new()),
        (false, Some(subject)) => return Ok(subject.to_owned()),
        (true, Some(_)) => "the cap counts all runs together: name no subject".to_owned(),
        (false, None) => format!("the cap counts per {per}: name the {per} whose limit is raised"),
    };
    Err(Error::InvalidRaise(reason))
}

/// Checks that a spend cap counts the key, actor, agent or model whose limit is raised, so that a
/// misspelled name is found. The error says which names the cap counts.
fn check_cap_counts_subject(
    current: &CapWithWindow,
    key: &CapCounterKey,
    rows: &[CapCounterRow],
) -> Result<(), String> {
    let CapCounterKey { cap, subject, window_start } = key;
    let per = current.cap.per;
    if per == CapUsageGrouping::All || rows.iter().any(|row| row.key == *key) {
        return Ok(());
    }
    if subject.len() > SUBJECT_BYTES_MAX {
        let per = per.as_str();
        return Err(format!("the name of the {per} is longer than {SUBJECT_BYTES_MAX} bytes"));
    }
    let pattern = current.cap.pattern.as_deref();
    if let Some(pattern) = pattern.filter(|pattern| glob::matches(pattern, subject) == Some(false))
    {
        return Err(format!("the cap applies only to `{pattern}`, not to `{subject}`"));
    }
    if rows.len() >= SPEND_ROWS_MAX {
        // The list is not complete, so it does not prove that the subject has no count.
        return Ok(());
    }
    let subjects = rows
        .iter()
        .filter(|row| row.key.cap == *cap && row.key.window_start == *window_start)
        .map(|row| format!("`{}`", row.key.subject));
    let subjects: Vec<String> = subjects.take(NAMED_SUBJECTS_MAX).collect();
    Err(match subjects.is_empty() {
        true => format!("the cap has counted nothing for any {} yet", per.as_str()),
        false => {
            format!("the cap has counted nothing for `{subject}`, only for {}", subjects.join(", "))
        }
    })
}

const fn new_count(current: &CapWithWindow, key: CapCounterKey) -> CapCounterRow {
    CapCounterRow::new(key, current.period.end, current.cap.limit)
}

/// Returns the view of a spend cap with the usage of each key, actor, agent or model. A cap on all
/// runs together has an entry even if nothing was used yet.
fn cap_view(current: &CapWithWindow, rows: &[CapCounterRow]) -> SpendCapView {
    let CapWithWindow { cap, period } = current;
    let id = cap.cap_id();
    let key = CapCounterKey { cap: id.clone(), subject: String::new(), window_start: period.start };
    let mut counts: Vec<CapCounterRow> = rows
        .iter()
        .filter(|row| row.key.cap == id && row.key.window_start == period.start)
        .map(|row| CapCounterRow { limit: cap.limit, ..row.clone() })
        .collect();
    if counts.is_empty() && cap.per == CapUsageGrouping::All {
        counts.push(new_count(current, key));
    }
    let amount = |amount| SpendCapAmount::new(cap.unit, amount);
    let counts = counts.iter().map(|row| SpendCapUsageView {
        subject: row.key.subject.clone(),
        limit: amount(row.effective_limit()),
        used: amount(row.spent.saturating_add(row.lost)),
        held: amount(row.held),
        left: amount(row.remaining_amount()),
        waiting: row.waiting,
    });
    SpendCapView {
        counts: counts.collect(),
        id,
        window: cap.window.as_str().to_owned(),
        tz: cap.tz.clone(),
        per: cap.per.as_str().to_owned(),
        pattern: cap.pattern.clone(),
        unit: cap.unit.as_str().to_owned(),
        limit: amount(cap.limit),
        at_cap: cap.at_cap.as_str().to_owned(),
        resets_at: period.end,
    }
}
