//! The clients that speak with the servers of `.mcp.json`.
//!
//! Never: starts one before it is asked for.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_core::port::tool::Tool;

use crate::assemble::line::{Line, Report};
use crate::config::settings::Config;
use crate::mcp::file::McpFile;

/// A line to every server of this file that can be started.
pub fn line(_config: &Config, _file: &McpFile) -> Arc<dyn Line> {
    Arc::new(Silent)
}

#[derive(Debug)]
struct Silent;

#[async_trait]
impl Line for Silent {
    async fn tools(
        &self,
        _server: &str,
        _tool: Option<&str>,
        _run: RunId,
    ) -> Result<Vec<Arc<dyn Tool>>, String> {
        Err("this build can't speak with servers".to_owned())
    }

    async fn check(&self, _server: &str) -> Result<Report, String> {
        Err("this build can't speak with servers".to_owned())
    }

    async fn let_go(&self, _run: RunId) {}

    async fn close(&self) {}
}
