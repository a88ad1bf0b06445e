//! Reads the environment of this process. The module `config` interprets it.

use std::path::PathBuf;

use crate::config::process_env::ProcessEnv;

/// Returns the environment variables, home folder and user id of this process, with `folder` as
/// working directory.
pub fn process_env_in_folder(folder: PathBuf) -> ProcessEnv {
    // A setting can't have a name or value that is not UTF-8.
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
