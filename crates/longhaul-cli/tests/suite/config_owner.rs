//! Projects in folders of other users are refused.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};

use longhaul::config::load::load;
use longhaul::config::process_env::ProcessEnv;

#[test]
fn a_project_of_another_user_is_refused() {
    let me = fs::metadata(tempfile::tempdir().unwrap().path()).unwrap().uid();
    // Files of root are never refused, so root changes the owner of the files.
    let owner = if me == 0 { 4_242 } else { me };
    let check = |files: &[&str], env: &[(&str, &str)], uid: u32, refused: bool| {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for file in files {
            fs::write(root.join(file), "").unwrap();
            chown(root.join(file), Some(owner), None).unwrap();
        }
        chown(&root, Some(owner), None).unwrap();
        let text = root.to_str().unwrap();
        let env = env.iter();
        let env = env.map(|(name, value)| ((*name).to_owned(), value.replace("ROOT", text)));
        let here = ProcessEnv {
            cwd: root.clone(),
            env: env.collect(),
            uid: Some(uid),
            ..ProcessEnv::default()
        };
        let message = load(&here, &[]).err().map(|error| error.to_string());
        assert_eq!(message.is_some(), refused, "{files:?} {uid}: {message:?}");
        let message = message.unwrap_or_default();
        let is_reported = message.contains("belongs to another user") && message.contains(text);
        assert!(!refused || is_reported, "{message}");
    };
    let (files, other) = (["longhaul.toml"], owner + 1);
    check(&files, &[], owner, false);
    check(&files, &[], other, true);
    check(&["AGENTS.md"], &[], other, true);
    check(&[], &[], other, false);
    check(&files, &[("LONGHAUL_TRUST", "1")], other, false);
    check(&files, &[("LONGHAUL_TRUST_FOLDERS", "ROOT")], other, false);
    check(&files, &[("LONGHAUL_TRUST_FOLDERS", "/elsewhere")], other, true);
    // Root is refused too, unless the owner called `sudo`.
    check(&files, &[], 0, true);
    let sudo = owner.to_string();
    check(&files, &[("SUDO_UID", &sudo)], 0, false);
}
