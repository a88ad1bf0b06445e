//! Settings of the local provider.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::time::Clock;

/// Settings of the local provider.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// Directory of the sandboxes and volumes. It is created if it is missing.
    pub dir: PathBuf,
    /// Name of this machine.
    pub host: String,
    /// Directories of this machine that programs in sandboxes can read, such as toolchains, apart
    /// from `/usr`. Those on the search path of this process are on that of the sandboxes.
    pub read_only: Vec<PathBuf>,
    /// Executable that runs [`crate::launch::launch`] for [`crate::launch::LAUNCH_COMMAND`]. `None`
    /// means that sandboxes can't reach a list of hosts.
    pub launcher: Option<PathBuf>,
    /// Directory of the project, in which bubblewrap is not looked for, because agents can write
    /// there.
    pub project: Option<PathBuf>,
    pub clock: Arc<dyn Clock>,
}
