//! What this process was started with: the one place that asks for it.
//!
//! Never: interprets it; `config` does that.

use std::path::PathBuf;

use crate::config::process_env::ProcessEnv;

/// The environment, the home and the user of this process, for work in this folder.
pub fn process_env(folder: PathBuf) -> ProcessEnv {
    // What is not UTF-8 can't be a setting of ours.
    let env = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    ProcessEnv {
        cwd: folder,
        env: env.collect(),
        home: std::env::home_dir().filter(|home| home.is_absolute()),
        uid: Some(rustix::process::geteuid().as_raw()),
        ..ProcessEnv::default()
    }
}
