//! How a project is known to an OAuth authorization server, as plain settings.
//!
//! Never: shows the secret of a client.

use std::fmt;

/// What a project says of how it is known to a server's authorization server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OAuthConfig {
    /// Who we are, where that was agreed on before.
    pub client_id: Option<String>,
    /// The secret that goes with it.
    pub client_secret: Option<String>,
    /// The address of a document that says who we are.
    pub client_metadata_url: Option<String>,
    /// What is asked for; empty: what the server says it needs.
    pub scopes: Vec<String>,
    /// The port that the browser comes back to; none: any that is free.
    pub callback_port: Option<u16>,
}

impl fmt::Debug for OAuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthConfig")
            .field("client_id", &self.client_id)
            .field("client_secret", &self.client_secret.as_ref().map(|_| "***"))
            .field("client_metadata_url", &self.client_metadata_url)
            .field("scopes", &self.scopes)
            .field("callback_port", &self.callback_port)
            .finish()
    }
}
