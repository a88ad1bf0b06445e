//! The arguments of bubblewrap: what a sandbox sees of the machine.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use longhaul_core::port::sandbox::WORKSPACE;

use crate::local::layout::{Layout, ProviderDir};
use crate::local::path::HOME;

/// Search path of every machine.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Files and folders of `/etc` that programs need. None of them contains a key or a password.
const ETC: &[&str] = &[
    "alternatives",
    "ca-certificates",
    "debian_version",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "os-release",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
];

/// Returns the search path of programs in sandboxes: that of every machine, and those directories
/// of this process's search path that sandboxes can read.
pub(crate) fn search_path(read_only: &[PathBuf]) -> OsString {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let is_visible = |dir: &PathBuf| read_only.iter().any(|visible| dir.starts_with(visible));
    let visible: Vec<PathBuf> = std::env::split_paths(&own).filter(is_visible).collect();
    let dirs = visible.into_iter().chain(std::env::split_paths(SEARCH_PATH));
    std::env::join_paths(dirs).unwrap_or_else(|_| SEARCH_PATH.into())
}

/// The program bubblewrap and its arguments.
#[derive(Debug, Default)]
pub(crate) struct BwrapArgs(Vec<OsString>);

impl BwrapArgs {
    /// Returns the program and its arguments for a sandbox without folders of its own.
    pub(crate) fn new(
        program: &Path,
        dir: &ProviderDir,
        read_only: &[PathBuf],
        has_network: bool,
    ) -> Self {
        let mut args = Self::default();
        args.add(program);
        args.add("--unshare-all").add("--unshare-user").add("--disable-userns");
        args.option("--uid", "1000").option("--gid", "1000").option("--cap-drop", "ALL");
        args.option("--hostname", "sandbox").option("--seccomp", "4");
        args.add("--die-with-parent").add("--new-session").add("--clearenv");
        if has_network {
            args.add("--share-net");
        }
        args.pair("--ro-bind", "/usr", "/usr");
        for folder in ["/bin", "/lib", "/lib64", "/sbin"] {
            match std::fs::read_link(folder) {
                Ok(target) => args.pair("--symlink", target, folder),
                Err(_) => args.pair("--ro-bind-try", folder, folder),
            };
        }
        args.bind_etc(&dir.etc(), has_network);
        // Read-only: to the kernel a program of a worker that is root owns the settings in
        // /proc/sys, although it is not root in the sandbox.
        args.option("--proc", "/proc").option("--remount-ro", "/proc").option("--dev", "/dev");
        args.option("--dir", "/run").option("--dir", "/var").pair("--symlink", "/tmp", "/var/tmp");
        for dir in read_only {
            args.pair("--ro-bind-try", dir, dir);
        }
        args
    }

    fn bind_etc(&mut self, own: &Path, has_network: bool) {
        for name in ETC {
            let path = Path::new("/etc").join(name);
            self.pair("--ro-bind-try", &path, &path);
        }
        for name in ["passwd", "group", "nsswitch.conf", "hosts"] {
            self.pair("--ro-bind", own.join(name), Path::new("/etc").join(name));
        }
        if has_network {
            self.pair("--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf");
        }
    }

    /// Adds the folders of a sandbox and its volumes, given by their paths in the sandbox.
    pub(crate) fn bind_folders(&mut self, layout: &Layout, volumes: &[(String, PathBuf)]) {
        self.pair("--bind", layout.tmp(), "/tmp").pair("--bind", layout.home(), HOME);
        self.pair("--bind", layout.workspace(), WORKSPACE);
        for (path, dir) in volumes {
            self.pair("--bind", dir, path);
        }
    }

    /// Sets an environment variable of the command.
    pub(crate) fn set_env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) {
        self.pair("--setenv", name, value);
    }

    /// Adds the working directory, the file descriptor that gets information about the sandbox, and
    /// the end of the options. The arguments that follow are those of the command.
    pub(crate) fn finish(mut self, cwd: &Path) -> Vec<OsString> {
        self.option("--remount-ro", "/").option("--chdir", cwd);
        self.option("--info-fd", "3").add("--");
        self.0
    }

    fn add(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.0.push(arg.as_ref().to_owned());
        self
    }

    fn option(&mut self, name: &str, value: impl AsRef<OsStr>) -> &mut Self {
        self.add(name).add(value)
    }

    /// Adds an option with two values.
    pub(crate) fn pair(
        &mut self,
        name: &str,
        first: impl AsRef<OsStr>,
        second: impl AsRef<OsStr>,
    ) -> &mut Self {
        self.add(name).add(first).add(second)
    }
}
