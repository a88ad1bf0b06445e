//! All operations of the API. A row has the method, path, role and types of an operation; route,
//! OpenAPI entry and client requests are made from it.

use std::marker::PhantomData;

use longhaul_core::access::Role;
use longhaul_core::change::LateToolResult;
use longhaul_core::event::entry::JournalEntryEnvelope;
use longhaul_core::id::{
    ApiKeyName, BatchId, GateId, InboxName, LaneKey, RuleId, RunId, SandboxId, SteerId, ThreadKey,
};

use crate::agent::{AgentStatsView, AgentView, ChainView};
use crate::fork::{ForkBody, RunDiffView, RunFilesView};
use crate::gate::{
    AnswerBody, AnswerResponse, GateLinkBody, GateLinkView, GateView, RuleView, SignalBody,
    SignalGateBody,
};
use crate::health::{LivenessResponse, ReadinessResponse, VersionResponse};
use crate::inbox::{InboxDetailView, InboxView, NewEventBody, NewTaskBody};
use crate::key::{CreatedKey, KeyView, LoginTicketView, NewKeyBody};
use crate::lane::LaneView;
use crate::list::List;
use crate::operation::{BodyKind, Content, EmptyBody, Method, NoFilter, NoQuery, Operation};
use crate::path::{AgentParam, CapParam, ChainParam, ScheduleParam};
use crate::query::{
    AgentStatsQuery, EventStreamQuery, EventsQuery, FilesQuery, GatesQuery, InboxesQuery,
    LanesQuery, RulesQuery, RunsQuery, SandboxesQuery, SpendQuery, ThreadQuery,
};
use crate::run::{CancelBody, FreeKeyBody, ResumeBody, RunView};
use crate::run_list::{DeletedRunView, RunBriefView, RunCountsView, RunList};
use crate::sandbox::{SandboxExecBody, SandboxExecView, SandboxView};
use crate::schedule::{NewScheduleBody, ScheduleChangeBody, ScheduleView};
use crate::spend::{RaiseCapBody, SpendCapView, SpendView};
use crate::steer::{SteerBody, SteerChange, SteerReceipt, SteerView};
use crate::task::{BatchView, NewBatchBody, Task};
use crate::transcript::{
    ClearedThreadView, EventView, NewThreadMessageBody, RunExplanation, ThreadCountView,
    ThreadMessagesView, TranscriptView,
};

/// Returns what is in the brackets, or the default after them if they are empty.
macro_rules! or {
    ([] $($default:tt)+) => {
        $($default)+
    };
    ([$($given:tt)+] $($default:tt)+) => {
        $($given)+
    };
}

macro_rules! role {
    (Public) => {
        None
    };
    ($role:ident) => {
        Some(Role::$role)
    };
}

/// Makes a constant from each row of the table:
///
/// ```text
/// NAME = method [once] "path", role [, at path types] [, query type] [; Required|Optional body type]
///     => answer type [as content] { status "meaning", ... }
/// ```
macro_rules! operations {
    ($($tag:literal $tag_doc:literal {$(
        $(#[doc = $doc:literal])+
        $name:ident = $method:ident $($once:ident)? $path:literal, $role:ident
            $(, at $params:ty)? $(, query $query:ty)? $(; $kind:ident $body:ty)?
            => $answer:ty $(as $content:ident)? { $($status:literal $meaning:literal),+ }
    )+})+) => {
        /// Groups of operations with their descriptions.
        pub const TAGS: &[(&str, &str)] = &[$(($tag, $tag_doc)),+];

        $($(
            $(#[doc = $doc])+
            pub const $name: Operation<
                or!([$($params)?] ()),
                or!([$($query)?] NoQuery),
                or!([$($body)?] ()),
                $answer,
            > = Operation {
                name: stringify!($name),
                method: Method::$method,
                path: $path,
                role: role!($role),
                tag: $tag,
                doc: concat!($($doc, "\n"),+),
                body: or!([$(BodyKind::$kind)?] BodyKind::None),
                content: or!([$(Content::$content)?] Content::Json),
                once: !stringify!($($once)?).is_empty(),
                responses: &[$(($status, $meaning)),+],
                types: PhantomData,
            };
        )+)+
    };
}

/// [`LIST_RUNS`] with the query `brief`.
pub const LIST_BRIEF_RUNS: Operation<(), RunsQuery, (), List<RunBriefView>> =
    LIST_RUNS.with_answer();

/// [`LIST_RUNS`] without the query `brief`.
pub const LIST_FULL_RUNS: Operation<(), RunsQuery, (), List<RunView>> = LIST_RUNS.with_answer();

/// [`READ_EVENTS`] as a page of entries.
pub const READ_JOURNAL: Operation<RunId, EventsQuery, (), List<JournalEntryEnvelope>> =
    READ_EVENTS.with_answer();

operations! {
    "runs" "Runs of agents" {
        /// Creates a run of an agent for a task.
        SUBMIT_RUN = Post once "/v1/runs", Operator; Required Task => RunView {
            201 "The new run; it is on disk",
            200 "The run to which the task was added as a message, because its lane is busy"
        }
        /// Lists runs, newest first: those that somebody has submitted, and of each chain the newest
        /// run.
        LIST_RUNS = Get "/v1/runs", Viewer, query RunsQuery => RunList { 200 "A page of runs" }
        /// Counts all runs of the store, and sums up what they have cost.
        COUNT_RUNS = Get "/v1/runs/counts", Viewer => RunCountsView { 200 "The counts" }
        /// Creates a batch of runs: all of them or none.
        SUBMIT_BATCH = Post once "/v1/runs/batch", Operator; Required NewBatchBody => BatchView {
            201 "The new batch; its runs are on disk"
        }
        /// Shows a batch with its runs.
        SHOW_BATCH = Get "/v1/batches/{id}", Viewer, at BatchId => BatchView { 200 "The batch" }
        /// Shows one run.
        SHOW_RUN = Get "/v1/runs/{id}", Viewer, at RunId => RunView { 200 "The run" }
        /// Deletes an ended run with its child runs, the other runs of its chain, and the notes that
        /// these runs wrote. What other runs use is kept.
        DELETE_RUN = Delete "/v1/runs/{id}", Admin, at RunId => DeletedRunView {
            200 "What was deleted and what is kept"
        }
        /// Shows the conversation of a run with the model.
        SHOW_TRANSCRIPT = Get "/v1/runs/{id}/transcript", Viewer, at RunId => TranscriptView {
            200 "The conversation"
        }
        /// Explains the current status of a run and what to do next.
        WHY = Get "/v1/runs/{id}/why", Viewer, at RunId => RunExplanation {
            200 "The explanation and a command"
        }
        /// Cancels a run. If the run has ended and belongs to a chain, the newest run of the chain is
        /// cancelled and returned instead.
        CANCEL_RUN = Post "/v1/runs/{id}/cancel", Operator, at RunId; Optional CancelBody => RunView {
            200 "The run, cancelled or about to be"
        }
        /// Completes a run that has its result and stays open for messages (`keep_open`), with this
        /// result. If the run has ended and belongs to a chain, the newest run of the chain is
        /// closed and returned instead.
        CLOSE_RUN = Post "/v1/runs/{id}/close", Operator, at RunId; Optional EmptyBody => RunView {
            200 "The completed run"
        }
        /// Pauses a run until it is resumed. If the run has ended and belongs to a chain, the newest
        /// run of the chain is paused and returned instead.
        PAUSE_RUN = Post "/v1/runs/{id}/pause", Operator, at RunId; Optional EmptyBody => RunView {
            200 "The run, paused or about to be"
        }
        /// Resumes a run, optionally with a larger budget. If the run has ended and belongs to a
        /// chain, the newest run of the chain is resumed and returned instead.
        RESUME_RUN = Post "/v1/runs/{id}/resume", Operator, at RunId; Optional ResumeBody => RunView {
            200 "The resumed run"
        }
        /// Retries a failed run, as a new run that continues from the last good event of the failed
        /// run and uses its budget. A failed run has at most one retry: later requests return the
        /// existing run. If the run has completed and belongs to a chain, the newest run of the
        /// chain is retried instead.
        RETRY_RUN = Post "/v1/runs/{id}/retry", Operator, at RunId; Optional EmptyBody => RunView {
            201 "The new run; it is on disk",
            200 "The run that already retries this run"
        }
        /// Creates a run that goes on from the start of a turn of another run. Nothing before that turn
        /// is repeated or paid again, and both runs draw on one budget. The new run keeps the agent
        /// version of the other run, unless the body names an agent or a model.
        FORK_RUN = Post once "/v1/runs/{id}/fork", Operator, at RunId; Required ForkBody => RunView {
            201 "The new run; it is on disk"
        }
        /// Compares two runs turn by turn.
        DIFF_RUNS = Get "/v1/runs/{id}/diff/{other}", Viewer, at (RunId, RunId) => RunDiffView {
            200 "The differences"
        }
        /// Lists the changes of the files in the sandbox of a run, by turn, and returns the diff of one
        /// turn.
        RUN_FILES = Get "/v1/runs/{id}/files", Viewer, at RunId, query FilesQuery => RunFilesView {
            200 "The changes"
        }
        /// Frees the effect key of a call whose outcome is unknown, so that another call with the key
        /// is made. Who did so is recorded with the run.
        FREE_EFFECT_KEY = Post "/v1/runs/{id}/free-key", Approver, at RunId; Required FreeKeyBody
            => LateToolResult {
            200 "What is recorded with the run"
        }
    }
    "steering" "Messages to running agents" {
        /// Sends a message to a run. If the run has ended and belongs to a chain, the newest run of
        /// the chain gets the message, and the receipt names that run.
        STEER = Post "/v1/runs/{id}/steer", Operator, at RunId; Required SteerBody => SteerReceipt {
            202 "The message is on disk and waits for the run to read it"
        }
        /// Lists the messages to a run with their status.
        LIST_STEERS = Get "/v1/runs/{id}/steer", Viewer, at RunId => List<SteerView> {
            200 "All messages, in order of arrival"
        }
        /// Updates a message that the run has not read yet.
        UPDATE_STEER = Patch "/v1/runs/{id}/steer/{steer}", Operator, at (RunId, SteerId);
            Required SteerChange => SteerView { 200 "The updated message" }
        /// Withdraws a message that the run has not read yet.
        WITHDRAW_STEER = Delete "/v1/runs/{id}/steer/{steer}", Operator, at (RunId, SteerId)
            => SteerView { 200 "The withdrawn message" }
    }
    "events" "Events of journals, as pages and streams" {
        /// Reads the journal of a run, as a page or as a stream.
        READ_EVENTS = Get "/v1/runs/{id}/events", Viewer, at RunId, query EventsQuery
            => List<EventView> as JsonOrStream {
                200 "A page; with `Accept: text/event-stream` a stream that ends with the run"
            }
        /// Streams the events of all runs.
        STREAM_ALL_EVENTS = Get "/v1/events/stream", Viewer, query EventStreamQuery
            => String as Stream { 200 "An endless stream of events" }
        /// Sends an event to an agent, which gets the event as text: in a new run, or in a running
        /// one as a message if the lane is busy.
        SEND_EVENT = Post "/v1/events", Operator; Required NewEventBody => RunView {
            201 "The new run; it is on disk",
            200 "The run to which the event was added as a message, because its lane is busy"
        }
    }
    "gates" "Approvals and questions that wait for an answer" {
        /// Lists gates, newest first.
        LIST_GATES = Get "/v1/gates", Viewer, query GatesQuery => List<GateView> {
            200 "A page of gates"
        }
        /// Raises a gate for an event that a program will report. The run can't end before the gate
        /// is answered.
        RAISE_GATE = Post "/v1/gates", Operator; Required SignalGateBody => GateView {
            201 "The new gate",
            200 "The gate that was raised with this key before"
        }
        /// Shows a gate with the call input or output that it asks about.
        SHOW_GATE = Get "/v1/gates/{id}", Viewer, at GateId => GateView { 200 "The gate" }
        /// Answers a gate. The first valid answer wins. An operator may complete, answer or reject a
        /// gate that a program raised; other answers require the role approver.
        ANSWER_GATE = Post "/v1/gates/{id}/answer", Operator, at GateId; Required AnswerBody
            => AnswerResponse { 200 "The outcome of the answer" }
        /// Reports an event to every run that waits for it by name: completes the gates of calls of
        /// `wait` with this `signal`, which requires the role approver, and the gates with this tag
        /// that programs raised. A signal for which no run waits is not kept.
        SEND_SIGNAL = Post "/v1/signals", Operator; Required SignalBody => List<GateView> {
            200 "The gates that were completed"
        }
        /// Creates a link with which a person without a key can answer an open gate.
        CREATE_LINK = Post "/v1/gates/{id}/links", Approver, at GateId; Required GateLinkBody
            => GateLinkView { 201 "The link, shown only once" }
    }
    "rules" "Remembered approvals" {
        /// Lists remembered approvals, newest first.
        LIST_RULES = Get "/v1/rules", Viewer, query RulesQuery => List<RuleView> {
            200 "A page of remembered approvals"
        }
        /// Revokes a remembered approval. Tool calls in later replies of the model need an approval
        /// again.
        REVOKE_RULE = Delete "/v1/rules/{id}", Approver, at RuleId => RuleView {
            200 "The revoked approval"
        }
    }
    "inboxes" "Tasks for agents" {
        /// Submits a task to an inbox. The task becomes a run.
        POST_TASK = Post once "/v1/inboxes/{name}/tasks", Operator, at InboxName; Required NewTaskBody
            => RunView {
                201 "The new run; it is on disk",
                200 "The run to which the task was added as a message, because its lane is busy"
            }
        /// Lists the inboxes that have open or failed tasks or a default agent, by name.
        LIST_INBOXES = Get "/v1/inboxes", Viewer, query InboxesQuery => List<InboxView> {
            200 "A page of inboxes"
        }
        /// Shows one inbox with its newest tasks and its dead letters (failed tasks that nobody has
        /// retried).
        SHOW_INBOX = Get "/v1/inboxes/{name}", Viewer, at InboxName => InboxDetailView {
            200 "The inbox"
        }
    }
    "agents" "Agents of the project" {
        /// Lists all agents of the project by name.
        LIST_AGENTS = Get "/v1/agents", Viewer => List<AgentView> { 200 "All agents" }
        /// Shows one agent of the project.
        SHOW_AGENT = Get "/v1/agents/{name}", Viewer, at AgentParam => AgentView { 200 "The agent" }
        /// Shows statistics of an agent's runs that were created in a time window.
        SHOW_AGENT_STATS = Get "/v1/agents/{name}/stats", Viewer, at AgentParam,
            query AgentStatsQuery => AgentStatsView { 200 "The statistics" }
    }
    "chains" "Chains of the project" {
        /// Lists all chains of the project by name. A chain runs several agents on one task, one
        /// after another.
        LIST_CHAINS = Get "/v1/chains", Viewer => List<ChainView> { 200 "All chains" }
        /// Shows one chain of the project. A chain runs several agents on one task, one after
        /// another.
        SHOW_CHAIN = Get "/v1/chains/{name}", Viewer, at ChainParam => ChainView { 200 "The chain" }
    }
    "schedules" "Schedules that start agents at certain times" {
        /// Lists all schedules by name.
        LIST_SCHEDULES = Get "/v1/schedules", Viewer, query NoFilter => List<ScheduleView> {
            200 "All schedules"
        }
        /// Creates a schedule.
        CREATE_SCHEDULE = Post "/v1/schedules", Operator; Required NewScheduleBody => ScheduleView {
            201 "The new schedule"
        }
        /// Shows one schedule.
        SHOW_SCHEDULE = Get "/v1/schedules/{name}", Viewer, at ScheduleParam => ScheduleView {
            200 "The schedule"
        }
        /// Deletes a schedule. Its runs are kept.
        DELETE_SCHEDULE = Delete "/v1/schedules/{name}", Operator, at ScheduleParam => ScheduleView {
            200 "The deleted schedule"
        }
        /// Changes a schedule. Its runs count for the caller from now on.
        EDIT_SCHEDULE = Patch "/v1/schedules/{name}", Operator, at ScheduleParam;
            Required ScheduleChangeBody => ScheduleView { 200 "The changed schedule" }
        /// Pauses a schedule: it does not fire.
        PAUSE_SCHEDULE = Post "/v1/schedules/{name}/pause", Operator, at ScheduleParam;
            Optional EmptyBody => ScheduleView { 200 "The paused schedule" }
        /// Resumes a paused schedule. The firings during the pause are not made up for.
        RESUME_SCHEDULE = Post "/v1/schedules/{name}/resume", Operator, at ScheduleParam;
            Optional EmptyBody => ScheduleView { 200 "The schedule with its next firing" }
        /// Starts a run of a schedule now. The time of the schedule's next firing does not change.
        RUN_SCHEDULE = Post "/v1/schedules/{name}/run", Operator, at ScheduleParam; Optional EmptyBody
            => RunView { 201 "The new run; it is on disk" }
    }
    "lanes" "Lanes: runs of one lane execute serially" {
        /// Lists the lanes that contain runs or are paused, by name.
        LIST_LANES = Get "/v1/lanes", Viewer, query LanesQuery => List<LaneView> {
            200 "A page of lanes"
        }
        /// Shows a lane, whose runs are executed one after another.
        SHOW_LANE = Get "/v1/lanes/{name}", Viewer, at LaneKey => LaneView {
            200 "The lane; it is empty if no run has entered it"
        }
        /// Pauses a lane: runs that wait in it don't start, and a run that has started continues.
        PAUSE_LANE = Post "/v1/lanes/{name}/pause", Operator, at LaneKey; Optional EmptyBody
            => LaneView { 200 "The paused lane" }
        /// Resumes a paused lane.
        RESUME_LANE = Post "/v1/lanes/{name}/resume", Operator, at LaneKey; Optional EmptyBody
            => LaneView { 200 "The lane" }
    }
    "sandboxes" "Sandboxes: isolated environments in which tools work" {
        /// Lists sandboxes, in the order in which they were created.
        LIST_SANDBOXES = Get "/v1/sandboxes", Viewer, query SandboxesQuery => List<SandboxView> {
            200 "A page of sandboxes"
        }
        /// Shows a sandbox.
        SHOW_SANDBOX = Get "/v1/sandboxes/{id}", Viewer, at SandboxId => SandboxView {
            200 "The sandbox"
        }
        /// Starts a stopped sandbox whose run has not ended.
        START_SANDBOX = Post "/v1/sandboxes/{id}/start", Operator, at SandboxId; Optional EmptyBody
            => SandboxView { 200 "The running sandbox" }
        /// Stops a sandbox that its run does not use, and keeps its files.
        STOP_SANDBOX = Post "/v1/sandboxes/{id}/stop", Operator, at SandboxId; Optional EmptyBody
            => SandboxView { 200 "The stopped sandbox" }
        /// Deletes a sandbox that its run does not use, with its files. If the run continues, it gets
        /// a new sandbox.
        DELETE_SANDBOX = Delete "/v1/sandboxes/{id}", Operator, at SandboxId => SandboxView {
            200 "The deleted sandbox"
        }
        /// Runs a command in a running sandbox. The journal of the run records the command.
        EXEC_IN_SANDBOX = Post "/v1/sandboxes/{id}/exec", Admin, at SandboxId;
            Required SandboxExecBody => SandboxExecView { 200 "How the command ended" }
    }
    "threads" "Threads: conversations that successive runs share" {
        /// Shows the newest messages of a thread (a conversation that successive runs share), oldest
        /// first.
        LIST_THREAD_MESSAGES = Get "/v1/threads/{thread}/messages", Viewer, at ThreadKey,
            query ThreadQuery => ThreadMessagesView {
                200 "The newest messages, and how many the thread has"
            }
        /// Adds a message to a thread. Runs that start later see it.
        ADD_THREAD_MESSAGE = Post once "/v1/threads/{thread}/messages", Operator, at ThreadKey;
            Required NewThreadMessageBody => ThreadCountView {
                200 "The number of messages of the thread"
            }
        /// Deletes all messages of a thread. The journals of its runs are kept.
        CLEAR_THREAD = Delete "/v1/threads/{thread}/messages", Operator, at ThreadKey
            => ClearedThreadView { 200 "The number of deleted messages" }
    }
    "spend" "Spend caps: money, tokens and runs per day, week or month" {
        /// Lists the spend caps, each with the usage counted in its current window, and sums up all
        /// usage by day, agent and model.
        LIST_SPEND = Get "/v1/spend", Viewer, query SpendQuery => SpendView {
            200 "All spend caps and the usage"
        }
        /// Raises a spend cap until its current window ends. Runs that wait because of the cap
        /// continue.
        RAISE_CAP = Post "/v1/spend/{name}/raise", Approver, at CapParam; Required RaiseCapBody
            => SpendCapView { 200 "The raised cap" }
    }
    "keys" "API keys" {
        /// Lists all API keys, oldest first.
        LIST_KEYS = Get "/v1/keys", Admin => List<KeyView> { 200 "All keys" }
        /// Creates an API key.
        CREATE_KEY = Post "/v1/keys", Admin; Required NewKeyBody => CreatedKey {
            201 "The key, shown only once"
        }
        /// Revokes an API key and all browser sessions that were opened with it.
        REVOKE_KEY = Delete "/v1/keys/{name}", Admin, at ApiKeyName => KeyView {
            200 "The revoked key"
        }
        /// Creates a one-time link that opens a browser session.
        CREATE_TICKET = Post "/v1/tickets", Viewer => LoginTicketView {
            201 "The link, shown only once"
        }
    }
    "health" "Liveness, readiness and version" {
        /// Returns 200 as long as the server process can answer requests.
        LIVE = Get "/livez", Public => LivenessResponse { 200 "The process is alive" }
        /// Returns whether runs can make progress: a worker is alive and its heartbeats are stored.
        READY = Get "/readyz", Public => ReadinessResponse {
            200 "The server is ready",
            503 "The server is not ready"
        }
        /// Returns the version of this server.
        VERSION = Get "/version", Public => VersionResponse { 200 "The version" }
    }
}
