//! The command line: one line for each command, one file for each.
//!
//! Never: what a command does.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use longhaul_engine::clock::SystemClock;

use crate::exit::Exit;
use crate::fail::{self, Failure};
use crate::{
    agents, answer, approve, bench, cancel, chaos, config, db, demo, dev, export, gates, keys, log,
    ls, mcp, memory, mock_model, models, pause, reject, resume, run, serve, show, steer, submit,
    trust, version, watch, why, worker,
};

const SERVER: &str = "A server is asked instead of this folder's store when it is named:
  LONGHAUL_URL=https://agents.example LONGHAUL_KEY=lh_... longhaul ls";

/// A durable runtime for AI agents: a run is a journal of facts, and outlives
/// its process.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, arg_required_else_help = true, after_help = SERVER)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// In the order of a day: start, look, steer, decide, define, administer.
#[derive(Debug, Subcommand)]
enum Command {
    /// Shows an agent at work, an approval, a SIGKILL and a recovery; needs no key
    Demo(demo::Demo),
    /// Server and driver in one, for writing agents: reads them again when they change
    Dev(dev::Dev),
    /// Server and driver in one, for production
    Serve(serve::Serve),
    /// Submits a task and follows it to its end; drives if nobody does
    Run(run::Run),
    /// Submits a task and returns as soon as it is on disk
    Submit(submit::Submit),
    /// Drives the runs of this project until it is told to stop
    Worker(worker::Worker),
    /// Lists runs, newest first
    Ls(ls::Ls),
    /// Shows one run: a page, its conversation or its journal
    Show(show::Show),
    /// Writes a run down for others: as a cassette
    Export(export::Export),
    /// Follows a run to its end; drives if nobody does
    Watch(watch::Watch),
    /// Says in a sentence how a run stands, and what helps
    Why(why::Why),
    /// Writes a message to a run, and says what became of it
    Steer(steer::Steer),
    /// Lets runs stand still
    Pause(pause::Pause),
    /// Lets runs go on, maybe with more to spend
    Resume(resume::Resume),
    /// Ends runs
    Cancel(cancel::Cancel),
    /// What waits for a person
    #[command(alias = "approvals")]
    Gates(gates::Gates),
    /// Says yes to exactly what was shown
    Approve(approve::Approve),
    /// Says no, and maybe why
    Reject(reject::Reject),
    /// Answers a question
    Answer(answer::Answer),
    /// Which agents there are, and what is wrong with them
    Agents(agents::Agents),
    /// Which models can be asked, with which key, and what they cost
    Models(models::Models),
    /// The servers of tools in .mcp.json, and whether they answer
    Mcp(mcp::Mcp),
    /// What this project would run on its own, and whether you have looked at it
    Trust(trust::Trust),
    /// What agents remember, and how it is removed
    Memory(memory::Memory),
    /// Who may come in over HTTP, and as what
    Keys(keys::Keys),
    /// Checks, copies and restores this folder's store
    #[command(subcommand)]
    Db(db::Db),
    /// What is set, by whom, and where it is read
    #[command(subcommand)]
    Config(config::Config),
    /// Measures this machine and this build, and prints the ratio between them
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Kills workers in the middle of their work and counts what came of it
    Chaos(chaos::Chaos),
    /// Plays scripts as Anthropic and OpenAI would speak them, for SDKs without a key
    MockModel(mock_model::MockModel),
    /// Says which build this is
    Version(version::Version),
}

impl Cli {
    /// Runs the command and says what went wrong, why, and what helps.
    pub(crate) fn run(self) -> ExitCode {
        // A server has a log of its own.
        if !matches!(self.command, Command::Dev(_) | Command::Serve(_)) {
            log::warnings();
        }
        let done = match self.command {
            _ if SystemClock.is_before_1970() => Err(fail::clock_before_1970()),
            Command::Demo(demo) => demo.run(),
            Command::Dev(dev) => dev.run(),
            Command::Serve(serve) => serve.run(),
            Command::Run(run) => run.run(),
            Command::Submit(submit) => submit.run(),
            Command::Worker(worker) => worker.run(),
            Command::Ls(ls) => ls.run(),
            Command::Show(show) => show.run(),
            Command::Export(export) => export.run(),
            Command::Watch(watch) => watch.run(),
            Command::Why(why) => why.run(),
            Command::Steer(steer) => steer.run(),
            Command::Pause(pause) => pause.run(),
            Command::Resume(resume) => resume.run(),
            Command::Cancel(cancel) => cancel.run(),
            Command::Gates(gates) => gates.run(),
            Command::Approve(approve) => approve.run(),
            Command::Reject(reject) => reject.run(),
            Command::Answer(answer) => answer.run(),
            Command::Agents(agents) => agents.run().map(|()| Exit::Done),
            Command::Models(models) => models.run(),
            Command::Mcp(mcp) => mcp.run(),
            Command::Trust(trust) => trust.run(),
            Command::Memory(memory) => memory.run(),
            Command::Keys(keys) => keys.run(),
            Command::Db(db) => db.run(),
            Command::Config(config) => config.run().map(|()| Exit::Done),
            Command::Bench(bench) => bench.run().map(|()| Exit::Done),
            Command::Chaos(chaos) => chaos.run(),
            Command::MockModel(mock) => mock.run(),
            Command::Version(version) => version.run().map(|()| Exit::Done),
        };
        match done {
            Ok(exit) => exit.into(),
            Err(error) => {
                log::failed(&error);
                let failure = error.downcast_ref::<Failure>();
                failure.map_or(Exit::Usage, |failure| failure.exit).into()
            }
        }
    }
}
