//! Links through which one person can answer one gate, as long as the input that the gate shows
//! does not change.
//!
//! Opening a link does not answer the gate yet.

use longhaul_core::id::GateId;
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::auth::GateLinkRow;
use longhaul_core::raw::Hash;
use longhaul_run::Rejection;
use longhaul_run::commands::{check_gate_open, current_gate_digest};

use crate::error::{Error, Result};
use crate::handle::{Longhaul, check_text_len};
use crate::secret::Secret;

/// Maximum length of the name of a link's recipient, in bytes.
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

/// The gate and the recipient of an existing link.
#[derive(Debug, Clone)]
pub struct ResolvedGateLink {
    /// Gate of the link, in its current state.
    pub gate: GateRow,
    /// Name of the person for whom the link was created.
    pub recipient: String,
    /// Digest of the input that the gate showed when the link was created. `None` if the gate shows
    /// no input.
    pub digest: Option<Hash>,
}

impl ResolvedGateLink {
    /// Whether the input that the gate shows has changed since the link was created.
    pub fn has_gate_input_changed(&self) -> bool {
        self.digest != current_gate_digest(&self.gate)
    }
}

impl Longhaul {
    /// Creates a link to an open gate. Returns the secret token of the link.
    pub async fn create_gate_link(&self, request: CreateGateLinkRequest) -> Result<Secret> {
        let name = request.recipient.trim();
        if name.is_empty() {
            return Err(Rejection::Empty("a recipient").into());
        }
        check_text_len("the recipient's name", name.len(), RECIPIENT_BYTES_MAX)?;
        if name.chars().any(char::is_control) {
            let reason = "a recipient's name must not contain control characters".to_owned();
            return Err(Rejection::InvalidTask(reason).into());
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
        match self.get_gate(link.gate).await {
            Ok(gate) => {
                Ok(Some(ResolvedGateLink { gate, recipient: link.recipient, digest: link.digest }))
            }
            Err(Error::GateNotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
