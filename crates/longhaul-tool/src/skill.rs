//! `read_skill`: what a skill says, and the files that belong to it.
//!
//! Never: a skill that the agent's file does not list. It leaves no skill's folder,
//! follows no link, and opens nothing that is closed to agents.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure};
use longhaul_core::time::Millis;

use crate::filename_fold::escaped;
use crate::files::path::{self, SKILL};
use crate::files::protected::{self, Access};
use crate::files::text::decode_utf8;
use crate::safe_dir::{DirHandle, FsError, SafeDir};
use crate::tool_support::{TIMEOUT, run_blocking};
use crate::typed::{TypedTool, TypedToolError, typed};

/// What introduces a skill.
const SKILL_FILE: &str = "SKILL.md";

/// The longest file that is shown, in bytes.
const FILE_BYTES_MAX: usize = 256 * 1024;

/// So many files of a skill are listed.
const LISTED_MAX: usize = 200;

/// So deep it is looked for them.
const DEPTH_MAX: usize = 5;

/// The folders of a project that hold skills.
#[derive(Debug, Clone)]
pub struct Skills {
    root: PathBuf,
    folders: Vec<Vec<String>>,
    protected: Vec<PathBuf>,
}

impl Skills {
    /// The skills in these folders of the directory `root`, the stronger first.
    pub fn new(root: impl Into<PathBuf>, folders: &[&str]) -> Self {
        let parts = |folder: &&str| folder.split('/').map(str::to_owned).collect();
        Self {
            root: root.into(),
            folders: folders.iter().map(parts).collect(),
            protected: Vec::new(),
        }
    }

    /// Closes these files and folders to agents.
    pub fn with_protected(mut self, kept: impl IntoIterator<Item = PathBuf>) -> Self {
        self.protected.extend(kept);
        self
    }

    /// `read_skill` over these folders.
    pub fn tool(self) -> Result<Arc<dyn Tool>, TypedToolError> {
        typed(ReadSkill {
            dir: SafeDir::new(self.root).with_protected(self.protected),
            folders: self.folders.into(),
        })
    }
}

/// Reads skills.
#[derive(Debug)]
struct ReadSkill {
    dir: SafeDir,
    folders: Arc<[Vec<String>]>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The skill's name
    skill: String,
    /// A file of the skill, as its text or the list names it, such as `references/api.md`; what
    /// the skill itself says unless given
    path: Option<String>,
}

#[async_trait]
impl TypedTool for ReadSkill {
    type Input = Input;
    const NAME: &'static str = "read_skill";
    const DESCRIPTION: &'static str = "Reads a skill: what it says, and the list of the files \
        that belong to it. Read a skill before you do what it is for. With a path it reads one of \
        those files.";
    const CLASS: EffectClass = EffectClass::Pure;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    /// The skill's name, with the path behind it.
    fn raw_subjects(&self, input: &Value) -> Vec<String> {
        let skill = input["skill"].as_str().unwrap_or_default();
        let path = input["path"].as_str().filter(|path| !path.is_empty());
        vec![match path {
            Some(path) => format!("{skill}/{path}"),
            None => skill.to_owned(),
        }]
    }

    async fn call(&self, input: Input, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let skill = check_listed(&ctx.skills, &input.skill).map_err(failure)?;
        let (place, folders) = (self.dir.clone(), Arc::clone(&self.folders));
        run_blocking(move || read_skill((&place, &folders), &skill, input.path.as_deref())).await
    }
}

fn failure(why: String) -> ToolFailure {
    ToolFailure::new(format!("The skill was not read: {why}."))
}

/// The skill of this name, if it is one of these.
fn check_listed(skills: &[String], name: &str) -> Result<String, String> {
    let name = name.trim();
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(fits) {
        return Err("a skill's name has lower-case letters, digits and hyphens".into());
    }
    if skills.iter().any(|skill| skill == name) {
        return Ok(name.to_owned());
    }
    let name = escaped(name);
    Err(match skills {
        [] => format!("`{name}` is no skill of yours, and you have none"),
        skills => format!("`{name}` is no skill of yours; you have: {}", skills.join(", ")),
    })
}

fn read_skill(
    (place, folders): (&SafeDir, &[Vec<String>]),
    skill: &str,
    path: Option<&str>,
) -> Result<ToolOutput, ToolFailure> {
    let folder = find_skill(place, folders, skill).map_err(failure)?;
    // Models send an empty text for what they leave out.
    let path = path.map(str::trim);
    let path = path.filter(|path| !path.is_empty() && *path != SKILL_FILE);
    let shown = match path {
        Some(path) => read_skill_file(folder, skill, path),
        None => render_skill(&folder, skill),
    };
    shown.map(ToolOutput::text).map_err(failure)
}

/// The folder of a skill, in the first place that has it.
fn find_skill(place: &SafeDir, folders: &[Vec<String>], skill: &str) -> Result<DirHandle, String> {
    for parts in folders {
        let parts: Vec<String> = parts.iter().cloned().chain([skill.to_owned()]).collect();
        match place.open_dir(&parts) {
            Ok(folder) => return Ok(folder),
            Err(FsError::NotFound) => {}
            Err(trouble) => return Err(format!("`{skill}` {trouble}")),
        }
    }
    Err(format!("there is no skill `{skill}`"))
}

/// What a skill says, and what belongs to it.
fn render_skill(folder: &DirHandle, skill: &str) -> Result<String, String> {
    let said = read_text(folder, SKILL_FILE)
        .map_err(|why| format!("`{SKILL_FILE}` of `{skill}` {why}"))?;
    let mut shown = without_front_matter(&said).trim().to_owned();
    let mut files = Vec::new();
    let more = list_files(folder, "", 0, &mut files);
    if !files.is_empty() {
        files.sort();
        shown.push_str("\n\n[Files of this skill, to be read with `path`:]\n");
        shown.push_str(&files.join("\n"));
    }
    if more {
        shown.push_str("\n[There is more that is not listed.]");
    }
    Ok(shown)
}

fn read_skill_file(folder: DirHandle, skill: &str, path: &str) -> Result<String, String> {
    let mut parts = path::parts_below(&SKILL, &[], path).map_err(|bad| bad.to_string())?;
    if let Some(why) = protected::protected_reason(&parts, Access::Read) {
        return Err(format!("`{path}` {why}"));
    }
    let Some(file) = parts.pop() else {
        return Err(format!("`{path}` is the skill's folder and not a file"));
    };
    let mut folder = folder;
    let said = |why: String| format!("`{path}` of `{skill}` {why}; read the skill for its list");
    for part in &parts {
        folder = folder.open_child(part).map_err(|trouble| said(trouble.to_string()))?;
    }
    read_text(&folder, &file).map_err(said)
}

/// The text of a file.
fn read_text(folder: &DirHandle, file: &str) -> Result<String, String> {
    let taken = folder.read(file, FILE_BYTES_MAX);
    let taken = taken.map_err(|trouble| trouble.to_string())?;
    if taken.is_truncated {
        return Err(format!("is longer than {FILE_BYTES_MAX} bytes"));
    }
    decode_utf8(taken.bytes)
}

/// What stands below the front matter.
fn without_front_matter(said: &str) -> &str {
    let said = said.strip_prefix('\u{feff}').unwrap_or(said);
    let mut lines = said.split_inclusive('\n');
    let is_fence = |line: &str| line.trim_end() == "---";
    let Some(first) = lines.next().filter(|line| is_fence(line)) else {
        return said;
    };
    let mut at = first.len();
    for line in lines {
        at += line.len();
        if is_fence(line) {
            return &said[at..];
        }
    }
    said
}

/// Lists the plain files below a folder, and says whether some were left out.
fn list_files(folder: &DirHandle, above: &str, depth: usize, files: &mut Vec<String>) -> bool {
    let Ok(mut entries) = folder.entries(LISTED_MAX + 1) else {
        return true;
    };
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let mut more = entries.len() > LISTED_MAX;
    for (name, kind) in entries {
        let path = format!("{above}{name}");
        let hidden = name.starts_with('.') || depth == 0 && name == SKILL_FILE;
        if hidden
            || protected::protected_reason(std::slice::from_ref(&name), Access::Read).is_some()
        {
            continue;
        }
        if files.len() == LISTED_MAX {
            return true;
        }
        if kind == FileType::RegularFile {
            files.push(path);
        } else if kind == FileType::Directory {
            more |= match folder.enter_known(&name) {
                Ok(below) if depth < DEPTH_MAX => {
                    list_files(&below, &format!("{path}/"), depth + 1, files)
                }
                Ok(_) | Err(_) => true,
            };
        }
    }
    more
}

#[cfg(test)]
mod tests {
    use super::without_front_matter;

    #[test]
    fn front_matter_is_removed_from_a_skill() {
        for (said, expected) in [
            ("---\nname: a\n---\n\nHi\n---\n", "\nHi\n---\n"),
            ("\u{feff}---\r\nname: a\r\n---\r\nHi", "Hi"),
            ("Hi", "Hi"),
            ("---\nnever closed", "---\nnever closed"),
            ("", ""),
        ] {
            assert_eq!(without_front_matter(said), expected);
        }
    }
}
