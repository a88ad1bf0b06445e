//! The tool `read_skill`, which reads a skill and its files.
//!
//! Invariant: only skills that the agent's file lists can be read. Access stays in the skill's
//! folder, follows no symbolic link, and opens no protected file.

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

use crate::filename_fold::escape_for_message;
use crate::files::path::{self, SKILL};
use crate::files::protected::{self, PathAccess};
use crate::files::text::decode_utf8;
use crate::safe_dir::{DirHandle, FsError, SafeDir};
use crate::tool_support::{TIMEOUT, run_on_blocking_thread};
use crate::typed::{TypedTool, TypedToolError, typed};

/// Name of the main file of a skill.
const SKILL_FILE: &str = "SKILL.md";

/// Maximum size of a skill's file in bytes.
const FILE_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of files of a skill that are listed.
const LISTED_MAX: usize = 200;

/// Maximum depth of nested folders that are listed.
const DEPTH_MAX: usize = 5;

/// The folders of a project that hold skills.
#[derive(Debug, Clone)]
pub struct SkillFolders {
    root: PathBuf,
    folders: Vec<Vec<String>>,
    protected: Vec<PathBuf>,
}

impl SkillFolders {
    /// Creates the collection of skills in these folders of `root`. Earlier folders take
    /// precedence.
    pub fn new(root: impl Into<PathBuf>, folders: &[&str]) -> Self {
        let parts = |folder: &&str| folder.split('/').map(str::to_owned).collect();
        Self {
            root: root.into(),
            folders: folders.iter().map(parts).collect(),
            protected: Vec::new(),
        }
    }

    /// Makes these files and folders unreadable for agents.
    pub fn with_protected_paths(mut self, protected: impl IntoIterator<Item = PathBuf>) -> Self {
        self.protected.extend(protected);
        self
    }

    /// Creates the tool `read_skill` for the skills in these folders.
    pub fn into_read_skill_tool(self) -> Result<Arc<dyn Tool>, TypedToolError> {
        typed(ReadSkillTool {
            dir: SafeDir::new(self.root).with_protected_paths(self.protected),
            folders: self.folders.into(),
        })
    }
}

#[derive(Debug)]
struct ReadSkillTool {
    dir: SafeDir,
    folders: Arc<[Vec<String>]>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadSkillInput {
    /// The skill's name
    skill: String,
    /// A file of the skill, as in its text or file list, such as `references/api.md`; default: the
    /// skill itself
    path: Option<String>,
}

#[async_trait]
impl TypedTool for ReadSkillTool {
    type Input = ReadSkillInput;
    const NAME: &'static str = "read_skill";
    const DESCRIPTION: &'static str = "Reads a skill: its text, and the list of the files \
        that belong to it. Read a skill before you do what it describes. With a path it reads one of \
        those files.";
    const CLASS: EffectClass = EffectClass::Pure;
    const TIMEOUT: Option<Millis> = TIMEOUT;

    /// Returns `SKILL` or `SKILL/PATH` as the text that approval rules match.
    fn rule_match_texts_from_json(&self, input: &Value) -> Vec<String> {
        let skill = input["skill"].as_str().unwrap_or_default();
        let path = input["path"].as_str().filter(|path| !path.is_empty());
        vec![match path {
            Some(path) => format!("{skill}/{path}"),
            None => skill.to_owned(),
        }]
    }

    async fn call(
        &self,
        input: ReadSkillInput,
        ctx: &ToolContext,
    ) -> Result<ToolOutput, ToolFailure> {
        let skill = check_skill_listed(&ctx.skills, &input.skill).map_err(skill_failure)?;
        let (dir, folders) = (self.dir.clone(), Arc::clone(&self.folders));
        run_on_blocking_thread(move || read_skill((&dir, &folders), &skill, input.path.as_deref()))
            .await
    }
}

fn skill_failure(reason: String) -> ToolFailure {
    ToolFailure::new(format!("The skill was not read: {reason}."))
}

/// Returns the name of the skill if the agent's file lists it. The error says which skills the
/// agent has.
fn check_skill_listed(skills: &[String], name: &str) -> Result<String, String> {
    let name = name.trim();
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(is_allowed) {
        return Err("a skill's name consists of lower-case letters, digits and hyphens".into());
    }
    if skills.iter().any(|skill| skill == name) {
        return Ok(name.to_owned());
    }
    let name = escape_for_message(name);
    Err(match skills {
        [] => format!("`{name}` is not one of your skills; you have none"),
        skills => format!("`{name}` is not one of your skills; you have: {}", skills.join(", ")),
    })
}

fn read_skill(
    (dir, folders): (&SafeDir, &[Vec<String>]),
    skill: &str,
    path: Option<&str>,
) -> Result<ToolOutput, ToolFailure> {
    let folder = open_skill_folder(dir, folders, skill).map_err(skill_failure)?;
    // Models send an empty text for fields they leave out.
    let path = path.map(str::trim);
    let path = path.filter(|path| !path.is_empty() && *path != SKILL_FILE);
    let text = match path {
        Some(path) => read_skill_file(folder, skill, path),
        None => render_skill(&folder, skill),
    };
    text.map(ToolOutput::text).map_err(skill_failure)
}

/// Opens the folder of a skill, in the first of these folders that contains it.
fn open_skill_folder(
    dir: &SafeDir,
    folders: &[Vec<String>],
    skill: &str,
) -> Result<DirHandle, String> {
    for parts in folders {
        let parts: Vec<String> = parts.iter().cloned().chain([skill.to_owned()]).collect();
        match dir.open_dir(&parts) {
            Ok(folder) => return Ok(folder),
            Err(FsError::NotFound) => {}
            Err(error) => return Err(format!("`{skill}`: {error}")),
        }
    }
    Err(format!("there is no skill `{skill}`"))
}

/// Returns the main text of a skill, followed by the list of the skill's files.
fn render_skill(folder: &DirHandle, skill: &str) -> Result<String, String> {
    let source = read_skill_text(folder, SKILL_FILE)
        .map_err(|reason| format!("`{SKILL_FILE}` of `{skill}`: {reason}"))?;
    let mut text = strip_front_matter(&source).trim().to_owned();
    let mut files = Vec::new();
    let is_truncated = list_skill_files(folder, "", 0, &mut files);
    if !files.is_empty() {
        files.sort();
        text.push_str("\n\n[Files of this skill, to be read with `path`:]\n");
        text.push_str(&files.join("\n"));
    }
    if is_truncated {
        text.push_str("\n[There are more files that are not listed.]");
    }
    Ok(text)
}

fn read_skill_file(folder: DirHandle, skill: &str, path: &str) -> Result<String, String> {
    let mut parts =
        path::parse_path_parts_below_roots(&SKILL, &[], path).map_err(|error| error.to_string())?;
    if let Some(problem) = protected::protected_path_reason(&parts, PathAccess::Read) {
        return Err(format!("`{path}` {problem}"));
    }
    let Some(file) = parts.pop() else {
        return Err(format!("`{path}` is the skill's folder and not a file"));
    };
    let mut folder = folder;
    let describe = |reason: String| {
        format!("`{path}` of `{skill}`: {reason}; read the skill to see its files")
    };
    for part in &parts {
        folder = folder.open_child_folder(part).map_err(|error| describe(error.to_string()))?;
    }
    read_skill_text(&folder, &file).map_err(describe)
}

fn read_skill_text(folder: &DirHandle, file: &str) -> Result<String, String> {
    let snapshot = folder.read_file(file, FILE_BYTES_MAX);
    let snapshot = snapshot.map_err(|error| error.to_string())?;
    if snapshot.is_truncated {
        return Err(format!("the file is longer than {FILE_BYTES_MAX} bytes"));
    }
    decode_utf8(snapshot.bytes)
}

/// Returns the text after the front matter, which is YAML between two `---` lines.
fn strip_front_matter(text: &str) -> &str {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let is_fence = |line: &str| line.trim_end() == "---";
    let Some(first) = lines.next().filter(|line| is_fence(line)) else {
        return text;
    };
    let mut at = first.len();
    for line in lines {
        at += line.len();
        if is_fence(line) {
            return &text[at..];
        }
    }
    text
}

/// Adds the regular files below a folder to `files`. Returns whether some files were left out.
fn list_skill_files(
    folder: &DirHandle,
    path_prefix: &str,
    depth: usize,
    files: &mut Vec<String>,
) -> bool {
    let Ok(mut entries) = folder.entries_with_types(LISTED_MAX + 1) else {
        return true;
    };
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let mut is_truncated = entries.len() > LISTED_MAX;
    for (name, kind) in entries {
        let path = format!("{path_prefix}{name}");
        let is_hidden = name.starts_with('.') || depth == 0 && name == SKILL_FILE;
        if is_hidden
            || protected::protected_path_reason(std::slice::from_ref(&name), PathAccess::Read)
                .is_some()
        {
            continue;
        }
        if files.len() == LISTED_MAX {
            return true;
        }
        if kind == FileType::RegularFile {
            files.push(path);
        } else if kind == FileType::Directory {
            is_truncated |= match folder.open_child_folder_without_name_check(&name) {
                Ok(child) if depth < DEPTH_MAX => {
                    list_skill_files(&child, &format!("{path}/"), depth + 1, files)
                }
                Ok(_) | Err(_) => true,
            };
        }
    }
    is_truncated
}

#[cfg(test)]
mod tests {
    use super::strip_front_matter;

    #[test]
    fn front_matter_is_removed_from_a_skill() {
        for (text, expected) in [
            ("---\nname: a\n---\n\nHi\n---\n", "\nHi\n---\n"),
            ("\u{feff}---\r\nname: a\r\n---\r\nHi", "Hi"),
            ("Hi", "Hi"),
            ("---\nnever closed", "---\nnever closed"),
            ("", ""),
        ] {
            assert_eq!(strip_front_matter(text), expected);
        }
    }
}
