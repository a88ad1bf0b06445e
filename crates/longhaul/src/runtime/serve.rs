//! The HTTP API and the dashboard inside a program.
//!
//! Never: a server that anybody may use. Every request needs a key, but for those from this machine
//! where `[server] open_loopback` is on.

use std::future::pending;

use longhaul_core::access::Role;
use longhaul_core::id::KeyName;
use longhaul_engine::handle::CreateKey;
use longhaul_engine::secret::KEY_PREFIX;
use longhaul_server::App;
use tokio::net::TcpListener;

use crate::assemble::server_options;
use crate::error::Error;
use crate::gates::DEFAULT_ACTOR;
use crate::runtime::Runtime;
use crate::trust::decisions::Decisions;
use crate::trust::egress;

impl Runtime {
    /// Makes a key for callers of the API. It is shown this once, and goes into the header
    /// `Authorization: Bearer KEY`.
    ///
    /// # Errors
    /// The name can't be one, a key of this name counts already, or the store failed.
    pub async fn create_key(&self, name: &str, role: Role) -> Result<String, Error> {
        let ask =
            CreateKey { name: KeyName::new(name)?, role, ttl: None, by: DEFAULT_ACTOR.to_owned() };
        let made = self.longhaul().create_key(ask).await?;
        Ok(made.secret.reveal().to_owned())
    }

    /// Serves the HTTP API and the dashboard, until the future is dropped. Runs are driven by a
    /// worker of their own. `[server]` and `[inboxes]` of the project count, but for `listen`.
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
    /// The listener has no address, the project opens the server wider than usual and nobody has
    /// trusted that, or the store failed.
    pub async fn serve(&self, listener: TcpListener) -> Result<(), Error> {
        self.serve_until(listener, pending()).await
    }

    /// Serves until `stop` returns, and then until open requests have their answers.
    ///
    /// # Errors
    /// The listener has no address, the project opens the server wider than usual and nobody has
    /// trusted that, or the store failed.
    pub async fn serve_until(
        &self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let (longhaul, config) = (self.longhaul(), &self.0.runtime.config);
        // The program has chosen the address, so that only the rest of the table needs trust. That
        // is given to the table as a whole.
        let access = egress::server_access(config);
        if let Some(item) = egress::server_item(config).filter(|_| !access.is_empty()) {
            let checked = Decisions::new(config).check(&item);
            checked.map_err(|why| Error::Settings(format!("{why} It {}.", access.join("; "))))?;
        }
        if config.server_settings().open_loopback {
            tracing::warn!(
                "`[server] open_loopback` is on: every program on this machine may submit and steer without a key"
            );
        }
        // Nobody is told this key: callers use keys of their own.
        let options = server_options(config, longhaul.generate_secret(KEY_PREFIX)?);
        let address = listener.local_addr().map_err(Error::Listener)?;
        let app = App::new(longhaul.clone(), options, address);
        Ok(longhaul_server::serve(listener, app, stop).await?)
    }
}
