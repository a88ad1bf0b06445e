//! The files of a project that a command names: what the project itself brings to
//! be run, with their bytes.
//!
//! Never: a file outside of the project, and never what such a file loads itself.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use longhaul_core::raw::Hash;

use crate::config::env::Env;
use crate::mcp::expand::expand;

/// Programs of a project that are larger than this together are none that
/// somebody read.
const BYTES_MAX: u64 = 64 << 20;

/// What parts a word that a shell would read, and an option from its value.
const PARTS: &[char] = &[
    ' ', '\t', '\n', '\r', ';', '&', '|', '(', ')', '<', '>', '"', '\'', '`', '=', ':', ',',
];

/// What is run where a folder is named.
const ENTRIES: &[&str] = &["__main__.py", "__init__.py", "index.js", "package.json"];

/// The files that words name which are handed to a program, and where it is started.
#[derive(Debug)]
pub(crate) struct Named {
    root: PathBuf,
    files: BTreeSet<PathBuf>,
}

impl Named {
    /// None yet, of this project.
    pub(crate) fn of(root: &Path) -> Self {
        Self {
            // A folder that is not there holds no file.
            root: fs::canonicalize(root).unwrap_or_else(|_| root.to_owned()),
            files: BTreeSet::new(),
        }
    }

    /// Those of a command that is started in this folder. A program without a `/`
    /// is looked for elsewhere.
    pub(crate) fn command(&mut self, folder: &Path, words: &[&String]) {
        let Some((program, rest)) = words.split_first() else {
            return;
        };
        if program.contains('/') {
            self.word(folder, program);
        }
        let mut before = "";
        for word in rest {
            self.word(folder, word);
            let module = match before {
                "-m" => Some(word.as_str()),
                _ => word.strip_prefix("-m").filter(|module| !module.is_empty()),
            };
            if let Some(module) = module {
                let path = module.replace('.', "/");
                self.path(folder, &format!("{path}.py"));
                self.path(folder, &path);
            }
            before = word;
        }
    }

    /// Those that one word names: as it stands, by what its variables say where
    /// nobody sets them, or somewhere in it.
    pub(crate) fn word(&mut self, folder: &Path, word: &str) {
        self.path(folder, word);
        // The real variables are left aside: a decision holds wherever it is asked for.
        if let Ok(filled) = expand(word, &Env::default()) {
            self.path(folder, &filled);
        }
        let bare = without_variables(word);
        for part in word.split(PARTS).chain(bare.split(PARTS)) {
            self.path(folder, part);
            self.path(folder, part.trim_start_matches('/'));
        }
    }

    fn path(&mut self, folder: &Path, word: &str) {
        if word.is_empty() || word.contains('\0') {
            return;
        }
        let Ok(path) = fs::canonicalize(folder.join(word)) else {
            return;
        };
        if !path.starts_with(&self.root) {
            return;
        }
        // The project's own folder is named to be worked in, not to be run.
        if path.is_dir() && path != self.root {
            let entries = ENTRIES.iter().map(|entry| path.join(entry));
            let entries = entries.filter_map(|entry| fs::canonicalize(entry).ok());
            let inside = entries.filter(|entry| entry.is_file() && entry.starts_with(&self.root));
            self.files.extend(inside);
        } else if path.is_file() {
            self.files.insert(path);
        }
    }

    /// How a person is told of them; none: there are none.
    pub(crate) fn said(&self) -> Option<String> {
        let names = self.names().map(|name| name.display().to_string());
        let names: Vec<String> = names.collect();
        (!names.is_empty()).then(|| format!("files of this project: {}", names.join(", ")))
    }

    fn names(&self) -> impl Iterator<Item = &Path> {
        let root = &self.root;
        self.files
            .iter()
            .map(move |file| file.strip_prefix(root).unwrap_or(file))
    }

    /// Over these bytes, and over every file. The error says which can't be read.
    pub(crate) fn hash(&self, mut bytes: Vec<u8>) -> Result<Hash, String> {
        let mut left = BYTES_MAX;
        for (file, name) in self.files.iter().zip(self.names()) {
            let said = |why: String| format!("`{}` can't be looked at: {why}", name.display());
            let mut content = Vec::new();
            let read = File::open(file)
                .and_then(|opened| opened.take(left + 1).read_to_end(&mut content))
                .map_err(|error| said(error.to_string()))?;
            left = left
                .checked_sub(read as u64)
                .ok_or_else(|| said(format!("it is larger than {} MB", BYTES_MAX >> 20)))?;
            add(&mut bytes, name.as_os_str().as_encoded_bytes());
            bytes.extend_from_slice(Hash::of(&content).bytes());
        }
        Ok(Hash::of(&bytes))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// A text after its length, so that two never read as one.
pub(crate) fn add(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text);
}

/// The word with every `${...}` cut out.
pub(crate) fn without_variables(word: &str) -> String {
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
        let mut named = Named::of(root.path());
        named.command(root.path(), &words.iter().collect::<Vec<_>>());
        let names: Vec<_> = named.names().map(|name| name.to_str().unwrap()).collect();
        assert_eq!(names, expected, "{words:?}");
    }

    #[test]
    fn every_file_of_the_project_that_a_command_names_is_found() {
        check(&["look"], &[]);
        check(&["./look", "--fast"], &["look"]);
        check(&["python3", "-u", "a.py", "b.sh"], &["a.py", "b.sh"]);
        check(&["node", "--require=./a.py", "look"], &["a.py", "look"]);
        check(&["python3", "-m", "a"], &["a.py"]);
        check(&["python3", "-ma"], &["a.py"]);
        check(&["python3", "-m", "pkg"], &["pkg/__main__.py"]);
        check(&["python3", "-m", "pkg.mod"], &["pkg/mod.py"]);
        check(&["python3", "pkg"], &["pkg/__main__.py"]);
        check(
            &["sh", "-c", "cd .; python3 a.py&&./b.sh"],
            &["a.py", "b.sh"],
        );
        check(&["python3", "${PWD}/a.py"], &["a.py"]);
        check(&["python3", "${X:-b.sh}"], &["b.sh"]);
        check(&["sh", "/etc/passwd", "../a.py", "."], &[]);
        check(&["", "\0"], &[]);
        check(&[], &[]);
    }

    #[test]
    fn what_is_too_large_to_be_read_is_told() {
        let root = tempfile::tempdir().unwrap();
        let file = File::create(root.path().join("big")).unwrap();
        file.set_len(BYTES_MAX + 1).unwrap();
        let mut named = Named::of(root.path());
        named.word(root.path(), "big");
        let why = named.hash(Vec::new()).unwrap_err();
        assert_eq!(why, "`big` can't be looked at: it is larger than 64 MB");
    }
}
