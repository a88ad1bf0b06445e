//! The vault: a directory of Markdown notes that agents write and people read.
//!
//! Never: leaves its directory, follows a link, or changes a note halfway.

mod front_matter;
mod list;
mod locate;
mod name;
mod note;
mod note_input;
mod read;
mod write;

use std::sync::Arc;

use longhaul_core::port::tool::Tool;
use longhaul_core::time::Clock;

use crate::location::Location;
use crate::safe_dir::SafeDir;
use crate::typed::{TypedToolError, typed};
use crate::vault::list::VaultList;
use crate::vault::read::VaultRead;
use crate::vault::write::VaultWrite;

/// A directory of notes. It is made when the first note is written.
#[derive(Debug, Clone)]
pub struct Vault {
    dir: SafeDir,
    clock: Arc<dyn Clock>,
}

impl Vault {
    /// The vault in the directory `root`.
    pub fn new(root: impl Into<Location>, clock: Arc<dyn Clock>) -> Self {
        Self { dir: SafeDir::private(root.into()), clock }
    }

    /// `vault_write`, `vault_read` and `vault_list` over this vault.
    pub fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, TypedToolError> {
        let write = VaultWrite { dir: self.dir.clone(), clock: self.clock.clone() };
        Ok(vec![
            typed(write)?,
            typed(VaultRead(self.dir.clone()))?,
            typed(VaultList(self.dir.clone()))?,
        ])
    }
}
