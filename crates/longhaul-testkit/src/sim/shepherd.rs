//! A crew of workers and the people around it: claim, step, crash, stall, and
//! in the end bring every run home.
//!
//! Never: helps a run along. A run that nothing wakes is found, not woken.

use longhaul_core::event::EVENT_FORMAT;
use longhaul_core::id::{InboxName, WorkerId};
use longhaul_core::port::store::{Beat, ClaimAsk, Standing};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock as _, Millis, Timestamp};
use longhaul_run::Moment;

use crate::clock::SimClock;
use crate::ids::Ids;
use crate::sim::Fault;
use crate::sim::driver::{Going, Ports};
use crate::sim::people;
use crate::sim::staff::{Driving, Process, Staff};

/// A worker that is silent for longer counts as dead.
pub const TTL: Millis = Millis::from_secs(15);

/// A worker stops beginning anything when its last sign of life is this old.
const SELF_FENCE: Millis = Millis::from_secs(10);

/// So many runs a worker drives at once.
const SLOTS: usize = 3;

/// One worker.
#[derive(Debug)]
pub struct Hand {
    id: WorkerId,
    process: Box<dyn Process>,
    drives: Vec<Box<dyn Driving>>,
    beat_at: Timestamp,
    stalled_until: Timestamp,
}

/// All workers, over one store.
#[derive(Debug)]
pub struct Crew {
    /// What everybody works with.
    pub ports: Ports,
    /// Who is hired.
    pub staff: Staff,
    /// The clock of the store.
    pub clock: SimClock,
    ids: Ids,
    inbox: InboxName,
    hands: Vec<Hand>,
    /// How many batches drivers have written.
    pub written: usize,
}

impl Crew {
    /// Nobody yet; the stand-in will be hired.
    pub fn new(ports: Ports, clock: SimClock, ids: Ids, inbox: InboxName) -> Self {
        Self {
            ports,
            staff: Staff::stand_in(),
            clock,
            ids,
            inbox,
            hands: Vec::new(),
            written: 0,
        }
    }

    /// The same, hiring others.
    #[must_use]
    pub fn of(self, staff: Staff) -> Self {
        Self { staff, ..self }
    }

    /// One worker more, which has said that it lives.
    pub async fn hire(&mut self) -> Result<(), Fault> {
        let hand = Hand {
            id: self.ids.worker(),
            process: (self.staff.hire)(&self.ports, &self.clock),
            drives: Vec::new(),
            beat_at: self.clock.now(),
            stalled_until: Timestamp::default(),
        };
        self.hands.push(hand);
        self.beat(self.hands.len() - 1).await
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.hands.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.hands.is_empty()
    }

    /// A worker dies with everything it holds; its place is taken by a new one.
    pub async fn crash(&mut self, place: usize) -> Result<(), Fault> {
        self.hands.remove(place);
        self.hire().await
    }

    /// Every worker dies, and nobody comes.
    pub fn crash_all(&mut self) {
        self.hands.clear();
    }

    /// A worker stands still for a while, as under SIGSTOP.
    pub fn stall(&mut self, place: usize, span: Millis) {
        let until = self.clock.now().plus(span);
        if let Some(hand) = self.hands.get_mut(place) {
            hand.stalled_until = until;
        }
    }

    fn is_stalled(&self, place: usize) -> bool {
        self.hands[place].stalled_until > self.clock.now()
    }

    /// A worker says that it lives. One that counts as dead lets go of its runs
    /// and comes back under a new id; what it has in its hands it still tells.
    pub async fn beat(&mut self, place: usize) -> Result<(), Fault> {
        if self.is_stalled(place) {
            return Ok(());
        }
        let hand = &mut self.hands[place];
        let beat = Beat {
            worker: hand.id,
            host: "sim".into(),
            build: "sim".into(),
            draining: false,
            ttl: TTL,
        };
        hand.beat_at = self.clock.now();
        if self.ports.store.renew(beat).await?.standing == Standing::Dead {
            hand.drives.retain(|drive| drive.goes_on_unheard());
            hand.process.begins_anew();
            hand.id = self.ids.worker();
            let again = Beat {
                worker: hand.id,
                host: "sim".into(),
                build: "sim".into(),
                draining: false,
                ttl: TTL,
            };
            self.ports.store.renew(again).await?;
        }
        hand.process.lives(hand.id).await
    }

    /// Every worker says that it lives.
    pub async fn beat_all(&mut self) -> Result<(), Fault> {
        for place in 0..self.hands.len() {
            self.beat(place).await?;
        }
        Ok(())
    }

    /// A worker does one small thing: claims, or goes on with a run. Whether it
    /// did anything.
    pub async fn step(
        &mut self,
        place: usize,
        choose: &mut dyn FnMut(usize) -> usize,
    ) -> Result<bool, Fault> {
        if self.is_stalled(place) {
            return Ok(false);
        }
        let fenced = self.hands[place].beat_at.plus(SELF_FENCE) < self.clock.now();
        let count = self.hands[place].drives.len();
        if !fenced && count < SLOTS && (count == 0 || choose(4) == 0) && self.claim(place).await? {
            return Ok(true);
        }
        let hand = &mut self.hands[place];
        if hand.drives.is_empty() {
            return Ok(false);
        }
        // Whoever waits for something is passed over.
        let first = choose(hand.drives.len());
        let mut order = (first..hand.drives.len()).chain(0..first);
        let Some(chosen) = order.find(|place| hand.drives[*place].is_ready()) else {
            return Ok(false);
        };
        let drive = &mut hand.drives[chosen];
        if fenced && !drive.goes_on_unheard() {
            return Ok(false);
        }
        match drive.step(choose).await? {
            Going::On => {}
            Going::Wrote => self.written += 1,
            Going::Over => {
                hand.drives.remove(chosen);
            }
        }
        Ok(true)
    }

    async fn claim(&mut self, place: usize) -> Result<bool, Fault> {
        let ask = ClaimAsk {
            worker: self.hands[place].id,
            inboxes: vec![self.inbox.clone()],
            types: Vec::new(),
            limit: 1,
            format: EVENT_FORMAT,
            host: None,
        };
        let claimed = self.ports.store.claim(ask).await?;
        let moment = Moment::at(self.clock.now());
        let hand = &mut self.hands[place];
        for run in &claimed {
            let drive = hand.process.take_up(hand.id, run, moment);
            hand.drives.push(drive);
        }
        Ok(!claimed.is_empty())
    }

    /// Peace: nothing crashes any more, everybody is answered, and every run
    /// must come to its end. A run that does not is named.
    pub async fn bring_home(&mut self) -> Result<(), Fault> {
        let mut choose = |_| 0;
        // Facts of two steps never bear the same time: lanes are judged by it.
        self.clock.advance(Millis(1));
        for round in 0..ROUNDS_MAX {
            self.beat_all().await?;
            let mut moved = false;
            for place in 0..self.hands.len() {
                for _ in 0..STEPS_A_ROUND {
                    if !self.step(place, &mut choose).await? {
                        break;
                    }
                    moved = true;
                    self.clock.advance(Millis(1));
                }
            }
            moved |= people::sweep(&self.ports).await?;
            for gate in people::open_gates(&self.ports).await? {
                people::answer(&self.ports, &gate, round + 1).await?;
                moved = true;
            }
            let open = people::open_runs(&self.ports).await?;
            if open.is_empty() {
                return Ok(());
            }
            for row in open {
                let broke = row.reason.as_deref() == Some("budget");
                if row.status == Status::Paused || broke {
                    people::resume(&self.ports, row.id).await?;
                    moved = true;
                }
            }
            self.let_time_pass(moved).await?;
        }
        let open = people::open_runs(&self.ports).await?;
        let stuck: Vec<String> = open
            .iter()
            .map(|row| format!("{} {} {:?}", row.id, row.status.as_str(), row.reason))
            .collect();
        Err(format!("these runs never end: {}", stuck.join("; ")).into())
    }

    /// When nothing moves, the clock goes to the next timer, or far enough for
    /// the dead to be noticed.
    async fn let_time_pass(&mut self, moved: bool) -> Result<(), Fault> {
        if moved {
            self.clock.advance(Millis(1));
            return Ok(());
        }
        let now = self.clock.now();
        let next = self.ports.shelves.next_due().await?;
        let wait = next.map_or(Millis::from_secs(5), |due| due.since(now).plus(Millis(1)));
        self.clock.advance(wait.min(Millis::from_secs(5)));
        Ok(())
    }
}

/// So many rounds of peace; a day of waiting takes 17,280 of five seconds.
const ROUNDS_MAX: usize = 40_000;
const STEPS_A_ROUND: usize = 200;
