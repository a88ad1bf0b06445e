//! API keys, browser logins, links to gates, remembered approvals and idempotent HTTP requests.
//!
//! A browser logs in with a one-time ticket that is exchanged for a session. A link lets one person
//! answer one gate, as long as the input that the gate shows does not change; opening it does not
//! answer the gate yet. A person adds a remembered approval by approving a call not only once, but
//! for the run, the agent or the project. The responses to HTTP requests are stored, so that a
//! request that is sent twice with one idempotency key is applied once.
//!
//! Invariants: the secret of a key is returned once, when the key is created, and never stored. A
//! ticket or session is never valid longer than the key for which it was issued. A stored response
//! is only returned to the caller who sent the request.

use std::borrow::Cow;

use longhaul_api::key::KeyView;
use longhaul_core::access::{Principal, Role, SYSTEM_PRINCIPAL, principal_of_key};
use longhaul_core::id::{ApiKeyName, GateId, RuleId};
use longhaul_core::policy::gate::GateRow;
use longhaul_core::policy::rule::{RememberedApprovalFilter, RememberedApprovalRow};
use longhaul_core::port::auth::{
    ApiKeyRef, ApiKeyRow, GateLinkRow, IdempotencyKey, IdempotencyRequest, IdempotentRequestState,
    LoginTokenKind, NewApiKey, NewLoginToken, StoredHttpResponse,
};
use longhaul_core::port::redact::Redact;
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::time::Millis;
use longhaul_run::Rejection;
use longhaul_run::commands::{RunCommand, check_gate_open, current_gate_digest};

use crate::error::{Error, Result, invalid_task};
use crate::handle::{Longhaul, check_text_len};
use crate::secret::{KEY_PREFIX, Secret};

/// Lifetime of a one-time ticket for a browser login.
const TICKET_TTL: Millis = Millis::from_secs(10 * 60);

/// Lifetime of a browser session.
const SESSION_TTL: Millis = Millis::from_secs(12 * 60 * 60);

/// Request to create an API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKeyRequest {
    pub name: ApiKeyName,
    /// Role of the callers who use the key.
    pub role: Role,
    /// Lifetime of the key. `None` means that the key does not expire.
    pub ttl: Option<Millis>,
    /// Name of the person or program that creates the key.
    pub by: String,
}

/// A newly created API key with its secret.
#[derive(Debug, Clone)]
pub struct IssuedApiKey {
    /// Secret that callers send to authenticate. It is not stored.
    pub secret: Secret,
    /// The key without its secret, as it is stored.
    pub key: KeyView,
}

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerIdentity {
    /// Name and role of the caller.
    pub principal: Principal,
    /// Key with which the caller authenticated, directly or through a token issued for that key.
    pub key: ApiKeyRef,
}

/// Maximum length of the name of a person who gets a link to answer a gate, in bytes.
const RECIPIENT_BYTES_MAX: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateGateLinkRequest {
    /// Gate that the link's recipient can answer.
    pub gate: GateId,
    /// Name of the person who receives the link.
    pub recipient: String,
    /// Name of the person or program that creates the link.
    pub by: String,
}

/// An existing link with which a person without a key can answer a gate.
#[derive(Debug, Clone)]
pub struct ResolvedGateLink {
    /// Gate that the link answers, in the gate's current state.
    pub gate: GateRow,
    /// Name of the person for whom the link was created.
    pub recipient: String,
    /// Digest of the input that the gate showed when the link was created. `None` if the gate shows
    /// no input.
    pub digest: Option<Hash>,
}

/// How long stored HTTP responses are kept.
const RETENTION: Millis = Millis::from_secs(24 * 60 * 60);

/// Time after which a request without a response counts as abandoned by the server that handled it.
const LEASE: Millis = Millis::from_secs(60);

/// Number of remembered approvals that are read at once.
const RULES_PAGE: usize = 500;

impl CallerIdentity {
    /// Returns the identity of the holder of a stored key.
    pub(super) fn from_api_key(row: &ApiKeyRow) -> Self {
        Self {
            principal: Principal { name: principal_of_key(&row.name), role: row.role },
            key: ApiKeyRef::Key(row.hash),
        }
    }

    /// Returns the identity of a caller who can read the machine's own key file.
    pub fn local_key_holder() -> Self {
        Self {
            principal: Principal { name: "local".to_owned(), role: Role::Admin },
            key: ApiKeyRef::Local,
        }
    }
}

impl Longhaul {
    /// Generates a random secret that starts with `prefix`.
    pub fn generate_secret(&self, prefix: &str) -> Result<Secret> {
        let random_bytes = self.services.ids.random_bytes().ok_or(Error::EntropyUnavailable)?;
        Ok(Secret::new(prefix, random_bytes))
    }

    /// Creates an API key and returns it with its secret.
    pub async fn create_key(&self, request: NewKeyRequest) -> Result<IssuedApiKey> {
        let name = request.name.to_string();
        // In a URL path these two names mean other directories, so the key could not be revoked.
        if [".", ".."].contains(&name.as_str()) {
            return invalid_task(format!("`{name}` is not a valid key name"));
        }
        self.check_no_secret_in_name("the key's name", &name)?;
        let secret = self.generate_secret(KEY_PREFIX)?;
        let key = NewApiKey {
            name: request.name,
            role: request.role,
            hash: secret.hash(),
            ttl: request.ttl,
            by: self.redact(request.by),
            request: self.request.clone(),
        };
        if !self.services.auth.add_api_key(key).await? {
            return Err(Error::KeyNameTaken(name));
        }
        let row = self.services.auth.find_api_key(secret.hash()).await?;
        let row = row.ok_or(Error::KeyNotFound(name))?;
        let key = KeyView::new(&row, self.store_time().await?);
        Ok(IssuedApiKey { secret, key })
    }

    /// Lists all API keys, oldest first.
    pub async fn list_api_keys(&self) -> Result<Vec<KeyView>> {
        let now = self.store_time().await?;
        let rows = self.services.auth.list_api_keys().await?;
        Ok(rows.iter().map(|row| KeyView::new(row, now)).collect())
    }

    /// Revokes an API key with everything that it gave: all tokens issued for it, its links to gates
    /// and its remembered approvals. Its votes no longer count at gates that are still open.
    pub async fn revoke_api_key(&self, name: &ApiKeyName) -> Result<KeyView> {
        let row = self.services.auth.revoke_api_key(name).await?;
        // Also of a key that is revoked already: an earlier attempt may have been cut off here.
        self.revoke_rules_of_principal(&principal_of_key(name)).await?;
        let row = row.ok_or_else(|| Error::KeyNotFound(name.to_string()))?;
        Ok(KeyView::new(&row, self.store_time().await?))
    }

    /// Returns the identity of the caller who presents this key. `None` if the key is unknown,
    /// expired or revoked.
    pub async fn authenticate_api_key(&self, secret: &Secret) -> Result<Option<CallerIdentity>> {
        let Some(row) = self.services.auth.find_api_key(secret.hash()).await? else {
            return Ok(None);
        };
        if !row.is_valid_at(self.store_time().await?) {
            return Ok(None);
        }
        self.services.auth.record_api_key_use(row.hash).await?;
        Ok(Some(CallerIdentity::from_api_key(&row)))
    }

    /// Creates a login ticket for the holder of a key. `local_key_hash` is the hash of the
    /// machine's own key.
    pub async fn create_login_ticket(
        &self,
        holder: ApiKeyRef,
        local_key_hash: Hash,
    ) -> Result<Secret> {
        let secret = self.generate_secret("")?;
        let hash = token_hash(&secret, &holder, local_key_hash);
        let ticket =
            NewLoginToken { kind: LoginTokenKind::Ticket, hash, api_key: holder, ttl: TICKET_TTL };
        self.services.auth.add_login_token(ticket).await?;
        Ok(secret)
    }

    /// Exchanges a login ticket for a session. `None` if the ticket is unknown, expired or already
    /// used.
    pub async fn exchange_ticket_for_session(
        &self,
        ticket: &Secret,
        local_key_hash: Hash,
    ) -> Result<Option<Secret>> {
        let auth = &self.services.auth;
        let token = auth.consume_login_token(LoginTokenKind::Ticket, ticket.hash()).await?;
        let token = match token {
            Some(row) => Some(row),
            None => {
                let hash = token_hash(ticket, &ApiKeyRef::Local, local_key_hash);
                auth.consume_login_token(LoginTokenKind::Ticket, hash).await?
            }
        };
        let Some(row) = token else { return Ok(None) };
        let secret = self.generate_secret("")?;
        let session = NewLoginToken {
            kind: LoginTokenKind::Session,
            hash: token_hash(&secret, &row.api_key, local_key_hash),
            api_key: row.api_key,
            ttl: SESSION_TTL,
        };
        auth.add_login_token(session).await?;
        Ok(Some(secret))
    }

    /// Returns the identity of the caller who presents this session token. `None` if the session is
    /// invalid or expired.
    pub async fn authenticate_session(
        &self,
        session: &Secret,
        local_key_hash: Hash,
    ) -> Result<Option<CallerIdentity>> {
        let auth = &self.services.auth;
        let token = auth.find_login_token(LoginTokenKind::Session, session.hash()).await?;
        if let Some(ApiKeyRef::Key(hash)) = token.map(|row| row.api_key) {
            let key = auth.find_api_key(hash).await?;
            let now = self.store_time().await?;
            let key = key.filter(|key| key.is_valid_at(now));
            return Ok(key.map(|key| CallerIdentity::from_api_key(&key)));
        }
        let hash = token_hash(session, &ApiKeyRef::Local, local_key_hash);
        let token = auth.find_login_token(LoginTokenKind::Session, hash).await?;
        Ok(token.map(|_| CallerIdentity::local_key_holder()))
    }

    /// Creates a link to an open gate. Returns the secret token of the link.
    pub async fn create_gate_link(&self, request: CreateGateLinkRequest) -> Result<Secret> {
        let name = request.recipient.trim();
        if name.is_empty() {
            return Err(Rejection::Empty("a recipient").into());
        }
        check_text_len("the recipient's name", name.len(), RECIPIENT_BYTES_MAX)?;
        if name.chars().any(char::is_control) {
            return invalid_task("a recipient's name must not contain control characters");
        }
        self.check_no_secret_in_name("the recipient's name", name)?;
        let gate = self.get_gate(request.gate).await?;
        check_gate_open(&gate, self.store_time().await?)?;
        let secret = self.generate_secret("")?;
        let link = GateLinkRow {
            hash: secret.hash(),
            gate: request.gate,
            digest: current_gate_digest(&gate),
            recipient: name.to_owned(),
            by: self.redact(request.by),
        };
        self.services.auth.add_gate_link(link).await?;
        Ok(secret)
    }

    /// Whether a link with this secret token exists.
    pub async fn has_gate_link(&self, secret: &Secret) -> Result<bool> {
        Ok(self.services.auth.find_gate_link(secret.hash()).await?.is_some())
    }

    /// Returns the gate and recipient of a link. `None` if the link or its gate does not exist.
    pub async fn resolve_gate_link(&self, secret: &Secret) -> Result<Option<ResolvedGateLink>> {
        let Some(link) = self.services.auth.find_gate_link(secret.hash()).await? else {
            return Ok(None);
        };
        let (recipient, digest) = (link.recipient, link.digest);
        let gate = self.find_gate(link.gate).await?;
        Ok(gate.map(|gate| ResolvedGateLink { gate, recipient, digest }))
    }

    /// Starts a request under an idempotency key, or returns the stored response of an earlier
    /// request with the same key.
    pub async fn begin_idempotent_request(
        &self,
        key: IdempotencyKey,
        body: Hash,
    ) -> Result<IdempotentRequestState> {
        self.check_no_secret_in_name("the idempotency key", &key.key)?;
        let request = IdempotencyRequest { key, body_hash: body, ttl: RETENTION, lease: LEASE };
        Ok(self.services.auth.begin_idempotent_request(request).await?)
    }

    /// Stores the response to a request that was started under an idempotency key.
    pub async fn complete_idempotent_request(
        &self,
        key: IdempotencyKey,
        mut reply: StoredHttpResponse,
    ) -> Result<()> {
        // A response may repeat parts of the request.
        if let Ok(body) = std::str::from_utf8(&reply.body)
            && let Some(clean) = redact_response_body(&*self.services.redact, body)
        {
            reply.body = clean.into_bytes();
        }
        Ok(self.services.auth.complete_idempotent_request(key, reply).await?)
    }

    /// Discards a request that was started under an idempotency key and had no effect, so that the
    /// caller can send the request again.
    pub async fn abort_idempotent_request(&self, key: IdempotencyKey) -> Result<()> {
        Ok(self.services.auth.abort_idempotent_request(key).await?)
    }

    /// Lists the remembered approvals (rules by which later calls are approved without asking) that
    /// match the filter, newest first.
    pub async fn list_rules(
        &self,
        filter: RememberedApprovalFilter,
    ) -> Result<Vec<RememberedApprovalRow>> {
        Ok(self.services.records.list_rules(filter).await?)
    }

    /// Returns the remembered approval (rule by which later calls are approved) with this id,
    /// active or revoked.
    pub async fn get_rule(&self, rule: RuleId) -> Result<RememberedApprovalRow> {
        let filter = RememberedApprovalFilter {
            rule: Some(rule),
            limit: 1,
            ..RememberedApprovalFilter::default()
        };
        let found = self.list_rules(filter).await?;
        found.into_iter().next().ok_or(Error::RuleNotFound(rule))
    }

    /// Revokes the remembered approvals that rest on a vote of this principal.
    pub(super) async fn revoke_rules_of_principal(&self, principal: &str) -> Result<()> {
        let mut filter =
            RememberedApprovalFilter { limit: RULES_PAGE, ..RememberedApprovalFilter::default() };
        loop {
            let page = self.list_rules(filter.clone()).await?;
            for row in page.iter().filter(|row| row.has_voter(principal)) {
                match self.revoke_rule(row.rule, SYSTEM_PRINCIPAL).await {
                    // The run has ended, or another request has changed it first.
                    Ok(_)
                    | Err(
                        Error::RunNotFound(_)
                        | Error::RuleNotFound(_)
                        | Error::Rejected(Rejection::Ended(_) | Rejection::RuleRevoked { .. }),
                    ) => {}
                    Err(error) => return Err(error),
                }
            }
            match page.last() {
                Some(last) if page.len() == RULES_PAGE => filter.after = Some(last.rule),
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// Revokes a remembered approval and returns it. Calls in later model replies need an approval
    /// again, but calls in replies that are already in a journal stay approved.
    pub async fn revoke_rule(&self, rule: RuleId, by: &str) -> Result<RememberedApprovalRow> {
        let row = self.get_rule(rule).await?;
        if let Some(revocation) = row.revoked {
            return Err(Rejection::RuleRevoked { rule, revocation }.into());
        }
        let is_revoked = match row.scope.run() {
            // The journal of the run tells its driver.
            Some(run) => {
                let command = RunCommand::RevokeRule { rule, by: by.to_owned() };
                self.send_command(run, command).await.map(|_| true)
            }
            None => {
                let by = self.redact(by.to_owned());
                Ok(self.services.records.revoke_rule(rule, &by).await?)
            }
        };
        let row = self.get_rule(rule).await?;
        match (is_revoked, &row.revoked) {
            (Ok(true), _) => Ok(row),
            // Another request has changed the run first.
            (_, Some(revocation)) => {
                Err(Rejection::RuleRevoked { rule, revocation: revocation.clone() }.into())
            }
            (Ok(false), None) => Err(Error::RuleNotFound(rule)),
            (Err(error), None) => Err(error),
        }
    }
}

/// Returns the hash under which a ticket or session token is stored. For a holder of the machine's
/// own key, which is not in the store, the hash includes the key: with another key the token is
/// invalid.
fn token_hash(secret: &Secret, holder: &ApiKeyRef, local_key_hash: Hash) -> Hash {
    match holder {
        ApiKeyRef::Key(_) => secret.hash(),
        ApiKeyRef::Local => {
            Hash::digest(format!("{} of {local_key_hash}", secret.reveal()).as_bytes())
        }
    }
}

impl ResolvedGateLink {
    /// Whether the input that the gate shows has changed since the link was created.
    pub fn has_gate_input_changed(&self) -> bool {
        self.digest != current_gate_digest(&self.gate)
    }
}

/// Returns the response body with secrets redacted; JSON stays valid JSON. `None` if the body
/// contains no secrets.
fn redact_response_body(redact: &dyn Redact, body: &str) -> Option<String> {
    if let Ok(json) = RawJson::parse(body) {
        let clean = redact.redact_json(&json);
        return (clean != json).then(|| clean.as_str().to_owned());
    }
    match redact.redact(body) {
        Cow::Owned(clean) => Some(clean),
        Cow::Borrowed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test redactor that redacts one number.
    #[derive(Debug)]
    struct PinRedactor;

    impl Redact for PinRedactor {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            match text.contains("48151623") {
                true => text.replace("48151623", "{{secret:PIN}}").into(),
                false => text.into(),
            }
        }
    }

    #[test]
    fn redaction_keeps_a_stored_response_valid_json() {
        for (body, clean) in [
            (r#"{"pin":48151623}"#, Some(r#"{"pin":"{{secret:PIN}}"}"#)),
            ("no JSON: 48151623", Some("no JSON: {{secret:PIN}}")),
            (r#"{"pin":1}"#, None),
            ("none", None),
        ] {
            assert_eq!(redact_response_body(&PinRedactor, body).as_deref(), clean, "{body}");
        }
    }
}
