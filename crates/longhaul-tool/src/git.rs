//! Access to remote git repositories with the credentials of this machine.
//!
//! Each remote repository has a bare copy on this machine. Sandboxes get its commits as a bundle (a
//! file with commits), and return theirs in the same way.
//!
//! Invariants: credentials are neither in an argument, nor in a URL, nor in a file, nor in a sandbox.
//! No hook and no configuration of a sandbox has an effect on this machine.

mod changes;
mod clone;
mod import;
mod pull_request;
mod push;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::port::sandbox::SandboxError;
use longhaul_core::port::tool::ToolFailure;
use longhaul_core::raw::Hash;
use longhaul_core::repo::RepoSource;
use longhaul_core::time::{Clock, Millis};

use crate::command::{Command, ProgramExit};

pub use crate::git::pull_request::OpenPullRequestTool;
pub use crate::git::push::GitPushTool;

/// Timeout of a git command that contacts a server.
const NETWORK_TIMEOUT: Millis = Millis::from_secs(10 * 60);

/// Timeout of a git command on local files.
const LOCAL_TIMEOUT: Millis = Millis::from_secs(2 * 60);

/// Maximum size of a repository in bytes.
const REPO_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// Runs git with a limit on the size of each file that it writes: `REPO_BYTES_MAX` in blocks of 512
/// bytes. Git itself has no limit for a fetch.
const GIT_SCRIPT: &str = "ulimit -f 4194304 && exec git \"$@\"";

/// Maximum number of bytes that are read of the output of a git command.
const OUTPUT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Maximum number of bytes of a message of git that is passed on.
const MESSAGE_BYTES_MAX: usize = 2_000;

/// Environment variables that git inherits, with which it finds the credentials of the user.
const INHERITED_ENV: [&str; 14] = [
    "HOME",
    "USER",
    "LOGNAME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "GIT_SSH_COMMAND",
    "GIT_CONFIG_GLOBAL",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Settings of every git command on this machine.
const CONFIG: [&str; 10] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "protocol.ext.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
    "fetch.unpackLimit=1",
    "push.followTags=false",
    "push.recurseSubmodules=no",
    "advice.detachedHead=false",
    "init.defaultBranch=main",
];

/// Variable with the access token of GitHub.
pub const GITHUB_TOKEN: &str = "GITHUB_TOKEN";

/// Credential helper that reads the token from the environment, so that it is in no argument.
const GITHUB_HELPER: &str = "credential.https://github.com.helper=!f() { test \"$1\" = get && printf \
     'username=x-access-token\\npassword=%s\\n' \"$GITHUB_TOKEN\"; }; f";

/// Access to remote git repositories with the credentials of this machine.
pub struct GitRepositories {
    /// Folder with the bare copies of the repositories.
    folder: PathBuf,
    /// Access token of GitHub. `None` means that only the credential helpers of git are asked.
    github_token: Option<String>,
    clock: Arc<dyn Clock>,
    /// Locks of the copies, by the address of the repository. Only one command writes to a copy.
    locks: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl fmt::Debug for GitRepositories {
    /// Formats the value without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitRepositories").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Why a git command failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum GitError {
    /// The server or the machine can't be used now.
    #[error("{0}")]
    Transient(String),
    /// The command fails however often it is tried.
    #[error("{0}")]
    Permanent(String),
}

impl From<GitError> for SandboxError {
    fn from(error: GitError) -> Self {
        match error {
            GitError::Transient(message) => Self::Unavailable(message),
            GitError::Permanent(message) => Self::Refused(message),
        }
    }
}

impl From<GitError> for ToolFailure {
    fn from(error: GitError) -> Self {
        match error {
            GitError::Transient(message) => Self::transient(message),
            GitError::Permanent(message) => Self::new(message),
        }
    }
}

impl From<std::io::Error> for GitError {
    fn from(error: std::io::Error) -> Self {
        Self::Transient(format!("the copy of the repository can't be used: {error}"))
    }
}

/// Branches of a remote repository, as its server reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RemoteRefs {
    default_branch: Option<String>,
    /// Commit of the branch that was asked for. `None` if the branch does not exist.
    commit: Option<String>,
}

impl GitRepositories {
    /// Creates an access that keeps its copies of repositories in a folder.
    pub fn new(
        folder: impl Into<PathBuf>,
        github_token: Option<String>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let github_token = github_token.filter(|token| !token.is_empty());
        Self { folder: folder.into(), github_token, clock, locks: Mutex::default() }
    }

    /// Runs git in a folder and returns what it prints.
    async fn git(&self, folder: &Path, args: &[&str]) -> Result<String, GitError> {
        let output = self.git_bytes(folder, args, Vec::new()).await?;
        Ok(String::from_utf8_lossy(&output).trim_end().to_owned())
    }

    async fn git_bytes(
        &self,
        folder: &Path,
        args: &[&str],
        stdin: Vec<u8>,
    ) -> Result<Vec<u8>, GitError> {
        let is_remote = args.iter().any(|arg| matches!(*arg, "fetch" | "push" | "ls-remote"));
        let mut command = Command::new(["/bin/sh", "-c", GIT_SCRIPT, "git"], folder);
        let helpers = ["credential.https://github.com.helper=", GITHUB_HELPER];
        let helpers = helpers.into_iter().filter(|_| self.github_token.is_some());
        for setting in CONFIG.into_iter().chain(helpers) {
            command.argv.extend(["-c".to_owned(), setting.to_owned()]);
        }
        command.argv.extend(args.iter().map(|arg| (*arg).to_owned()));
        command.env = self.env();
        command.stdin = stdin;
        command.keep_bytes = 2 * OUTPUT_BYTES_MAX;
        command.stdout_bytes_max = Some(OUTPUT_BYTES_MAX);
        command.timeout = if is_remote { NETWORK_TIMEOUT } else { LOCAL_TIMEOUT };
        let output = command.run(&*self.clock).await;
        let output = output.map_err(|error| GitError::Permanent(format!("git: {error}")))?;
        if output.exit.is_success() {
            return Ok(output.stdout.complete_output().unwrap_or_default());
        }
        let mut message = output.stderr.tail_text(MESSAGE_BYTES_MAX);
        if let Some(token) = &self.github_token {
            message = message.replace(token.as_str(), "***");
        }
        let name = args.iter().find(|arg| !arg.starts_with('-') && !arg.contains('='));
        let name = name.unwrap_or(&"");
        let is_transient = match output.exit {
            ProgramExit::Code(_) => is_transient_message(&message),
            ProgramExit::TimedOut(_) => true,
            ProgramExit::Signal(_) | ProgramExit::OutputLimit(_) => false,
        };
        let message = format!("`git {name}` {}: {message}", output.exit);
        Err(match is_transient {
            true => GitError::Transient(message),
            false => GitError::Permanent(message),
        })
    }

    fn env(&self) -> Vec<(String, String)> {
        let inherited = INHERITED_ENV.into_iter();
        let inherited = inherited.filter_map(|name| Some((name, std::env::var(name).ok()?)));
        let mut env: BTreeMap<&str, String> = inherited.collect();
        // Nobody answers a question.
        env.entry("GIT_SSH_COMMAND").or_insert_with(|| "ssh -oBatchMode=yes".to_owned());
        let own = [("GIT_TERMINAL_PROMPT", "0"), ("GIT_ASKPASS", ""), ("LC_ALL", "C")];
        env.extend(own.map(|(name, value)| (name, value.to_owned())));
        env.extend(self.github_token.clone().map(|token| (GITHUB_TOKEN, token)));
        env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Returns the folder of the copy of a repository, whether it exists or not.
    fn copy_folder(&self, repo: &RepoSource) -> PathBuf {
        let hash = Hash::digest(repo.url.as_bytes()).to_string();
        let digits: String = hash.chars().filter(char::is_ascii_hexdigit).rev().take(24).collect();
        self.folder.join(format!("{digits}.git"))
    }

    /// Creates or updates the copy of a repository, and returns its folder.
    async fn update_copy(&self, repo: &RepoSource) -> Result<PathBuf, GitError> {
        repo.check().map_err(|error| GitError::Permanent(error.to_string()))?;
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(locks.entry(repo.url.clone()).or_default())
        };
        let _lock = lock.lock().await;
        let folder = self.copy_folder(repo);
        std::fs::create_dir_all(&folder)?;
        self.git(&folder, &["init", "--bare", "--quiet", "--template=", "."]).await?;
        let default_branch = self.remote_refs(&repo.url, None).await?.default_branch;
        let (heads, tags) = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*");
        let options = ["fetch", "--quiet", "--prune", "--force", "--no-tags"];
        let options = [&options[..], &["--no-recurse-submodules", "--", &repo.url, heads, tags]];
        self.git(&folder, &options.concat()).await?;
        if let Some(branch) = default_branch {
            let head = format!("refs/heads/{branch}");
            self.git(&folder, &["symbolic-ref", "HEAD", &head]).await?;
        }
        Ok(folder)
    }

    /// Returns the folder of the copy of a repository, which is created if it does not exist.
    async fn copy(&self, repo: &RepoSource) -> Result<PathBuf, GitError> {
        let folder = self.copy_folder(repo);
        match folder.join("HEAD").is_file() {
            true => Ok(folder),
            false => self.update_copy(repo).await,
        }
    }

    /// Asks the server for the default branch, and for the commit of a branch.
    async fn remote_refs(&self, url: &str, branch: Option<&str>) -> Result<RemoteRefs, GitError> {
        let name = branch.map(|branch| format!("refs/heads/{branch}"));
        let mut args = vec!["ls-remote", "--symref", "--", url, "HEAD"];
        args.extend(name.as_deref());
        let listed = self.git(Path::new("/"), &args).await?;
        let mut refs = RemoteRefs::default();
        for (value, ref_name) in listed.lines().filter_map(|line| line.split_once('\t')) {
            if let Some(head) =
                value.strip_prefix("ref: refs/heads/").filter(|_| ref_name == "HEAD")
            {
                refs.default_branch = Some(head.to_owned());
            } else if Some(ref_name) == name.as_deref() {
                refs.commit = Some(value.to_owned());
            }
        }
        Ok(refs)
    }

    /// Returns the commit that a name stands for. `None` if there is no such commit.
    async fn find_commit(&self, folder: &Path, name: &str) -> Option<String> {
        let name = format!("{name}^{{commit}}");
        let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", &name];
        self.git(folder, &args).await.ok().filter(|commit| !commit.is_empty())
    }
}

/// Returns whether a message of git is about a failure that may pass.
fn is_transient_message(message: &str) -> bool {
    let signs = [
        "Connection refused",
        "Connection reset",
        "Connection timed out",
        "Failed to connect",
        "Operation timed out",
        "early EOF",
        "RPC failed",
        "unexpected disconnect",
        "requested URL returned error: 5",
        "requested URL returned error: 429",
        ".lock': File exists",
    ];
    signs.iter().any(|sign| message.contains(sign))
}

/// Returns whether a text is the full id of a commit.
fn is_commit_id(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    matches!(text.len(), 40 | 64) && text.bytes().all(is_digit)
}
