//! Bodies and responses about forks, i.e. runs that go on from a turn of another run, about the
//! differences between two runs, and about the files that a run changes.

use longhaul_core::id::{CallId, RunId, Seq};
use longhaul_core::policy::effect_facts::FileEffect;
use longhaul_core::status::Status;
use longhaul_core::task::ForkOrigin;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of a request to fork a run.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkBody {
    /// Sequence number of an event of the run. The fork goes on from the start of its turn. Before
    /// the first turn, the fork starts from the beginning.
    #[schema(value_type = u64)]
    pub before: Seq,
    /// Model of the fork. `None` means the model of the run, or that of `agent`.
    pub model: Option<String>,
    /// Agent of the fork, in its newest version. `None` means the agent version of the run.
    pub agent: Option<String>,
    /// Change in the conversation before the turn. It is journaled with the name of the caller.
    pub edit: Option<ForkEditBody>,
    /// Whether the fork goes on without the files that the run has in its sandbox. The model is
    /// told.
    #[serde(default)]
    pub fresh_files: bool,
    /// Whether the fork adds its messages to the thread of the run when it completes.
    #[serde(default)]
    pub thread: bool,
    /// Why the run is forked.
    #[serde(default)]
    pub note: String,
}

/// Change in the conversation that a fork takes over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ForkEdit)]
pub enum ForkEditBody {
    /// New text of the last message of a person before the turn.
    Message(String),
    /// New result of a tool call before the turn.
    Result(EditedResult),
}

/// New result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EditedResult {
    /// Id of the call, such as `t3.1`.
    pub call: CallId,
    /// Text that the model reads as the result.
    pub text: String,
}

/// The run that a run was forked from.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = ForkedFrom)]
pub struct ForkedFromView {
    /// Id of the run.
    pub run: RunId,
    /// Sequence number of the last event that was copied. 1 means that nothing was copied, and that
    /// the fork started from the beginning.
    #[schema(value_type = u64)]
    pub through: Seq,
    /// Why the run was forked. Empty if nothing was given.
    pub note: String,
}

impl From<&ForkOrigin> for ForkedFromView {
    fn from(origin: &ForkOrigin) -> Self {
        Self { run: origin.run, through: origin.through, note: origin.note.clone() }
    }
}

/// Differences between two runs.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = RunDiff)]
pub struct RunDiffView {
    /// First run.
    pub a: DiffSideView,
    /// Second run.
    pub b: DiffSideView,
    /// Sequence number up to which the events of both runs are the same, because one of them was
    /// copied. `None` if the runs have no event in common.
    #[schema(value_type = Option<u64>)]
    pub same_through: Option<Seq>,
    /// First difference of the turns. `None` if all turns are equal.
    pub first_difference: Option<FirstDifferenceView>,
    /// All turns of both runs, in order.
    pub turns: Vec<TurnDiffView>,
}

/// Changes of the files in the sandbox of a run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = RunFiles)]
pub struct RunFilesView {
    /// Turns after which the files had changed, or could not be saved.
    pub turns: Vec<TurnFilesView>,
    /// Unified diff of the turn that the request names. A long diff is cut. `None` if the request
    /// names no turn, or if no text was changed in it.
    pub diff: Option<String>,
}

/// Changes of the files in one turn.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = TurnFiles)]
pub struct TurnFilesView {
    /// Number of the turn.
    pub turn: u32,
    /// Sequence number of the event that describes the changes.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// Files that were created, changed or deleted.
    pub changes: Vec<FileEffect>,
    /// Number of further files, which are not listed.
    pub more_files: usize,
    /// Why the files were not saved. `None` if they were.
    pub skipped: Option<String>,
}

/// One of two compared runs. Its numbers include the events that it has copied from another run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = DiffSide)]
pub struct DiffSideView {
    /// Id of the run.
    pub run: RunId,
    /// Name of the run's agent.
    pub agent: String,
    /// Status of the run.
    pub status: Status,
    /// Model that the run used last. `None` if no model was chosen yet.
    pub model: Option<String>,
    /// Number of completed turns.
    pub turns: u32,
    /// Number of tool calls.
    pub tool_calls: usize,
    /// Number of tokens, both read and written.
    pub tokens: u64,
    /// Cost in dollars. `None` if it is unknown.
    pub cost_usd: Option<f64>,
    /// Time during which the run worked, without waits.
    pub active_ms: u64,
}

/// First difference between the turns of two runs.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = FirstDifference)]
pub struct FirstDifferenceView {
    /// Number of the turn.
    pub turn: u32,
    /// What the first run did there. `None` if it has no such turn, or did nothing more in it.
    pub a: Option<String>,
    /// What the second run did there. `None` if it has no such turn, or did nothing more in it.
    pub b: Option<String>,
}

/// One turn of two compared runs.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = TurnDiff)]
pub struct TurnDiffView {
    /// Number of the turn.
    pub turn: u32,
    /// Whether both runs have read and done the same in this turn.
    pub same: bool,
    /// The turn of the first run. `None` if it has no such turn.
    pub a: Option<DiffTurnView>,
    /// The turn of the second run. `None` if it has no such turn.
    pub b: Option<DiffTurnView>,
}

/// A turn of one of two compared runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = DiffTurn)]
pub struct DiffTurnView {
    /// What the model replied: its calls, or the start of its text.
    pub summary: String,
    /// Number of tokens of the reply, both read and written.
    pub tokens: u64,
    /// Cost of the reply in dollars. `None` if it is unknown.
    pub cost_usd: Option<f64>,
}
