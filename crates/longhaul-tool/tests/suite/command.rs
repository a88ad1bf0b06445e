//! Programs with limits: their input and environment, the captured output, and the cleanup of
//! processes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use async_trait::async_trait;
use futures_util::FutureExt as _;

use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_testkit::clock::SimClock;
use longhaul_tool::command::{Command, CommandError, CommandOutput, ProgramExit};

use crate::suite::harness::wait_until_gone;

/// A clock with a fixed time and real sleeps.
#[derive(Debug)]
struct RealClock;

#[async_trait]
impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    async fn sleep(&self, duration: Millis) {
        tokio::time::sleep(duration.into()).await;
    }
}

fn sh_command(dir: &Path, script: &str) -> Command {
    Command::new(["sh", "-c", script], dir)
}

async fn run(command: Command) -> CommandOutput {
    command.run(&SimClock::new()).await.unwrap()
}

fn parse_pid(text: &str) -> i32 {
    text.trim().parse().unwrap()
}

#[tokio::test]
async fn a_command_gets_its_arguments_input_directory_and_environment() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["printf", "%s|", "a b", "$HOME", ";ls"];
    let output = run(Command::new(args, dir.path())).await;
    assert_eq!(
        (output.exit, output.stdout.text_with_gap_note().as_str()),
        (ProgramExit::Code(0), "a b|$HOME|;ls|")
    );

    let mut env = Command::new(["env"], dir.path());
    env.env = vec![("GIVEN".into(), "yes".into())];
    let output = run(env).await.stdout.text_with_gap_note();
    let mut names: Vec<&str> = output.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["GIVEN", "PATH"]);

    let mut cat = Command::new(["cat"], dir.path());
    cat.stdin = vec![b'x'; 200_000];
    assert_eq!(run(cat).await.stdout.complete_output().unwrap().len(), 200_000);

    let printed_dir =
        run(Command::new(["pwd", "-P"], dir.path())).await.stdout.text_with_gap_note();
    assert_eq!(Path::new(printed_dir.trim()), dir.path().canonicalize().unwrap());
}

#[tokio::test]
async fn a_relative_program_is_resolved_from_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("say"), "#!/bin/sh\necho here\n").unwrap();
    fs::set_permissions(dir.path().join("say"), fs::Permissions::from_mode(0o755)).unwrap();
    // The same directory, relative to the current one.
    let parents = "../".repeat(std::env::current_dir().unwrap().components().count() - 1);
    let relative = Path::new(&parents).join(dir.path().strip_prefix("/").unwrap());
    let output = run(Command::new(["./say"], relative)).await;
    assert_eq!(output.stdout.text_with_gap_note(), "here\n");
}

#[tokio::test]
async fn exit_kinds_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    for (script, exit) in [
        ("exit 0", ProgramExit::Code(0)),
        ("exit 7", ProgramExit::Code(7)),
        ("kill -9 $$", ProgramExit::Signal(9)),
    ] {
        assert_eq!(run(sh_command(dir.path(), script)).await.exit, exit, "{script}");
    }
    // A program that does not read its input can still exit normally.
    let mut no_reader = sh_command(dir.path(), "exit 3");
    no_reader.stdin = vec![b'x'; 1_000_000];
    assert_eq!(run(no_reader).await.exit, ProgramExit::Code(3));
}

#[tokio::test]
async fn a_command_that_can_not_run_says_why() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("plain"), "text").unwrap();
    let none: [&str; 0] = [];
    let run_error = async |command: Command| command.run(&SimClock::new()).await.unwrap_err();
    assert!(matches!(run_error(Command::new(none, dir.path())).await, CommandError::Empty));
    assert!(matches!(run_error(Command::new([""], dir.path())).await, CommandError::Empty));
    let missing = run_error(Command::new(["no-such-program"], dir.path())).await;
    assert!(matches!(missing, CommandError::NotFound(_)), "{missing}");
    let not_executable = run_error(Command::new(["./plain"], dir.path())).await;
    assert!(matches!(not_executable, CommandError::NotExecutable(_)), "{not_executable}");
    let nul = run_error(Command::new(["a\0b"], dir.path())).await;
    assert!(matches!(nul, CommandError::SpawnFailed(..)), "{nul}");
    let missing_dir = run_error(Command::new(["true"], dir.path().join("none"))).await;
    assert!(matches!(missing_dir, CommandError::MissingDir(_)), "{missing_dir}");
}

#[tokio::test]
async fn head_and_tail_of_long_output_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut command =
        sh_command(dir.path(), "echo begin; yes | head -c 1000000; echo; echo end; echo why >&2");
    command.keep_bytes = 100;
    let output = run(command).await;
    let text = output.stdout.text_with_gap_note();
    assert!(text.starts_with("begin\n") && text.ends_with("end\n"), "{text}");
    assert!(text.contains("[999911 bytes left out here]"), "{text}");
    assert_eq!(output.stdout.total_bytes(), 1_000_011);
    assert_eq!(output.stdout.complete_output(), None);
    assert_eq!(output.stderr.tail_text(100), "why");
    assert_eq!(output.stderr.tail_text(2), "hy");
    assert_eq!(output.stderr.complete_output().unwrap(), b"why\n");
}

#[tokio::test]
async fn too_much_output_stops_the_process_group() {
    let dir = tempfile::tempdir().unwrap();
    // The program writes forever, so only the limit ends it.
    let mut endless_command =
        sh_command(dir.path(), "sleep 600 & echo $! > child; while :; do echo flood; done");
    endless_command.stdout_bytes_max = Some(1_000);
    let output = run(endless_command).await;
    assert_eq!(output.exit, ProgramExit::OutputLimit(1_000));
    assert_eq!(output.exit.to_string(), "printed more than 1000 bytes and was killed");
    wait_until_gone(parse_pid(&fs::read_to_string(dir.path().join("child")).unwrap())).await;
    let mut exact_command = sh_command(dir.path(), "printf 12345");
    exact_command.stdout_bytes_max = Some(5);
    assert_eq!(run(exact_command).await.exit, ProgramExit::Code(0));
}

#[tokio::test]
async fn a_timeout_ends_the_process_group() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("ready");
    let clock = SimClock::new();
    let mut command = sh_command(dir.path(), "sleep 600 & echo $! > child; mkfifo ready; wait");
    command.timeout = Millis::from_secs(9);
    let mut run = Box::pin(command.run(&clock));
    while !fifo.exists() {
        assert!((&mut run).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    clock.advance(Millis::from_secs(9));
    let output = run.await.unwrap();
    assert_eq!(output.exit, ProgramExit::TimedOut(Millis::from_secs(9)));
    assert_eq!(output.exit.to_string(), "timed out after 9s and was killed");
    wait_until_gone(parse_pid(&fs::read_to_string(dir.path().join("child")).unwrap())).await;
}

#[tokio::test]
async fn dropping_the_command_ends_the_process_group() {
    let dir = tempfile::tempdir().unwrap();
    let clock = SimClock::new();
    let command =
        sh_command(dir.path(), "sleep 600 & echo $! > child; echo $$ > self; mkfifo ready; wait");
    let mut run = Box::pin(command.run(&clock));
    while !dir.path().join("ready").exists() {
        assert!((&mut run).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    drop(run);
    for name in ["child", "self"] {
        wait_until_gone(parse_pid(&fs::read_to_string(dir.path().join(name)).unwrap())).await;
    }
}

#[tokio::test]
async fn background_processes_are_ended_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(sh_command(dir.path(), "sleep 600 & echo $!")).await;
    assert_eq!(output.exit, ProgramExit::Code(0));
    wait_until_gone(parse_pid(&output.stdout.text_with_gap_note())).await;

    // A process that left the group and holds the pipe open is not waited for.
    let detached_command = sh_command(dir.path(), "setsid sleep 5 & echo out");
    let output = detached_command.run(&RealClock).await.unwrap();
    assert_eq!(
        (output.exit, output.stdout.text_with_gap_note().as_str()),
        (ProgramExit::Code(0), "out\n")
    );
}

#[test]
fn debug_output_hides_secrets() {
    let mut command = Command::new(["mail", "--key=hush"], "/");
    command.env = vec![("TOKEN".into(), "hush".into())];
    command.stdin = b"hush".to_vec();
    let debug_text = format!("{command:?}");
    assert!(
        debug_text.contains("mail") && debug_text.contains("TOKEN") && !debug_text.contains("hush"),
        "{debug_text}"
    );
}
