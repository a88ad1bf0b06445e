//! What a driver has before it: the journal, the capsule, the calls under way.
//!
//! Never: keeps anything that a crash could miss.

use std::pin::pin;

use longhaul_core::port::model::Ask;
use longhaul_core::port::store::Claimed;
use longhaul_core::port::tool::Stay;
use longhaul_core::time::Millis;
use longhaul_run::Input;

use crate::agent::Agent;
use crate::capsule::{Brought, Capsule, bring, lacking, pinned};
use crate::crash_guard::{Admission, Trial};
use crate::drive::attend::{Cut, Ears, First};
use crate::drive::charge::{Charge, Parting};
use crate::drive::gauge::Gauge;
use crate::drive::hands::Hands;
use crate::error::Error;
use crate::lack::Lack;
use crate::lease::Lease;
use crate::ledger::{Ledger, Told};
use crate::ports::Ports;
use crate::stop::Stop;
use crate::texts::Texts;

/// So long is waited for all that others bring.
const BRING_TIMEOUT: Millis = Millis::from_secs(90);

/// What a driver has before it.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) ports: Ports,
    pub(super) ledger: Ledger,
    pub(super) lease: Lease,
    pub(super) stop: Stop,
    /// Held after a crash, until the run has made progress.
    trial: Option<Trial>,
    /// None: a part is missing, and the run waits for it.
    pub(super) capsule: Option<Capsule>,
    pub(super) hands: Hands,
    /// How far the calls are.
    pub(super) gauge: Gauge,
    /// Prompt and table, read once.
    texts: Texts,
}

/// How a driver finds the run.
pub(super) enum Arrived {
    /// Everything that it needs is here.
    Equipped,
    /// This is not.
    Missing(Lack),
    /// Its drivers died at the same place too often.
    CrashLoop,
    /// The run is not ours any more, or is to be let go of.
    Gone,
}

impl Desk {
    /// Folds the journal and looks up what the run needs.
    pub(super) async fn open(ports: &Ports, charge: Charge) -> Result<(Self, Arrived), Error> {
        let mut desk = Self {
            ports: ports.clone(),
            ledger: Ledger::open(ports, charge.worker, charge.claimed.clone()).await?,
            lease: charge.lease.clone(),
            stop: charge.stop.clone(),
            trial: None,
            capsule: None,
            hands: Hands::default(),
            gauge: Gauge::default(),
            texts: Texts::default(),
        };
        let crashes = desk.ledger.run().control().crashes;
        let may_begin = match charge.crash_guard.admission(crashes) {
            Admission::Free => true,
            Admission::Trial { permits } => desk.begin_trial(&charge, permits).await?,
            Admission::Blocked => return Ok((desk, Arrived::CrashLoop)),
        };
        // From here on a death of this process counts; one that only waited does not.
        let arrived = match may_begin && desk.ledger.note(Input::Recover).await? == Told::On {
            true => desk.equip().await?,
            false => Arrived::Gone,
        };
        Ok((desk, arrived))
    }

    /// Takes as many permits of the crash guard as the run needs; false: let go. While it
    /// waits another run may have its slot. A run that was cancelled needs neither to come
    /// to its end.
    async fn begin_trial(&mut self, charge: &Charge, permits: u32) -> Result<bool, Error> {
        self.trial = charge.crash_guard.try_trial(permits);
        if self.trial.is_some() {
            return Ok(true);
        }
        charge.slot.release();
        self.ports.nudges.may_be_ready();
        let waiting = pin!(async {
            let admitted = async {
                let trial = charge.crash_guard.trial(permits).await;
                charge.slot.acquire().await;
                trial
            };
            tokio::select! {
                biased;
                trial = admitted => First::Done(trial),
                () = charge.stop.draining() => First::Cut(Cut::Stopping),
            }
        });
        let mut ears = Ears::new(&mut self.ledger, &self.lease, &self.stop);
        match ears.attend(waiting).await? {
            First::Done(First::Done(trial)) => self.trial = trial,
            First::Cut(Cut::Cancelled | Cut::Interrupted) => {}
            First::Done(First::Cut(_)) | First::Cut(Cut::Stopping | Cut::Lost) => return Ok(false),
        }
        Ok(true)
    }

    /// Lets the next run be on trial once this one has made progress.
    pub(super) fn end_trial(&mut self) {
        if self.ledger.run().control().crashes == 0 {
            self.trial = None;
        }
    }

    /// Lets go of a run that this worker does not go on with. One that is still ours when
    /// the worker stops is released where it can be, so that this does not count as a crash.
    pub(super) async fn leave(&mut self) -> Parting {
        if self.stop.is_draining() && !self.lease.is_lost() {
            match self.ledger.note(Input::Release).await {
                Ok(_) if self.ledger.run().control().rest.is_some() => return Parting::Rested,
                Ok(_) => {}
                Err(error) => {
                    let run = self.ledger.run().id();
                    tracing::warn!(%run, %error, "its release could not be recorded");
                }
            }
        }
        Parting::Gone
    }

    async fn equip(&mut self) -> Result<Arrived, Error> {
        let agent = match pinned(&self.ports, self.ledger.run()).await? {
            Ok(agent) => agent,
            Err(sentence) => return Ok(Arrived::Missing(sentence.into())),
        };
        let names = lacking(&self.ports, &agent);
        let brought = match self.bring(&agent, &names).await? {
            First::Done(Ok(brought)) => brought,
            First::Done(Err(sentence)) => return Ok(Arrived::Missing(sentence.into())),
            // To come to its end it needs nothing of others.
            First::Cut(Cut::Cancelled | Cut::Interrupted) => Brought::new(),
            First::Cut(Cut::Stopping | Cut::Lost) => return Ok(Arrived::Gone),
        };
        let opened = Capsule::equip(&self.ports, self.ledger.run(), agent, brought);
        Ok(match opened {
            Ok(capsule) => {
                self.capsule = Some(capsule);
                Arrived::Equipped
            }
            Err(lack) => Arrived::Missing(lack),
        })
    }

    /// Waits for what others bring, and hears meanwhile what is said to the run.
    async fn bring(
        &mut self,
        agent: &Agent,
        names: &[String],
    ) -> Result<First<Result<Brought, String>>, Error> {
        if names.is_empty() {
            return Ok(First::Done(Ok(Brought::new())));
        }
        let Claimed { run, epoch, .. } = *self.ledger.claimed();
        let (ports, stop) = (&self.ports, &self.stop);
        let bringing = pin!(async {
            tokio::select! {
                biased;
                brought = bring(ports, agent, names, Stay { run, epoch }) => First::Done(brought),
                // Nothing was begun that would be waited for.
                () = stop.draining() => First::Cut(Cut::Stopping),
                () = ports.clock.sleep(BRING_TIMEOUT) => First::Done(Err(late(agent, names))),
            }
        });
        let mut ears = Ears::new(&mut self.ledger, &self.lease, stop);
        Ok(match ears.attend(bringing).await? {
            First::Done(brought) => brought,
            First::Cut(cut) => First::Cut(cut),
        })
    }

    /// The question with prompt and table as texts: a model knows no blobs.
    pub(super) async fn spell_out(&mut self, ask: Ask) -> Result<Ask, Error> {
        self.texts.spell_out(&*self.ports.shelves, ask).await
    }
}

/// What is said of tools that nobody brought in time.
fn late(agent: &Agent, names: &[String]) -> String {
    format!(
        "Agent `{}` uses what others bring, and after {} s not all of it was there: `{}`. See \
         whether it can be started, then answer here: it is asked for again.",
        agent.name,
        BRING_TIMEOUT.0 / 1_000,
        names.join("`, `")
    )
}
