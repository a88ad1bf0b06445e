//! The scripts in a folder, i.e. files with replies of the mock model, which are reloaded when they
//! change. Only regular files are opened.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use longhaul_core::time::Timestamp;
use longhaul_model::mock::{ScriptLookupError, ScriptSource, is_valid_script_name};
use longhaul_model::scripted::Script;
use longhaul_project::assemble::load_model_script;

/// File name extension of scripts, which contain replies of the mock model.
const EXTENSION: &str = ".yaml";

/// Modification time and size of a script file, to detect changes. The time is `None` if it is
/// unknown.
type FileTimeAndSize = (Option<SystemTime>, u64);

/// A folder of scripts (files with replies of the mock model), with a cache of the scripts that
/// were read.
#[derive(Debug)]
pub(crate) struct ScriptFolder {
    path: PathBuf,
    /// Root of the project that the folder belongs to. Symlinks that lead out of that project are
    /// not followed. `None` if the user named the folder.
    project: Option<PathBuf>,
    /// The scripts that were read, with the state of their files at that time.
    cache: Mutex<HashMap<String, (FileTimeAndSize, CachedScript)>>,
}

type CachedScript = Result<Arc<Script>, ScriptLookupError>;

impl ScriptFolder {
    /// Returns the folder of scripts at a path that the user named. Nothing is created on disk.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, project: None, cache: Mutex::default() }
    }

    /// Returns the folder of scripts of the project with this root. Nothing is created on disk.
    pub(crate) fn for_project(project_root: PathBuf) -> Self {
        let path = project_root.join("scripts");
        Self { path, project: Some(project_root), cache: Mutex::default() }
    }

    /// Returns whether the folder is a symlink that leads out of its project.
    pub(crate) fn is_outside_project(&self) -> bool {
        let Some(project) = &self.project else {
            return false;
        };
        match (self.path.canonicalize(), project.canonicalize()) {
            (Ok(folder), Ok(project)) => !folder.starts_with(project),
            // A path that does not exist can't be read either.
            (Err(_), _) | (_, Err(_)) => false,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn load_script(&self, name: &str) -> CachedScript {
        let script = match &self.project {
            Some(project) => load_model_script(project, name).ok_or(ScriptLookupError::NotFound)?,
            None => Script::load_script_file(&self.script_path(name)).map_err(|e| e.to_string()),
        };
        script.map(Arc::new).map_err(ScriptLookupError::Invalid)
    }

    fn script_path(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{EXTENSION}"))
    }
}

impl ScriptSource for ScriptFolder {
    fn find_script(&self, name: &str, _: Timestamp) -> Result<Arc<Script>, ScriptLookupError> {
        // The stamp is read before the script, so that a change in between is seen next time.
        let stamp = read_file_time_and_size(&self.script_path(name));
        let stamp = stamp.ok_or(ScriptLookupError::NotFound)?;
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        match cache.get(name) {
            Some((known, script)) if *known == stamp => script.clone(),
            Some(_) | None => {
                let script = self.load_script(name);
                _ = cache.insert(name.to_owned(), (stamp, script.clone()));
                script
            }
        }
    }

    fn script_names(&self) -> Vec<String> {
        let files = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut names: Vec<String> = files
            .filter_map(|file| {
                let name = file.file_name().into_string().ok()?;
                let name =
                    name.strip_suffix(EXTENSION).filter(|name| is_valid_script_name(name))?;
                read_file_time_and_size(&file.path()).map(|_| name.to_owned())
            })
            .collect();
        names.sort_unstable();
        names
    }
}

/// Returns the modification time and size of a file. `None` means that there is no regular file.
fn read_file_time_and_size(file: &Path) -> Option<FileTimeAndSize> {
    let metadata = fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
    Some((metadata.modified().ok(), metadata.len()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn script_reply_count(folder: &ScriptFolder) -> Result<usize, ScriptLookupError> {
        folder.find_script("x", Timestamp::default()).map(|script| script.reply_count())
    }

    #[test]
    fn a_changed_script_is_reloaded() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.yaml");
        let folder = ScriptFolder::new(dir.path().to_owned());
        assert_eq!(script_reply_count(&folder), Err(ScriptLookupError::NotFound));
        fs::write(&file, "replies: [{ text: a }]").unwrap();
        assert_eq!(script_reply_count(&folder), Ok(1));
        fs::write(&file, "replies: [{ text: a }, { text: b }]").unwrap();
        assert_eq!(script_reply_count(&folder), Ok(2));
        fs::write(&file, "replies: []").unwrap();
        assert!(matches!(script_reply_count(&folder), Err(ScriptLookupError::Invalid(_))));
        fs::remove_file(&file).unwrap();
        assert_eq!(script_reply_count(&folder), Err(ScriptLookupError::NotFound));
        fs::create_dir(&file).unwrap();
        assert_eq!(script_reply_count(&folder), Err(ScriptLookupError::NotFound));
        assert_eq!(folder.script_names(), Vec::<String>::new());
    }

    #[test]
    fn a_script_outside_the_project_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("project");
        fs::create_dir_all(root.join("scripts")).unwrap();
        fs::write(dir.path().join("x.yaml"), "replies: [{ text: a }]").unwrap();
        let script = root.join("scripts/x.yaml");
        symlink(dir.path().join("x.yaml"), &script).unwrap();
        let folder = ScriptFolder::for_project(root.clone());
        let Err(ScriptLookupError::Invalid(reason)) = script_reply_count(&folder) else {
            panic!("a script outside the project was read");
        };
        assert!(reason.contains("leads out of the project"), "{reason}");
        assert!(!folder.is_outside_project());
        // In a folder that the user named, symlinks are followed.
        assert_eq!(script_reply_count(&ScriptFolder::new(root.join("scripts"))), Ok(1));
        fs::rename(&script, root.join("away")).unwrap();
        fs::write(root.join("y.yaml"), "replies: [{ text: longer }]").unwrap();
        symlink("../y.yaml", &script).unwrap();
        assert_eq!(script_reply_count(&folder), Ok(1));
        fs::remove_dir_all(root.join("scripts")).unwrap();
        symlink(dir.path(), root.join("scripts")).unwrap();
        assert!(folder.is_outside_project());
    }
}
