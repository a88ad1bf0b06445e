//! Skills in the Agent Skills format. A skill is a folder with a file `SKILL.md`, which has a name
//! and a description, and with other files.
//!
//! Only the front matter of `SKILL.md` is parsed here. An agent reads the rest when it needs the
//! skill.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use longhaul_core::slug::slugify;
use longhaul_engine::agent::config::Skill;

use crate::agents::diagnostics::Diagnostics;
use crate::agents::files;
use crate::agents::load::replaced_names_note;
use crate::agents::load_context::AgentLoadContext;
use crate::agents::problem::AgentFileProblem;
use crate::project_file;
use crate::spanned::{NodeValue, Position, TableEntry, yaml};

/// Folders of a project that contain skills, in order of precedence.
pub const SKILL_FOLDERS: &[&str] = &["skills", ".claude/skills"];

/// Name of the file that describes a skill.
pub const SKILL_FILE: &str = "SKILL.md";

const NAME_CHARS_MAX: usize = 64;
const DESCRIPTION_CHARS_MAX: usize = 1_024;

/// Maximum size of a `SKILL.md` in bytes.
const BYTES_MAX: usize = files::FRONT_MATTER_BYTES_MAX + files::BODY_BYTES_MAX;

const KEYS: &[&str] =
    &["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

/// The skills of a project, and the problems of their files.
#[derive(Debug, Clone, Default)]
pub struct LoadedSkills {
    /// Skills that agents can use, sorted by name.
    pub skills: Vec<Skill>,
    /// Names of the skills whose files are invalid.
    pub broken_names: Vec<String>,
    pub problems: Vec<AgentFileProblem>,
    /// Remarks about skill files that are not errors, with the path of each file.
    pub notes: Vec<(PathBuf, String)>,
}

/// Loads the skills of the project in `root`. Messages show `display_root` as the project's path.
pub fn load_skills(root: &Path, display_root: &Path) -> LoadedSkills {
    let mut skills = LoadedSkills::default();
    let mut path_by_name: BTreeMap<String, PathBuf> = BTreeMap::new();
    for folder in SKILL_FOLDERS {
        let is_own = *folder == SKILL_FOLDERS[0];
        let mut replaced_names = Vec::new();
        for (name, folder_name) in skill_names_and_folders(&root.join(folder), is_own) {
            let file = Path::new(folder).join(&folder_name).join(SKILL_FILE);
            let display_path = display_root.join(&file);
            if let Some(hiding_file) = path_by_name.get(&name) {
                let note = format!(
                    "the skill is not used, since {} has the same name",
                    hiding_file.display()
                );
                skills.notes.push((display_path, note));
                continue;
            }
            path_by_name.insert(name.clone(), display_path.clone());
            let mut diagnostics = Diagnostics::new(AgentLoadContext::new(root, &[]), &display_path);
            let skill = diagnostics.parse_skill(&file, &name, is_own);
            let skill = skill.filter(|_| diagnostics.is_valid());
            let other_name = (name != folder_name).then(|| folder_name.clone());
            let replaced = other_name.or(diagnostics.replaced_name.take());
            replaced_names.extend(replaced.map(|old| (old, name.clone())));
            skills.problems.extend(diagnostics.take_problems());
            let notes = diagnostics.notes.into_iter();
            skills.notes.extend(notes.map(|note| (display_path.clone(), note)));
            match skill {
                Some(skill) => skills.skills.push(skill),
                None => skills.broken_names.push(name),
            }
        }
        if let Some(note) = replaced_names_note("a skill", &replaced_names) {
            skills.notes.push((display_root.join(folder), note));
        }
    }
    skills.skills.sort_by(|a, b| a.name.cmp(&b.name));
    skills
}

/// Returns the subfolders that contain a `SKILL.md`, each with the name of its skill: the folder's
/// name, or a name made from it if the skill is not the project's own.
fn skill_names_and_folders(folder: &Path, is_own: bool) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let entries =
        entries.filter(|entry| fs::symlink_metadata(entry.path().join(SKILL_FILE)).is_ok());
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let names = names.filter(|name| !name.starts_with('.')).map(|folder| {
        let slug = Some(slugify(&folder)).filter(|slug| !is_own && is_skill_name(slug));
        match slug.filter(|_| !is_skill_name(&folder)) {
            Some(slug) => (slug, folder),
            None => (folder.clone(), folder),
        }
    });
    let mut names: Vec<(String, String)> = names.collect();
    // A folder with a valid name takes precedence, as in the tool `read_skill`.
    names.sort_by_key(|(name, folder)| (name != folder, folder.clone()));
    names
}

impl Diagnostics<'_> {
    /// Parses the front matter of a `SKILL.md`. `None` means that the file is invalid.
    fn parse_skill(&mut self, file: &Path, folder: &str, is_own: bool) -> Option<Skill> {
        let root = self.ctx.root;
        if let Some(link) = project_file::first_symlink(root, file) {
            // The skill tool follows no symbolic links, so an agent could not read this skill later.
            let message = format!(
                "`{}` is a symbolic link; links to skills are not followed",
                link.display()
            );
            return self.reject(Position::START, message);
        }
        let bytes = project_file::read_file_in_project(root, file, BYTES_MAX);
        let bytes =
            bytes.map_err(|error| self.report_invalid(Position::START, error.to_string())).ok()?;
        if !bytes.starts_with(b"---") && !bytes.starts_with("\u{feff}---".as_bytes()) {
            let message = "a skill file starts with a line `---`, its name and description, and another line `---`";
            return self.reject(Position::START, message);
        }
        let parts = files::split_agent_file(&bytes);
        let parts =
            parts.map_err(|(position, message)| self.report_invalid(position, message)).ok()?;
        let node = yaml::parse(&parts.front_matter);
        let node = node.map_err(|error| self.report_invalid(error.position, error.message)).ok()?;
        if node.as_table().is_none() && node.value != NodeValue::Null {
            let message = "the front matter is not a table: write `name:` and `description:`";
            return self.reject(node.position, message);
        }
        let entries = node.as_table().unwrap_or_default();
        let get = |key: &str| entries.iter().find(|entry| entry.key == key);
        // Skills from other sources may have unknown fields, which are harmless.
        let keys = entries.iter().map(|entry| entry.key.as_str());
        for key in keys.filter(|key| !KEYS.contains(key)) {
            self.add_note(format!("the unknown field `{key}` is ignored"));
        }
        // The folder names a skill in `.claude/skills`, whatever the file says.
        if is_own || !is_skill_name(folder) {
            self.check_skill_name(get("name"), folder);
        } else if let Some(name) = get("name").and_then(|entry| entry.node.as_text()) {
            self.replaced_name = (name != folder).then(|| name.to_owned());
        }
        let Some(entry) = get("description") else {
            let message = "a skill needs a `description`: what it does and when to use it";
            return self.reject(Position::START, message);
        };
        let description = self.text(entry)?;
        if description.chars().count() > DESCRIPTION_CHARS_MAX {
            let message =
                format!("`description` is longer than {DESCRIPTION_CHARS_MAX} characters");
            self.report_invalid(entry.node.position, message);
        }
        if get("allowed-tools").is_some() {
            self.add_note(
                "`allowed-tools` has no effect: an agent has only the tools that its own file lists",
            );
        }
        Some(Skill { name: folder.to_owned(), description: description.trim().to_owned() })
    }

    fn check_skill_name(&mut self, entry: Option<&TableEntry>, folder: &str) {
        let Some(entry) = entry else {
            let message = format!("a skill needs a name: write `name: {folder}`");
            return self.report_invalid(Position::START, message);
        };
        let Some(name) = self.text(entry) else {
            return;
        };
        if !is_skill_name(&name) {
            let message = format!(
                "`{name}` is not a valid skill name: use lower-case letters, digits and single hyphens, 64 at most"
            );
            self.report_invalid(entry.node.position, message);
        } else if name != folder {
            let message = format!(
                "the name `{name}` differs from the folder's name: rename the folder or write `name: {folder}`"
            );
            self.report_invalid(entry.node.position, message);
        }
    }
}

/// Whether this is a valid name for a skill.
pub fn is_skill_name(name: &str) -> bool {
    let is_name_char = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let has_misplaced_hyphen = name.starts_with('-') || name.ends_with('-') || name.contains("--");
    !name.is_empty()
        && name.len() <= NAME_CHARS_MAX
        && name.chars().all(is_name_char)
        && !has_misplaced_hyphen
}
