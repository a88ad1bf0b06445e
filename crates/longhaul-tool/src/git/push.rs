//! The tool `git_push`, which pushes a commit of the sandbox to a branch of the run's repository.
//!
//! Invariants: the call names the commit, so that exactly what a person has approved is pushed. A
//! push never replaces commits, and never changes the default branch.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_facts::PredictedEffects;
use longhaul_core::port::sandbox::Sandbox;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::RawJson;
use longhaul_core::repo::{RepoSource, is_rev};
use longhaul_core::time::Millis;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::git::changes::is_protected_path;
use crate::git::import::ImportedCommit;
use crate::git::{GitError, GitRepositories, RemoteRefs, is_commit_id};
use crate::typed::{TypedToolError, parse_input, tool_spec};

/// Timeout of a push.
const TIMEOUT: Millis = Millis::from_secs(12 * 60);

/// The tool `git_push`.
#[derive(Debug)]
pub struct GitPushTool {
    spec: ToolSpec,
    repositories: Arc<GitRepositories>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GitPushInput {
    /// The branch to create or to continue, such as `fix-login`; not the default branch
    #[schemars(length(min = 1, max = 200))]
    branch: String,
    /// The full id of the commit, as `git rev-parse HEAD` prints it. Commit everything first
    #[schemars(length(min = 40, max = 64))]
    commit: String,
}

impl GitPushTool {
    /// Creates the tool, which pushes with the credentials of these repositories.
    pub fn new(repositories: Arc<GitRepositories>) -> Result<Self, TypedToolError> {
        let description = "Pushes a commit of the work folder to a branch of the repository of the \
            task. A person sees the changed files before. Commits of others are never replaced: if \
            the branch has commits that yours does not build on, use another branch.";
        let spec = tool_spec::<GitPushInput>("git_push", description)?;
        let spec = ToolSpec { can_verify: true, timeout: Some(TIMEOUT), ..spec };
        Ok(Self { spec, repositories })
    }

    async fn push(&self, input: &GitPushInput, ctx: &ToolContext) -> Result<String, ToolFailure> {
        let GitPushInput { branch, commit } = input;
        let (repo, sandbox) = repo_and_sandbox(ctx)?;
        let refs = self.repositories.remote_refs(&repo.url, Some(branch)).await?;
        check_branch(repo, branch, &refs)?;
        let pushed = format!("Pushed {commit} to the branch `{branch}`.");
        if refs.commit.as_ref() == Some(commit) {
            return Ok(pushed);
        }
        let source = (repo, sandbox);
        let imported = self.repositories.import_commit(source, commit, branch).await?;
        let refspec = format!("{commit}:refs/heads/{branch}");
        let args = ["push", "--quiet", "--no-verify", "--", &repo.url, &refspec];
        match self.repositories.git(imported.folder.path(), &args).await {
            Ok(_) => {}
            Err(GitError::Permanent(message)) if message.contains("[rejected]") => {
                return Err(ToolFailure::new(format!(
                    "The branch `{branch}` has commits that {commit} does not build on. Use another \
                     branch."
                )));
            }
            Err(GitError::Transient(message)) => return Err(ToolFailure::outcome_unknown(message)),
            Err(error @ GitError::Permanent(_)) => return Err(error.into()),
        }
        self.repositories.remember_push(repo, &imported, branch).await;
        Ok(pushed)
    }

    async fn predict(&self, input: &GitPushInput, ctx: &ToolContext) -> Option<PredictedEffects> {
        let GitPushInput { branch, commit } = input;
        let source = repo_and_sandbox(ctx).ok()?;
        let imported = self.repositories.import_commit(source, commit, branch).await.ok()?;
        let files = self.repositories.changed_files(&imported).await.ok()?;
        let protected = files.iter().map(|file| &file.path).filter(|path| is_protected_path(path));
        let url = &source.0.url;
        Some(PredictedEffects {
            protected_paths: protected.cloned().collect(),
            files: Some(files),
            network: Some(
                source.0.host_and_path().iter().map(|(host, _)| (*host).to_owned()).collect(),
            ),
            undo: Some(undo_command(&imported, url, branch)),
        })
    }
}

/// Returns the command with which a person takes back a push.
fn undo_command(imported: &ImportedCommit, url: &str, branch: &str) -> String {
    match &imported.branch_head {
        None => format!("git push {url} --delete {branch}"),
        Some(head) => format!("git push --force {url} {head}:refs/heads/{branch}"),
    }
}

fn repo_and_sandbox(ctx: &ToolContext) -> Result<(&RepoSource, &dyn Sandbox), ToolFailure> {
    match (&ctx.repo, &ctx.sandbox) {
        (Some(repo), Some(sandbox)) => Ok((repo, &**sandbox)),
        (_, _) => Err(ToolFailure::new("Nothing was pushed: the run has no repository.")),
    }
}

/// Checks that a branch is neither the default branch nor the one that the work began with.
fn check_branch(repo: &RepoSource, branch: &str, refs: &RemoteRefs) -> Result<(), ToolFailure> {
    let rev = repo.rev.as_deref().map(|rev| rev.strip_prefix("refs/").unwrap_or(rev));
    let rev = rev.map(|rev| rev.strip_prefix("heads/").unwrap_or(rev));
    let protected = [refs.default_branch.as_deref(), rev];
    match protected.contains(&Some(branch)) {
        false => Ok(()),
        true => Err(ToolFailure::new(format!(
            "Nothing was pushed: `{branch}` is the branch that the work began with. Push to a new \
             branch, and open a pull request."
        ))),
    }
}

#[async_trait]
impl Tool for GitPushTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Returns `keyed`: pushing the same commit again changes nothing.
    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Keyed
    }

    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        vec![input["branch"].as_str().unwrap_or_default().to_owned()]
    }

    fn find_call_problem(
        &self,
        input: &Value,
        _context: &std::collections::BTreeMap<String, RawJson>,
    ) -> Option<String> {
        let text = |name: &str| input[name].as_str().unwrap_or_default();
        if !is_rev(text("branch")) {
            return Some("`branch` is no valid name of a branch".to_owned());
        }
        let problem = "`commit` is not the full id of a commit: take it from `git rev-parse HEAD`";
        (!is_commit_id(text("commit"))).then(|| problem.to_owned())
    }

    async fn predict_effects(&self, input: &Value, ctx: &ToolContext) -> PredictedEffects {
        let Ok(input) = GitPushInput::deserialize(input) else {
            return PredictedEffects::default();
        };
        self.predict(&input, ctx).await.unwrap_or_default()
    }

    fn works_in_sandbox(&self) -> bool {
        true
    }

    fn needs_repo(&self) -> bool {
        true
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: GitPushInput = parse_input(&self.spec, input)?;
        self.push(&input, ctx).await.map(ToolOutput::text)
    }

    async fn verify(&self, input: Value, ctx: &ToolContext) -> VerifyOutcome {
        let (Ok(input), Some(repo)) = (GitPushInput::deserialize(input), &ctx.repo) else {
            return VerifyOutcome::NotHappened;
        };
        let refs = self.repositories.remote_refs(&repo.url, Some(&input.branch)).await;
        match refs.map(|refs| refs.commit) {
            Ok(Some(commit)) if commit == input.commit => {
                let GitPushInput { branch, commit } = input;
                let text = format!("Pushed {commit} to the branch `{branch}`.");
                VerifyOutcome::Happened(ToolOutput::text(text))
            }
            Ok(None) => VerifyOutcome::NotHappened,
            Ok(Some(_)) | Err(_) => VerifyOutcome::Unknown,
        }
    }
}
