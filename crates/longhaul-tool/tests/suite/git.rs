//! Repositories in sandboxes: clones, pushes to a real bare repository, and pull requests at a
//! recorded GitHub.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::change::SandboxState;
use longhaul_core::event::tool::VerifyOutcome;
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_facts::FileContent;
use longhaul_core::port::repositories::Repositories;
use longhaul_core::port::sandbox::{
    ExecExit, ExecStatus, Isolation, OutputReceiver, OutputStream, Sandbox, SandboxCommand,
    SandboxEntry, SandboxError, SandboxInfo,
};
use longhaul_core::port::tool::{Tool, ToolContext};
use longhaul_core::repo::RepoSource;
use longhaul_testkit::clock::SimClock;
use longhaul_tool::git::{GitPushTool, GitRepositories, OpenPullRequestTool};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::harness::{Server, guarded_client, http_response};

/// A sandbox that is a folder of this machine and isolates nothing.
#[derive(Debug)]
struct FolderSandbox {
    folder: PathBuf,
    info: SandboxInfo,
}

impl FolderSandbox {
    fn new(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let info = SandboxInfo {
            handle: "folder".to_owned(),
            name: "folder".to_owned(),
            labels: Default::default(),
            state: SandboxState::Running,
            isolation: Isolation::None,
            created_at: None,
        };
        Self { folder: folder.to_owned(), info }
    }
}

#[async_trait]
impl Sandbox for FolderSandbox {
    fn info(&self) -> &SandboxInfo {
        &self.info
    }

    fn workspace_dir(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    async fn exec(
        &self,
        command: SandboxCommand,
        on_output: OutputReceiver<'_>,
    ) -> Result<ExecExit, SandboxError> {
        let output = git_env(Command::new(&command.argv[0]).args(&command.argv[1..]))
            .current_dir(&self.folder)
            .envs(&command.env)
            .output()
            .unwrap();
        on_output(OutputStream::Stdout, &output.stdout);
        on_output(OutputStream::Stderr, &output.stderr);
        let status = ExecStatus::Exited(output.status.code().unwrap_or(-1));
        Ok(ExecExit { status, refusals: Default::default() })
    }

    async fn read(&self, path: &str, _max_bytes: u64) -> Result<Vec<u8>, SandboxError> {
        std::fs::read(self.folder.join(path)).map_err(|error| SandboxError::File(error.to_string()))
    }

    async fn write(&self, path: &str, content: &[u8]) -> Result<(), SandboxError> {
        std::fs::write(self.folder.join(path), content).unwrap();
        Ok(())
    }

    async fn list(&self, _path: &str) -> Result<Vec<SandboxEntry>, SandboxError> {
        Ok(Vec::new())
    }

    async fn upload(&self, from: &Path, to: &str) -> Result<(), SandboxError> {
        std::fs::copy(from, self.folder.join(to)).unwrap();
        Ok(())
    }

    async fn download(&self, _from: &str, _to: &Path) -> Result<(), SandboxError> {
        Ok(())
    }

    async fn kill_commands_before(&self, _epoch: Epoch) -> Result<(), SandboxError> {
        Ok(())
    }

    async fn keep_alive(&self) -> Result<(), SandboxError> {
        Ok(())
    }
}

/// Sets the environment of git in tests, which does not depend on the user.
fn git_env(command: &mut Command) -> &mut Command {
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "Ada")
        .env("GIT_AUTHOR_EMAIL", "ada@example.com")
        .env("GIT_COMMITTER_NAME", "Ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.com")
}

/// Runs a script in a folder, and returns what it prints.
fn sh(folder: &Path, script: &str) -> String {
    let output = git_env(Command::new("sh").args(["-ec", script])).current_dir(folder).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A bare repository with a commit on `main`, and a sandbox for a clone of it.
struct Fixture {
    folder: TempDir,
    repositories: Arc<GitRepositories>,
    sandbox: Arc<FolderSandbox>,
    repo: RepoSource,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        sh(
            path,
            "git init -q --bare -b main origin.git && git clone -q origin.git seed 2>/dev/null && cd seed \
             && git checkout -q -b main && echo one > a.txt && echo x > old && git add . \
             && git commit -qm first && git tag v1 && git push -q origin main v1 && echo two > a.txt \
             && git commit -qam second && git push -q origin main",
        );
        let clock = Arc::new(SimClock::new());
        let repositories = GitRepositories::new(path.join("copies"), None, clock);
        let sandbox = Arc::new(FolderSandbox::new(&path.join("sandbox")));
        let repo = RepoSource::new(path.join("origin.git").to_string_lossy());
        Self { repositories: Arc::new(repositories), sandbox, repo, folder }
    }

    fn work(&self, script: &str) -> String {
        sh(&self.sandbox.folder, script)
    }

    fn origin(&self, script: &str) -> String {
        sh(&self.folder.path().join("origin.git"), script)
    }

    async fn clone_repo(&self, repo: &RepoSource) -> Result<(), SandboxError> {
        self.repositories.clone_to_sandbox(repo, &*self.sandbox).await
    }

    fn context(&self) -> ToolContext {
        let call = CallId { turn: 1, index: 1 };
        let sandbox: Arc<dyn Sandbox> = self.sandbox.clone();
        ToolContext {
            sandbox: Some(sandbox),
            repo: Some(self.repo.clone()),
            ..ToolContext::new(RunId::from_bits(7), call, Epoch(1))
        }
    }

    async fn push(&self, branch: &str, commit: &str) -> Result<String, String> {
        let tool = GitPushTool::new(Arc::clone(&self.repositories)).unwrap();
        let input = json!({ "branch": branch, "commit": commit });
        assert_eq!(tool.find_call_problem(&input, &Default::default()), None);
        let output = tool.call(input, &self.context()).await;
        output.map(|output| output.joined_text()).map_err(|failure| failure.to_string())
    }
}

#[tokio::test]
async fn a_clone_has_the_branch_and_the_address_of_the_repository() {
    let fixture = Fixture::new();
    fixture.clone_repo(&fixture.repo).await.unwrap();
    let seen =
        fixture.work("cat a.txt; git branch --show-current; git remote get-url origin; ls -A");
    let url = &fixture.repo.url;
    assert_eq!(seen, format!("two\nmain\n{url}\n.git\na.txt\nold"));
    assert_eq!(
        fixture.work("git status --short; git rev-parse --abbrev-ref origin/HEAD"),
        "origin/main"
    );
    // The clone is not made again: the work of the agent stays.
    fixture.work("echo three > a.txt");
    fixture.clone_repo(&fixture.repo).await.unwrap();
    assert_eq!(fixture.work("cat a.txt"), "three");
}

#[tokio::test]
async fn an_interrupted_clone_is_made_again() {
    let fixture = Fixture::new();
    fixture.work("mkdir .longhaul-clone && echo half > .longhaul-clone/x && echo half > a.txt");
    fixture.work("echo half > .longhaul-clone.bundle");
    let tag = RepoSource { rev: Some("v1".to_owned()), ..fixture.repo.clone() };
    fixture.clone_repo(&tag).await.unwrap();
    assert_eq!(fixture.work("cat a.txt; ls -A"), "one\n.git\na.txt\nold");
}

#[tokio::test]
async fn a_repository_that_does_not_exist_is_refused_with_a_reason() {
    let fixture = Fixture::new();
    let cases = [
        (
            RepoSource { rev: Some("none".to_owned()), ..fixture.repo.clone() },
            "no branch, tag or commit `none`",
        ),
        (RepoSource::new("/nonexistent/repository"), "does not appear to be a git repository"),
        (RepoSource::new("ext::sh -c true"), "neither a URL"),
    ];
    for (repo, reason) in cases {
        match fixture.clone_repo(&repo).await {
            Err(SandboxError::Refused(message)) => assert!(message.contains(reason), "{message}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(!fixture.sandbox.folder.join(".git").exists());
}

#[tokio::test]
async fn a_commit_is_pushed_once_and_to_a_new_branch_only() {
    let mut fixture = Fixture::new();
    fixture.clone_repo(&fixture.repo).await.unwrap();
    // A hook in the sandbox has no effect here.
    fixture.work("printf '#!/bin/sh\\ntouch ../hooked\\n' > .git/hooks/pre-push && chmod +x .git/hooks/pre-push");
    let commit = fixture.work("echo three > a.txt && git commit -qam third && git rev-parse HEAD");
    let pushed = fixture.push("fix", &commit).await.unwrap();
    assert!(pushed.contains(&commit), "{pushed}");
    assert_eq!(
        fixture.origin("git rev-parse fix && git cat-file -p fix:a.txt"),
        format!("{commit}\nthree")
    );
    assert_eq!(fixture.push("fix", &commit).await.unwrap(), pushed);
    assert!(!fixture.folder.path().join("hooked").exists());
    for branch in ["main", "fix"] {
        let other = fixture.work("git checkout -q --detach v1 && echo 4 > b && git add b && git commit -qm other && git rev-parse HEAD");
        let error = fixture.push(branch, &other).await.unwrap_err();
        let reason = if branch == "main" { "began with" } else { "does not build on" };
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(fixture.origin("git rev-parse fix"), commit);
    let error = fixture.push("else", &"a".repeat(40)).await.unwrap_err();
    assert!(error.contains("there is no commit"), "{error}");
    for rev in ["fix", "heads/fix", "refs/heads/fix"] {
        fixture.repo.rev = Some(rev.to_owned());
        let error = fixture.push("fix", &commit).await.unwrap_err();
        assert!(error.contains("began with"), "{error}");
    }
}

#[tokio::test]
async fn an_approver_sees_the_files_of_exactly_the_pushed_commit() {
    let fixture = Fixture::new();
    fixture.clone_repo(&fixture.repo).await.unwrap();
    let commit = fixture.work(
        "git config diff.external /bin/false; mkdir .vscode && echo '{}' > .vscode/tasks.json \
         && echo three > a.txt && git rm -q old && git add . && git commit -qm third && git rev-parse HEAD",
    );
    fixture.work("echo later > a.txt && git commit -qam later");
    let tool = GitPushTool::new(Arc::clone(&fixture.repositories)).unwrap();
    let input = json!({ "branch": "fix", "commit": commit });
    let effects = tool.predict_effects(&input, &fixture.context()).await;
    let text = |text: &str| FileContent::Text(text.to_owned());
    let files = effects.files.unwrap();
    let seen: Vec<_> =
        files.iter().map(|file| (file.path.as_str(), &file.before, &file.after)).collect();
    assert_eq!(
        seen,
        [
            (".vscode/tasks.json", &FileContent::Absent, &text("{}\n")),
            ("a.txt", &text("two\n"), &text("three\n")),
            ("old", &text("x\n"), &FileContent::Absent),
        ]
    );
    assert_eq!(effects.protected_paths, [".vscode/tasks.json"]);
    assert!(effects.undo.unwrap().ends_with("--delete fix"));
    assert_eq!(fixture.origin("git branch --format='%(refname:short)'"), "main");
    // The next push is compared with this one.
    fixture.push("fix", &commit).await.unwrap();
    let next = json!({ "branch": "fix", "commit": fixture.work("git rev-parse HEAD") });
    let effects = tool.predict_effects(&next, &fixture.context()).await;
    assert_eq!(effects.files.unwrap().len(), 1);
}

#[tokio::test]
async fn a_push_is_verified_at_the_remote_repository() {
    let fixture = Fixture::new();
    let tool = GitPushTool::new(Arc::clone(&fixture.repositories)).unwrap();
    assert_eq!(tool.class(&Value::Null), EffectClass::Keyed);
    let commit = fixture.origin("git rev-parse main");
    let verify = async |branch: &str, commit: &str| {
        tool.verify(json!({ "branch": branch, "commit": commit }), &fixture.context()).await
    };
    assert!(matches!(verify("main", &commit).await, VerifyOutcome::Happened(_)));
    assert_eq!(verify("none", &commit).await, VerifyOutcome::NotHappened);
    assert_eq!(verify("main", &"a".repeat(40)).await, VerifyOutcome::Unknown);
    let problem =
        tool.find_call_problem(&json!({ "branch": "-x", "commit": commit }), &Default::default());
    assert!(problem.unwrap().contains("`branch`"));
    let problem =
        tool.find_call_problem(&json!({ "branch": "x", "commit": "HEAD" }), &Default::default());
    assert!(problem.unwrap().contains("git rev-parse HEAD"));
}

/// Returns a GitHub that has this list of pull requests.
async fn github(open: Value) -> Server {
    Server::new(move |request| {
        let (method, path) = (request.method.as_str(), request.path.as_str());
        match (method, path.split('?').next().unwrap()) {
            ("GET", "/repos/o/r/pulls") => http_response("200 OK", &[], open.to_string()),
            ("GET", "/repos/o/r") => http_response("200 OK", &[], r#"{"default_branch":"trunk"}"#),
            ("POST", "/repos/o/r/pulls") => {
                http_response("201 Created", &[], r#"{"html_url":"https://github.com/o/r/pull/7"}"#)
            }
            _ => http_response("404 Not Found", &[], r#"{"message":"Not Found"}"#),
        }
    })
    .await
}

async fn open_pull_request(
    url: &str,
    token: Option<&str>,
    server: &Server,
) -> Result<String, String> {
    let client = guarded_client(&SimClock::new());
    let tool = OpenPullRequestTool::new(client, token.map(str::to_owned)).unwrap();
    let tool = tool.with_api(server.url(""));
    let call = CallId { turn: 1, index: 1 };
    let repo = Some(RepoSource::new(url));
    let ctx = ToolContext { repo, ..ToolContext::new(RunId::from_bits(7), call, Epoch(1)) };
    let input = json!({ "title": "Fix", "body": "Why.", "branch": "fix" });
    let output = tool.call(input, &ctx).await;
    output.map(|output| output.joined_text()).map_err(|failure| failure.to_string())
}

#[tokio::test]
async fn a_pull_request_is_opened_at_github() {
    let server = github(json!([])).await;
    let text = open_pull_request("git@github.com:o/r.git", Some("hush"), &server).await.unwrap();
    assert!(text.contains("https://github.com/o/r/pull/7"), "{text}");
    let requests = server.requests();
    let sent: Vec<&str> = requests.iter().map(|request| request.path.as_str()).collect();
    let query = "/repos/o/r/pulls?state=open&per_page=1&head=o:fix";
    assert_eq!(sent, [query, "/repos/o/r", "/repos/o/r/pulls"]);
    assert!(requests.iter().all(|request| request.header("authorization") == Some("Bearer hush")));
    let body: Value = serde_json::from_slice(&requests[2].body).unwrap();
    assert_eq!(body, json!({ "title": "Fix", "body": "Why.", "head": "fix", "base": "trunk" }));
}

#[tokio::test]
async fn an_open_pull_request_is_found_instead_of_opening_another() {
    let server = github(json!([{ "html_url": "https://github.com/o/r/pull/3" }])).await;
    let text = open_pull_request("https://github.com/o/r", Some("hush"), &server).await.unwrap();
    assert!(text.ends_with("https://github.com/o/r/pull/3"), "{text}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn without_a_token_or_github_a_person_opens_the_pull_request() {
    let server = github(json!([])).await;
    let text = open_pull_request("https://github.com/o/r", None, &server).await.unwrap();
    assert!(text.contains("https://github.com/o/r/compare/fix?expand=1"), "{text}");
    let text = open_pull_request("/srv/r.git", Some("hush"), &server).await.unwrap();
    assert!(text.contains("not on GitHub"), "{text}");
    assert_eq!(server.requests().len(), 0);
    let error = open_pull_request("https://github.com/o/other", Some("hush"), &server).await;
    assert!(error.unwrap_err().contains("Not Found"));
}
