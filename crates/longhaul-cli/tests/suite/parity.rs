//! The same commands with a store that a worker drives, and with a project that a server drives.
//! Output and exit codes must be the same.

use std::collections::BTreeMap;

use super::normalize::normalize;
use super::project::{CommandOutput, Project, WorkerProcess};
use super::server_harness::TestServer;

/// Lines that only one side prints, and why that is right.
const ONE_SIDED_LINES: &[(&str, &str)] = &[(
    "the store is driven by pid",
    "a command beside another driver names that driver; a server is always the driver",
)];

/// Output of a cancel before and after the driver has seen it. Which of the two is printed is
/// chance.
const CANCEL_TEXTS: (&str, &str) =
    (": cancel requested; it takes effect within <span>.", " is cancelled.");

/// A project, its driver, and the runs of the script so far.
struct Deployment {
    project: Project,
    _worker: Option<WorkerProcess>,
    server: Option<TestServer>,
    /// True if the server is named instead of discovered.
    is_named: bool,
    runs: BTreeMap<String, String>,
}

impl Deployment {
    fn with_worker() -> Self {
        let project = project();
        Self {
            _worker: Some(project.start_worker()),
            server: None,
            project,
            is_named: false,
            runs: BTreeMap::new(),
        }
    }

    fn with_server(is_named: bool) -> Self {
        let project = project();
        Self {
            _worker: None,
            server: Some(TestServer::start(&project)),
            project,
            is_named,
            runs: BTreeMap::new(),
        }
    }

    /// Executes one line of a script: a command, or `wait NAME STATUS`. A final `> NAME` stores the
    /// id of the run in the output. `@NAME` is that id, `@NAME!` the newest gate of the run, and
    /// `#NAME` the digest of that gate.
    fn run_line(&mut self, line: &str) -> String {
        let parts: Vec<&str> = line.split(' ').collect();
        if let ["wait", name, status] = *parts {
            let run = self.runs[name].clone();
            let has_gate = |run: &serde_json::Value| {
                let now = run["now"].as_str().unwrap_or_default();
                status != "running" || now.contains("is calling the model")
            };
            let view =
                self.project.wait_until(&run, |run| run["status"] == status && has_gate(run));
            return format!("{status}: {}", view["now"]);
        }
        let (parts, alias) = match parts.iter().position(|arg| *arg == ">") {
            Some(at) => (&parts[..at], parts.get(at + 1)),
            None => (&parts[..], None),
        };
        let args: Vec<String> = parts.iter().map(|arg| self.expand_word(arg)).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = self.run_command(&args);
        if let Some(alias) = alias {
            let text = format!("{}{}", output.out, output.err);
            let at = text.find("run_").unwrap_or_else(|| panic!("{line}: {output:?}"));
            let run = text[at..].chars().take(30).collect();
            self.runs.insert((*alias).to_owned(), run);
        }
        self.normalize_output(&output)
    }

    fn run_command(&self, args: &[&str]) -> CommandOutput {
        let mut command = self.project.command(args);
        if let (true, Some(server)) = (self.is_named, &self.server) {
            command.env("LONGHAUL_URL", &server.url);
        }
        CommandOutput::from_output(&command.output().unwrap())
    }

    fn expand_word(&self, arg: &str) -> String {
        let gate = |name: &str| {
            let run = &self.runs[name];
            let gates = self.project.json(&["gates", "--all", "--json"]);
            let all = gates["data"].as_array().unwrap().iter();
            let mut run_gates = all.filter(|gate| gate["run"] == **run);
            run_gates.next().unwrap_or_else(|| panic!("no gate of {name}")).clone()
        };
        let text = |gate: serde_json::Value, key: &str| gate[key].as_str().unwrap().to_owned();
        match arg.split_at_checked(1) {
            Some(("#", name)) => text(gate(name), "digest"),
            Some(("@", name)) if name.ends_with('!') => {
                text(gate(name.trim_end_matches('!')), "id")
            }
            Some(("@", name)) if name != "last" => self.runs[name].clone(),
            _ => arg.to_owned(),
        }
    }

    /// Returns the output without the parts that differ by chance.
    fn normalize_output(&self, output: &CommandOutput) -> String {
        let folder = self.project.path().display().to_string();
        let clean_text = |text: &str| {
            let mut text = text.replace(&folder, "<folder>");
            if let Some(server) = &self.server {
                text = text.replace(&server.url, "<url>");
            }
            normalize(&text).replace(CANCEL_TEXTS.0, CANCEL_TEXTS.1)
        };
        let err = clean_text(&output.err);
        let is_common =
            |line: &&str| !ONE_SIDED_LINES.iter().any(|(prefix, _)| line.starts_with(prefix));
        let err: Vec<&str> = err.lines().filter(is_common).collect();
        format!("exit {}\n{}--\n{}", output.code, clean_text(&output.out), err.join("\n"))
    }
}

/// A project with one additional agent, whose lane template can't be rendered.
fn project() -> Project {
    let project = Project::new();
    let text = "---\ndescription: A test.\nmodel: scripted/plain\ntools: []\nlane: '{{ input.a.b }}'\n---\nYou.\n";
    project.write("agents/laned.md", text);
    project
}

/// Executes a script in both deployments and compares the output line by line.
fn assert_same(mut local: Deployment, mut remote: Deployment, script: &str) {
    let lines = || script.lines().map(str::trim).filter(|line| !line.is_empty());
    let (local, remote) = std::thread::scope(|scope| {
        let local_thread =
            scope.spawn(|| lines().map(|line| local.run_line(line)).collect::<Vec<_>>());
        let remote_results: Vec<String> = lines().map(|line| remote.run_line(line)).collect();
        (local_thread.join().unwrap(), remote_results)
    });
    let mut differences = String::new();
    for ((line, local), remote) in lines().zip(&local).zip(&remote) {
        if local != remote {
            differences.push_str(&format!("{line}\n<<<\n{local}\n>>>\n{remote}\n\n"));
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}

/// Mistakes, and commands that read an empty store.
const ERRORS: &str = "
    ls
    ls --json
    ls --status waiting
    ls --status nonsense
    ls --agent Not*A*Name
    ls --limit 0
    gates
    gates --json
    rules
    rules --json
    rules --all
    rules rm rule_00000000000000000000000000
    rules rm 7
    keys ls
    keys ls --json
    show @last
    watch @last
    why @last
    show run_00000000000000000000000000
    show run_00000000000000000000000000 --events
    show run_00000000000000000000000000 --transcript
    why run_00000000000000000000000000
    watch run_00000000000000000000000000
    steer run_00000000000000000000000000 hi
    steer run_00000000000000000000000000 --status
    pause run_00000000000000000000000000
    resume run_00000000000000000000000000
    cancel run_00000000000000000000000000
    ls --after run_00000000000000000000000000
    show 7k3qv9
    show x
    gates show gate_00000000000000000000000000
    gates show run_00000000000000000000000000
    gates show 7k3qv9
    approve gate_00000000000000000000000000 --yes
    reject gate_00000000000000000000000000
    answer gate_00000000000000000000000000 left
    approve run_00000000000000000000000000 --yes
    submit nobody milk
    submit plian milk
    run plian milk
    submit plan milk
    submit plain milk --model scripted/none
    submit plain milk --model nope
    submit plain milk --context a=b
    submit plain milk --context a
    submit plain milk --lane a\u{7f}b
    submit plain milk --budget x
    submit plain milk --inbox /
    submit laned milk
    run plain milk --timeout soon
    keys new ci --expires soon
    keys revoke nobody
";

#[test]
fn errors_are_the_same_with_a_worker_and_a_server() {
    assert_same(Deployment::with_worker(), Deployment::with_server(false), ERRORS);
}

/// Runs that end, and every command that reads them.
const QUERIES: &str = "
    run plain milk > a
    run plain milk --json > b
    run plain milk --quiet
    run locked milk
    run locked milk --json
    run looping milk > c
    run poor milk --no-input > poor
    submit plain milk > d
    wait d completed
    submit plain milk --inbox nobody --json > e
    submit plain milk --idempotency-key k --tag x --priority 3 > f
    wait f completed
    submit plain milk --idempotency-key k --tag x --priority 3
    submit plain eggs --idempotency-key k
    submit plain {\"a\":[1,2]} --lane l --thread t --resource r --budget usd=1,turns=3 > g
    wait g completed
    ls
    ls --json
    ls --status completed --status failed
    ls --status waiting --json
    ls --agent plain --limit 2
    ls --agent nobody
    ls --lane l
    ls --all
    ls --after @d
    ls --limit 3 --json
    show @a
    show @a --json
    show @a --transcript
    show @a --transcript --json
    show @a --events
    show @a --events --json
    show @c
    show @g --json
    show @last
    why @a
    why @a --json
    why @c
    why @poor
    watch @a
    watch @a --json
    watch @a --after 3
    watch @a --quiet
    watch @c
    watch @poor --no-input
    steer @a hi
    steer @a --status
    pause @a
    resume @a
    cancel @a @c
    cancel @a --json
    approve @a --yes
    resume @poor --budget nonsense
    resume @poor --budget tokens=1000000
    wait poor completed
    show @poor
";

#[test]
fn runs_are_shown_the_same_with_a_worker_and_a_server() {
    assert_same(Deployment::with_worker(), Deployment::with_server(false), QUERIES);
}

/// Gates, and every answer.
const GATES: &str = "
    run tidy milk --no-input > a
    gates
    gates --json
    gates show @a
    gates show @a! --json
    why @a
    approve @a
    approve @a --digest 000000000000
    approve @a --digest zz
    answer @a left
    approve @a --digest #a --note so
    wait a completed
    approve @a --yes
    approve @a! --yes
    reject @a!
    gates show @a!
    gates --all
    run tidy tea --no-input > again
    approve @again --yes --for run
    wait again completed
    run tidy eggs --no-input > b
    approve @b --yes --edit {
    approve @b --yes --edit {\"folder\":7}
    approve @b --digest #b --edit {\"folder\":\"Tasks\",\"title\":\"Edited\",\"content\":\"b\",\"tags\":[],\"confidence\":90}
    wait b completed
    show @b --transcript
    show @b --events
    run tidy tea --no-input > c
    reject @c --note never
    wait c completed
    gates show @c! --json
    run hasty milk > late
    wait late completed
    approve @late! --yes
    gates show @late!
    run ask milk --no-input --json > q
    approve @q --yes
    answer @q left
    wait q completed
    answer @q! right
    run stuck milk --no-input > s
    resume @s
    wait s blocked
    why @s
    answer @s open
    wait s completed
    run both milk --no-input > two
    approve @two --yes
    cancel @two
    approve @two! --yes
    run twice milk --no-input > t
    approve @t --yes
    approve @t --yes
    gates show @t!
    run foreign milk --no-input > own
    approve @own --yes --json
    reject @own --json
    run evil milk --no-input > evil
    show @evil
    gates show @evil
";

#[test]
fn gates_are_answered_the_same_with_a_worker_and_a_server() {
    assert_same(Deployment::with_worker(), Deployment::with_server(false), GATES);
}

/// Commands to active runs, and keys.
const ACTIONS: &str = "
    submit slow milk > a
    wait a running
    ls
    show @a
    why @a
    why @a --json
    steer @a hi
    steer @a there --delivery follow_up --json
    steer @a --status
    run plain milk --timeout 30s
    watch @a --timeout 100ms
    watch @a --timeout 100ms --json
    run slow milk --timeout 100ms > other
    cancel @other
    wait other cancelled
    approve @a --yes
    pause @a
    pause @a
    cancel @a --reason enough
    wait a cancelled
    cancel @a
    steer @a hi
    steer @a --status
    watch @a
    watch @a --json
    run tidy milk --no-input > b
    pause @b
    wait b paused
    pause @b
    why @b
    watch @b --no-input
    resume @b
    wait b waiting
    resume @b
    cancel @b
    wait b cancelled
    cancel @b --json
    keys new ci
    keys new ci
    keys new anna --role approver --expires 90d --json
    keys new x --role nobody
    keys ls
    keys ls --json
    keys revoke ci
    keys revoke ci
    keys revoke nobody
    keys ls
";

#[test]
fn actions_work_the_same_with_a_worker_and_a_server() {
    assert_same(Deployment::with_worker(), Deployment::with_server(false), ACTIONS);
}

/// What a named server checks itself.
const NAMED_SERVER: &str = "
    submit nobody milk
    submit plian milk
    run plian milk
    submit plain milk --model scripted/none
    submit plain milk --model nope
    submit laned milk
    submit plain milk --lane a\u{7f}b
    show run_00000000000000000000000000
    run plain milk > a
    show @a
    watch @a --json
    run tidy milk --no-input > b
    approve @b --yes
    wait b completed
    why @b
    ls
";

#[test]
fn a_named_server_behaves_like_a_discovered_one() {
    assert_same(Deployment::with_worker(), Deployment::with_server(true), NAMED_SERVER);
}
