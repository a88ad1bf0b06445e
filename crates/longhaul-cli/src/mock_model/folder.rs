//! The scripts of a folder, read once and again when their files change.
//!
//! Never: opens what is no plain file in that folder.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use longhaul::assemble::script;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_model::mock::{Missing, Scripts, is_plain};
use longhaul_model::scripted::Script;

/// A file is not looked at more often than this.
const LOOK_EVERY: Millis = Millis::from_secs(1);

/// The end of a script's file name.
const END: &str = ".yaml";

/// When a file was changed last, and how long it is.
type Stamp = (Option<SystemTime>, u64);

/// A folder of scripts.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The project that the folder comes with: no script of it is read through a link that leads
    /// out of that project.
    project: Option<PathBuf>,
    kept: RwLock<HashMap<String, Kept>>,
}

/// A script as it was read.
#[derive(Debug)]
struct Kept {
    script: Result<Arc<Script>, Missing>,
    stamp: Stamp,
    /// When its file was last looked at.
    looked: AtomicI64,
}

impl Folder {
    /// A folder that the user chose.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            project: None,
            kept: RwLock::default(),
        }
    }

    /// The folder of a project.
    pub(crate) fn of_project(root: PathBuf) -> Self {
        Self {
            path: root.join("scripts"),
            project: Some(root),
            kept: RwLock::default(),
        }
    }

    /// Whether the folder is a link that leads out of the project it comes with.
    pub(crate) fn leads_out(&self) -> bool {
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
    fn known(&self, name: &str, now: Timestamp) -> Option<Result<Arc<Script>, Missing>> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let found = kept.get(name)?;
        let looked = Timestamp::from_micros(found.looked.load(Ordering::Relaxed));
        // A clock that was set back is a reason to look as well.
        if now < looked || now.since(looked) >= LOOK_EVERY {
            if stamp(&self.file(name)) != Some(found.stamp) {
                return None;
            }
            found.looked.store(now.as_micros(), Ordering::Relaxed);
        }
        Some(found.script.clone())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{END}"))
    }
}

impl Scripts for Folder {
    fn find(&self, name: &str, now: Timestamp) -> Result<Arc<Script>, Missing> {
        if let Some(known) = self.known(name, now) {
            return known;
        }
        let file = self.file(name);
        // The stamp comes first: a change in between is seen at the next look.
        let stamp = stamp(&file);
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        let Some(stamp) = stamp else {
            _ = kept.remove(name);
            return Err(Missing::Unknown);
        };
        let script = match &self.project {
            Some(project) => script(project, name).ok_or(Missing::Unknown)?,
            None => Script::load(&file).map_err(|why| why.to_string()),
        };
        let script = script.map(Arc::new).map_err(Missing::Broken);
        let fresh = Kept {
            script: script.clone(),
            stamp,
            looked: AtomicI64::new(now.as_micros()),
        };
        _ = kept.insert(name.to_owned(), fresh);
        script
    }

    fn names(&self) -> Vec<String> {
        let files = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut names: Vec<String> = files
            .filter_map(|file| {
                let name = file.file_name().into_string().ok()?;
                let name = name.strip_suffix(END).filter(|name| is_plain(name))?;
                stamp(&file.path()).map(|_| name.to_owned())
            })
            .collect();
        names.sort_unstable();
        names
    }
}

/// How a file stands; none: there is no plain file.
fn stamp(file: &Path) -> Option<Stamp> {
    let found = fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
    Some((found.modified().ok(), found.len()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn words(folder: &Folder, seconds: i64) -> Result<usize, Missing> {
        let now = Timestamp::from_micros(seconds * 1_000_000);
        folder.find("x", now).map(|script| script.len())
    }

    #[test]
    fn a_script_is_read_again_when_it_has_changed_and_looked_at_once_a_second() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("x.yaml");
        let folder = Folder::new(place.path().to_owned());
        assert_eq!(words(&folder, 0), Err(Missing::Unknown));
        fs::write(&file, "replies: [{ text: a }]").unwrap();
        assert_eq!(words(&folder, 0), Ok(1));
        fs::write(&file, "replies: [{ text: a }, { text: b }]").unwrap();
        assert_eq!(words(&folder, 0), Ok(1));
        assert_eq!(words(&folder, 1), Ok(2));
        fs::write(&file, "replies: []").unwrap();
        // A clock that was set back is no reason to wait.
        assert!(matches!(words(&folder, 0), Err(Missing::Broken(_))));
        fs::remove_file(&file).unwrap();
        assert_eq!(words(&folder, 9), Err(Missing::Unknown));
        fs::create_dir(&file).unwrap();
        assert_eq!(words(&folder, 9), Err(Missing::Unknown));
        assert_eq!(folder.names(), Vec::<String>::new());
    }

    #[test]
    fn no_script_of_a_project_lies_outside_of_it() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("project");
        fs::create_dir_all(root.join("scripts")).unwrap();
        fs::write(place.path().join("x.yaml"), "replies: [{ text: a }]").unwrap();
        let script = root.join("scripts/x.yaml");
        symlink(place.path().join("x.yaml"), &script).unwrap();
        let folder = Folder::of_project(root.clone());
        let Err(Missing::Broken(why)) = words(&folder, 0) else {
            panic!("a script outside is read");
        };
        assert!(why.contains("leads out of the project"), "{why}");
        assert!(!folder.leads_out());
        // The user's own choice may hold links.
        assert_eq!(words(&Folder::new(root.join("scripts")), 0), Ok(1));
        fs::rename(&script, root.join("away")).unwrap();
        fs::write(root.join("y.yaml"), "replies: [{ text: longer }]").unwrap();
        symlink("../y.yaml", &script).unwrap();
        assert_eq!(words(&folder, 9), Ok(1));
        fs::remove_dir_all(root.join("scripts")).unwrap();
        symlink(place.path(), root.join("scripts")).unwrap();
        assert!(folder.leads_out());
    }
}
