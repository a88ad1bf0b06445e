//! The scripts of a folder, read once and again when their files change.
//!
//! Never: opens what is no plain file in that folder.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use longhaul::assemble::load_script;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_model::mock::{ScriptLookupError, ScriptSource, is_valid_name};
use longhaul_model::scripted::Script;

/// A file is not looked at more often than this.
const CHECK_INTERVAL: Millis = Millis::from_secs(1);

/// The end of a script's file name.
const EXTENSION: &str = ".yaml";

/// When a file was changed last, and how long it is.
type FileStamp = (Option<SystemTime>, u64);

/// A folder of scripts.
#[derive(Debug)]
pub(crate) struct ScriptFolder {
    path: PathBuf,
    /// The project that the folder comes with: no script of it is read through a link that leads
    /// out of that project.
    project: Option<PathBuf>,
    cache: RwLock<HashMap<String, CachedScript>>,
}

/// A script as it was read.
#[derive(Debug)]
struct CachedScript {
    script: Result<Arc<Script>, ScriptLookupError>,
    stamp: FileStamp,
    /// When its file was last looked at.
    checked_at: AtomicI64,
}

impl ScriptFolder {
    /// A folder that the user chose.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, project: None, cache: RwLock::default() }
    }

    /// The folder of a project.
    pub(crate) fn for_project(root: PathBuf) -> Self {
        Self { path: root.join("scripts"), project: Some(root), cache: RwLock::default() }
    }

    /// Whether the folder is a link that leads out of the project it comes with.
    pub(crate) fn leaves_project(&self) -> bool {
        let Some(project) = &self.project else {
            return false;
        };
        match (self.path.canonicalize(), project.canonicalize()) {
            (Ok(folder), Ok(project)) => !folder.starts_with(project),
            // What can't be found can't be read either.
            (Err(_), _) | (_, Err(_)) => false,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The script as it was read, if it needn't be read again.
    fn cached(&self, name: &str, now: Timestamp) -> Option<Result<Arc<Script>, ScriptLookupError>> {
        let kept = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        let found = kept.get(name)?;
        let looked = Timestamp::from_micros(found.checked_at.load(Ordering::Relaxed));
        // A clock that was set back is a reason to look as well.
        if now < looked || now.since(looked) >= CHECK_INTERVAL {
            if file_stamp(&self.script_path(name)) != Some(found.stamp) {
                return None;
            }
            found.checked_at.store(now.as_micros(), Ordering::Relaxed);
        }
        Some(found.script.clone())
    }

    fn script_path(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{EXTENSION}"))
    }
}

impl ScriptSource for ScriptFolder {
    fn find(&self, name: &str, now: Timestamp) -> Result<Arc<Script>, ScriptLookupError> {
        if let Some(known) = self.cached(name, now) {
            return known;
        }
        let file = self.script_path(name);
        // The stamp comes first: a change in between is seen at the next look.
        let stamp = file_stamp(&file);
        let mut kept = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        let Some(stamp) = stamp else {
            _ = kept.remove(name);
            return Err(ScriptLookupError::NotFound);
        };
        let script = match &self.project {
            Some(project) => load_script(project, name).ok_or(ScriptLookupError::NotFound)?,
            None => Script::load(&file).map_err(|why| why.to_string()),
        };
        let script = script.map(Arc::new).map_err(ScriptLookupError::Invalid);
        let fresh = CachedScript {
            script: script.clone(),
            stamp,
            checked_at: AtomicI64::new(now.as_micros()),
        };
        _ = kept.insert(name.to_owned(), fresh);
        script
    }

    fn names(&self) -> Vec<String> {
        let files = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut names: Vec<String> = files
            .filter_map(|file| {
                let name = file.file_name().into_string().ok()?;
                let name = name.strip_suffix(EXTENSION).filter(|name| is_valid_name(name))?;
                file_stamp(&file.path()).map(|_| name.to_owned())
            })
            .collect();
        names.sort_unstable();
        names
    }
}

/// How a file stands; none: there is no plain file.
fn file_stamp(file: &Path) -> Option<FileStamp> {
    let found = fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
    Some((found.modified().ok(), found.len()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn script_len(folder: &ScriptFolder, seconds: i64) -> Result<usize, ScriptLookupError> {
        let now = Timestamp::from_micros(seconds * 1_000_000);
        folder.find("x", now).map(|script| script.len())
    }

    #[test]
    fn a_changed_script_is_reloaded_and_checked_once_a_second() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("x.yaml");
        let folder = ScriptFolder::new(place.path().to_owned());
        assert_eq!(script_len(&folder, 0), Err(ScriptLookupError::NotFound));
        fs::write(&file, "replies: [{ text: a }]").unwrap();
        assert_eq!(script_len(&folder, 0), Ok(1));
        fs::write(&file, "replies: [{ text: a }, { text: b }]").unwrap();
        assert_eq!(script_len(&folder, 0), Ok(1));
        assert_eq!(script_len(&folder, 1), Ok(2));
        fs::write(&file, "replies: []").unwrap();
        // A clock that was set back is no reason to wait.
        assert!(matches!(script_len(&folder, 0), Err(ScriptLookupError::Invalid(_))));
        fs::remove_file(&file).unwrap();
        assert_eq!(script_len(&folder, 9), Err(ScriptLookupError::NotFound));
        fs::create_dir(&file).unwrap();
        assert_eq!(script_len(&folder, 9), Err(ScriptLookupError::NotFound));
        assert_eq!(folder.names(), Vec::<String>::new());
    }

    #[test]
    fn a_script_outside_the_project_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("project");
        fs::create_dir_all(root.join("scripts")).unwrap();
        fs::write(place.path().join("x.yaml"), "replies: [{ text: a }]").unwrap();
        let script = root.join("scripts/x.yaml");
        symlink(place.path().join("x.yaml"), &script).unwrap();
        let folder = ScriptFolder::for_project(root.clone());
        let Err(ScriptLookupError::Invalid(why)) = script_len(&folder, 0) else {
            panic!("a script outside is read");
        };
        assert!(why.contains("leads out of the project"), "{why}");
        assert!(!folder.leaves_project());
        // The user's own choice may hold links.
        assert_eq!(script_len(&ScriptFolder::new(root.join("scripts")), 0), Ok(1));
        fs::rename(&script, root.join("away")).unwrap();
        fs::write(root.join("y.yaml"), "replies: [{ text: longer }]").unwrap();
        symlink("../y.yaml", &script).unwrap();
        assert_eq!(script_len(&folder, 9), Ok(1));
        fs::remove_dir_all(root.join("scripts")).unwrap();
        symlink(place.path(), root.join("scripts")).unwrap();
        assert!(folder.leaves_project());
    }
}
