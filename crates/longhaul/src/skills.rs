//! Skills by the Agent Skills format: a folder with a `SKILL.md` that introduces
//! itself, and whatever else belongs to it.
//!
//! Never: reads more than the introduction. The rest is read when an agent asks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use longhaul_engine::agent::config::Skill;

use crate::agents::diagnostics::{Diagnostic, Diagnostics};
use crate::agents::problem::Problem;
use crate::agents::split;
use crate::project_file;
use crate::spanned::{NodeValue, Position, TableEntry, yaml};

/// Where skills are, the stronger first.
pub const SKILL_FOLDERS: &[&str] = &["skills", ".claude/skills"];

/// The file that introduces a skill.
pub const SKILL_FILE: &str = "SKILL.md";

const NAME_CHARS_MAX: usize = 64;
const DESCRIPTION_CHARS_MAX: usize = 1_024;

/// The longest `SKILL.md`, in bytes.
const BYTES_MAX: usize = split::FRONT_MATTER_BYTES_MAX + split::BODY_BYTES_MAX;

const KEYS: &[&str] =
    &["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

/// The skills of a project.
#[derive(Debug, Clone, Default)]
pub struct LoadedSkills {
    /// Those that can be used, by name.
    pub skills: Vec<Skill>,
    /// The names of those that can't.
    pub broken_names: Vec<String>,
    /// Every problem of every file.
    pub problems: Vec<Problem>,
    /// What there is to say of files though they are fine.
    pub notes: Vec<(PathBuf, String)>,
}

/// Loads the skills of the project in `root`, which people know as `said`.
pub fn load(root: &Path, said: &Path) -> LoadedSkills {
    let mut skills = LoadedSkills::default();
    let mut taken: BTreeMap<String, PathBuf> = BTreeMap::new();
    for folder in SKILL_FOLDERS {
        for name in skill_folders(&root.join(folder)) {
            let file = Path::new(folder).join(&name).join(SKILL_FILE);
            let told = said.join(&file);
            if let Some(by) = taken.get(&name) {
                let note = format!("hidden by {}", by.display());
                skills.notes.push((told, note));
                continue;
            }
            taken.insert(name.clone(), told.clone());
            let is_own = *folder == SKILL_FOLDERS[0];
            skills.load_skill(root, &file, (told, name), is_own);
        }
    }
    skills.skills.sort_by(|a, b| a.name.cmp(&b.name));
    skills
}

/// The folders that hold a skill. One without its file is none of ours.
fn skill_folders(folder: &Path) -> Vec<String> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    let found = found.filter(|entry| fs::symlink_metadata(entry.path().join(SKILL_FILE)).is_ok());
    let names = found.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

impl LoadedSkills {
    fn load_skill(
        &mut self,
        root: &Path,
        file: &Path,
        (told, name): (PathBuf, String),
        is_own: bool,
    ) {
        let mut sheet = Diagnostics::default();
        let skill = parse(&mut sheet, root, file, (&name, is_own));
        let notes = sheet.notes.into_iter();
        self.notes.extend(notes.map(|note| (told.clone(), note)));
        match skill.filter(|_| sheet.problems.is_empty()) {
            Some(skill) => self.skills.push(skill),
            None => self.broken_names.push(name),
        }
        sheet.problems.sort_by_key(|found| found.position);
        let problem = |found: Diagnostic| found.into_problem(&told);
        self.problems.extend(sheet.problems.into_iter().map(problem));
    }
}

/// Reads a skill's introduction.
fn parse(
    sheet: &mut Diagnostics,
    root: &Path,
    file: &Path,
    (folder, is_own): (&str, bool),
) -> Option<Skill> {
    if let Some(link) = project_file::first_symlink(root, file) {
        // Whoever reads it later follows no link, so nobody could.
        let message = format!("`{}` is a link, and none is followed to a skill", link.display());
        sheet.invalid(Position::START, message);
        return None;
    }
    let bytes = project_file::read(root, file, BYTES_MAX);
    let bytes = bytes.map_err(|unread| sheet.invalid(Position::START, unread.to_string())).ok()?;
    if !bytes.starts_with(b"---") && !bytes.starts_with("\u{feff}---".as_bytes()) {
        let message =
            "a skill begins with a line `---`, its name and description, and another `---`";
        sheet.invalid(Position::START, message);
        return None;
    }
    let parts = split::split_file(&bytes);
    let parts = parts.map_err(|(place, message)| sheet.invalid(place, message)).ok()?;
    let node = yaml::parse(&parts.front_matter);
    let node = node.map_err(|bad| sheet.invalid(bad.position, bad.message)).ok()?;
    if node.table().is_none() && node.value != NodeValue::Null {
        let message = "the front matter is no table: write `name:` and `description:`";
        sheet.invalid(node.position, message);
        return None;
    }
    let entries = node.table().unwrap_or_default();
    let get = |key: &str| entries.iter().find(|entry| entry.key == key);
    // Others' skills have fields of their own, which harm nobody.
    let keys = entries.iter().map(|entry| entry.key.as_str());
    for key in keys.filter(|key| !KEYS.contains(key)) {
        sheet.note(format!("without a meaning here, and ignored: `{key}`"));
    }
    // Claude's skills may leave out what their folder says.
    if is_own || get("name").is_some() || !is_skill_name(folder) {
        check_name(sheet, get("name"), folder);
    }
    let Some(entry) = get("description") else {
        let message = "a skill needs a `description`: what it is good for, and when";
        sheet.invalid(Position::START, message);
        return None;
    };
    let description = sheet.text(entry)?;
    if description.chars().count() > DESCRIPTION_CHARS_MAX {
        let message = format!("`description` is longer than {DESCRIPTION_CHARS_MAX} letters");
        sheet.invalid(entry.node.position, message);
    }
    if get("allowed-tools").is_some() {
        sheet.note(
            "`allowed-tools` gives nobody a tool here: an agent has those that its file lists",
        );
    }
    Some(Skill { name: folder.to_owned(), description: description.trim().to_owned() })
}

/// Whether this can be the name of a skill.
pub fn is_skill_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends = name.starts_with('-') || name.ends_with('-') || name.contains("--");
    !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.chars().all(fits) && !ends
}

fn check_name(sheet: &mut Diagnostics, entry: Option<&TableEntry>, folder: &str) {
    let Some(entry) = entry else {
        let message = format!("a skill needs a name: write `name: {folder}`");
        return sheet.invalid(Position::START, message);
    };
    let Some(name) = sheet.text(entry) else {
        return;
    };
    if !is_skill_name(&name) {
        let message = format!(
            "`{name}` is no name for a skill: use lower-case letters, digits and single hyphens, 64 at most"
        );
        sheet.invalid(entry.node.position, message);
    } else if name != folder {
        let message = format!(
            "the name `{name}` is not the folder's: rename the folder or write `name: {folder}`"
        );
        sheet.invalid(entry.node.position, message);
    }
}
