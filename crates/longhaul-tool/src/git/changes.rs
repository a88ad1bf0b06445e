//! The files that a commit changes, for the person who approves its push.

use std::collections::BTreeMap;

use longhaul_core::policy::effect_facts::{COMPARED_BYTES_MAX, FileContent, PredictedFileChange};

use crate::git::import::ImportedCommit;
use crate::git::{GitError, GitRepositories};

/// Id of the empty tree.
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// Maximum number of files whose content is read. A gate shows no more.
const READ_FILES_MAX: usize = 20;

/// Maximum number of changed files that are listed.
const FILES_MAX: usize = 10_000;

/// Files and folders anywhere in a repository that configure programs or start them.
const PROTECTED_NAMES: [&str; 6] =
    [".git", ".gitmodules", ".gitattributes", ".mcp.json", ".claude", ".vscode"];

/// Files and folders at the top of a repository that configure agents or start programs.
const PROTECTED_TOP_NAMES: [&str; 5] = ["agents", "chains", "skills", "longhaul.toml", ".github"];

impl GitRepositories {
    /// Returns the files that differ between a commit and its base.
    pub(super) async fn changed_files(
        &self,
        imported: &ImportedCommit,
    ) -> Result<Vec<PredictedFileChange>, GitError> {
        let folder = imported.folder.path();
        let base = imported.base.as_deref().unwrap_or(EMPTY_TREE);
        let args = ["diff", "--raw", "-z", "--no-abbrev", "--no-renames", "--no-ext-diff"];
        let args = [&args[..], &[base, &imported.commit, "--"]].concat();
        let listed = self.git_bytes(folder, &args, Vec::new()).await?;
        let listed = String::from_utf8_lossy(&listed);
        let changes = parse_raw_diff(&listed);
        let shown = changes.iter().take(READ_FILES_MAX);
        let ids: Vec<&str> =
            shown.flat_map(|change| [change.before, change.after]).flatten().collect();
        let stdin = ids.join("\n") + "\n";
        let printed = match ids.is_empty() {
            true => Ok(Vec::new()),
            false => self.git_bytes(folder, &["cat-file", "--batch"], stdin.into_bytes()).await,
        };
        // Files that are too large to be read together are not known.
        let contents = parse_contents(&printed.unwrap_or_default());
        let content = |id: Option<&str>| match id {
            None => FileContent::Absent,
            Some(id) => contents.get(id).cloned().unwrap_or(FileContent::Unknown),
        };
        let changes = changes.iter().map(|change| PredictedFileChange {
            path: change.path.to_owned(),
            before: content(change.before),
            after: content(change.after),
        });
        Ok(changes.collect())
    }
}

/// A changed file, with the ids of its content before and after the change. `None` if the file does
/// not exist.
#[derive(Debug, PartialEq, Eq)]
struct RawChange<'a> {
    path: &'a str,
    before: Option<&'a str>,
    after: Option<&'a str>,
}

/// Parses the output of `git diff --raw -z`: for each file a line about it, and its path.
fn parse_raw_diff(listed: &str) -> Vec<RawChange<'_>> {
    let mut parts = listed.split('\0');
    let mut changes = Vec::new();
    while let (Some(line), Some(path)) = (parts.next(), parts.next()) {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, _, before, after, ..] = fields[..] else { break };
        let existing = |id: &'_ str| id.bytes().any(|digit| digit != b'0');
        changes.push(RawChange {
            path,
            before: Some(before).filter(|id| existing(id)),
            after: Some(after).filter(|id| existing(id)),
        });
        if changes.len() == FILES_MAX {
            break;
        }
    }
    changes
}

/// Parses the output of `git cat-file --batch`: for each id a line `ID TYPE SIZE`, and the content.
fn parse_contents(mut printed: &[u8]) -> BTreeMap<String, FileContent> {
    let mut contents = BTreeMap::new();
    while let Some(end) = memchr::memchr(b'\n', printed) {
        let line = String::from_utf8_lossy(&printed[..end]);
        printed = &printed[end + 1..];
        // A missing object, such as the commit of a submodule, has no content.
        let [id, kind, size] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        let Some(size) = size.parse::<usize>().ok().filter(|size| *size <= printed.len()) else {
            continue;
        };
        let (content, rest) = printed.split_at(size);
        let text = (kind == "blob" && size <= COMPARED_BYTES_MAX && !content.contains(&0))
            .then(|| String::from_utf8(content.to_vec()).ok());
        let content = text.flatten().map_or(FileContent::Unknown, FileContent::Text);
        contents.insert(id.to_owned(), content);
        printed = rest.strip_prefix(b"\n").unwrap_or(rest);
    }
    contents
}

/// Returns whether a changed file can configure or start programs of those who use the repository.
pub(super) fn is_protected_path(path: &str) -> bool {
    let mut parts = path.split('/').map(str::to_ascii_lowercase);
    let is_top = parts.next().is_some_and(|top| {
        PROTECTED_TOP_NAMES.contains(&top.as_str()) || PROTECTED_NAMES.contains(&top.as_str())
    });
    is_top || parts.any(|part| PROTECTED_NAMES.contains(&part.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raw_diff_has_the_ids_of_the_files_that_exist() {
        let (old, new, none) = ("a".repeat(40), "b".repeat(40), "0".repeat(40));
        let listed = format!(
            ":100644 100644 {old} {new} M\0a b.txt\0:000000 100644 {none} {new} A\0c\0:100644 000000 {old} {none} D\0d\0"
        );
        let (old, new) = (Some(old.as_str()), Some(new.as_str()));
        let change = |path, before, after| RawChange { path, before, after };
        let expected =
            [change("a b.txt", old, new), change("c", None, new), change("d", old, None)];
        assert_eq!(parse_raw_diff(&listed), expected);
        assert_eq!(parse_raw_diff(""), []);
    }

    #[test]
    fn contents_are_texts_or_unknown() {
        let printed = b"aa blob 3\nx\ny\ncc missing\nbb blob 2\n\0z\n";
        let contents = parse_contents(printed);
        assert_eq!(contents["aa"], FileContent::Text("x\ny".to_owned()));
        assert_eq!(contents["bb"], FileContent::Unknown);
        assert_eq!(contents.len(), 2);
        assert!(parse_contents(b"aa blob 999\nx").is_empty());
    }

    #[test]
    fn files_that_start_programs_are_protected() {
        for path in
            [".gitmodules", "a/.vscode/tasks.json", "agents/x.md", ".github/workflows/ci.yml"]
        {
            assert!(is_protected_path(path), "{path}");
        }
        for path in ["src/agents/x.rs", "README.md", "a/git"] {
            assert!(!is_protected_path(path), "{path}");
        }
    }
}
