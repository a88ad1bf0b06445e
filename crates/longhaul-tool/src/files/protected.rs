//! Paths that agents can't access because of their names: secrets, the runtime's data, and the
//! internals of a git repository.
//!
//! Invariant: only names are checked; no file is opened.

use crate::filename_fold::fold_case;

/// Kind of access to a path that an agent requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathAccess {
    /// Read a file or list a folder.
    Read,
    /// Create or change a file.
    Write,
}

/// Names of files with passwords and tokens.
const SECRET_FILES: &[&str] = &[
    "local.key",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".htpasswd",
    ".vault-token",
    "credentials.json",
    "kubeconfig",
    "secrets.json",
    "secrets.toml",
    "secrets.yaml",
    "secrets.yml",
    "terraform.tfstate",
    "terraform.tfstate.backup",
];
/// Folders, each with the names of files in it that hold passwords or tokens.
const SECRET_FILES_IN: &[(&str, &[&str])] = &[
    (".cargo", &["credentials", "credentials.toml"]),
    (".docker", &["config.json"]),
    ("gh", &["hosts.yml", "hosts.yaml"]),
];
/// Suffixes of files with passwords and tokens.
const SECRET_ENDS: &[&str] = &[".kubeconfig"];
/// Names of files with typed commands, which often contain passwords.
const HISTORIES: &[&str] = &[
    ".bash_history",
    ".zsh_history",
    ".sh_history",
    ".python_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".rediscli_history",
    ".node_repl_history",
    "fish_history",
];
/// Names of folders that contain only secret files.
const SECRET_FOLDERS: &[&str] = &[".ssh", ".gnupg", ".aws", ".kube"];
/// Usual names of private key files. With `.pub` appended they are public keys.
const KEY_NAMES: &[&str] =
    &["id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_xmss"];
/// Suffixes of private key files.
const KEY_ENDS: &[&str] = &[".pem", ".key", ".p12", ".pfx", ".ppk", ".jks", ".keystore"];
/// Names of files in `.git` that may hold a token: a URL with a password, or a header.
const GIT_SECRETS: &[&str] = &["config", "config.worktree", "credentials"];

/// Files at the top of a project that set the permissions or the instructions of agents. An agent
/// that could write them could give itself permissions.
const POLICY_FILES: &[&[&str]] = &[
    &["longhaul.toml"],
    &[".mcp.json"],
    &["agents"],
    &["chains"],
    &["skills"],
    &["agents.md"],
    &["claude.md"],
    &[".claude", "claude.md"],
    &[".claude", "agents"],
    &[".claude", "skills"],
    &[".claude", "hooks"],
];

/// Folder at the top of a project that contains the folder inboxes, whose files become tasks. An
/// agent that could write there could start runs of other agents and change their results.
const INBOX_FOLDER: &str = "inbox";

/// Returns why agents can't access this path. `None` if the path is not protected.
pub(crate) fn protection_reason(parts: &[String], access: PathAccess) -> Option<&'static str> {
    let mut is_in_git = false;
    let mut folder = String::new();
    for part in parts {
        let name = normalized_path_component(part);
        if let Some(reason) = protected_name_reason(&folder, &name) {
            return Some(reason);
        }
        if is_in_git && GIT_SECRETS.contains(&name.as_str()) {
            return Some("may hold a token of the repository and is not accessible to agents");
        }
        // `git~1` is the short name of `.git` on Windows.
        is_in_git |= name == ".git" || name == "git~1";
        folder = name;
    }
    if access == PathAccess::Read {
        return None;
    }
    if is_in_git {
        return Some("is part of a git repository's own data, which only git writes");
    }
    if parts.first().is_some_and(|first| normalized_path_component(first) == INBOX_FOLDER) {
        return Some("is part of the folder inboxes, which start runs; agents can't write it");
    }
    is_policy_file(parts).then_some("sets the permissions of agents; only people may write it")
}

fn is_policy_file(path_parts: &[String]) -> bool {
    let names: Vec<String> =
        path_parts.iter().map(|part| normalized_path_component(part)).collect();
    let is_listed = POLICY_FILES.iter().any(|prefix| {
        prefix.len() <= names.len()
            && prefix.iter().zip(&names).all(|(prefix, name)| prefix == name)
    });
    // A settings file of Claude, under any of its names, can start programs.
    let is_claude_settings = matches!(&*names, [folder, file, ..]
        if folder == ".claude" && file.starts_with("settings") && file.ends_with(".json"));
    is_listed || is_claude_settings
}

fn protected_name_reason(folder: &str, name: &str) -> Option<&'static str> {
    if name.starts_with(".longhaul") {
        Some("is the runtime's own data and is not accessible to agents")
    } else if name.starts_with(".env") {
        Some("is a file of secrets (`.env*`) and is not accessible to agents")
    } else if is_secret_file(folder, name) {
        Some("holds passwords or tokens and is not accessible to agents")
    } else if HISTORIES.contains(&name) {
        Some("is a history of typed commands and is not accessible to agents")
    } else if is_private_key_file(name) {
        Some("has the name of a private key and is not accessible to agents")
    } else {
        None
    }
}

fn is_secret_file(folder: &str, name: &str) -> bool {
    let mut listed = SECRET_FILES_IN.iter();
    SECRET_FILES.contains(&name)
        || SECRET_FOLDERS.contains(&name)
        || SECRET_ENDS.iter().any(|end| name.ends_with(end))
        || listed.any(|(parent, names)| *parent == folder && names.contains(&name))
}

fn is_private_key_file(name: &str) -> bool {
    let is_public = name.ends_with(".pub");
    let is_identifier_char = |c: char| c.is_alphanumeric() || c == '_';
    // `id_rsa.old` and `id_rsa-2` are keys, `id_rsasomething` is not.
    let mut key_suffixes = KEY_NAMES.iter().filter_map(|key| name.strip_prefix(key));
    let is_key_name = key_suffixes.any(|rest| !rest.starts_with(is_identifier_char));
    !is_public && (is_key_name || KEY_ENDS.iter().any(|end| name.ends_with(end)))
}

/// Returns a path component in a form for comparison that ignores everything some file system
/// ignores: case, invisible joiners, a `:` with what follows, trailing dots, and spaces around the
/// name.
fn normalized_path_component(part: &str) -> String {
    let visible: String = part.chars().filter(|c| !matches!(c, '\u{200c}' | '\u{200d}')).collect();
    let folded = fold_case(&visible);
    let stem = folded.split(':').next().unwrap_or(&folded);
    stem.trim_end_matches(['.', ' ']).trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{PathAccess, protection_reason};

    fn check_path_protection(path: &str, is_readable: bool, is_writable: bool) {
        let parts: Vec<String> = path.split('/').map(str::to_owned).collect();
        assert_eq!(
            protection_reason(&parts, PathAccess::Read).is_none(),
            is_readable,
            "read {path}"
        );
        assert_eq!(
            protection_reason(&parts, PathAccess::Write).is_none(),
            is_writable,
            "write {path}"
        );
    }

    #[test]
    fn the_rules_of_agents_are_read_only() {
        for path in ["AGENTS.md", "CLAUDE.md", "claude.md", ".claude/CLAUDE.md"] {
            check_path_protection(path, true, false);
        }
        check_path_protection("docs/CLAUDE.md", true, true);
    }

    #[test]
    fn protected_paths_are_recognized() {
        for allowed in [
            "src/main.rs",
            ".github/workflows/ci.yml",
            ".gitignore",
            "id_rsa.pub",
            "docs/id_rsapod.md",
            "environment.md",
            "keys.md",
            "gitlab/config",
            "config",
            "docs/agents/a.md",
            "sub/longhaul.toml",
            "docs/AGENTS.md",
            ".claude/commands/a.md",
            ".claude/settings.md",
            "sub/.claude/settings.json",
        ] {
            check_path_protection(allowed, true, true);
        }
        for half in [
            ".git",
            ".git/HEAD",
            "sub/.git",
            ".GIT/hooks/pre-commit",
            "longhaul.toml",
            "Longhaul.TOML",
            ".mcp.json",
            "agents/writer.md",
            "Agents/new.md",
            "chains/a.toml",
            ".claude/agents/a.md",
            ".claude/skills/a/SKILL.md",
            ".claude/settings.json",
            ".Claude/Settings.local.JSON",
            ".claude/hooks/before.sh",
            "skills/a/SKILL.md",
            "AGENTS.md",
        ] {
            check_path_protection(half, true, false);
        }
        for path in [
            ".longhaul",
            ".longhaul/vault/a.md",
            ".LongHaul/x",
            ".longhaul-1-0.tmp",
            ".env",
            ".env.local",
            ".ENV",
            ".env.",
            ".env ",
            ".e\u{200d}nv",
            ".env::$DATA",
            "a/.envrc",
            "local.key",
            "a/id_rsa",
            "ID_ED25519",
            "id_rsa.old",
            "tls/server.pem",
            "server.KEY",
            ".ssh/known_hosts",
            ".netrc",
            ".git/config",
            "sub/.Git/modules/x/config",
            "git~1/config",
            ".git/credentials",
        ] {
            check_path_protection(path, false, false);
        }
    }

    #[test]
    fn folder_inboxes_are_read_only() {
        for path in ["inbox", "inbox/mail/note.txt", "Inbox/mail/done/note.txt.result.json"] {
            check_path_protection(path, true, false);
        }
        for path in ["docs/inbox/a.txt", "inboxes/a.txt"] {
            check_path_protection(path, true, true);
        }
    }

    #[test]
    fn credentials_and_histories_of_other_programs_are_protected() {
        for allowed in [
            ".cargo/config.toml",
            "config.json",
            "docker/config.json",
            "hosts.yml",
            "credentials.toml",
            "docs/kubeconfig.md",
            "main.tf",
            "src/secrets.rs",
            "history.md",
        ] {
            check_path_protection(allowed, true, true);
        }
        for path in [
            ".cargo/credentials.toml",
            ".Cargo/Credentials",
            "home/.docker/config.json",
            ".config/gh/hosts.yml",
            ".vault-token",
            ".kube/config",
            "kubeconfig",
            "deploy/prod.kubeconfig",
            "infra/terraform.tfstate",
            "terraform.tfstate.backup",
            ".bash_history",
            ".zsh_history",
            ".python_history",
            ".psql_history",
            ".mysql_history",
            ".node_repl_history",
            ".local/share/fish/fish_history",
            "credentials.json",
            "config/Secrets.YAML",
            "secrets.yml",
            "secrets.json",
            "secrets.toml",
        ] {
            check_path_protection(path, false, false);
        }
    }
}
