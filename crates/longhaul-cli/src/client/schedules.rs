//! Methods of the client for schedules and for statistics of agents.

use longhaul_api::agent_stats::AgentStatsView;
use longhaul_api::run::RunView;
use longhaul_api::schedule::{NewScheduleBody, ScheduleView};
use longhaul_core::id::AgentName;
use longhaul_core::time::Millis;

use crate::caller_name::caller_name;
use crate::client::RunClient;
use crate::error::HintResultExt as _;

impl RunClient {
    pub(crate) async fn create_schedule(
        &self,
        schedule: NewScheduleBody,
    ) -> anyhow::Result<ScheduleView> {
        let name = schedule.name.clone();
        match self {
            Self::Local(longhaul) => {
                let created = longhaul.create_schedule(schedule, Some(&caller_name())).await;
                created.fill_hint_placeholder("NAME", name)
            }
            Self::Remote(client) => {
                client.create_schedule(schedule).await.fill_hint_placeholder("NAME", name)
            }
        }
    }

    /// Returns all schedules, ordered by name.
    pub(crate) async fn list_schedules(&self) -> anyhow::Result<Vec<ScheduleView>> {
        Ok(match self {
            Self::Local(longhaul) => longhaul.schedules().await?,
            Self::Remote(client) => client.schedules().await?,
        })
    }

    pub(crate) async fn delete_schedule(&self, name: &str) -> anyhow::Result<ScheduleView> {
        Ok(match self {
            Self::Local(longhaul) => longhaul.delete_schedule(name).await?,
            Self::Remote(client) => client.delete_schedule(name).await?,
        })
    }

    /// Starts a run of a schedule now and returns the run.
    pub(crate) async fn run_schedule(&self, name: &str) -> anyhow::Result<RunView> {
        Ok(match self {
            Self::Local(longhaul) => {
                longhaul.run_schedule(name, None, Some(&caller_name())).await?
            }
            Self::Remote(client) => client.run_schedule(name).await?,
        })
    }

    /// Returns the names of all agents that the store or the server knows.
    pub(crate) async fn agent_names(&self) -> anyhow::Result<Vec<AgentName>> {
        Ok(match self {
            Self::Local(longhaul) => {
                longhaul.agents().iter().map(|agent| agent.name.clone()).collect()
            }
            Self::Remote(client) => {
                let agents = client.agents().await?;
                agents.iter().map(|agent| agent.name.parse()).collect::<Result<_, _>>()?
            }
        })
    }

    /// Returns statistics of an agent's runs that were created within `window` before now.
    pub(crate) async fn agent_stats(
        &self,
        agent: &AgentName,
        window: Millis,
    ) -> anyhow::Result<AgentStatsView> {
        match self {
            Self::Local(longhaul) => Ok(longhaul.agent_stats(agent, window).await?),
            Self::Remote(client) => Ok(client.agent_stats(agent, window).await?),
        }
    }
}
