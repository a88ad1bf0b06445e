//! What is closed to agents by its name: secrets, the runtime's data, and the
//! inside of a repository.
//!
//! Never: opens anything to find out. A name is enough, so a secret is not
//! even looked at.

use crate::filename_fold::fold_case;

/// What somebody wants to do with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read or list it.
    Read,
    /// Write it.
    Write,
}

/// Files that hold passwords and tokens.
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
/// Files that hold passwords and tokens only in these folders.
const SECRET_FILES_IN: &[(&str, &[&str])] = &[
    (".cargo", &["credentials", "credentials.toml"]),
    (".docker", &["config.json"]),
    ("gh", &["hosts.yml", "hosts.yaml"]),
];
/// How files with passwords and tokens end.
const SECRET_ENDS: &[&str] = &[".kubeconfig"];
/// Lines that somebody typed, often with a password among them.
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
/// Folders that hold nothing but such files.
const SECRET_FOLDERS: &[&str] = &[".ssh", ".gnupg", ".aws", ".kube"];
/// Private keys by their usual names; with `.pub` they are public.
const KEY_NAMES: &[&str] =
    &["id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_xmss"];
/// How files with private keys end.
const KEY_ENDS: &[&str] = &[".pem", ".key", ".p12", ".pfx", ".ppk", ".jks", ".keystore"];
/// What in a repository may hold a token: an address with a password, a header.
const GIT_SECRETS: &[&str] = &["config", "config.worktree", "credentials"];

/// What says at the top of a project what agents may do, or what they are told:
/// whoever writes it has given itself leave.
const POLICY_FILES: &[&[&str]] = &[
    &["longhaul.toml"],
    &[".mcp.json"],
    &["agents"],
    &["chains"],
    &["skills"],
    &["agents.md"],
    &[".claude", "agents"],
    &[".claude", "skills"],
    &[".claude", "hooks"],
];

/// Why this path is closed, if it is.
pub(crate) fn protected_reason(parts: &[String], wish: Access) -> Option<&'static str> {
    let mut in_git = false;
    let mut folder = String::new();
    for part in parts {
        let name = normalized(part);
        if let Some(why) = name_reason(&folder, &name) {
            return Some(why);
        }
        if in_git && GIT_SECRETS.contains(&name.as_str()) {
            return Some("may hold a token of the repository and is closed to agents");
        }
        // As Windows and macOS may see it, too.
        in_git |= name == ".git" || name == "git~1";
        folder = name;
    }
    if wish == Access::Read {
        return None;
    }
    if in_git {
        return Some("is inside of a repository's own data, which only git itself writes");
    }
    is_policy_file(parts).then_some("says what agents may do, which only people write")
}

fn is_policy_file(parts: &[String]) -> bool {
    let names: Vec<String> = parts.iter().map(|part| normalized(part)).collect();
    let is_listed = POLICY_FILES.iter().any(|place| {
        place.len() <= names.len() && place.iter().zip(&names).all(|(place, name)| place == name)
    });
    is_listed || is_claude_settings(&names)
}

/// Settings of Claude's, by whatever name: they start programs at every step of it.
fn is_claude_settings(names: &[String]) -> bool {
    let [folder, file, ..] = names else {
        return false;
    };
    folder == ".claude" && file.starts_with("settings") && file.ends_with(".json")
}

fn name_reason(folder: &str, name: &str) -> Option<&'static str> {
    if name.starts_with(".longhaul") {
        Some("is the runtime's own data and is closed to agents")
    } else if name.starts_with(".env") {
        Some("is a file of secrets (`.env*`) and is closed to agents")
    } else if is_secret(folder, name) {
        Some("holds passwords or tokens and is closed to agents")
    } else if HISTORIES.contains(&name) {
        Some("is a history of what somebody typed and is closed to agents")
    } else if is_key(name) {
        Some("has the name of a private key and is closed to agents")
    } else {
        None
    }
}

fn is_secret(folder: &str, name: &str) -> bool {
    let mut listed = SECRET_FILES_IN.iter();
    SECRET_FILES.contains(&name)
        || SECRET_FOLDERS.contains(&name)
        || SECRET_ENDS.iter().any(|end| name.ends_with(end))
        || listed.any(|(place, names)| *place == folder && names.contains(&name))
}

fn is_key(name: &str) -> bool {
    let is_public = name.ends_with(".pub");
    let is_usual = KEY_NAMES
        .iter()
        .any(|key| name.strip_prefix(key).is_some_and(|rest| !starts_with_word_char(rest)));
    !is_public && (is_usual || KEY_ENDS.iter().any(|end| name.ends_with(end)))
}

/// `id_rsa.old` and `id_rsa-2` are keys, `id_rsasomething` is another word.
fn starts_with_word_char(rest: &str) -> bool {
    rest.starts_with(|first: char| first.is_alphanumeric() || first == '_')
}

/// The name as the most careless file system sees it.
fn normalized(part: &str) -> String {
    let seen: String =
        part.chars().filter(|letter| !matches!(letter, '\u{200c}' | '\u{200d}')).collect();
    let folded = fold_case(&seen);
    let stem = folded.split(':').next().unwrap_or(&folded);
    stem.trim_end_matches(['.', ' ']).trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Access, protected_reason};

    fn check(path: &str, read: bool, write: bool) {
        let parts: Vec<String> = path.split('/').map(str::to_owned).collect();
        assert_eq!(protected_reason(&parts, Access::Read).is_none(), read, "read {path}");
        assert_eq!(protected_reason(&parts, Access::Write).is_none(), write, "write {path}");
    }

    #[test]
    fn protected_paths_are_recognized() {
        for open in [
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
            check(open, true, true);
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
            check(half, true, false);
        }
        for shut in [
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
            check(shut, false, false);
        }
    }

    #[test]
    fn credentials_and_histories_of_other_programs_are_protected() {
        for open in [
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
            check(open, true, true);
        }
        for shut in [
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
            check(shut, false, false);
        }
    }
}
