//! Who gave a login: found anew whenever something of it goes there.
//!
//! Never: takes another for it. A token goes to whom it came from, or to nobody.

use std::sync::Arc;

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationMetadataSource,
    CredentialStore as _, InMemoryCredentialStore, OAuthClientConfig, OAuthHttpClient,
    StoredCredentials,
};

use crate::auth::oauth_http::{self, OAuthHttp};

/// Why nothing came of asking who gave a login.
pub(super) enum IssuerError {
    /// As the SDK tells it.
    Sdk(AuthError),
    /// It was not asked: nobody is there whom its tokens are for. And whether there
    /// may be somebody the next time.
    Unusable(&'static str, bool),
}

impl From<AuthError> for IssuerError {
    fn from(error: AuthError) -> Self {
        Self::Sdk(error)
    }
}

/// The authorization server that gave a login.
pub(super) struct Issuer {
    pub(super) http: Arc<OAuthHttp>,
    pub(super) metadata: AuthorizationMetadata,
    manager: AuthorizationManager,
    server: Url,
}

impl Issuer {
    /// Who gave this login at the server at this address.
    pub(super) async fn discover(
        server: &Url,
        given: &StoredCredentials,
    ) -> Result<Self, IssuerError> {
        let asks = OAuthHttp::for_server(server).await.map_err(AuthError::InternalError)?;
        let asks = Arc::new(asks);
        let client: Arc<dyn OAuthHttpClient> = Arc::<OAuthHttp>::clone(&asks);
        let manager = AuthorizationManager::new_with_oauth_http_client(server.clone(), client);
        let mut manager = manager.await?;
        let found = manager.resolve_metadata().await?;
        // What one authorization server gave is none of another's business. And one
        // that can't be asked for a while looks to the SDK like one that says nothing.
        if found.metadata.issuer != given.issuer {
            let is_silent = found.source == AuthorizationMetadataSource::LegacyEndpointFallback;
            let why = match is_silent {
                true => "it does not say now who gave it",
                false => "it names another authorization server than the one that gave it",
            };
            return Err(IssuerError::Unusable(why, is_silent));
        }
        // An address that it has no business to name does not get better by waiting.
        let tokens = found.metadata.token_endpoint.parse();
        let tokens: Url =
            tokens.map_err(|_| IssuerError::Unusable(oauth_http::INVALID_URL, false))?;
        let judged = asks.check_address(&tokens).await;
        judged.map_err(|why| IssuerError::Unusable(why, false))?;
        manager.set_metadata(found.metadata.clone());
        Ok(Self { http: asks, metadata: found.metadata, manager, server: server.clone() })
    }

    /// Has the login renewed; what comes of it is not yet kept.
    pub(super) async fn refresh(
        mut self,
        given: &StoredCredentials,
        secret: Option<String>,
    ) -> Result<StoredCredentials, IssuerError> {
        let store = InMemoryCredentialStore::new();
        store.save(given.clone()).await?;
        self.manager.set_credential_store(store.clone());
        let client = OAuthClientConfig::new(&given.client_id, self.server.as_str());
        self.manager.configure_client(match secret {
            Some(secret) => client.with_client_secret(secret),
            None => client,
        })?;
        self.manager.refresh_token().await?;
        let renewed = store.load().await?;
        renewed.ok_or(IssuerError::Unusable("nothing came of it", false))
    }
}
