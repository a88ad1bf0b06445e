//! OAuth client settings of a project.
//!
//! Invariant: `Debug` never shows the client secret.

use std::fmt;

/// OAuth client settings for the authorization server of an MCP server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OAuthConfig {
    /// OAuth client id, if the client is registered in advance.
    pub client_id: Option<String>,
    /// Client secret that belongs to the client id. `None` means that the client has no secret.
    pub client_secret: Option<String>,
    /// URL of a document that describes the client to the authorization server. `None` if there is
    /// no such document.
    pub client_metadata_url: Option<String>,
    /// OAuth scopes to request. Empty means the scopes that the server requires.
    pub scopes: Vec<String>,
    /// Port of the local URL that the login redirects to. `None` means any free port.
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
