//! The program that runs in a sandbox before its command, as a hidden command of our executable: a
//! relay by which programs reach the egress proxy outside.

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// First argument of our executable that runs [`launch`] with the other arguments.
pub const LAUNCH_COMMAND: &str = "sandbox-launch";

/// Port of the relay on the loopback interface of a sandbox.
pub const RELAY_PORT: u16 = 3128;

/// Maximum number of concurrent connections. Further ones wait.
const CONNECTIONS_MAX: usize = 256;
/// Exit code of a shell for a program that can't be started.
const NOT_STARTED: u8 = 127;

/// Runs a command next to a relay that connects each connection to [`RELAY_PORT`] to a Unix socket.
/// Returns how the command has exited; one that was killed has the exit code of a shell. The
/// arguments are the path of the socket, the program and its arguments.
///
/// # Errors
///
/// The arguments are incomplete, or the port of the relay is in use.
pub fn launch(args: impl IntoIterator<Item = OsString>) -> io::Result<ExitCode> {
    let mut args = args.into_iter();
    let (Some(socket), Some(program)) = (args.next(), args.next()) else {
        let message = format!("`{LAUNCH_COMMAND}` needs the path of a socket and a program");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    let mut command = Command::new(&program);
    command.args(args);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, RELAY_PORT)).await?;
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let message = format!("{}: {error}\n", Path::new(&program).display());
                // Nobody reads the message if the stream is closed.
                _ = io::Write::write_all(&mut io::stderr(), message.as_bytes());
                return Ok(ExitCode::from(NOT_STARTED));
            }
        };
        tokio::select! {
            status = child.wait() => Ok(exit_code(status?)),
            error = relay(listener, socket.into()) => Err(error),
        }
    })
}

/// Returns the exit code of a process as a shell reports it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Accepts connections until the listener fails.
async fn relay(listener: TcpListener, socket: PathBuf) -> io::Error {
    let socket: Arc<Path> = socket.into();
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return io::Error::other("the relay accepts no more connections");
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let socket = Arc::clone(&socket);
                connections.spawn(async move {
                    // The programs on both sides see that the connection ends.
                    _ = relay_connection(stream, &socket).await;
                    drop(slot);
                });
            }
            // The program has closed the connection already.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return error,
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn relay_connection(mut stream: TcpStream, socket: &Path) -> io::Result<()> {
    let mut proxy = UnixStream::connect(socket).await?;
    tokio::io::copy_bidirectional(&mut stream, &mut proxy).await?;
    Ok(())
}
