//! Client methods for spend caps.

use longhaul_api::spend::{RaiseCapBody, SpendCapView};

use crate::client::RunClient;

impl RunClient {
    /// Returns the spend caps, each with the usage that it has counted in its current window.
    pub(crate) async fn list_spend_caps(&self) -> anyhow::Result<Vec<SpendCapView>> {
        match self {
            Self::Local(longhaul) => Ok(longhaul.list_spend_caps().await?),
            Self::Remote(client) => Ok(client.list_spend_caps().await?),
        }
    }

    /// Raises a spend cap until its current window ends.
    pub(crate) async fn raise_cap(
        &self,
        id: &str,
        raise: &RaiseCapBody,
    ) -> anyhow::Result<SpendCapView> {
        match self {
            Self::Local(longhaul) => Ok(longhaul.raise_cap(id, raise).await?),
            Self::Remote(client) => Ok(client.raise_cap(id, raise).await?),
        }
    }
}
