//! One thing that a project would do: what is shown of it, and the hash that a
//! decision about it is bound to.
//!
//! Never: does it.

use std::fmt;
use std::path::Path;

use longhaul_core::raw::Hash;
use serde::{Deserialize, Serialize};

use crate::config::env::Env;
use crate::mcp::expand::expand_known;
use crate::mcp::file::McpFile;
use crate::mcp::name::FILE_NAME;
use crate::mcp::server::{Server, Way, argv};
use crate::trust::filed;
use crate::trust::named::{Named, add, without_variables};

/// So much of one line is shown; the rest is to be looked up in the file.
const LINE_MAX: usize = 2_000;

/// So much `.env` may fill in for all servers together: more is nothing that a person
/// looked at.
const FILED_MAX: usize = 256 << 10;

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
    /// A provider of models, asked where the project says or with what it says.
    Provider,
    /// An agent that runs commands on this machine.
    Shell,
    /// The address that messages are posted to.
    Webhook,
    /// Addresses that are open beyond the public ones.
    Outbound,
    /// An address that is asked about the world for an agent.
    PerceptionUrl,
    /// How the server can be reached.
    Server,
}

impl Kind {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Perception => "perception",
            Self::Deliver => "deliver",
            Self::Provider => "provider",
            Self::Shell => "shell",
            Self::Webhook => "webhook",
            Self::Outbound => "outbound",
            Self::PerceptionUrl => "perception_url",
            Self::Server => "server",
        }
    }

    /// What it is for, in a few words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Mcp => "servers of tools, started and asked outside any sandbox",
            Self::Perception => "a program that looks at the world, outside any sandbox",
            Self::Deliver => "a program that messages are handed to, outside any sandbox",
            Self::Provider => {
                "a provider of models at an address or with a key of the project's choice"
            }
            Self::Shell => "an agent that runs commands on this machine, outside any sandbox",
            Self::Webhook => "an address that messages of your agents are posted to",
            Self::Outbound => "addresses that tools and perception may ask, be they private",
            Self::PerceptionUrl => "an address that is sent the input of every run",
            Self::Server => "how the server can be reached, and by whom",
        }
    }

    /// What the project does with it.
    pub const fn does(self) -> &'static str {
        match self {
            Self::Mcp | Self::Perception | Self::Deliver => "run",
            Self::Provider | Self::PerceptionUrl => "ask",
            Self::Shell | Self::Webhook => "use",
            Self::Outbound | Self::Server => "open",
        }
    }

    /// So many of its versions that a person looked at stay trusted. A run has the
    /// agent that it began with, and goes on when the file is another; all else is
    /// run as it stands now.
    pub const fn kept(self) -> usize {
        match self {
            Self::Shell => 16,
            Self::Mcp
            | Self::Perception
            | Self::Deliver
            | Self::Provider
            | Self::Webhook
            | Self::Outbound
            | Self::PerceptionUrl
            | Self::Server => 1,
        }
    }

    /// What else helps where `longhaul trust` shows another version than a run has.
    pub const fn pinned(self) -> &'static str {
        match self {
            Self::Shell => {
                " A run has the file that it began with: if there is nothing to decide, that \
                 one is gone, and the task is to be submitted again."
            }
            Self::Mcp
            | Self::Perception
            | Self::Deliver
            | Self::Provider
            | Self::Webhook
            | Self::Outbound
            | Self::PerceptionUrl
            | Self::Server => "",
        }
    }

    /// What does not happen without trust.
    pub const fn withheld(self) -> &'static str {
        match self {
            Self::Mcp | Self::Perception | Self::Deliver => "nothing of it is run",
            Self::Provider | Self::Webhook | Self::PerceptionUrl => "nothing is sent to it",
            Self::Shell => "no command is run",
            Self::Outbound => "none of them is open",
            Self::Server => "no server is started",
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
            Kind::Provider => write!(f, "the provider `{}`", self.name),
            Kind::Shell => match self.name.split_once(':') {
                Some((tool, agent)) => write!(f, "the tool `{tool}` of agent `{agent}`"),
                None => write!(f, "the tool `{}`", self.name),
            },
            Kind::Webhook => write!(f, "the address `{}` that messages go to", self.name),
            Kind::Outbound => write!(f, "the list `{}`", self.name),
            Kind::PerceptionUrl => write!(f, "the perception address `{}`", self.name),
            Kind::Server => write!(f, "the table `{}`", self.name),
        }
    }
}

impl Thing {
    /// The servers of a project as they stand on disk now; none: it names none.
    pub fn mcp(file: &McpFile) -> Option<Self> {
        let hash = file.hash?;
        let named = scripts(file);
        let lines = file.servers.iter().map(|server| shown(server, &file.filed));
        let mut shown: Vec<String> = lines.flatten().collect();
        let files = named.as_ref().ok().and_then(Named::said);
        shown.extend(files.map(|files| cut(&files)));
        let mut bytes = hash.bytes().to_vec();
        let bare = bytes.len();
        filed::bind(&file.filed, &mut bytes);
        Some(Self {
            kind: Kind::Mcp,
            name: FILE_NAME.to_owned(),
            hash: named.and_then(|named| match named.is_empty() && bytes.len() == bare {
                true => Ok(hash),
                false => named.hash(bytes),
            }),
            shown,
            used_by: Vec::new(),
        })
    }

    /// Something that is no file: bound to these words.
    pub(crate) fn said(kind: Kind, name: &str, words: &[&str], shown: Vec<String>) -> Self {
        let mut bytes = Vec::new();
        for word in words {
            add(&mut bytes, word.as_bytes());
        }
        Self {
            kind,
            name: name.to_owned(),
            hash: Ok(Hash::of(&bytes)),
            shown: shown.iter().map(|line| cut(line)).collect(),
            used_by: Vec::new(),
        }
    }

    /// A program with its arguments, started in this folder, as they stand on disk now.
    pub fn command(kind: Kind, root: &Path, words: &[String]) -> Self {
        let name = argv(words);
        let mut named = Named::of(root);
        named.command(root, &words.iter().collect::<Vec<_>>());
        let mut bytes = Vec::new();
        for word in words {
            add(&mut bytes, word.as_bytes());
        }
        let files = named.said().map(|files| cut(&files));
        Self {
            kind,
            hash: named.hash(bytes),
            shown: [cut(&name)].into_iter().chain(files).collect(),
            name,
            used_by: Vec::new(),
        }
    }
}

/// What the project brings itself for its servers to be started. The error says why
/// that can't be looked at.
fn scripts(file: &McpFile) -> Result<Named, String> {
    let root = file.path.parent().unwrap_or(&file.path);
    let mut named = Named::of(root);
    let mut left = FILED_MAX;
    // As the project's own `.env` fills it in.
    let mut fill = |text: &String| {
        let filled = expand_known(text, &file.filed).map_err(|why| why.to_string())?;
        if filled != *text {
            let rest = left.checked_sub(filled.len());
            left = rest.ok_or_else(|| format!("`.env` fills in more than {FILED_MAX} bytes"))?;
        }
        Ok(filled)
    };
    for server in file.servers.iter().filter(|server| !server.disabled) {
        let Some(Way::Stdio {
            command,
            args,
            env,
            cwd,
        }) = &server.way
        else {
            continue;
        };
        let words: Vec<&String> = [command].into_iter().chain(args).collect();
        let filled = words.iter().map(|word| fill(word));
        let filled = filled.collect::<Result<Vec<String>, String>>()?;
        let filled: Vec<&String> = filled.iter().collect();
        let values = env.values().map(&mut fill);
        let values = values.collect::<Result<Vec<String>, String>>()?;
        let mut folders = vec![root.to_owned()];
        if let Some(written) = cwd {
            for cwd in [written.clone(), fill(written)?] {
                let bare = without_variables(&cwd);
                folders.push(root.join(bare.trim_start_matches('/')));
                folders.push(root.join(cwd));
            }
        }
        folders.sort_unstable();
        folders.dedup();
        for folder in &folders {
            named.command(folder, &words);
            named.command(folder, &filled);
            for value in env.values().chain(&values) {
                named.word(folder, value);
            }
        }
    }
    Ok(named)
}

/// What would be started for a server, and what it is handed.
fn shown(server: &Server, filed: &Env) -> Vec<String> {
    let Some(way) = &server.way else {
        return Vec::new();
    };
    let off = if server.disabled { " (disabled)" } else { "" };
    let mut lines = vec![format!("{}{off}: {}", server.name, cut(&way.said()))];
    if let Way::Stdio { cwd: Some(cwd), .. } = way {
        lines.push(format!("  started in: {}", cut(&argv([cwd]))));
    }
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
    if !server.disabled {
        let said = filed::said(way, filed);
        lines.extend(said.iter().map(|said| format!("  {}", cut(said))));
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
