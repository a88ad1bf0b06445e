//! The HTTP API and the dashboard inside a program.
//!
//! Invariant: every request needs a key, except requests from this machine if `[server]
//! open_loopback` is on.

use std::future::pending;

use longhaul_core::access::Role;
use longhaul_core::id::ApiKeyName;
use longhaul_engine::handle::NewKeyRequest;
use longhaul_engine::secret::{KEY_PREFIX, Secret};
use longhaul_server::{App, ServerOptions};
use tokio::net::TcpListener;

use crate::error::Error;
use crate::gates::DEFAULT_ACTOR;
use crate::runtime::Runtime;

impl Runtime {
    /// Creates an API key for the HTTP server and returns it. It can't be shown again later.
    /// Callers send it in the header `Authorization: Bearer KEY`.
    ///
    /// # Errors
    /// The name is invalid, an active key has the same name, or the store failed.
    pub async fn create_key(&self, key_name: &str, role: Role) -> Result<String, Error> {
        let request = NewKeyRequest {
            name: ApiKeyName::new(key_name)?,
            role,
            ttl: None,
            by: DEFAULT_ACTOR.to_owned(),
        };
        let key = self.longhaul().create_key(request).await?;
        Ok(key.secret.reveal().to_owned())
    }

    /// Serves the HTTP API and the dashboard until the future is dropped. It drives no runs: that
    /// needs a worker. The settings in `[server]` and `[inboxes]` of the project are used, except
    /// `listen`.
    ///
    /// ```no_run
    /// # async fn example(runtime: longhaul::Runtime) -> Result<(), Box<dyn std::error::Error>> {
    /// let worker = runtime.worker().spawn();
    /// let key = runtime.create_key("ci", longhaul::Role::Operator).await?;
    /// println!("curl -H 'Authorization: Bearer {key}' http://127.0.0.1:4180/v1/runs");
    /// runtime.serve(tokio::net::TcpListener::bind("127.0.0.1:4180").await?).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The listener has no local address, the project's `[server]` settings allow more access than
    /// the default and are not trusted, or the store failed.
    pub async fn serve(&self, listener: TcpListener) -> Result<(), Error> {
        self.serve_until(listener, pending()).await
    }

    /// Serves the HTTP API and the dashboard until `stop` completes, and then until open requests
    /// are answered.
    ///
    /// # Errors
    /// The listener has no local address, the project's `[server]` settings allow more access than
    /// the default and are not trusted, or the store failed.
    pub async fn serve_until(
        &self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let longhaul = self.longhaul();
        // This key is not shown to anybody: callers use their own keys.
        let options = self.server_options(longhaul.generate_secret(KEY_PREFIX)?)?;
        let address = listener.local_addr().map_err(Error::Listener)?;
        let app = App::new(longhaul.clone(), options, address);
        Ok(longhaul_server::serve(listener, app, stop).await?)
    }
    #[cfg(not(feature = "project"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with the feature")]
    fn server_options(&self, key: Secret) -> Result<ServerOptions, Error> {
        Ok(ServerOptions::new(key))
    }

    /// Returns the options of the project's settings, if they are trusted.
    #[cfg(feature = "project")]
    fn server_options(&self, key: Secret) -> Result<ServerOptions, Error> {
        use longhaul_project::trust::decisions::TrustDecisions;
        use longhaul_project::trust::items;

        let config = &self.0.config;
        // The program chose the address, so trust is needed only for the other settings of the
        // table. A decision covers the whole table.
        let access = items::project_server_access(config);
        if let Some(item) = items::server_trust_item(config).filter(|_| !access.is_empty()) {
            let result = TrustDecisions::new(config).check_trusted(&item);
            result.map_err(|reason| {
                Error::Settings(format!(
                    "{reason} With these settings the server {}.",
                    access.join("; ")
                ))
            })?;
        }
        if config.server_settings().open_loopback {
            tracing::warn!(
                "`[server] open_loopback` is on: every program on this machine may submit and steer runs without a key"
            );
        }
        Ok(project_server_options(config, key))
    }
}

/// Returns the options for the HTTP server of a project.
#[cfg(feature = "project")]
pub fn project_server_options(
    config: &longhaul_project::config::settings::Config,
    local_key: Secret,
) -> ServerOptions {
    let server = config.server_settings();
    ServerOptions {
        hosts: server.hosts,
        open_loopback: server.open_loopback,
        rate: server.rate.unwrap_or(longhaul_server::options::DEFAULT_RATE),
        inboxes: config.default_agents_by_inbox(),
        ..ServerOptions::new(local_key)
    }
}
