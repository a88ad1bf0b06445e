//! The connection to the engine: its socket, its version, and its errors.

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};

use bollard::errors::Error as EngineError;
use bollard::models::SystemInfo;
use bollard::{API_DEFAULT_VERSION, Docker};
use longhaul_core::port::sandbox::SandboxError;
use tokio::sync::OnceCell;
use tokio_util::task::TaskTracker;

/// Maximum number of characters of a message of the engine in one of our errors.
const MESSAGE_CHARS_MAX: usize = 500;
/// Seconds until an answer of the engine begins. A stop or a start takes the longest.
const ANSWER_SECS: u64 = 60;

/// A container engine on this machine.
#[derive(Debug)]
pub(super) struct Engine {
    socket: Option<PathBuf>,
    client: OnceCell<Docker>,
    /// Owns the tasks that kill the processes of dropped commands.
    pub(super) kills: TaskTracker,
}

impl Engine {
    /// Creates the engine without connecting to it. Without a socket the usual ones are tried.
    pub(super) fn new(socket: Option<PathBuf>) -> Self {
        Self { socket, client: OnceCell::new(), kills: TaskTracker::new() }
    }

    /// Returns a client that speaks a version of the API that the engine understands.
    pub(super) async fn client(&self) -> Result<&Docker, SandboxError> {
        let connect = async || {
            let socket = match &self.socket {
                Some(socket) => socket.clone(),
                None => find_socket(|name| std::env::var(name).ok())?,
            };
            let connection = Docker::connect_with_unix(
                &socket.to_string_lossy(),
                ANSWER_SECS,
                API_DEFAULT_VERSION,
            );
            let failed = |error| connection_error(&socket, &error);
            connection.map_err(failed)?.negotiate_version().await.map_err(failed)
        };
        self.client.get_or_try_init(connect).await
    }

    pub(super) async fn system_info(&self) -> Result<SystemInfo, SandboxError> {
        self.client().await?.info().await.map_err(|error| error_of("describe itself", &error))
    }
}

/// Returns whether the engine runs without the rights of root, so that root in a container is the
/// user of the engine.
pub(super) fn is_rootless(info: &SystemInfo) -> bool {
    has_security_option(info, "name=rootless")
}

pub(super) fn has_security_option(info: &SystemInfo, option: &str) -> bool {
    let mut options = info.security_options.iter().flatten();
    options.any(|found| found.split(',').any(|part| part == option))
}

/// Returns the socket of the engine according to these environment variables, or the first usual
/// one that exists.
fn find_socket(variable: impl Fn(&str) -> Option<String>) -> Result<PathBuf, SandboxError> {
    if let Some(address) = variable("DOCKER_HOST").filter(|address| !address.is_empty()) {
        return address.strip_prefix("unix://").map(PathBuf::from).ok_or_else(|| {
            SandboxError::Refused(
                "DOCKER_HOST names no Unix socket, but the Docker engine must run on this machine, \
                 because the work folder is a directory of this machine. Unset DOCKER_HOST, or set \
                 it to unix:///PATH"
                    .to_owned(),
            )
        });
    }
    let mut sockets = vec![PathBuf::from("/var/run/docker.sock")];
    if let Some(dir) = variable("XDG_RUNTIME_DIR").map(PathBuf::from) {
        sockets.extend([dir.join("docker.sock"), dir.join("podman/podman.sock")]);
    }
    sockets.push(PathBuf::from("/run/podman/podman.sock"));
    let names: Vec<_> = sockets.iter().map(|socket| socket.display().to_string()).collect();
    sockets.into_iter().find(|socket| socket.exists()).ok_or_else(|| {
        SandboxError::Unavailable(format!(
            "no Docker engine runs on this machine: none of {} exists. Install Docker or Podman \
             and start it, or set DOCKER_HOST=unix:///PATH",
            names.join(", ")
        ))
    })
}

fn connection_error(socket: &Path, error: &EngineError) -> SandboxError {
    let socket = socket.display();
    if is_permission_denied(error) {
        return SandboxError::Refused(format!(
            "this user may not open the socket of the Docker engine, {socket}. Install a rootless \
             engine with `dockerd-rootless-setuptool.sh install` and set DOCKER_HOST to its socket. \
             Or run `sudo usermod -aG docker $USER` and log in again; every program of this user \
             can then do anything on this machine that root can do"
        ));
    }
    SandboxError::Unavailable(format!(
        "the Docker engine at {socket} can't be reached ({}). Check it with \
         `docker --host unix://{socket} info`, and start it with `sudo systemctl start docker`",
        shorten(&error.to_string())
    ))
}

fn is_permission_denied(error: &EngineError) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        let io_error = error.downcast_ref::<io::Error>();
        if io_error.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns the status and the message of an answer that is an error.
pub(super) fn answer(error: &EngineError) -> Option<(u16, &str)> {
    match error {
        EngineError::DockerResponseServerError { status_code, message } => {
            Some((*status_code, message))
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "all others are no answers")]
        _ => None,
    }
}

pub(super) fn is_not_found(error: &EngineError) -> bool {
    answer(error).is_some_and(|(status, _)| status == 404)
}

pub(super) fn is_conflict(error: &EngineError) -> bool {
    answer(error).is_some_and(|(status, _)| status == 409)
}

/// Returns the error of an engine that could not `action`, a verb with its object.
pub(super) fn error_of(action: &str, error: &EngineError) -> SandboxError {
    let Some((status, message)) = answer(error) else {
        let message = shorten(&error.to_string());
        return SandboxError::Unavailable(format!("the Docker engine did not {action}: {message}"));
    };
    let text = format!("the Docker engine did not {action}: {}", shorten(message));
    match status {
        404 => SandboxError::NotFound,
        _ if message.contains("no space left on device") => SandboxError::NoCapacity(text),
        409 | 500.. => SandboxError::Unavailable(text),
        _ => SandboxError::Refused(text),
    }
}

/// Returns a message of the engine without control characters and not too long.
pub(super) fn shorten(message: &str) -> String {
    message.chars().filter(|char| !char.is_control()).take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_host_decides_the_socket() {
        let find = |address: &'static str| {
            find_socket(move |name| (name == "DOCKER_HOST").then(|| address.to_owned()))
        };
        assert_eq!(find("unix:///run/x.sock"), Ok(PathBuf::from("/run/x.sock")));
        for remote in ["tcp://127.0.0.1:2375", "ssh://host", "http://host"] {
            assert!(matches!(find(remote), Err(SandboxError::Refused(_))), "{remote}");
        }
    }

    #[test]
    fn a_socket_of_the_user_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let variable = |name: &str| {
            (name == "XDG_RUNTIME_DIR").then(|| dir.path().to_str().unwrap().to_owned())
        };
        if Path::new("/var/run/docker.sock").exists() {
            assert_eq!(find_socket(variable), Ok(PathBuf::from("/var/run/docker.sock")));
            return;
        }
        std::fs::write(dir.path().join("docker.sock"), "").unwrap();
        assert_eq!(find_socket(variable), Ok(dir.path().join("docker.sock")));
    }
}
