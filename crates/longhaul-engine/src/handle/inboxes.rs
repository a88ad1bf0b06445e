//! Lists inboxes with the number of their tasks, and the newest tasks and dead letters (failed
//! tasks that nobody has retried) of one inbox.

use std::collections::BTreeMap;

use longhaul_api::inbox::{InboxDetailView, InboxView, NewTaskBody};
use longhaul_api::task::Task;
use longhaul_core::id::InboxName;
use longhaul_core::port::records::InboxRunCounts;
use longhaul_core::port::store::RunFilter;
use longhaul_core::raw::RawJson;
use longhaul_core::status::Status;
use longhaul_run::Rejection;

use crate::error::Result;
use crate::handle::{Longhaul, check_idempotency_key};

/// Maximum number of tasks, and of dead letters (failed tasks that nobody has retried), that are
/// shown of one inbox.
const TASKS_MAX: usize = 20;

impl Longhaul {
    /// Returns the inboxes with open or failed tasks and those in `agents`, ordered by name.
    /// `agents` has the default agent of each inbox.
    pub async fn inboxes(&self, agents: &BTreeMap<String, String>) -> Result<Vec<InboxView>> {
        let rows = self.services.records.count_runs_by_inbox(None).await?;
        let mut views: BTreeMap<String, InboxView> = BTreeMap::new();
        for name in agents.keys() {
            views.insert(name.clone(), inbox_view(name, agents, None));
        }
        for row in rows {
            let name = row.inbox.to_string();
            views.insert(name.clone(), inbox_view(&name, agents, Some(&row)));
        }
        let workers = self.live_workers().await?;
        for view in views.values_mut() {
            view.served = workers.any_worker_serves_inbox(&view.name);
        }
        Ok(views.into_values().collect())
    }

    /// Returns one inbox with its newest tasks and its dead letters: failed tasks that nobody has
    /// retried.
    pub async fn inbox(
        &self,
        name: &InboxName,
        agents: &BTreeMap<String, String>,
    ) -> Result<InboxDetailView> {
        let rows = self.services.records.count_runs_by_inbox(Some(name)).await?;
        let newest =
            RunFilter { inbox: Some(name.clone()), limit: TASKS_MAX, ..RunFilter::default() };
        let failed =
            RunFilter { statuses: vec![Status::Failed], not_retried: true, ..newest.clone() };
        let served = self.live_workers().await?.any_worker_serves_inbox(name.as_str());
        Ok(InboxDetailView {
            inbox: InboxView { served, ..inbox_view(name.as_str(), agents, rows.first()) },
            tasks: self.list_brief_runs(newest).await?,
            dead_letters: self.list_brief_runs(failed).await?,
        })
    }
}

/// Builds the task of a request that posts to an inbox. `agents` has the default agent of each
/// inbox, for tasks that name no agent.
pub fn build_inbox_task(
    inbox: InboxName,
    body: NewTaskBody,
    agents: &BTreeMap<String, String>,
) -> Result<Task> {
    let default_agent = agents.get(inbox.as_str());
    let Some(agent) = body.agent.as_ref().or(default_agent) else {
        return Err(Rejection::InvalidTask(format!(
            "the inbox `{inbox}` has no default agent: name an agent, or set \
             `[inboxes.{}] agent` in longhaul.toml",
            quote_toml_key(inbox.as_str())
        ))
        .into());
    };
    if let Some(key) = &body.idempotency_key {
        check_idempotency_key(key)?;
    }
    Ok(Task {
        kind: body.kind,
        priority: body.priority,
        lane: body.lane,
        thread: body.thread,
        resource: body.resource,
        start: body.start_at.into(),
        context: body.context,
        actor: body.actor,
        links: body.links,
        metadata: body.metadata.as_ref().map(RawJson::from_serialize),
        idempotency_key: body.idempotency_key,
        inbox: Some(inbox),
        ..Task::new(agent, &body.payload)
    })
}

/// Returns a name as a key of a TOML file, in quotes if it needs them.
pub fn quote_toml_key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match !name.is_empty() && name.chars().all(is_bare) {
        true => name.to_owned(),
        // A name has no control characters, so JSON and TOML quote it alike.
        false => RawJson::from_serialize(&name).as_str().to_owned(),
    }
}

fn inbox_view(
    name: &str,
    agents: &BTreeMap<String, String>,
    row: Option<&InboxRunCounts>,
) -> InboxView {
    InboxView {
        name: name.to_owned(),
        agent: agents.get(name).cloned(),
        served: false,
        pending: row.map_or(0, |row| row.pending),
        running: row.map_or(0, |row| row.running),
        waiting: row.map_or(0, |row| row.waiting),
        failed: row.map_or(0, |row| row.failed),
    }
}
