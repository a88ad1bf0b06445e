//! Closes runs that stay open for messages.

use longhaul_api::run::RunView;
use longhaul_core::id::RunId;

use crate::caller_name::caller_name;
use crate::client::RunClient;
use crate::error::HintResultExt as _;

impl RunClient {
    /// Completes a run that stays open for messages, with its result, and returns it. If the run
    /// has ended and belongs to a chain, closes and returns the newest run of the chain.
    pub(crate) async fn close_run(&self, run: RunId) -> anyhow::Result<RunView> {
        let closed_run = match self {
            Self::Local(longhaul) => {
                longhaul.close_run(run, &caller_name()).await.fill_hint_placeholder("RUN", run)?
            }
            Self::Remote(client) => {
                return client.close_run(run).await.fill_hint_placeholder("RUN", run);
            }
        };
        self.get_run(closed_run).await
    }
}
