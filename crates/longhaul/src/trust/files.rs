//! The files of a project that a command names: what the project itself brings to be run.
//!
//! A word counts if it, or a part of it that a shell or an option would split off, is the path of
//! a regular file inside the project. What such a file loads itself is not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use longhaul_core::raw::Hash;

use crate::config::env::Env;
use crate::mcp::expand::expand;
use crate::project_file;

/// Maximum number of bytes of all files together.
const BYTES_MAX: usize = 64 << 20;

/// Where a shell splits a word, and an option ends before its value.
const SEPARATORS: &[char] =
    &[' ', '\t', '\n', '\r', ';', '&', '|', '(', ')', '<', '>', '"', '\'', '`', '=', ':', ','];

/// The files that stand for a folder which is run as a module.
const MODULE_ENTRY_FILES: &[&str] = &["__main__.py", "__init__.py", "index.js", "package.json"];

/// Files of one project.
#[derive(Debug)]
pub(crate) struct ProjectFiles {
    root: PathBuf,
    files: BTreeSet<PathBuf>,
}

impl ProjectFiles {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            // A folder that is not there holds no file.
            root: fs::canonicalize(root).unwrap_or_else(|_| root.to_owned()),
            files: BTreeSet::new(),
        }
    }

    /// Adds those that a command names which is started in this folder. A program without a `/`
    /// is looked for elsewhere.
    pub(crate) fn add_command(&mut self, folder: &Path, words: &[String]) {
        let Some((program, rest)) = words.split_first() else {
            return;
        };
        if program.contains('/') {
            self.add_word(folder, program);
        }
        let mut before = "";
        for word in rest {
            self.add_word(folder, word);
            // A module is a file by another name.
            let module = match before {
                "-m" => Some(word.as_str()),
                _ => word.strip_prefix("-m").filter(|module| !module.is_empty()),
            };
            if let Some(module) = module {
                let path = module.replace('.', "/");
                self.add_path(folder, &format!("{path}.py"));
                self.add_path(folder, &path);
            }
            before = word;
        }
    }

    /// Adds those that one word names: as it is written, or by what its variables say where nobody
    /// sets them. Real variables are left out, so that a decision holds in every shell.
    pub(crate) fn add_word(&mut self, folder: &Path, word: &str) {
        let filled = expand(word, &Env::default()).unwrap_or_default();
        for text in [word, &filled, &strip_variables(word)] {
            self.add_path(folder, text);
            for part in text.split(SEPARATORS) {
                self.add_path(folder, part);
                self.add_path(folder, part.trim_start_matches('/'));
            }
        }
    }

    fn add_path(&mut self, folder: &Path, word: &str) {
        if word.is_empty() || word.contains('\0') {
            return;
        }
        let Ok(path) = fs::canonicalize(folder.join(word)) else {
            return;
        };
        let inside = |path: &PathBuf| path.is_file() && path.starts_with(&self.root);
        // The project's own folder is named to be worked in, not to be run.
        let found: Vec<PathBuf> = match path.is_dir() && path != self.root {
            true => {
                let entries = MODULE_ENTRY_FILES.iter().map(|entry| path.join(entry));
                entries.filter_map(|entry| fs::canonicalize(entry).ok()).collect()
            }
            false => vec![path],
        };
        self.files.extend(found.into_iter().filter(inside));
    }

    /// The digest of each file by its path in the project. The error says which can't be read.
    pub(crate) fn digests(&self) -> Result<BTreeMap<String, Hash>, String> {
        let mut left = BYTES_MAX;
        let mut digests = BTreeMap::new();
        for file in &self.files {
            let path = file.strip_prefix(&self.root).unwrap_or(file);
            let refused = |why: &str| format!("`{}` {why}", path.display());
            let name = path.to_str().ok_or_else(|| refused("has a name that is no UTF-8"))?;
            let content = project_file::read(&self.root, path, left);
            let content = content.map_err(|unread| refused(&unread.to_string()))?;
            left -= content.len();
            digests.insert(name.to_owned(), Hash::digest(&content));
        }
        Ok(digests)
    }
}

/// The word with every `${...}` cut out.
pub(crate) fn strip_variables(word: &str) -> String {
    let mut bare = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once("${") {
        bare.push_str(before);
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    bare.push_str(rest);
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str], expected: &[&str]) {
        let root = tempfile::tempdir().unwrap();
        for file in ["a.py", "b.sh", "pkg/__main__.py", "pkg/mod.py", "look"] {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "x").unwrap();
        }
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut files = ProjectFiles::new(root.path());
        files.add_command(root.path(), &words);
        let found = files.digests().unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), expected, "{words:?}");
    }

    #[test]
    fn every_project_file_named_by_a_command_is_found() {
        check(&["look"], &[]);
        check(&["./look", "--fast"], &["look"]);
        check(&["python3", "-u", "a.py", "b.sh"], &["a.py", "b.sh"]);
        check(&["node", "--require=./a.py", "look"], &["a.py", "look"]);
        check(&["python3", "-m", "a"], &["a.py"]);
        check(&["python3", "-ma"], &["a.py"]);
        check(&["python3", "-m", "pkg"], &["pkg/__main__.py"]);
        check(&["python3", "-m", "pkg.mod"], &["pkg/mod.py"]);
        check(&["python3", "pkg"], &["pkg/__main__.py"]);
        check(&["sh", "-c", "cd .; python3 a.py&&./b.sh"], &["a.py", "b.sh"]);
        check(&["python3", "${PWD}/a.py"], &["a.py"]);
        check(&["python3", "${X:-b.sh}"], &["b.sh"]);
        check(&["sh", "/etc/passwd", "../a.py", "."], &[]);
        check(&["", "\0"], &[]);
        check(&[], &[]);
    }

    #[test]
    fn a_file_too_large_to_hash_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let file = fs::File::create(root.path().join("big")).unwrap();
        file.set_len(BYTES_MAX as u64 + 1).unwrap();
        let mut files = ProjectFiles::new(root.path());
        files.add_word(root.path(), "big");
        let why = files.digests().unwrap_err();
        assert_eq!(why, "`big` is longer than 67108864 bytes");
    }
}
