//! The tool `read_skill`, which reads a skill and its files.
//!
//! Invariant: only skills that the agent's file lists can be read. Access stays in the skill's
//! folder, follows no symbolic link, and opens no protected file.

use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext};
use longhaul_core::slug::slugify;

use crate::disk_tool::{DiskTool, Reason, disk_tool};
use crate::filename_fold::escape_for_message;
use crate::files::path::{self, SKILL};
use crate::files::protected::{self, PathAccess};
use crate::files::text::decode_utf8;
use crate::location::FileLocation;
use crate::safe_dir::{DirHandle, FsError, SafeDir};
use crate::typed::TypedToolError;
use crate::vault::front_matter::split_at_fences;

/// Name of the main file of a skill.
const SKILL_FILE: &str = "SKILL.md";

/// Maximum size of a skill's file in bytes.
const FILE_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of files of a skill that are listed.
const LISTED_MAX: usize = 200;

/// Maximum number of folders among which a skill is searched.
const FOLDERS_MAX: usize = 1_000;

/// Maximum depth of nested folders that are listed.
const DEPTH_MAX: usize = 5;

/// Returns the tool `read_skill` for the skills in these folders of `root`. Earlier folders take
/// precedence. Agents can't read the protected files and folders.
pub fn read_skill_tool(
    root: impl Into<FileLocation>,
    folders: &[&str],
    protected: Vec<PathBuf>,
) -> Result<Arc<dyn Tool>, TypedToolError> {
    let parts = |folder: &&str| folder.split('/').map(str::to_owned).collect();
    disk_tool(ReadSkillTool {
        dir: SafeDir::new(root).with_protected_paths(protected),
        folders: folders.iter().map(parts).collect(),
    })
}

#[derive(Debug)]
struct ReadSkillTool {
    dir: SafeDir,
    folders: Vec<Vec<String>>,
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

impl DiskTool for ReadSkillTool {
    type Input = ReadSkillInput;
    const NAME: &'static str = "read_skill";
    const DESCRIPTION: &'static str = "Reads a skill: its text, and the list of the files \
        that belong to it. Read a skill before you do what it describes. With a path it reads one of \
        those files.";
    const CLASS: EffectClass = EffectClass::Pure;
    const FAILURE: &'static str = "The skill was not read";

    /// Returns `SKILL` or `SKILL/PATH` as the text that approval rules match.
    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        let skill = input["skill"].as_str().unwrap_or_default();
        let path = input["path"].as_str().filter(|path| !path.is_empty());
        vec![path.map_or_else(|| skill.to_owned(), |path| format!("{skill}/{path}"))]
    }

    fn call(&self, input: ReadSkillInput, ctx: &ToolContext) -> Result<ToolOutput, Reason> {
        let skill = input.skill.trim();
        check_skill_listed(&ctx.skills, skill)?;
        let folder = self.open_skill_folder(skill)?;
        // Models send an empty text for fields they leave out.
        let path = input.path.as_deref().map(str::trim);
        let text = match path.filter(|path| !path.is_empty() && *path != SKILL_FILE) {
            Some(path) => read_skill_file(folder, skill, path)?,
            None => render_skill(&folder, skill)?,
        };
        Ok(ToolOutput::text(text))
    }
}

impl ReadSkillTool {
    /// Opens the folder of a skill, in the first of the folders that contains it. The last of the
    /// folders has the skills of Claude Code, whose names may be made from those of their folders.
    fn open_skill_folder(&self, skill: &str) -> Result<DirHandle, String> {
        let titled =
            self.folders.last().and_then(|parts| Some((parts, self.find_title(parts, skill)?)));
        let named = self.folders.iter().map(|parts| (parts, skill.to_owned()));
        for (parts, name) in named.chain(titled) {
            let parts: Vec<String> = parts.iter().cloned().chain([name]).collect();
            match self.dir.open_dir(&parts) {
                Ok(folder) => return Ok(folder),
                Err(FsError::NotFound) => {}
                Err(error) => return Err(format!("`{skill}`: {error}")),
            }
        }
        Err(format!("there is no skill `{skill}`"))
    }

    /// Returns the name of the subfolder from whose name the name of the skill is made.
    fn find_title(&self, parts: &[String], skill: &str) -> Option<String> {
        let entries = self.dir.open_dir(parts).ok()?.entries(FOLDERS_MAX).ok()?;
        let names = entries.into_iter().map(|(name, _)| name);
        names.filter(|name| !name.starts_with('.') && slugify(name) == skill).min()
    }
}

/// Checks that the agent's file lists the skill. The error says which skills the agent has.
fn check_skill_listed(skills: &[String], name: &str) -> Result<(), String> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(is_allowed) {
        return Err("a skill's name consists of lower-case letters, digits and hyphens".into());
    }
    if skills.iter().any(|skill| skill == name) {
        return Ok(());
    }
    let name = escape_for_message(name);
    Err(match skills {
        [] => format!("`{name}` is not one of your skills; you have none"),
        skills => format!("`{name}` is not one of your skills; you have: {}", skills.join(", ")),
    })
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

fn read_skill_file(mut folder: DirHandle, skill: &str, path: &str) -> Result<String, Reason> {
    let parts = path::parse_below(&SKILL, &[], path)?;
    if let Some(problem) = protected::protection_reason(&parts, PathAccess::Read) {
        return Err(format!("`{path}` {problem}").into());
    }
    let Some((file, parts)) = parts.split_last() else {
        return Err(format!("`{path}` is the skill's folder and not a file").into());
    };
    let describe = |reason: Reason| {
        format!("`{path}` of `{skill}`: {reason}; read the skill to see its files")
    };
    for part in parts {
        folder = folder.open_folder(part).map_err(|error| describe(error.into()))?;
    }
    Ok(read_skill_text(&folder, file).map_err(describe)?)
}

fn read_skill_text(folder: &DirHandle, file: &str) -> Result<String, Reason> {
    let snapshot = folder.open_file(file)?.read_snapshot(FILE_BYTES_MAX)?;
    if snapshot.is_truncated {
        return Err(format!("the file is longer than {FILE_BYTES_MAX} bytes").into());
    }
    Ok(decode_utf8(snapshot.bytes)?)
}

/// Returns the text of a skill without its front matter.
fn strip_front_matter(text: &str) -> &str {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    split_at_fences(text).map_or(text, |(_, body)| body)
}

/// Adds the regular files below a folder to `files`. Returns whether some files were left out.
fn list_skill_files(
    folder: &DirHandle,
    path_prefix: &str,
    depth: usize,
    files: &mut Vec<String>,
) -> bool {
    let Ok(mut entries) = folder.entries(LISTED_MAX + 1) else {
        return true;
    };
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let mut is_truncated = entries.len() > LISTED_MAX;
    for (name, kind) in entries {
        let path = format!("{path_prefix}{name}");
        let parts = [name];
        let [name] = &parts;
        let is_hidden = name.starts_with('.') || path == SKILL_FILE;
        if is_hidden || protected::protection_reason(&parts, PathAccess::Read).is_some() {
            continue;
        }
        if files.len() == LISTED_MAX {
            return true;
        }
        if kind == FileType::RegularFile {
            files.push(path);
        } else if kind == FileType::Directory {
            is_truncated |= match folder.open_listed_folder(name) {
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
