//! The authorization server that issued a login. It is discovered again before each use.
//!
//! Invariant: a token is sent only to the authorization server that issued it.

use std::sync::Arc;

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationMetadataSource,
    CredentialStore as _, InMemoryCredentialStore, OAuthClientConfig, OAuthHttpClient,
    StoredCredentials,
};

use crate::auth::oauth_http::{self, OAuthHttp};

/// Why the issuer of a login can't be used.
pub(super) enum IssuerError {
    /// The SDK failed to discover the issuer or to get tokens from it.
    Sdk(AuthError),
    /// The issuer was not found or is not allowed, so no token was sent. Holds the reason, and
    /// whether the problem is transient.
    Unusable(&'static str, bool),
}

impl From<AuthError> for IssuerError {
    fn from(error: AuthError) -> Self {
        Self::Sdk(error)
    }
}

/// The authorization server that issued a login.
pub(super) struct LoginIssuer {
    pub(super) http: Arc<OAuthHttp>,
    pub(super) metadata: AuthorizationMetadata,
    manager: AuthorizationManager,
    server: Url,
}

impl LoginIssuer {
    /// Discovers the authorization server that issued the login at an MCP server.
    pub(super) async fn discover(
        server: &Url,
        credentials: &StoredCredentials,
    ) -> Result<Self, IssuerError> {
        let http = OAuthHttp::new_for_server(server).await.map_err(AuthError::InternalError)?;
        let http = Arc::new(http);
        let client: Arc<dyn OAuthHttpClient> = Arc::<OAuthHttp>::clone(&http);
        let manager = AuthorizationManager::new_with_oauth_http_client(server.clone(), client);
        let mut manager = manager.await?;
        let found = manager.resolve_metadata().await?;
        // Credentials of one authorization server must not be sent to another. An authorization
        // server that is temporarily unreachable looks to the SDK like one without metadata.
        if found.metadata.issuer != credentials.issuer {
            let is_fallback = found.source == AuthorizationMetadataSource::LegacyEndpointFallback;
            let reason = match is_fallback {
                true => "the server currently names no authorization server",
                false => "the login was issued by another authorization server",
            };
            return Err(IssuerError::Unusable(reason, is_fallback));
        }
        // Waiting does not help against an endpoint that is not allowed.
        let tokens = found.metadata.token_endpoint.parse();
        let tokens: Url =
            tokens.map_err(|_| IssuerError::Unusable(oauth_http::INVALID_URL, false))?;
        let result = http.check_address_allowed(&tokens).await;
        result.map_err(|reason| IssuerError::Unusable(reason, false))?;
        manager.set_metadata(found.metadata.clone());
        Ok(Self { http, metadata: found.metadata, manager, server: server.clone() })
    }

    /// Requests new tokens for the login from its issuer. The result is not saved yet.
    pub(super) async fn refresh_tokens(
        mut self,
        credentials: &StoredCredentials,
        secret: Option<String>,
    ) -> Result<StoredCredentials, IssuerError> {
        let store = InMemoryCredentialStore::new();
        store.save(credentials.clone()).await?;
        self.manager.set_credential_store(store.clone());
        let client = OAuthClientConfig::new(&credentials.client_id, self.server.as_str());
        self.manager.configure_client(match secret {
            Some(secret) => client.with_client_secret(secret),
            None => client,
        })?;
        self.manager.refresh_token().await?;
        let refreshed = store.load().await?;
        refreshed.ok_or(IssuerError::Unusable("the server returned no tokens", false))
    }
}
