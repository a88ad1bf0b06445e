//! The vault: a directory of Markdown notes that agents write and people read.
//!
//! Never: leaves its directory, follows a link, or changes a note halfway.

mod ask;
mod list;
mod name;
mod note;
mod read;
mod spot;
mod write;
mod yaml;

use std::sync::Arc;

use longhaul_core::port::tool::Tool;
use longhaul_core::time::Clock;

use crate::location::Location;
use crate::place::Place;
use crate::typed::{BadTool, typed};
use crate::vault::list::VaultList;
use crate::vault::read::VaultRead;
use crate::vault::write::VaultWrite;

/// A directory of notes. It is made when the first note is written.
#[derive(Debug, Clone)]
pub struct Vault {
    place: Place,
    clock: Arc<dyn Clock>,
}

impl Vault {
    /// The vault in the directory `root`.
    pub fn new(root: impl Into<Location>, clock: Arc<dyn Clock>) -> Self {
        Self {
            place: Place::private(root.into()),
            clock,
        }
    }

    /// `vault_write`, `vault_read` and `vault_list` over this vault.
    pub fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, BadTool> {
        let write = VaultWrite {
            place: self.place.clone(),
            clock: self.clock.clone(),
        };
        Ok(vec![
            typed(write)?,
            typed(VaultRead(self.place.clone()))?,
            typed(VaultList(self.place.clone()))?,
        ])
    }
}
