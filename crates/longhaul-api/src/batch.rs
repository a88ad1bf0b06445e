//! Batches: runs that are submitted together.

use longhaul_core::id::BatchId;
use longhaul_core::task::RunBatchMode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::run::RunView;
use crate::task::Task;

/// Body of a request that submits a batch.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewBatch)]
pub struct NewBatchBody {
    /// Runs of the batch, 1 to 1,000, in order.
    #[schema(min_items = 1, max_items = 1000)]
    pub runs: Vec<Task>,
    /// Order in which the runs execute. Default: `parallel`.
    #[serde(default)]
    #[schema(required = false)]
    pub mode: RunBatchMode,
}

/// A batch with its runs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Batch)]
pub struct BatchView {
    /// Id of the batch.
    pub id: BatchId,
    /// Order in which the runs execute.
    pub mode: RunBatchMode,
    /// Runs of the batch, in order.
    pub runs: Vec<RunView>,
}
