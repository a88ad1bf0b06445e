//! One thing that a project would run: what is shown of it, and the hash that a
//! decision about it is bound to.
//!
//! Never: runs it.

use std::fmt;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use longhaul_core::raw::Hash;
use serde::{Deserialize, Serialize};

use crate::mcp::file::McpFile;
use crate::mcp::name::FILE_NAME;
use crate::mcp::server::{Server, argv};

/// A program in the project that is larger than this is none that somebody read.
const PROGRAM_MAX: u64 = 64 << 20;

/// So much of one line is shown; the rest is to be looked up in the file.
const LINE_MAX: usize = 2_000;

/// What kind of thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The servers of `.mcp.json`.
    Mcp,
    /// A program that looks at the world for an agent.
    Perception,
    /// The program that messages are handed to.
    Deliver,
}

impl Kind {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Perception => "perception",
            Self::Deliver => "deliver",
        }
    }

    /// What it is for, in a few words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Mcp => "servers of tools, started and asked outside any sandbox",
            Self::Perception => "a program that looks at the world, outside any sandbox",
            Self::Deliver => "a program that messages are handed to, outside any sandbox",
        }
    }
}

/// A thing that would be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thing {
    /// What kind.
    pub kind: Kind,
    /// What it is called: a file, or a command.
    pub name: String,
    /// What a decision is bound to. The error says why there is nothing to bind it to.
    pub hash: Result<Hash, String>,
    /// Exactly what would be run, line by line.
    pub shown: Vec<String>,
    /// The agents that would have it run.
    pub used_by: Vec<String>,
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Mcp => write!(f, "`{}`", self.name),
            Kind::Perception => write!(f, "the perception command `{}`", self.name),
            Kind::Deliver => write!(f, "the command `{}` that messages go to", self.name),
        }
    }
}

impl Thing {
    /// The servers of a project; none: it names none.
    pub fn mcp(file: &McpFile) -> Option<Self> {
        let hash = file.hash?;
        Some(Self {
            kind: Kind::Mcp,
            name: FILE_NAME.to_owned(),
            hash: Ok(hash),
            shown: file.servers.iter().flat_map(shown).collect(),
            used_by: Vec::new(),
        })
    }

    /// A program with its arguments, started in this folder.
    pub fn command(kind: Kind, root: &Path, words: &[String]) -> Self {
        let name = argv(words);
        Self {
            kind,
            hash: hash(root, words),
            shown: vec![cut(&name)],
            name,
            used_by: Vec::new(),
        }
    }
}

/// What would be started for a server, and what it is handed.
fn shown(server: &Server) -> Vec<String> {
    let Some(way) = &server.way else {
        return Vec::new();
    };
    let off = if server.disabled { " (disabled)" } else { "" };
    let mut lines = vec![format!("{}{off}: {}", server.name, cut(&way.said()))];
    let names: Vec<&str> = way.names().collect();
    if !names.is_empty() {
        let what = match way.transport() {
            "http" => "headers",
            _ => "variables",
        };
        lines.push(format!("  {what}: {}", cut(&names.join(", "))));
    }
    let read = way.variables();
    if !read.is_empty() {
        let said = format!("  reads of your environment: {}", cut(&read.join(", ")));
        lines.push(said);
    }
    lines
}

fn cut(line: &str) -> String {
    let many = line.chars().count();
    if many <= LINE_MAX {
        return line.to_owned();
    }
    let kept: String = line.chars().take(LINE_MAX).collect();
    format!("{kept} ... and {} letters more", many - LINE_MAX)
}

/// Over every word, and over what the project itself brings to be run.
fn hash(root: &Path, words: &[String]) -> Result<Hash, String> {
    let mut bytes = Vec::new();
    for word in words {
        bytes.extend_from_slice(&(word.len() as u64).to_le_bytes());
        bytes.extend_from_slice(word.as_bytes());
    }
    if let Some(program) = own_program(root, words) {
        let said = |why: String| format!("`{}` can't be looked at: {why}", program.display());
        let file = File::open(&program).map_err(|error| said(error.to_string()))?;
        let mut content = Vec::new();
        let read = file.take(PROGRAM_MAX + 1).read_to_end(&mut content);
        read.map_err(|error| said(error.to_string()))?;
        if content.len() as u64 > PROGRAM_MAX {
            return Err(said(format!("it is larger than {} MB", PROGRAM_MAX >> 20)));
        }
        bytes.extend_from_slice(Hash::of(&content).bytes());
    }
    Ok(Hash::of(&bytes))
}

/// The file of the project that would be run: the program itself, or the script
/// that a program from elsewhere is given first.
fn own_program(root: &Path, words: &[String]) -> Option<PathBuf> {
    let root = fs::canonicalize(root).ok()?;
    let inside = |word: &String| {
        let path = fs::canonicalize(root.join(word)).ok()?;
        (path.starts_with(&root) && path.is_file()).then_some(path)
    };
    let (program, rest) = words.split_first()?;
    let own = program.contains('/').then(|| inside(program)).flatten();
    own.or_else(|| rest.iter().find_map(inside))
}
