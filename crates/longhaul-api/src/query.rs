//! Query parameters of operations, one type per operation.

use longhaul_core::id::{
    AgentName, GateId, InboxName, LaneKey, ResourceKey, RuleId, RunId, SandboxId, Seq, ThreadKey,
};
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::port::store::{RunFilter, RunSort};
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// Which page of a list a request asks for. A client reads a long list page by page.
pub trait PagedQuery: Clone {
    /// Returns the maximum number of items in one page.
    fn limit_max(&self) -> usize;

    /// Sets the maximum number of items of the page, and the item after which the page starts.
    fn set_page(&mut self, limit: usize, after: Option<String>);
}

/// Implements [`PagedQuery`] for queries with the fields `limit` and `after`.
macro_rules! paged {
    ($($query:ty: $limit_max:expr),+ $(,)?) => {$(
        impl PagedQuery for $query {
            fn limit_max(&self) -> usize {
                $limit_max(self)
            }

            fn set_page(&mut self, limit: usize, after: Option<String>) {
                self.limit = Some(limit);
                if let Some(after) = after.and_then(|text| text.parse().ok()) {
                    self.after = Some(after);
                }
            }
        }
    )+};
}

/// Maximum number of runs in full form in one page.
const FULL_RUNS_MAX: usize = 100;

/// Maximum number of items in one page of any other list.
const ITEMS_MAX: usize = 1_000;

paged! {
    RunsQuery: |query: &Self| if query.brief { ITEMS_MAX } else { FULL_RUNS_MAX },
    GatesQuery: |_| ITEMS_MAX,
    RulesQuery: |_| ITEMS_MAX,
    InboxesQuery: |_| ITEMS_MAX,
    LanesQuery: |_| ITEMS_MAX,
    SandboxesQuery: |_| ITEMS_MAX,
}

/// Filter of a list of runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct RunsQuery {
    /// Only runs with this status; may be repeated
    #[param(inline, value_type = Option<Vec<Status>>)]
    pub status: Vec<Status>,
    /// Only runs that wait for this reason, such as `approval`, or failed with this error code; may
    /// be repeated
    #[param(value_type = Option<Vec<String>>)]
    pub reason: Vec<String>,
    /// Only runs of this agent
    #[param(value_type = Option<String>, min_length = 1, max_length = 256)]
    pub agent: Option<AgentName>,
    /// Only runs of this lane
    #[param(value_type = Option<String>, min_length = 1, max_length = 256)]
    pub lane: Option<LaneKey>,
    /// Only runs of this inbox
    #[param(value_type = Option<String>, min_length = 1, max_length = 256)]
    pub inbox: Option<InboxName>,
    /// Only runs of this thread
    #[param(value_type = Option<String>, min_length = 1, max_length = 256)]
    pub thread: Option<ThreadKey>,
    /// Only runs about this resource
    #[param(value_type = Option<String>, min_length = 1, max_length = 256)]
    pub resource: Option<ResourceKey>,
    /// Only runs with this tag
    #[param(min_length = 1, max_length = 256)]
    pub tag: Option<String>,
    /// Only runs whose task contains this text; upper and lower case are the same, and only the
    /// first 4,000 characters of a task are searched
    #[param(min_length = 1, max_length = 256)]
    pub search: Option<String>,
    /// Only runs submitted at this time or later
    #[param(inline)]
    pub since: Option<Timestamp>,
    /// Only runs submitted before this time
    #[param(inline)]
    pub until: Option<Timestamp>,
    /// Only runs that need a person: they wait for an answer, for help or for a higher budget, or
    /// they have failed and were not retried
    #[param(value_type = Option<bool>)]
    pub mine: bool,
    /// Also child runs, and of each chain all runs. Implied by `root`, `parent` and `mine`
    #[param(value_type = Option<bool>)]
    pub all_runs: bool,
    /// Order of the list; `created` if absent
    #[param(inline)]
    pub sort: Option<RunSort>,
    /// Only this run and its descendants
    #[param(inline)]
    pub root: Option<RunId>,
    /// Only the child runs of this run
    #[param(inline)]
    pub parent: Option<RunId>,
    /// The `next` of the previous page
    #[param(inline)]
    pub after: Option<RunId>,
    /// 1 to 100; with `brief` 1 to 1,000
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
    /// Return short `RunBrief` entries, for long lists
    #[param(value_type = Option<bool>)]
    pub brief: bool,
}

/// Maximum number of characters of a text in a filter.
const TEXT_CHARS_MAX: usize = 256;

/// Maximum number of reasons in a filter.
const REASONS_MAX: usize = 32;

/// Fails if a text or a list is too long. The error says which one.
impl TryFrom<RunsQuery> for RunFilter {
    type Error = String;

    fn try_from(query: RunsQuery) -> Result<Self, String> {
        let texts = [("tag", &query.tag), ("search", &query.search)];
        let texts = texts.into_iter().flat_map(|(name, text)| Some(name).zip(text.as_ref()));
        let reasons = query.reason.iter().map(|reason| ("reason", reason));
        for (name, text) in texts.chain(reasons) {
            if !(1..=TEXT_CHARS_MAX).contains(&text.chars().count()) {
                return Err(format!("`{name}` must have 1 to {TEXT_CHARS_MAX} characters"));
            }
        }
        if query.reason.len() > REASONS_MAX {
            return Err(format!("`reason` may be given at most {REASONS_MAX} times"));
        }
        let is_tree = query.root.is_some() || query.parent.is_some();
        Ok(Self {
            statuses: query.status,
            reasons: query.reason,
            agent: query.agent,
            lane: query.lane,
            inbox: query.inbox,
            thread: query.thread,
            resource: query.resource,
            tag: query.tag,
            search: query.search,
            since: query.since,
            until: query.until,
            not_retried: false,
            roots_only: !query.all_runs && !query.mine && !is_tree,
            needs_person: query.mine,
            root: query.root,
            parent: query.parent,
            sort: query.sort.unwrap_or_default(),
            after: query.after,
            limit: query.limit.unwrap_or_default(),
        })
    }
}

/// Filter of a list of gates.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct GatesQuery {
    /// open, answered, expired or withdrawn
    #[param(inline)]
    pub status: Option<GateStatus>,
    /// Only gates of this run
    #[param(inline)]
    pub run: Option<RunId>,
    /// Only gates with this tag
    pub tag: Option<String>,
    /// The `next` of the previous page
    #[param(inline)]
    pub after: Option<GateId>,
    /// 1 to 1,000
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// Turn whose diff is returned.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct FilesQuery {
    /// Return the diff of this turn
    #[param(value_type = Option<u32>)]
    pub turn: Option<u32>,
}

/// Filter of a list of remembered approvals.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct RulesQuery {
    /// Also list revoked approvals and approvals of ended runs
    #[param(value_type = Option<bool>)]
    pub all: bool,
    /// The `next` of the previous page
    #[param(inline)]
    pub after: Option<RuleId>,
    /// 1 to 1,000
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// Page of a list of inboxes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct InboxesQuery {
    /// The `next` of the previous page
    #[param(value_type = Option<String>, min_length = 1, max_length = 256)]
    pub after: Option<InboxName>,
    /// 1 to 1,000
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// Page of a list of lanes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct LanesQuery {
    /// The `next` of the previous page
    #[param(value_type = Option<String>, min_length = 1, max_length = 256)]
    pub after: Option<LaneKey>,
    /// 1 to 1,000
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// Filter and page of a list of sandboxes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxesQuery {
    /// Return only the sandboxes of this run
    #[param(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// Also return sandboxes that no longer exist
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[param(value_type = Option<bool>)]
    pub all: bool,
    /// The `next` of the previous page
    #[param(value_type = Option<String>)]
    pub after: Option<SandboxId>,
    /// 1 to 1,000
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// Page of a run's journal.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct EventsQuery {
    /// Return only events after this sequence number; 0 means all
    #[param(value_type = Option<u64>)]
    pub after: Seq,
    /// 1 to 1,000; not for streams
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// Filter of the stream of all events.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct EventStreamQuery {
    /// Comma-separated event types, such as `gate.raised,run.*`
    pub filter: Option<String>,
    /// Id of the last received event; default: only new events
    pub after: Option<u64>,
}

/// Window of an agent's statistics.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct AgentStatsQuery {
    /// Length of the window, such as `24h`; default: `7d`
    #[param(min_length = 1)]
    pub window: Option<String>,
}

/// Time since which usage is summed up.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct SpendQuery {
    /// Sum up model calls at this time or later; default: the last 7 days
    #[param(inline)]
    pub since: Option<Timestamp>,
}

/// Number of messages of a thread.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct ThreadQuery {
    /// 1 to 1,000
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}
