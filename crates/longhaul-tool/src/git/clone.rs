//! Clones a repository into a sandbox.
//!
//! Invariant: the work folder has a `.git` only if the clone is complete, so that an interrupted
//! clone is made again.

use std::path::Path;

use async_trait::async_trait;
use longhaul_core::port::repositories::Repositories;
use longhaul_core::port::sandbox::{ExecStatus, Sandbox, SandboxCommand, SandboxError};
use longhaul_core::repo::RepoSource;
use longhaul_core::time::Millis;
use tempfile::TempDir;

use crate::command::CapturedOutput;
use crate::git::{GitError, GitRepositories, MESSAGE_BYTES_MAX, REPO_BYTES_MAX};

/// File in the work folder of the sandbox with the commits, which exists during the clone.
const BUNDLE: &str = ".longhaul-clone.bundle";

/// Timeout of a command in the sandbox.
const EXEC_TIMEOUT: Millis = Millis::from_secs(4 * 60);

/// Unpacks the bundle. The name `.git` appears last.
const UNPACK: &str = r#"set -e
[ ! -e .git ] || exit 0
rm -rf .longhaul-clone
git clone --quiet --no-checkout .longhaul-clone.bundle .longhaul-clone 2>&1
run() { git --git-dir=.longhaul-clone/.git --work-tree=. -c advice.detachedHead=false "$@" 2>&1; }
if [ -n "$BRANCH" ]; then
    run checkout --quiet --force -B "$BRANCH" "origin/$BRANCH"
else
    run checkout --quiet --force --detach "$COMMIT"
fi
run remote set-url origin "$URL"
[ -z "$DEFAULT" ] || run remote set-head origin "$DEFAULT"
run config user.name "Longhaul agent"
run config user.email "agent@longhaul.invalid"
mv .longhaul-clone/.git .git
rm -rf .longhaul-clone .longhaul-clone.bundle
"#;

#[async_trait]
impl Repositories for GitRepositories {
    async fn clone_to_sandbox(
        &self,
        repo: &RepoSource,
        sandbox: &dyn Sandbox,
    ) -> Result<(), SandboxError> {
        if exec(sandbox, SandboxCommand::shell("[ -e .git ]")).await?.is_ok() {
            return Ok(());
        }
        let copy = self.update_copy(repo).await?;
        let (branch, commit) = self.start_of_work(&copy, repo).await?;
        let default = self.default_branch(&copy).await;
        let folder = TempDir::new().map_err(GitError::from)?;
        let bundle = folder.path().join("clone.bundle");
        let file = bundle.to_string_lossy();
        let args = ["bundle", "create", "--quiet", &file, "--branches", "--tags"];
        self.git(&copy, &args).await?;
        if std::fs::metadata(&bundle).map_err(GitError::from)?.len() > REPO_BYTES_MAX {
            let message = "the repository is larger than 2 GB: use a smaller one";
            return Err(SandboxError::Refused(message.to_owned()));
        }
        sandbox.upload(&bundle, BUNDLE).await?;
        let mut command = SandboxCommand::shell(UNPACK);
        let vars = [
            ("BRANCH", branch),
            ("COMMIT", commit),
            ("URL", repo.url.clone()),
            ("DEFAULT", default),
        ];
        command.env = vars.map(|(name, value)| (name.to_owned(), value)).into();
        exec(sandbox, command).await?.map_err(|output| {
            SandboxError::Refused(format!(
                "the repository can't be unpacked in the sandbox, which needs `git`: {output}"
            ))
        })
    }
}

impl GitRepositories {
    /// Returns the branch that is checked out, and its commit. The branch is empty for a tag or a
    /// commit.
    async fn start_of_work(
        &self,
        copy: &Path,
        repo: &RepoSource,
    ) -> Result<(String, String), GitError> {
        let branch = match &repo.rev {
            Some(rev) => rev.clone(),
            None => self.default_branch(copy).await,
        };
        if let Some(commit) = self.find_commit(copy, &format!("refs/heads/{branch}")).await {
            return Ok((branch, commit));
        }
        let missing = || {
            GitError::Permanent(match &repo.rev {
                Some(rev) => format!("the repository has no branch, tag or commit `{rev}`"),
                None => "the repository has no commit: push one to it first".to_owned(),
            })
        };
        let rev = repo.rev.as_deref().ok_or_else(missing)?;
        Ok((String::new(), self.find_commit(copy, rev).await.ok_or_else(missing)?))
    }

    /// Returns the default branch of a copy. Empty if it has none.
    pub(super) async fn default_branch(&self, copy: &Path) -> String {
        self.git(copy, &["symbolic-ref", "--short", "HEAD"]).await.unwrap_or_default()
    }
}

/// Runs a command in the work folder of a sandbox. The inner error is the end of its output.
pub(super) async fn exec(
    sandbox: &dyn Sandbox,
    command: SandboxCommand,
) -> Result<Result<(), String>, SandboxError> {
    let mut output = CapturedOutput::new(4 * MESSAGE_BYTES_MAX);
    let mut receive = |_, bytes: &[u8]| output.push_bytes(bytes);
    let command = SandboxCommand { timeout: Some(EXEC_TIMEOUT), ..command };
    let exit = sandbox.exec(command, &mut receive).await?;
    Ok(match exit.status {
        ExecStatus::Exited(0) => Ok(()),
        ExecStatus::Exited(_)
        | ExecStatus::Signaled(_)
        | ExecStatus::TimedOut
        | ExecStatus::OverLimit => Err(output.tail_text(MESSAGE_BYTES_MAX)),
    })
}
