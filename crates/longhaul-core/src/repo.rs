//! The git repository of a task, which sandboxes contain a clone of.
//!
//! Invariant: the address of a repository contains no credentials, because it is stored and shown.

use serde::{Deserialize, Serialize};

use crate::net::{NetworkZone, host_zone};

/// Maximum length of the address of a repository in bytes.
const URL_BYTES_MAX: usize = 2_048;

/// Maximum length of the name of a branch, tag or commit in bytes.
const REV_BYTES_MAX: usize = 200;

/// Git repository that a sandbox contains a clone of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepoSource {
    /// URL or absolute path of the repository, without credentials.
    pub url: String,
    /// Branch, tag or commit that is checked out. `None` means the default branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rev: Option<String>,
}

/// Why a repository can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRepoError {
    #[error(
        "the address of the repository is neither a URL that begins with https://, http:// or \
         ssh://, nor an address such as git@HOST:PATH, nor an absolute path"
    )]
    Address,
    #[error(
        "the address of the repository contains a user name or a password: leave them out. The \
         worker takes them from the credential helper of git or from the variable GITHUB_TOKEN"
    )]
    Credentials,
    #[error(
        "the branch, tag or commit of the repository is not valid: use letters, digits and any of \
         `.`, `_`, `/`, `-`, `+` and `@`, {REV_BYTES_MAX} at most"
    )]
    Rev,
}

/// Where the address of a repository leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Address<'a> {
    LocalPath,
    /// URL with a scheme, or an address such as `git@HOST:PATH`, which counts as `ssh`.
    Remote {
        scheme: &'a str,
        user_info: Option<&'a str>,
        host: &'a str,
        path: &'a str,
    },
}

impl RepoSource {
    /// Creates a repository with this address, whose default branch is checked out.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), rev: None }
    }

    /// Checks the address and the name of the branch, tag or commit.
    ///
    /// # Errors
    /// One of them is not valid.
    pub fn check(&self) -> Result<(), InvalidRepoError> {
        if let Some(Address::Remote { scheme, user_info: Some(user), .. }) = self.address() {
            // The user name of ssh, such as `git`, is no credential.
            if scheme != "ssh" || user.contains(':') {
                return Err(InvalidRepoError::Credentials);
            }
        }
        let is_plain = !self.url.chars().any(char::is_control) && self.url.len() <= URL_BYTES_MAX;
        let is_valid_address = match self.address() {
            Some(Address::LocalPath) => true,
            Some(Address::Remote { scheme, host, path, .. }) => {
                matches!(scheme, "https" | "http" | "ssh")
                    && is_host(host)
                    && path.len() > 1
                    && !self.url.contains(['?', '#', ' '])
            }
            None => false,
        };
        if !is_plain || !is_valid_address {
            return Err(InvalidRepoError::Address);
        }
        match self.rev.as_deref().is_none_or(is_rev) {
            true => Ok(()),
            false => Err(InvalidRepoError::Rev),
        }
    }

    /// Returns whether the repository is in a folder of this machine.
    pub fn is_local_path(&self) -> bool {
        self.address() == Some(Address::LocalPath)
    }

    /// Returns whether the address is an `https` URL whose host is not known to be in a private
    /// network.
    pub fn is_public_url(&self) -> bool {
        let Some(Address::Remote { scheme, host, .. }) = self.address() else { return false };
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        scheme == "https" && matches!(host_zone(host), None | Some(NetworkZone::Public))
    }

    /// Returns the host and the path of a remote repository, without a leading `/` and a trailing
    /// `.git`. `None` if the repository is on this machine.
    pub fn host_and_path(&self) -> Option<(&str, &str)> {
        let Some(Address::Remote { host, path, .. }) = self.address() else { return None };
        let path = path.trim_matches('/');
        Some((host, path.strip_suffix(".git").unwrap_or(path)))
    }

    fn address(&self) -> Option<Address<'_>> {
        let url = self.url.as_str();
        if url.starts_with('/') {
            return Some(Address::LocalPath);
        }
        if let Some((scheme, rest)) = url.split_once("://") {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (user_info, host) = split_user(authority);
            return Some(Address::Remote { scheme, user_info, host, path });
        }
        let (authority, path) = url.split_once(':')?;
        let (user_info, host) = split_user(authority);
        // `ext::COMMAND` would run a command.
        let is_scp_syntax = !path.starts_with(':') && !authority.contains('/');
        is_scp_syntax.then_some(Address::Remote { scheme: "ssh", user_info, host, path })
    }
}

fn split_user(authority: &str) -> (Option<&str>, &str) {
    match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    }
}

fn is_host(host: &str) -> bool {
    let is_host_char = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    !host.is_empty() && !host.starts_with('-') && host.chars().all(is_host_char)
}

/// Returns whether a text can be the name of a branch, a tag or a commit.
pub fn is_rev(text: &str) -> bool {
    let is_rev_char = |c: char| c.is_ascii_alphanumeric() || "._/-+@".contains(c);
    let has_valid_parts = text
        .split('/')
        .all(|part| !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with(".lock"));
    (1..=REV_BYTES_MAX).contains(&text.len())
        && text.chars().all(is_rev_char)
        && has_valid_parts
        && !text.contains("..")
        && !text.ends_with('.')
        && text != "@"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str) -> Result<(), InvalidRepoError> {
        RepoSource::new(url).check()
    }

    #[test]
    fn addresses_without_credentials_are_valid() {
        for url in [
            "https://github.com/a/b.git",
            "http://127.0.0.1:8080/a",
            "ssh://git@host.example:22/a",
            "git@github.com:a/b.git",
            "host:a/b",
            "/srv/my repos/a",
        ] {
            assert_eq!(check(url), Ok(()), "{url}");
        }
    }

    #[test]
    fn credentials_commands_and_options_are_refused() {
        for url in ["https://ada:pw@host/a", "https://token@host/a", "ssh://git:pw@host/a"] {
            assert_eq!(check(url), Err(InvalidRepoError::Credentials), "{url}");
        }
        for url in [
            "",
            "a/b",
            "--upload-pack=x",
            "ext::sh -c x",
            "file:///srv/a",
            "git://host/a",
            "ssh://-oProxyCommand=x/a",
            "-oProxyCommand=x:a",
            "https://host",
            "https://host/a?token=x",
            "https:///a",
            "/a\nb",
        ] {
            assert_eq!(check(url), Err(InvalidRepoError::Address), "{url}");
        }
    }

    #[test]
    fn revs_are_names_of_branches_tags_and_commits() {
        for rev in ["main", "feature/a-1", "v1.0+2", "0123456789abcdef0123456789abcdef01234567"] {
            assert!(is_rev(rev), "{rev}");
        }
        for rev in ["", "-x", "a..b", "a b", "a/", "/a", "a/.b", "a:b", "a^", "@", "a.lock", "@{1"]
        {
            assert!(!is_rev(rev), "{rev}");
        }
    }

    #[test]
    fn only_https_to_a_public_host_is_a_public_url() {
        assert!(RepoSource::new("https://github.com/a/b").is_public_url());
        for url in ["http://github.com/a", "https://localhost/a", "https://10.0.0.1:80/a", "/a"] {
            assert!(!RepoSource::new(url).is_public_url(), "{url}");
        }
        assert!(!RepoSource::new("https://[::1]:443/a").is_public_url());
    }

    #[test]
    fn the_path_of_a_repository_has_no_git_suffix() {
        for url in
            ["https://github.com/a/b.git", "git@github.com:a/b.git", "https://github.com/a/b/"]
        {
            let repo = RepoSource::new(url);
            assert_eq!(repo.host_and_path(), Some(("github.com", "a/b")), "{url}");
        }
        assert_eq!(RepoSource::new("/a/b").host_and_path(), None);
    }
}
