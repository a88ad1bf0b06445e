//! The search for bubblewrap, and the attempt to really isolate a program with it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::local::LocalOptions;
use crate::local::bwrap::BwrapArgs;
use crate::local::command::WRAPPER;
use crate::local::layout::ProviderDir;

/// Fact about the isolation for the user.
pub(crate) const LEVEL_NOTE: &str = "bubblewrap shares the kernel with this machine; for hostile \
                                     programs use the provider `docker` with gVisor, or `daytona`";

/// File of the kernel that says whether AppArmor forbids user namespaces.
const APPARMOR_SWITCH: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
/// Maximum length of the error of bubblewrap in a message, in characters.
const ERROR_CHARS_MAX: usize = 300;

/// How well sandboxes can be isolated on this machine.
#[derive(Debug)]
pub(crate) struct Probe {
    /// Path of bubblewrap, or the reason why it can't be used, with what helps.
    pub(crate) bwrap: Result<PathBuf, String>,
}

impl Probe {
    /// Runs the program `true` in a sandbox.
    pub(crate) async fn run(options: &LocalOptions, dir: &ProviderDir) -> Self {
        let Some(bwrap) = find_bwrap(options.project.as_deref()) else {
            let reason = "bubblewrap is not installed; install it with `apt-get install bubblewrap` \
                          or `dnf install bubblewrap`";
            return Self { bwrap: Err(with_alternatives(reason)) };
        };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WRAPPER, "sh", "/dev/null"]).arg(dir.seccomp_filter());
        command.args(["unlimited", "unlimited", "--"]);
        let args = BwrapArgs::new(&bwrap, dir, &options.read_only, false);
        command.args(args.finish(Path::new("/")));
        command.arg("true").stdin(Stdio::null()).kill_on_drop(true);
        let error = match command.output().await {
            Ok(output) if output.status.success() => return Self { bwrap: Ok(bwrap) },
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        let error: String = error.chars().take(ERROR_CHARS_MAX).collect();
        let restricted = std::fs::read_to_string(APPARMOR_SWITCH);
        let reason = if error.contains("Unknown option") {
            format!("bubblewrap is older than 0.8 ({error}); install a newer one")
        } else if restricted.is_ok_and(|value| value.trim() == "1") {
            format!("AppArmor forbids user namespaces ({error}); {}", apparmor_help(&bwrap))
        } else {
            format!(
                "bubblewrap can't create a sandbox ({error}); allow user namespaces, which a \
                 container or a hardened kernel may forbid"
            )
        };
        Self { bwrap: Err(with_alternatives(&reason)) }
    }
}

fn with_alternatives(reason: &str) -> String {
    format!(
        "{reason}; or use the provider `docker` or `daytona`; or run without isolation: in the \
         agent's file set `isolation: container` if this process runs in a container of its own, or \
         `isolation: none`"
    )
}

/// Returns the commands that allow user namespaces for bubblewrap and no other program.
fn apparmor_help(bwrap: &Path) -> String {
    format!(
        "allow them for bubblewrap only, with these two commands:\n\
         echo 'abi <abi/4.0>, include <tunables/global> profile bwrap {} flags=(unconfined) \
         {{ userns, }}' | sudo tee /etc/apparmor.d/bwrap\n\
         sudo apparmor_parser -r /etc/apparmor.d/bwrap\n",
        bwrap.display()
    )
}

/// Looks for bubblewrap on the search path, outside of the project: agents can write there.
fn find_bwrap(project: Option<&Path>) -> Option<PathBuf> {
    let project = project.and_then(|project| std::fs::canonicalize(project).ok());
    let dirs = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&dirs).filter(|dir| dir.is_absolute()).filter_map(|dir| {
        let program = std::fs::canonicalize(dir.join("bwrap")).ok()?;
        let is_executable = rustix::fs::access(&program, rustix::fs::Access::EXEC_OK).is_ok();
        let is_trusted = project.as_ref().is_none_or(|project| !program.starts_with(project));
        (is_executable && is_trusted && program.is_file()).then_some(program)
    });
    found.into_iter().next()
}
