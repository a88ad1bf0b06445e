//! What a driver has before it: the journal, the capsule, the calls under way.
//!
//! Never: keeps anything that a crash could miss.

use longhaul_core::port::model::Ask;
use longhaul_core::raw::{BlobRef, Body};

use crate::capsule::Capsule;
use crate::drive::charge::Charge;
use crate::drive::gauge::Gauge;
use crate::drive::hands::Hands;
use crate::error::Error;
use crate::lease::Lease;
use crate::ledger::Ledger;
use crate::ports::Ports;
use crate::stop::Stop;

/// What a driver has before it.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) ports: Ports,
    pub(super) ledger: Ledger,
    pub(super) lease: Lease,
    pub(super) stop: Stop,
    /// None: a part is missing, and the run waits for it.
    pub(super) capsule: Option<Capsule>,
    pub(super) hands: Hands,
    /// How far the calls are.
    pub(super) gauge: Gauge,
    /// Prompt and table, read once.
    texts: Vec<(BlobRef, Body)>,
}

/// How a driver finds the run.
pub(super) enum Arrived {
    /// Everything that it needs is here.
    Equipped,
    /// This sentence says what is not.
    Missing(String),
}

impl Desk {
    /// Folds the journal and looks up what the run needs.
    pub(super) async fn open(ports: &Ports, charge: Charge) -> Result<(Self, Arrived), Error> {
        let epoch = charge.claimed.epoch;
        let ledger = Ledger::open(ports, charge.worker, charge.claimed).await?;
        let (capsule, arrived) = match Capsule::open(ports, ledger.run(), epoch).await? {
            Ok(capsule) => (Some(capsule), Arrived::Equipped),
            Err(sentence) => (None, Arrived::Missing(sentence)),
        };
        let desk = Self {
            ports: ports.clone(),
            ledger,
            lease: charge.lease,
            stop: charge.stop,
            capsule,
            hands: Hands::default(),
            gauge: Gauge::default(),
            texts: Vec::new(),
        };
        Ok((desk, arrived))
    }

    /// The question with prompt and table as texts: a model knows no blobs.
    pub(super) async fn spell_out(&mut self, mut ask: Ask) -> Result<Ask, Error> {
        ask.system = self.text(ask.system).await?;
        ask.tools = self.text(ask.tools).await?;
        Ok(ask)
    }

    async fn text(&mut self, body: Body) -> Result<Body, Error> {
        let Body::Blob(at) = body else {
            return Ok(body);
        };
        if let Some((_, text)) = self.texts.iter().find(|(known, _)| *known == at) {
            return Ok(text.clone());
        }
        let stuck = |why: &str| Error::Stuck {
            run: self.ledger.run().id(),
            why: format!("the text {} of its prompt {why}", at.hash),
        };
        let bytes = self.ports.shelves.blob(at.hash).await?;
        let bytes = bytes.ok_or_else(|| stuck("is not in the store"))?;
        let text = String::from_utf8(bytes).map_err(|_| stuck("is no text"))?;
        let text = Body::inline(text);
        self.texts.push((at, text.clone()));
        Ok(text)
    }
}
