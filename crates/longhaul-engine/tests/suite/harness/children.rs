//! Further agents of a test engine, each with a model of its own, and the runs that they execute.

use longhaul_core::id::{AgentName, RunId};
use longhaul_core::port::store::{RunFilter, RunRow};
use longhaul_engine::agent::Agent;

use super::TestEngine;
use super::model::FakeReply;

impl TestEngine {
    /// Adds an agent with the control tools whose model gives these replies.
    pub(crate) fn add_agent(&self, name: &str, replies: impl IntoIterator<Item = FakeReply>) {
        self.add_changed_agent(name, replies, |_| {});
    }

    /// Adds an agent like `add_agent`, and changes it.
    pub(crate) fn add_changed_agent(
        &self,
        name: &str,
        replies: impl IntoIterator<Item = FakeReply>,
        change: impl FnOnce(&mut Agent),
    ) {
        let model = format!("scripted/{name}");
        self.model.set_replies_of(&model, replies.into_iter().collect());
        let mut agent = Agent {
            models: vec![model],
            tools: ["ask_human", "wait", "run_agent"].map(str::to_owned).to_vec(),
            ..Agent::new(AgentName::new(name).unwrap())
        };
        change(&mut agent);
        self.longhaul.register(agent);
    }

    /// Returns the runs below this root, oldest first, without the root.
    pub(crate) async fn descendants(&self, root: RunId) -> Vec<RunRow> {
        let filter = RunFilter { root: Some(root), limit: 1_000, ..RunFilter::default() };
        let mut rows = self.store_rows(filter).await;
        rows.retain(|row| row.id != root);
        rows.reverse();
        rows
    }

    async fn store_rows(&self, filter: RunFilter) -> Vec<RunRow> {
        self.longhaul.services().store.list_runs(filter).await.unwrap()
    }
}
