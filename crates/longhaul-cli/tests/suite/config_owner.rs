//! Projects in folders of other users are refused.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};

use longhaul_project::config::load::load;
use longhaul_project::config::process_env::ProcessEnv;

#[test]
fn a_project_of_another_user_is_refused() {
    let current_uid = fs::metadata(tempfile::tempdir().unwrap().path()).unwrap().uid();
    // Files of root are never refused, so root changes the owner of the files.
    let owner_uid = if current_uid == 0 { 4_242 } else { current_uid };
    let check = |files: &[&str], env: &[(&str, &str)], uid: u32, is_refused: bool| {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for file in files {
            fs::write(root.join(file), "").unwrap();
            chown(root.join(file), Some(owner_uid), None).unwrap();
        }
        chown(&root, Some(owner_uid), None).unwrap();
        let text = root.to_str().unwrap();
        let env = env.iter();
        let env = env.map(|(name, value)| ((*name).to_owned(), value.replace("ROOT", text)));
        let process_env = ProcessEnv {
            cwd: root.clone(),
            env: env.collect(),
            uid: Some(uid),
            ..ProcessEnv::default()
        };
        let message = load(&process_env, &[]).err().map(|error| error.to_string());
        assert_eq!(message.is_some(), is_refused, "{files:?} {uid}: {message:?}");
        let message = message.unwrap_or_default();
        let is_reported = message.contains("belongs to another user") && message.contains(text);
        assert!(!is_refused || is_reported, "{message}");
    };
    let (files, other_uid) = (["longhaul.toml"], owner_uid + 1);
    check(&files, &[], owner_uid, false);
    check(&files, &[], other_uid, true);
    check(&["AGENTS.md"], &[], other_uid, true);
    check(&[], &[], other_uid, false);
    check(&files, &[("LONGHAUL_TRUST", "1")], other_uid, false);
    check(&files, &[("LONGHAUL_TRUST_FOLDERS", "ROOT")], other_uid, false);
    check(&files, &[("LONGHAUL_TRUST_FOLDERS", "/elsewhere")], other_uid, true);
    // Root is refused too, unless the owner called `sudo`.
    check(&files, &[], 0, true);
    let sudo_uid = owner_uid.to_string();
    check(&files, &[("SUDO_UID", &sudo_uid)], 0, false);
}
