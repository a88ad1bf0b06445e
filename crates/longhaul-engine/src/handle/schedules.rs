//! Schedules: creates, lists, deletes and fires them.
//!
//! Invariant: each due time of a schedule starts at most one run, whatever crashes and however many
//! workers there are, because the run is created together with the schedule's next due time.

use longhaul_api::run::RunView;
use longhaul_api::schedule::{NewScheduleBody, ScheduleView};
use longhaul_api::task::Task;
use longhaul_core::id::{AgentName, IdError, LaneKey, ResourceKey, ScheduleName, ThreadKey};
use longhaul_core::port::auth::IdempotencyKey;
use longhaul_core::port::schedules::{
    NewSchedule, ScheduleFiring, ScheduleFiringAction, ScheduleFiringOutcome,
};
use longhaul_core::port::store::{CreateRunsRequest, IdempotencyRecord, RunRow};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::schedule::{
    CatchUp, Overlap, SCHEDULES_MAX, ScheduleRow, ScheduleSpec, ScheduleTiming,
};
use longhaul_core::status::Status;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_run::Rejection;

use crate::background::schedule::{CATCH_UP_MAX, Calendar, FiringPlan};
use crate::error::{Error, Result};
use crate::handle::Longhaul;
use crate::handle::submit::IDEMPOTENCY_TTL;

/// Maximum length of a schedule's name in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Maximum number of due schedules that are fired per query.
const PAGE_SIZE: usize = 100;

/// Maximum time for which a schedule with `catch_up: all` waits after the clock was set back.
const REPEATED_TIME_MAX: Millis = Millis::from_secs(24 * 60 * 60);

/// Maximum number of attempts to start a run of a schedule on request, while other writers change
/// its due time.
pub(super) const ATTEMPTS_MAX: usize = 10;

impl Longhaul {
    /// Creates a schedule. Its first firing is the first matching time after now. `by` is the
    /// principal that creates it; `None` means that it is not recorded.
    pub async fn create_schedule(
        &self,
        body: NewScheduleBody,
        by: Option<&str>,
    ) -> Result<ScheduleView> {
        let (name, spec, due) = self.check_schedule(body, by).await?;
        let schedules = &self.services.schedules;
        if schedules.list_schedules(SCHEDULES_MAX).await?.len() >= SCHEDULES_MAX {
            let message = format!("there are already {SCHEDULES_MAX} schedules, the maximum");
            return Err(Error::InvalidSchedule(message));
        }
        let new = NewSchedule { name: name.clone(), spec, due };
        match schedules.create_schedule(new).await? {
            true => self.schedule(name.as_str()).await,
            false => Err(Error::ScheduleExists(name.to_string())),
        }
    }

    /// Checks the definition of a schedule, and returns it with its name and the time of its next
    /// firing.
    pub(super) async fn check_schedule(
        &self,
        body: NewScheduleBody,
        by: Option<&str>,
    ) -> Result<(ScheduleName, ScheduleSpec, Timestamp)> {
        let name = parse_schedule_name(&body.name)?;
        self.check_no_secret_in_name("the name of the schedule", name.as_str())?;
        let spec = self.parse_schedule_spec(body)?;
        let spec = ScheduleSpec { created_by: by.map(|by| self.redact(by)), ..spec };
        let now = self.store_time().await?;
        let calendar = Calendar::parse(&spec.timing, now).map_err(Error::InvalidSchedule)?;
        let due = calendar.next_firing_after(now).ok_or_else(|| {
            Error::InvalidSchedule("the cron pattern never matches any date".to_owned())
        })?;
        // Everything that a firing checks is checked now, while the caller can fix it.
        let task = self.redact_task(task_of_firing(&name, &spec, due))?;
        let spec = ScheduleSpec { input: task.input.clone(), ..spec };
        self.build_new_run(task, self.new_run_id(), None)?;
        Ok((name, spec, due))
    }

    /// Returns a schedule with its next and its last firing.
    pub async fn schedule(&self, name: &str) -> Result<ScheduleView> {
        let row = self.schedule_row(name).await?;
        self.schedule_view(&row).await
    }

    /// Lists all schedules by name.
    pub async fn schedules(&self) -> Result<Vec<ScheduleView>> {
        let mut views = Vec::new();
        for row in self.services.schedules.list_schedules(SCHEDULES_MAX).await? {
            views.push(self.schedule_view(&row).await?);
        }
        Ok(views)
    }

    /// Deletes a schedule and returns it. Its runs are not changed.
    pub async fn delete_schedule(&self, name: &str) -> Result<ScheduleView> {
        let row = self.schedule_row(name).await?;
        match self.services.schedules.delete_schedule(&row.name).await? {
            true => self.schedule_view(&row).await,
            false => Err(schedule_not_found_error(name)),
        }
    }

    /// Starts a run of a schedule now, even if the schedule is not due or its last run has not
    /// ended. The next due time does not change. A second call with the same idempotency key
    /// returns the existing run. `by` is the principal that starts the run; `None` means that it is
    /// not recorded.
    pub async fn run_schedule(
        &self,
        name: &str,
        key: Option<IdempotencyKey>,
        by: Option<&str>,
    ) -> Result<RunView> {
        let idempotency = key.map(|IdempotencyKey { principal, key }| IdempotencyRecord {
            principal: self.redact(principal),
            key,
            body_hash: Hash::digest(format!("schedule:{name}").as_bytes()),
            ttl: Some(IDEMPOTENCY_TTL),
        });
        for _ in 0..ATTEMPTS_MAX {
            let row = self.schedule_row(name).await?;
            let now = self.store_time().await?;
            let request = self.firing_request(&row, now, by)?;
            let request = CreateRunsRequest { idempotency: idempotency.clone(), ..request };
            let request = self.add_cap_reservations(request).await?;
            let firing = ScheduleFiring {
                name: row.name,
                due: row.due,
                next_due: row.due,
                action: ScheduleFiringAction::Create(Box::new(request)),
            };
            match self.services.schedules.fire_schedule(firing).await? {
                ScheduleFiringOutcome::Created(run) => {
                    self.services.notifier.notify_runs_ready();
                    return self.get_run(run).await;
                }
                ScheduleFiringOutcome::Existing(run) => return self.get_run(run).await,
                ScheduleFiringOutcome::KeyReused => return Err(Error::IdempotencyKeyReused),
                ScheduleFiringOutcome::LaneFull(lane) => return Err(Error::LaneFull(lane)),
                ScheduleFiringOutcome::OverCap(refusal) => {
                    return Err(self.over_cap_error(*refusal));
                }
                // A worker has fired the schedule meanwhile.
                ScheduleFiringOutcome::Outdated | ScheduleFiringOutcome::Skipped => {}
            }
        }
        Err(Error::InvalidSchedule(format!("the schedule `{name}` is being fired; try again")))
    }

    pub(super) async fn schedule_row(&self, name: &str) -> Result<ScheduleRow> {
        let row = match ScheduleName::new(name) {
            Ok(name) => self.services.schedules.find_schedule(&name).await?,
            Err(_) => None,
        };
        row.ok_or_else(|| schedule_not_found_error(name))
    }

    pub(super) async fn schedule_view(&self, row: &ScheduleRow) -> Result<ScheduleView> {
        let last = match row.last_run {
            Some(run) => self.services.store.get_run(run).await?,
            None => None,
        };
        Ok(ScheduleView::new(row, last.as_ref().map(status_of_run_or_chain)))
    }

    pub(crate) async fn fire_due_schedules(&self) -> Result<()> {
        for row in self.services.schedules.due_schedules(PAGE_SIZE).await? {
            self.fire_due_schedule(row).await?;
        }
        Ok(())
    }

    /// Moves due times of schedules back that were computed while the clock was wrong and far
    /// ahead.
    ///
    /// A due time is changed only if it is later than the next two times at which the schedule
    /// would fire. If the clock was set back a little after a firing, the due time is the second of
    /// them, and moving it back would repeat the firing. A schedule with `catch_up: all` that has
    /// fired up to a day after now waits for that time, because each time must start one run.
    pub(crate) async fn correct_due_times(&self) -> Result<()> {
        let now = self.store_time().await?;
        for mut row in self.services.schedules.list_schedules(SCHEDULES_MAX).await? {
            let Some(due) = row.due else { continue };
            let fired_at = row.last_fired_at.filter(|fired_at| *fired_at > now);
            if row.spec.catch_up == CatchUp::All
                && fired_at.is_some_and(|at| at.duration_since(now) <= REPEATED_TIME_MAX)
            {
                continue;
            }
            let Ok(calendar) = Calendar::parse(&row.spec.timing, due) else { continue };
            let next = calendar.next_firing_after(now);
            let second = next.and_then(|next| calendar.next_firing_after(next));
            if second.is_some_and(|second| second < due) {
                let reason = format!("the clock was set back: the due time {due} was replaced");
                tracing::warn!(schedule = %row.name, "{reason}");
                self.skip_firing(&mut row, next, reason).await?;
            }
        }
        Ok(())
    }

    async fn fire_due_schedule(&self, mut row: ScheduleRow) -> Result<()> {
        let Some(due) = row.due else { return Ok(()) };
        let now = self.store_time().await?;
        let plan = match Calendar::parse(&row.spec.timing, due) {
            Ok(calendar) => FiringPlan::for_due_schedule(&calendar, row.spec.catch_up, due, now),
            // A time zone can disappear with an update of the machine.
            Err(reason) => {
                tracing::error!(schedule = %row.name, reason, "the schedule can't fire any more");
                return self.skip_firing(&mut row, None, reason).await.map(drop);
            }
        };
        if plan.is_truncated {
            let name = &row.name;
            tracing::warn!(schedule = %name, "more than {CATCH_UP_MAX} firings were missed; only the newest {CATCH_UP_MAX} start runs");
        }
        if plan.times.is_empty() {
            let reason = format!("skipped: it was due at {due}, when no worker was running");
            return self.skip_firing(&mut row, plan.next, reason).await.map(drop);
        }
        let following = plan.times.iter().skip(1).copied().map(Some).chain([plan.next]);
        for (time, next) in plan.times.iter().zip(following) {
            if !self.fire_schedule_once(&mut row, *time, next).await? {
                // Another worker has fired the schedule, or it was deleted.
                break;
            }
        }
        Ok(())
    }

    /// Fires a schedule for one due time and moves its due time to `next`. Returns `false` if the
    /// schedule was fired by another worker or deleted since `row` was read.
    async fn fire_schedule_once(
        &self,
        row: &mut ScheduleRow,
        time: Timestamp,
        next: Option<Timestamp>,
    ) -> Result<bool> {
        if let (Overlap::Skip, Some(last)) = (row.spec.overlap, row.last_run)
            && let Some(last_row) = self.services.store.get_run(last).await?
            && !status_of_run_or_chain(&last_row).is_terminal()
        {
            let reason = format!("skipped: the run {last} of the last firing has not ended");
            return self.skip_firing(row, next, reason).await;
        }
        let error = match self.firing_request(row, time, None) {
            Err(Error::Store(error)) => return Err(error.into()),
            Err(error) => error,
            Ok(request) => {
                let request = Box::new(self.add_cap_reservations(request).await?);
                let action = ScheduleFiringAction::Create(request);
                let (name, due) = (row.name.clone(), row.due);
                let firing = ScheduleFiring { name, due, next_due: next, action };
                match self.services.schedules.fire_schedule(firing).await? {
                    ScheduleFiringOutcome::Created(run) => {
                        tracing::info!(schedule = %row.name, %run, due = %time, "schedule fired");
                        self.services.notifier.notify_runs_ready();
                        (row.due, row.last_run) = (next, Some(run));
                        return Ok(true);
                    }
                    ScheduleFiringOutcome::LaneFull(lane) => Error::LaneFull(lane),
                    ScheduleFiringOutcome::OverCap(refusal) => self.over_cap_error(*refusal),
                    // A firing without an idempotency key has no earlier run.
                    ScheduleFiringOutcome::Outdated
                    | ScheduleFiringOutcome::Skipped
                    | ScheduleFiringOutcome::Existing(_)
                    | ScheduleFiringOutcome::KeyReused => return Ok(false),
                }
            }
        };
        tracing::warn!(schedule = %row.name, %error, "the schedule could not start a run");
        self.skip_firing(row, next, error.to_string()).await
    }

    /// Records that a due schedule starts no run this time, and why. Returns `false` if the
    /// schedule was fired by another worker or deleted since `row` was read.
    async fn skip_firing(
        &self,
        row: &mut ScheduleRow,
        next: Option<Timestamp>,
        reason: String,
    ) -> Result<bool> {
        let (name, due, action) = (row.name.clone(), row.due, ScheduleFiringAction::Skip(reason));
        let firing = ScheduleFiring { name, due, next_due: next, action };
        let outcome = self.services.schedules.fire_schedule(firing).await?;
        row.due = next;
        Ok(outcome == ScheduleFiringOutcome::Skipped)
    }

    /// Builds the request that creates a run of a schedule for the time `time`, with the newest
    /// version of the agent. `by` is the principal that fires it by hand, if somebody does.
    fn firing_request(
        &self,
        row: &ScheduleRow,
        time: Timestamp,
        by: Option<&str>,
    ) -> Result<CreateRunsRequest> {
        let mut task = task_of_firing(&row.name, &row.spec, time);
        task.other_submitters.extend(by.map(str::to_owned));
        task.charged_to = by.map(str::to_owned).or(task.charged_to);
        let agent = self.get_agent(row.spec.agent.as_str());
        let agent_has_lane = agent.is_ok_and(|agent| agent.lane.is_some());
        let has_lane = task.lane.is_some() || task.thread.is_some() || agent_has_lane;
        if row.spec.overlap == Overlap::Queue && !has_lane {
            let lane = LaneKey::new(format!("schedule:{}", row.name));
            task.lane = Some(lane.map_err(invalid_name_error)?);
        }
        let (run, blobs) = self.build_new_run(task, self.new_run_id(), None)?;
        Ok(CreateRunsRequest { runs: vec![run], blobs, idempotency: None })
    }

    fn parse_schedule_spec(&self, body: NewScheduleBody) -> Result<ScheduleSpec> {
        let first_agent = match (&body.agent, &body.chain) {
            (Some(agent), None) => agent.clone(),
            (None, Some(chain)) => {
                let first = self.chain(chain)?.steps.into_iter().next();
                first.map(|step| step.agent).unwrap_or_default()
            }
            (None, None) | (Some(_), Some(_)) => {
                let message = "a schedule needs either an `agent` or a `chain`";
                return Err(Error::InvalidSchedule(message.to_owned()));
            }
        };
        schedule_spec(body, first_agent)
    }
}

/// Returns the status of a run. If the run has ended and belongs to a chain, returns the status of
/// the chain's newest run.
fn status_of_run_or_chain(row: &RunRow) -> Status {
    let chain = row.chain.as_ref().filter(|_| row.status.is_terminal());
    chain.map_or(row.status, |chain| chain.current_status)
}

/// Returns the task that a schedule submits for this due time.
fn task_of_firing(name: &ScheduleName, spec: &ScheduleSpec, time: Timestamp) -> Task {
    let due = time.to_string();
    Task {
        event: spec.event.clone(),
        lane: spec.lane.clone(),
        thread: spec.thread.clone(),
        resource: spec.resource.clone(),
        submitter: Some(format!("schedule:{name}")),
        other_submitters: spec.created_by.iter().chain(&spec.earlier_authors).cloned().collect(),
        charged_to: spec.created_by.clone(),
        metadata: Some(RawJson::from_serialize(
            &serde_json::json!({ "schedule": name.as_str(), "due": due }),
        )),
        ..match &spec.chain {
            Some(chain) => Task::for_chain(chain.as_str(), &spec.input),
            None => Task::new(spec.agent.as_str(), &spec.input),
        }
    }
}

fn schedule_spec(body: NewScheduleBody, agent: String) -> Result<ScheduleSpec> {
    let invalid = |message: &str| Error::InvalidSchedule(message.to_owned());
    let timing = match (body.cron, body.every_ms, body.tz) {
        (Some(cron), None, tz) => {
            ScheduleTiming::Cron { cron, tz: tz.unwrap_or_else(|| "UTC".to_owned()) }
        }
        (None, Some(every), None) => ScheduleTiming::Every(Millis(every)),
        (None, Some(_), Some(_)) => {
            return Err(invalid("a fixed interval has no time zone: `tz` belongs to `cron`"));
        }
        (Some(_), Some(_), _) | (None, None, _) => {
            return Err(invalid(
                "a schedule needs either a cron pattern such as `0 9 * * *` or an interval",
            ));
        }
    };
    if body.input.is_none() && body.event.is_none() {
        return Err(invalid("a schedule needs an `input` for the agent, or an `event`"));
    }
    Ok(ScheduleSpec {
        timing,
        agent: AgentName::new(agent).map_err(invalid_name_error)?,
        chain: body.chain,
        input: body.input.unwrap_or_else(|| RawJson::from_serialize(&"")),
        event: body.event,
        lane: body.lane.map(LaneKey::new).transpose().map_err(invalid_name_error)?,
        thread: body.thread.map(ThreadKey::new).transpose().map_err(invalid_name_error)?,
        resource: body.resource.map(ResourceKey::new).transpose().map_err(invalid_name_error)?,
        catch_up: body.catch_up,
        overlap: body.overlap,
        created_by: None,
        earlier_authors: Vec::new(),
        paused: false,
    })
}

fn invalid_name_error(error: IdError) -> Error {
    Rejection::InvalidTask(error.to_string()).into()
}

fn parse_schedule_name(text: &str) -> Result<ScheduleName> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let invalid = || {
        Error::InvalidSchedule(format!(
            "the name of a schedule has 1 to {NAME_BYTES_MAX} letters, digits, `_`, `-` or `.`, \
             and starts with a letter or digit"
        ))
    };
    // A client would read `.` or `..` in a URL as a folder.
    let is_start_allowed = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    match is_start_allowed && text.len() <= NAME_BYTES_MAX && text.chars().all(is_allowed) {
        true => ScheduleName::new(text).map_err(|_| invalid()),
        false => Err(invalid()),
    }
}

fn schedule_not_found_error(name: &str) -> Error {
    let shown = name.chars().filter(|c| !c.is_control()).take(NAME_BYTES_MAX).collect();
    Error::ScheduleNotFound(shown)
}
