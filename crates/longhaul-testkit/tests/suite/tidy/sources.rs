//! Reads the source files of the repository from disk, including uncommitted ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A text file of the repository, with its path from the root.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) executable: bool,
}

impl SourceFile {
    /// Returns the crate of the file: the directory below `crates/`.
    pub(crate) fn krate(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Returns the path inside its crate, such as `src/lib.rs`.
    pub(crate) fn crate_path(&self) -> Option<&str> {
        Some(self.path.strip_prefix("crates/")?.split_once('/')?.1)
    }

    /// Returns whether this is Rust code of a crate, without its tests.
    pub(crate) fn is_source(&self) -> bool {
        self.is_rust() && self.crate_path().is_some_and(|path| path.starts_with("src/"))
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Directories with generated files.
const GENERATED_DIRS: &[&str] = &["target", "node_modules"];

/// Hidden entries that belong to the repository.
const INCLUDED_HIDDEN_DIRS: &[&str] = &[".ci", ".config"];

/// Extensions of the files that are read. A name without a dot is a script or a Makefile.
const READ_EXTENSIONS: &[&str] =
    &["rs", "toml", "md", "sh", "lock", "sql", "py", "mjs", "html", "yaml", "yml"];

/// Reads all text files of this repository.
pub(crate) fn all_sources() -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = Vec::new();
    walk(&root, "", &mut texts);
    assert!(
        texts.iter().any(|text| text.path == "Cargo.toml"),
        "no repository at {}",
        root.display()
    );
    texts.sort_by(|a, b| a.path.cmp(&b.path));
    texts
}

fn walk(folder: &Path, prefix: &str, texts: &mut Vec<SourceFile>) {
    for entry in fs::read_dir(folder).expect("list a directory of the repository") {
        let entry = entry.expect("read an entry of the repository");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().expect("read the type of an entry");
        let is_hidden = name.starts_with('.') && !INCLUDED_HIDDEN_DIRS.contains(&name.as_str());
        if is_hidden || GENERATED_DIRS.contains(&name.as_str()) {
            continue;
        }
        if kind.is_dir() {
            walk(&entry.path(), &format!("{path}/"), texts);
        } else if kind.is_file() && is_read(&name) {
            // An editor may delete a file between the listing and the reading.
            let Ok(text) = fs::read_to_string(entry.path()) else {
                continue;
            };
            let mode = entry.metadata().map_or(0, |meta| meta.permissions().mode());
            texts.push(SourceFile { path, text, executable: mode & 0o111 != 0 });
        }
    }
}

fn is_read(name: &str) -> bool {
    name.rsplit_once('.').is_none_or(|(_, end)| READ_EXTENSIONS.contains(&end))
}

/// Parses example files from one string: `//- path` (with `+x` for an executable) begins a
/// file.
pub(crate) fn fixture(source: &str) -> Vec<SourceFile> {
    let mut texts: Vec<SourceFile> = Vec::new();
    for line in source.lines() {
        let line = line.strip_prefix("        ").unwrap_or(line);
        if let Some(head) = line.trim_start().strip_prefix("//- ") {
            let (path, executable) =
                head.strip_suffix(" +x").map_or((head, false), |path| (path, true));
            texts.push(SourceFile { path: path.to_owned(), text: String::new(), executable });
        } else if let Some(last) = texts.last_mut() {
            last.text.push_str(line);
            last.text.push('\n');
        }
    }
    texts
}

#[test]
fn a_fixture_is_parsed_into_files() {
    let texts = fixture("//- scripts/a +x\none\ntwo\n//- crates/x/src/lib.rs\nmod a;\n");
    assert_eq!((texts[0].text.as_str(), texts[0].executable), ("one\ntwo\n", true));
    assert_eq!((texts[1].krate(), texts[1].crate_path()), (Some("x"), Some("src/lib.rs")));
    assert!(texts[1].is_source() && !texts[0].is_rust());
}

#[test]
fn sources_include_hidden_folders_and_exclude_build_output() {
    let files = all_sources();
    let contains = |path: &str| files.iter().any(|text| text.path == path);
    assert!(contains(".ci/run") && contains("Makefile") && contains("Cargo.lock"));
    assert!(contains("crates/longhaul-core/src/lib.rs"));
    assert!(!files.iter().any(|text| text.path.starts_with("target/")));
}
