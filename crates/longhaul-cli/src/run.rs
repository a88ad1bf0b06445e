//! `longhaul run`: submits a task and follows it to its end, driving if nobody does.
//!
//! Never: exit code 0 for a run that did not complete.

use clap::Args;
use longhaul::assemble::House;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;

use crate::client::RunClient;
use crate::client::connect::{beside, server};
use crate::driving::Driving;
use crate::ephemeral::{self, EphemeralArgs};
use crate::exit::Exit;
use crate::figure::span;
use crate::follow::{Follower, LastWord, Manner, Over};
use crate::heir::Heir;
use crate::interrupts::Interrupts;
use crate::open::drive_if_free;
use crate::submit::prepare;
use crate::tape::{TapeArgs, not_heard_here};
use crate::task_args::TaskArgs;
use crate::teller::clock;
use crate::trust::asking;
use crate::{here, runtime, say};

const EXAMPLES: &str = "Examples:
  longhaul run writer \"Summarise README.md in five lines\"
  longhaul run writer - < task.txt              the task from stdin
  longhaul run writer \"...\" --record=first      keep what the model said: .longhaul/cassettes/first.jsonl
  longhaul run writer \"...\" --replay first      the same conversation again, asking nobody
  longhaul run writer \"...\" --ephemeral         keep nothing: no store, no journal, no lock
  longhaul run writer \"...\" --no-input --json   for scripts: one JSON object, exit 3 if a person is needed

Exit codes: 0 completed, 1 failed, 2 usage, 3 waits for a person, 4 stopped by a limit,
5 busy, 6 not allowed, 7 cancelled, 124 --timeout passed, 130 detached";

/// Submits a task and follows it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    follow: FollowArgs,
    #[command(flatten)]
    tape: TapeArgs,
    #[command(flatten)]
    ephemeral: EphemeralArgs,
}

/// How a run is followed.
#[derive(Debug, Args)]
pub(crate) struct FollowArgs {
    /// Print JSON: the run as one object at the end, or where facts are followed a line for each
    #[arg(long)]
    json: bool,
    /// Ask nobody: a run that waits for a person ends this command with 3
    #[arg(long)]
    no_input: bool,
    /// Follow no longer than this, such as 10m; the run goes on. A call under way is waited for, up
    /// to half a minute more
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub(crate) timeout: Option<Millis>,
    /// Tell nothing on the way
    #[arg(long, short)]
    quiet: bool,
}

impl FollowArgs {
    pub(crate) fn manner(&self) -> Manner {
        Manner {
            silent: self.quiet || self.json,
            as_json: false,
            leave_at_person: self.no_input,
            alone: false,
            last_word: match self.json {
                true => LastWord::Object,
                false => LastWord::Text,
            },
        }
    }

    /// The same for a stream: with `--json` each fact is a line.
    pub(crate) fn stream_manner(&self) -> Manner {
        let manner = self.manner();
        match self.json {
            true => Manner {
                as_json: true,
                last_word: LastWord::Nothing,
                ..manner
            },
            false => manner,
        }
    }
}

impl Run {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let timeout = self.follow.timeout;
        if self.ephemeral.is_wanted() {
            return self.forgotten(timeout);
        }
        // What can't be done is said before anything is made on disk.
        let server = server()?;
        let here = here::surroundings()?;
        let here = match server {
            Some(_) => here::with_env_file_if_sound(here),
            None => here::with_env_file(here)?,
        };
        if self.tape.records() && server.is_some() {
            return Err(not_heard_here().into());
        }
        let mut asked = self.task.clone();
        if let Some(model) = self.tape.model(&here)? {
            asked.ask(model);
        }
        let mut prepared = prepare(&asked, server.as_ref(), &here)?;
        let agents = prepared.agents.take();
        let task = prepared.tell(self.follow.quiet);
        let manner = self.follow.manner();
        if let (None, Some(agents)) = (&server, &agents) {
            // Whoever says no is told by the run, which waits for it.
            let config = here::quiet_config(&here)?;
            let nobody = manner.silent || manner.leave_at_person;
            _ = asking::before((&config, agents), Some(self.task.agent()), nobody)?;
        }
        let listening = match self.tape.records() {
            true => Some(self.tape.listen(&here)?),
            false => None,
        };
        let opened = match (&server, &listening) {
            (Some(_), _) | (None, Some(_)) => None,
            (None, None) => Some(drive_if_free(&here)?),
        };
        let looked = match &listening {
            Some(listening) => Some((&listening.house, true)),
            None => opened.as_ref().map(|opened| opened.look(manner.silent)),
        };
        let client: RunClient = match (server, looked) {
            (_, Some((house, _))) => RunClient::local(&house.longhaul),
            (server, None) => beside(server)?,
        };
        runtime::driving()?.block_on(async {
            let interrupts = Interrupts::listen()?;
            let run = client.submit(task).await?;
            if !manner.silent {
                say::talk(&format!("{run}  {}", self.task.agent()));
            }
            if let Some(listening) = &listening {
                listening.begin(run, self.task.agent()).await?;
            }
            let followed = Followed {
                client: &client,
                run,
                after: Seq::START,
                drives: looked.and_then(|(house, drives)| drives.then_some(house)),
                heir: Heir::of(looked, &here),
                timeout,
            };
            let exit = followed.to_its_end(manner, interrupts).await?;
            if let Some(listening) = &listening {
                listening.end(manner.silent)?;
            }
            Ok(exit)
        })
    }
}

impl Run {
    /// The same over a store that is forgotten when this command ends.
    fn forgotten(&self, timeout: Option<Millis>) -> anyhow::Result<Exit> {
        let manner = Manner {
            alone: true,
            ..self.follow.manner()
        };
        let quiet = self.follow.quiet;
        let opened = self.ephemeral.open(&self.task, &self.tape, quiet);
        let (house, task) = opened?;
        let client = RunClient::local(&house.longhaul);
        runtime::driving()?.block_on(async {
            let interrupts = Interrupts::listen()?;
            let run = client.submit(task).await?;
            if !manner.silent {
                let agent = self.task.agent();
                say::talk(&format!("{run}  {agent}  (nothing of it is kept)"));
            }
            let followed = Followed {
                client: &client,
                run,
                after: Seq::START,
                drives: Some(&house),
                heir: None,
                timeout,
            };
            followed.to_its_end(manner, interrupts).await
        })
    }
}

/// A run to be followed by this command.
pub(crate) struct Followed<'a> {
    pub(crate) client: &'a RunClient,
    pub(crate) run: RunId,
    pub(crate) after: Seq,
    /// The store that this process is to drive, when nobody else does.
    pub(crate) drives: Option<&'a House>,
    /// Whoever takes over when the driver is gone, if this command may.
    pub(crate) heir: Option<Heir<'a>>,
    pub(crate) timeout: Option<Millis>,
}

/// Whoever follows is told which server of tools keeps the run waiting.
fn tell_waits(house: &House, manner: Manner) {
    if manner.silent || manner.as_json {
        return;
    }
    house.served.when_slow(|server| {
        let now = clock(SystemClock.now());
        say::talk(&format!(
            "{now}  waiting   for the MCP server `{server}` to answer"
        ));
    });
}

/// Why following came to an end.
enum End {
    Over(Over),
    /// Nobody drives it any more.
    Orphaned,
    TimedOut,
    Interrupted,
}

impl End {
    /// How the command ends for whoever leaves a run that goes on.
    const fn leaves(&self) -> Option<Exit> {
        match self {
            Self::TimedOut => Some(Exit::TimedOut),
            Self::Interrupted | Self::Over(Over::Detached) => Some(Exit::Interrupted),
            Self::Over(Over::Ended | Over::Person) | Self::Orphaned => None,
        }
    }
}

impl Followed<'_> {
    /// Follows, drives if need be, and says how it ended.
    pub(crate) async fn to_its_end(
        &self,
        manner: Manner,
        mut interrupts: Interrupts,
    ) -> anyhow::Result<Exit> {
        let mut driving = None;
        if let Some(house) = self.drives {
            driving = Some(Driving::start(house, self.run).await?);
            tell_waits(house, manner);
        }
        let mut follower = Follower::new(self.client, self.run, self.after, manner).await?;
        let mut inherited = None;
        let end = loop {
            let end = tokio::select! {
                biased;
                end = self.wait(&mut follower, &mut driving) => end,
                () = interrupts.next() => Ok(End::Interrupted),
            };
            let (Ok(End::Orphaned), Some(heir)) = (&end, self.heir) else {
                break end;
            };
            if let Some(house) = heir.take(manner.silent)? {
                tell_waits(&house, manner);
                driving = Some(Driving::start(&house, self.run).await?);
                inherited = Some(house);
            }
        };
        let drives = inherited.as_ref().or(self.drives);
        // What is there is handed over before other runs are let go of.
        let is_over = matches!(end, Ok(End::Over(Over::Ended)));
        if is_over {
            self.last_word(manner.last_word).await?;
        }
        match driving {
            Some(driving) if manner.alone => driving.cut().await?,
            Some(driving) => driving.end(&mut interrupts).await?,
            None => {}
        }
        let end = end?;
        if !is_over {
            let said = self.last_word(manner.last_word).await;
            // A server that is away is no reason to keep whoever leaves.
            match (said, end.leaves()) {
                (Err(error), Some(exit)) => {
                    say::error(&error);
                    return Ok(exit);
                }
                (said, _) => said?,
            }
        }
        self.exit(end, manner, drives).await
    }

    /// What is printed on stdout.
    async fn last_word(&self, word: LastWord) -> anyhow::Result<()> {
        let view = self.client.show(self.run).await?;
        match (word, &view.output) {
            (LastWord::Object, _) => say::json(&view),
            (LastWord::Text, Some(output)) => say::result(&output.text),
            (LastWord::Text, None) | (LastWord::Nothing, _) => Ok(()),
        }
    }

    /// How the command ends, and what is said about it.
    async fn exit(&self, end: End, manner: Manner, drives: Option<&House>) -> anyhow::Result<Exit> {
        let view = self.client.show(self.run).await?;
        let run = self.run;
        let talk = |words: String| {
            if !manner.silent {
                say::talk(&words);
            }
        };
        Ok(match end {
            End::Over(Over::Ended) | End::Orphaned => Exit::of(&view),
            End::Over(Over::Person) if manner.alone => {
                let why = self.client.why(run).await?;
                say::talk(&ephemeral::cant_wait(&why.sentence));
                Exit::of(&view)
            }
            End::Over(Over::Person) => {
                let why = self.client.why(run).await?;
                let words = format!("{run}: {}   {}", why.sentence, why.command);
                match manner.leave_at_person {
                    true => talk(words),
                    // Nobody asked for it to end here.
                    false => say::talk(&words),
                }
                Exit::of(&view)
            }
            // It ended while it was let go of.
            End::TimedOut | End::Interrupted | End::Over(Over::Detached)
                if view.status.is_terminal() =>
            {
                Exit::of(&view)
            }
            End::TimedOut | End::Over(Over::Detached) | End::Interrupted if manner.alone => {
                talk(ephemeral::GONE.to_owned());
                end.leaves().unwrap_or(Exit::Interrupted)
            }
            End::TimedOut => {
                talk(self.goes_on(view.status.as_str(), drives).await?);
                Exit::TimedOut
            }
            End::Over(Over::Detached) | End::Interrupted => {
                talk(self.goes_on(view.status.as_str(), drives).await?);
                Exit::Interrupted
            }
        })
    }

    async fn wait(
        &self,
        follower: &mut Follower<'_>,
        driving: &mut Option<Driving>,
    ) -> anyhow::Result<End> {
        let over = async {
            match self.timeout {
                Some(span) => SystemClock.sleep(span).await,
                None => std::future::pending().await,
            }
        };
        // Who drives has nobody to take over from.
        let heir = self.heir.filter(|_| driving.is_none());
        let orphaned = async {
            match heir {
                Some(heir) => heir.orphaned().await,
                None => std::future::pending().await,
            }
        };
        let broke = async {
            match driving {
                Some(driving) => driving.broke().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            followed = follower.follow() => followed.map(End::Over),
            error = broke => Err(error),
            left = orphaned => left.map(|()| End::Orphaned),
            () = over => Ok(End::TimedOut),
        }
    }

    /// What becomes of a run that is no longer followed.
    async fn goes_on(&self, status: &str, drives: Option<&House>) -> anyhow::Result<String> {
        let run = self.run;
        let Some(house) = drives else {
            return Ok(format!(
                "Detached. The run goes on ({status}).   Follow again: longhaul watch {run}   Stop it: longhaul cancel {run}"
            ));
        };
        let row = house.longhaul.row(run).await?;
        let last = row.last;
        Ok(format!(
            "saved at event {last}, nothing runs now: longhaul watch {run} goes on"
        ))
    }
}
