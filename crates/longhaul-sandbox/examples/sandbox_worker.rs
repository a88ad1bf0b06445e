//! A worker of the tests that runs one command in a sandbox and prints its output, until a test
//! kills it.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::port::sandbox::{SandboxCommand, SandboxSpec, Sandboxes as _};
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_sandbox::local::{LocalOptions, LocalSandboxes};

/// Clock that waits in real time. Its wall clock is fixed.
#[derive(Debug)]
struct WaitingClock;

#[async_trait::async_trait]
impl Clock for WaitingClock {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    async fn sleep(&self, duration: Millis) {
        tokio::time::sleep(Duration::from_millis(duration.0)).await;
    }
}

/// Runs the script of the third argument in the sandbox of the second one, in the directory of the
/// first one.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, name, script] = args.as_slice() else {
        return Err("usage: sandbox_worker DIR NAME SCRIPT".into());
    };
    let options = LocalOptions {
        dir: PathBuf::from(dir),
        host: "this-machine".to_owned(),
        read_only: Vec::new(),
        launcher: None,
        project: None,
        clock: Arc::new(WaitingClock),
    };
    let spec = SandboxSpec { name: name.clone(), ..SandboxSpec::default() };
    let sandbox = LocalSandboxes::open(options).await?.create(&spec).await?;
    let mut on_output = |_, bytes: &[u8]| {
        let mut stdout = std::io::stdout().lock();
        // The test reads the output until it kills this process.
        _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
    };
    let exit = sandbox.exec(SandboxCommand::shell(script), &mut on_output).await?;
    Err(format!("the command ended: {exit:?}").into())
}
