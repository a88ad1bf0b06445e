//! Replaces `clients` in a build without the feature `mcp`: every use of an MCP server is an error
//! that names the feature.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::port::tool::{Stay, Tool};
use longhaul_core::time::Clock;

use crate::assemble::line::{Line, Report, Unheard};
use crate::config::settings::Config;
use crate::mcp::file::{McpFile, NO_CLIENT};
use crate::mcp::name::FILE_NAME;

/// A client that refuses every server of the file.
pub(crate) fn line(_: &Config, file: &McpFile, _: &Arc<dyn Clock>) -> Arc<dyn Line> {
    if file.is_there() {
        tracing::warn!("the servers of {FILE_NAME} can't be used: {NO_CLIENT}");
    }
    Arc::new(NoClients)
}

/// Returns the text unchanged: without a client there are no tokens to redact.
pub(crate) const fn without_tokens(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

/// Length of a token that begins at the end of the text: always 0 without a client.
pub(crate) const fn unfinished(_: &str) -> usize {
    0
}

#[derive(Debug)]
struct NoClients;

#[async_trait]
impl Line for NoClients {
    async fn tools(&self, _: &str, _: Option<&str>, _: Stay) -> Result<Vec<Arc<dyn Tool>>, String> {
        Err(NO_CLIENT.to_owned())
    }

    async fn check(&self, _: &str) -> Result<Report, Unheard> {
        Err(Unheard {
            why: NO_CLIENT.to_owned(),
            needs_login: false,
        })
    }

    async fn let_go(&self, _: Stay) {}

    async fn close(&self) {}

    async fn settle(&self) {}
}
