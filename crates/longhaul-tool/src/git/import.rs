//! Reads a commit out of a sandbox into a temporary repository of this machine.

use longhaul_core::port::sandbox::{Sandbox, SandboxCommand, SandboxError};
use longhaul_core::repo::RepoSource;
use tempfile::TempDir;

use crate::git::clone::exec;
use crate::git::{GitError, GitRepositories};

/// File in the sandbox with the new commits.
const BUNDLE: &str = ".git/longhaul-push.bundle";

/// Maximum size of the new commits in bytes.
const BUNDLE_BYTES_MAX: u64 = 200 * 1024 * 1024;

/// Name of the commit in the sandbox and in the temporary repository.
const COMMIT_REF: &str = "refs/longhaul/push";

const CREATE_BUNDLE: &str = r#"set -e
found=$(git rev-parse --verify --quiet "$COMMIT^{commit}") || found=
[ "$found" = "$COMMIT" ] || { echo "there is no commit $COMMIT"; exit 1; }
git update-ref refs/longhaul/push "$COMMIT" 2>&1
git bundle create --quiet .git/longhaul-push.bundle refs/longhaul/push --not --remotes=origin 2>&1
"#;

/// A commit of a sandbox in a temporary repository, which is deleted when the value is dropped.
#[derive(Debug)]
pub(super) struct ImportedCommit {
    pub(super) folder: TempDir,
    pub(super) commit: String,
    /// Commit of the remote repository with which the commit is compared. `None` if they have no
    /// common commit.
    pub(super) base: Option<String>,
    /// Commit of the branch in the remote repository, as far as this machine knows.
    pub(super) branch_head: Option<String>,
}

impl From<SandboxError> for GitError {
    fn from(error: SandboxError) -> Self {
        match error {
            SandboxError::Unavailable(_) | SandboxError::NoCapacity(_) | SandboxError::NotFound => {
                Self::Transient(error.to_string())
            }
            SandboxError::Refused(_) | SandboxError::File(_) => Self::Permanent(error.to_string()),
        }
    }
}

impl GitRepositories {
    /// Reads a commit out of a sandbox. It is compared with the branch of this name in the remote
    /// repository, or else with the branch that the work began with.
    pub(super) async fn import_commit(
        &self,
        (repo, sandbox): (&RepoSource, &dyn Sandbox),
        commit: &str,
        branch: &str,
    ) -> Result<ImportedCommit, GitError> {
        let copy = self.copy(repo).await?;
        let folder = TempDir::new()?;
        let path = folder.path();
        self.git(path, &["init", "--bare", "--quiet", "--template=", "."]).await?;
        let objects = format!("{}\n", copy.join("objects").display());
        std::fs::write(path.join("objects/info/alternates"), objects)?;
        if self.find_commit(path, commit).await.is_none() {
            let mut command = SandboxCommand::shell(CREATE_BUNDLE);
            command.env = [("COMMIT".to_owned(), commit.to_owned())].into();
            exec(sandbox, command).await?.map_err(|output| {
                GitError::Permanent(format!("the commit can't be read from the sandbox: {output}"))
            })?;
            let bundle = sandbox.read(BUNDLE, BUNDLE_BYTES_MAX).await?;
            let file = path.join("push.bundle");
            std::fs::write(&file, bundle)?;
            let (file, refs) = (file.to_string_lossy(), format!("{COMMIT_REF}:{COMMIT_REF}"));
            let check = ["-c", "transfer.fsckObjects=true", "fetch", "--quiet", "--no-tags"];
            self.git(path, &[&check[..], &["--", &file, &refs]].concat()).await?;
            // The sandbox names the content of the bundle, and is not trusted.
            if self.find_commit(path, COMMIT_REF).await.as_deref() != Some(commit) {
                let message = format!("the sandbox did not return the commit {commit}");
                return Err(GitError::Permanent(message));
            }
        }
        let branch_head = self.find_commit(&copy, &format!("refs/heads/{branch}")).await;
        let start = match (&branch_head, &repo.rev) {
            (Some(head), _) => Some(head.clone()),
            (None, Some(rev)) => self.find_commit(&copy, rev).await,
            (None, None) => self.find_commit(&copy, "HEAD").await,
        };
        let base = match start {
            Some(start) => self.git(path, &["merge-base", commit, &start]).await.ok(),
            None => None,
        };
        Ok(ImportedCommit { folder, commit: commit.to_owned(), base, branch_head })
    }

    /// Records in the copy of a repository that a branch was pushed, so that the next push is
    /// compared with it. An error is ignored: the next update of the copy corrects it.
    pub(super) async fn remember_push(
        &self,
        repo: &RepoSource,
        imported: &ImportedCommit,
        branch: &str,
    ) {
        let source = imported.folder.path().to_string_lossy();
        let refs = format!("+{}:refs/heads/{branch}", imported.commit);
        let args = ["fetch", "--quiet", "--no-tags", "--", &source, &refs];
        _ = self.git(&self.copy_folder(repo), &args).await;
    }
}
