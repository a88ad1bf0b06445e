//! Follows a run: tells what happens, asks the person at the terminal, and
//! ends when the run does, or when whoever follows has enough.
//!
//! Never: asks without a terminal, and never decides because there is none.

use longhaul_api::why::WhyView;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::policy::gate::is_in_vain;
use longhaul_core::status::{Status, Wait};

use crate::client::{EventStream, RunClient};
use crate::mark::mark;
use crate::paint::Tone;
use crate::person::{Person, Said};
use crate::say;
use crate::teller::Teller;

/// How somebody follows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// Nothing is told, only the end counts.
    pub(crate) silent: bool,
    /// Each fact as a line of JSON on stdout.
    pub(crate) as_json: bool,
    /// A run that waits for a person is not followed further.
    pub(crate) leave_at_person: bool,
    /// Nobody but this command can speak to the run, so it waits for nobody else.
    pub(crate) alone: bool,
    /// What is printed when it is over.
    pub(crate) last_word: LastWord,
}

/// What is printed on stdout when following is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LastWord {
    /// The final words of the run, if it completed.
    #[default]
    Text,
    /// The run as one JSON object.
    Object,
    /// Nothing: it was all said on the way.
    Nothing,
}

/// Why a run is no longer followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// It has ended.
    Ended,
    /// It waits for a person, and nobody here may be asked, or nobody can help.
    Person,
    /// Whoever follows has enough; the run goes on.
    Detached,
}

/// Follows a run from after a place on.
pub(crate) struct Follower<'a> {
    client: &'a RunClient,
    run: RunId,
    following: EventStream,
    manner: Manner,
    teller: Teller,
    person: Person,
    /// The last fact that was seen.
    pub(crate) last: Seq,
    /// Somebody is asked, as the journal says it.
    asked: bool,
    /// What was said last about who is needed.
    needed: Option<WhyView>,
}

impl<'a> Follower<'a> {
    pub(crate) async fn new(
        client: &'a RunClient,
        run: RunId,
        after: Seq,
        manner: Manner,
    ) -> anyhow::Result<Self> {
        let following = client.follow(run, after).await?;
        // Where the journal was read before, only the run itself says who is asked.
        let view = client.show(run).await?;
        let asked = after > Seq::START
            && mark(view.status, view.reason.as_deref()).tone == Tone::You
            && is_all(client, run, after).await?;
        Ok(Self {
            client,
            run,
            following,
            manner,
            teller: Teller::default(),
            person: Person::at_terminal(manner.silent || manner.as_json || manner.leave_at_person),
            last: after,
            asked,
            needed: None,
        })
    }

    /// Follows until it is over.
    pub(crate) async fn follow(&mut self) -> anyhow::Result<Over> {
        loop {
            // An old wait in the middle of a journal asks nobody any more, in
            // however many parts the journal comes.
            if self.asked && self.still_waits().await? {
                if self.manner.leave_at_person || self.is_lost().await? {
                    return Ok(Over::Person);
                }
                if !self.manner.silent && !self.manner.as_json {
                    self.person.show(self.client, self.run).await?;
                }
                if !self.person.is_there() {
                    self.say_who_is_needed().await?;
                }
            }
            tokio::select! {
                biased;
                seen = self.following.next() => match seen? {
                    None => return Ok(Over::Ended),
                    Some(entries) => self.take_in(&entries)?,
                },
                said = self.person.says(), if self.asked => match said {
                    Said::Detach => return Ok(Over::Detached),
                    Said::Nothing => {}
                    said @ (Said::Approve | Said::Reject(_) | Said::Words(_) | Said::Why) => {
                        self.pass_on(said).await?;
                    }
                },
            }
        }
    }

    fn take_in(&mut self, entries: &[Entry]) -> anyhow::Result<()> {
        for entry in entries {
            self.last = entry.seq;
            self.asked = asks(&entry.event, self.manner.alone).unwrap_or(self.asked);
            if self.manner.as_json {
                say::json(&entry.to_envelope()?)?;
            } else if !self.manner.silent
                && let Some(line) = self.teller.line(entry)
            {
                say::talk(&line);
            }
        }
        Ok(())
    }

    async fn pass_on(&mut self, said: Said) -> anyhow::Result<()> {
        if let Err(error) = self.person.answer(self.client, self.run, said).await {
            // A mistake at the prompt is told, and the prompt stays.
            say::error(&error);
            self.person.show_again();
        }
        Ok(())
    }

    /// Nobody here can be asked: whoever reads the log learns what helps, also
    /// where nothing else is told.
    async fn say_who_is_needed(&mut self) -> anyhow::Result<()> {
        let why = self.client.why(self.run).await?;
        if self.needed.as_ref() != Some(&why) {
            let (run, sentence, command) = (self.run, &why.sentence, &why.command);
            say::talk(&format!(
                "{run}: {sentence}   {command}   (--no-input would end here)"
            ));
            self.needed = Some(why);
        }
        Ok(())
    }

    /// Whether nobody here can be asked, and nobody elsewhere can help.
    async fn is_lost(&self) -> anyhow::Result<bool> {
        if self.person.is_there() {
            return Ok(false);
        }
        let gates = self.client.open_gates(self.run);
        let gates = gates.await?;
        let in_vain = !gates.is_empty() && gates.iter().all(|gate| is_in_vain(&gate.tags));
        Ok(self.manner.alone || in_vain)
    }

    async fn still_waits(&self) -> anyhow::Result<bool> {
        let view = self.client.show(self.run).await?;
        let rests = matches!(
            view.status,
            Status::Waiting | Status::Blocked | Status::Paused
        );
        Ok(rests && is_all(self.client, self.run, self.last).await?)
    }
}

/// Whether a journal ends here. Asked after a look at the run, it says that what
/// was seen still holds.
async fn is_all(client: &RunClient, run: RunId, last: Seq) -> anyhow::Result<bool> {
    let more = client.events(run, last, 1).await?;
    Ok(more.is_empty())
}

/// Whether a person is needed after this fact; none: it says nothing of it.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "most facts say nothing about who is asked"
)]
fn asks(event: &Event, is_alone: bool) -> Option<bool> {
    match event {
        Event::RunWaiting(waiting) => Some(match waiting.wait {
            Wait::Approval(_) | Wait::Question(_) | Wait::Blocked(_) | Wait::Budget(_) => true,
            // It comes from elsewhere, if there is an elsewhere.
            Wait::Signal(_) | Wait::Message(_) => is_alone,
            Wait::Timer(_)
            | Wait::Child(_)
            | Wait::RateLimit(_)
            | Wait::Retry(_)
            | Wait::SandboxSlot
            | Wait::Worker => false,
        }),
        Event::RunBlocked(_) | Event::RunPaused(_) => Some(true),
        Event::RunClaimed(_) => Some(false),
        _ => None,
    }
}
