//! Links: one person's way to one gate, for what was shown.
//!
//! Never: decides anything by being opened.

use longhaul_core::id::GateId;
use longhaul_core::policy::gate::{GateRow, GateStatus};
use longhaul_core::port::auth::LinkRow;
use longhaul_core::raw::Hash;
use longhaul_run::Rejection;
use longhaul_run::commands::current_digest;

use crate::error::Error;
use crate::handle::{Longhaul, check_len};
use crate::secret::Secret;

/// So many bytes name a person.
const RECIPIENT_BYTES_MAX: usize = 200;

/// A link to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateLink {
    /// To which gate.
    pub gate: GateId,
    /// For whom.
    pub recipient: String,
    /// Who makes it.
    pub by: String,
}

/// A link that was followed.
#[derive(Debug, Clone)]
pub struct ResolvedLink {
    /// The gate as it stands.
    pub gate: GateRow,
    /// For whom it was made.
    pub recipient: String,
    /// What stood frozen when it was made.
    pub digest: Option<Hash>,
}

impl ResolvedLink {
    /// Whether something else stands frozen now.
    pub fn digest_changed(&self) -> bool {
        self.digest != current_digest(&self.gate)
    }
}

impl Longhaul {
    /// Makes a link to an open gate.
    pub async fn create_link(&self, ask: CreateLink) -> Result<Secret, Error> {
        let name = ask.recipient.trim();
        if name.is_empty() {
            return Err(Rejection::Empty("a recipient").into());
        }
        check_len("the recipient's name", name.len(), RECIPIENT_BYTES_MAX)?;
        if name.chars().any(char::is_control) {
            let why = "a recipient's name has no control characters".to_owned();
            return Err(Rejection::InvalidTask(why).into());
        }
        self.check_no_secret("the recipient's name", name)?;
        let gate = self.gate(ask.gate).await?;
        match gate.status {
            GateStatus::Open => {}
            GateStatus::Expired => return Err(Rejection::GateExpired(ask.gate).into()),
            status @ (GateStatus::Answered | GateStatus::Withdrawn) => {
                let by = gate.answers.last();
                let by = by.map(|given| (given.answer.by.clone(), given.at));
                let gate = ask.gate;
                return Err(Rejection::GateClosed { gate, status, by }.into());
            }
        }
        let secret = self.generate_secret("")?;
        let link = LinkRow {
            hash: secret.hash(),
            gate: ask.gate,
            digest: current_digest(&gate),
            recipient: name.to_owned(),
            by: self.redact(ask.by),
        };
        self.services.auth.add_link(link).await?;
        Ok(secret)
    }

    /// Whether there is such a link.
    pub async fn has_link(&self, secret: &Secret) -> Result<bool, Error> {
        Ok(self.services.auth.link(secret.hash()).await?.is_some())
    }

    /// Where a link leads; none: nowhere.
    pub async fn resolve_link(&self, secret: &Secret) -> Result<Option<ResolvedLink>, Error> {
        let Some(link) = self.services.auth.link(secret.hash()).await? else {
            return Ok(None);
        };
        match self.gate(link.gate).await {
            Ok(gate) => {
                Ok(Some(ResolvedLink { gate, recipient: link.recipient, digest: link.digest }))
            }
            Err(Error::GateNotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
