//! The way of a sandbox to a list of hosts: the egress proxy in this process, and what a command
//! needs to reach it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use longhaul_core::port::sandbox::{NetworkPolicy, SandboxError, SandboxSpec};

use crate::egress::{CA_BUNDLE_PATH, EgressOptions, EgressProxy, HostList};
use crate::launch::{LAUNCH_COMMAND, RELAY_PORT};
use crate::local::ProviderParts;
use crate::local::bwrap::BwrapArgs;
use crate::local::layout::{io_error, random_id};

/// Path of the launcher in a sandbox.
const LAUNCHER_PATH: &str = "/run/longhaul/launcher";
/// Path of the proxy's socket in a sandbox.
const SOCKET_PATH: &str = "/run/longhaul/egress.sock";

/// The way of a sandbox to a list of hosts.
#[derive(Debug)]
pub(crate) struct SandboxEgress {
    proxy: EgressProxy,
    launcher: PathBuf,
    socket: PathBuf,
    /// File with the certificates that programs must trust.
    ca_file: Option<PathBuf>,
}

impl SandboxEgress {
    /// Starts the proxy of a sandbox. `None` means that its spec has no list of hosts.
    pub(crate) fn open(
        provider: &ProviderParts,
        spec: &SandboxSpec,
    ) -> Result<Option<Self>, SandboxError> {
        let NetworkPolicy::Hosts(hosts) = &spec.network else {
            return Ok(None);
        };
        let hosts = HostList::parse(hosts).map_err(SandboxError::Refused)?;
        let launcher = provider.options.launcher.clone().ok_or_else(no_launcher)?;
        let dir = provider.dir.sockets();
        let failed = |error| io_error("create a socket in", &dir, &error);
        let id = random_id().map_err(failed)?;
        let socket = dir.join(&id);
        let options = EgressOptions {
            secrets: spec.secrets.clone(),
            ..EgressOptions::new(socket.clone(), hosts)
        };
        let proxy = EgressProxy::start(options)?;
        let ca_file = proxy.ca_bundle_pem().map(|pem| {
            let path = dir.join(format!("{id}.pem"));
            fs::write(&path, pem).map(|()| path)
        });
        let ca_file = ca_file.transpose().map_err(failed)?;
        Ok(Some(Self { proxy, launcher, socket, ca_file }))
    }

    /// Makes the proxy visible in the sandbox.
    pub(crate) fn bind(&self, args: &mut BwrapArgs) {
        args.pair("--ro-bind", &self.launcher, LAUNCHER_PATH);
        args.pair("--ro-bind", &self.socket, SOCKET_PATH);
        if let Some(file) = &self.ca_file {
            args.pair("--ro-bind", file, CA_BUNDLE_PATH);
        }
    }

    /// Returns the environment variables by which programs find the proxy.
    pub(crate) fn env(&self) -> BTreeMap<String, String> {
        self.proxy.env(RELAY_PORT)
    }

    /// Returns the program that starts a command next to the relay.
    pub(crate) fn launcher_args(&self) -> [OsString; 3] {
        [LAUNCHER_PATH, LAUNCH_COMMAND, SOCKET_PATH].map(OsString::from)
    }

    pub(crate) fn take_refusals(&self) -> BTreeSet<String> {
        self.proxy.take_refusals()
    }
}

impl Drop for SandboxEgress {
    fn drop(&mut self) {
        if let Some(file) = &self.ca_file {
            // It contains no secret, so that it does no harm if it remains.
            _ = fs::remove_file(file);
        }
    }
}

/// Checks the network of a sandbox without opening it.
pub(crate) fn check_network(
    provider: &ProviderParts,
    spec: &SandboxSpec,
) -> Result<(), SandboxError> {
    match &spec.network {
        NetworkPolicy::None => Ok(()),
        NetworkPolicy::Host if spec.secrets.is_empty() => Ok(()),
        NetworkPolicy::Host => Err(SandboxError::Refused(
            "secrets need a list of hosts; set `network: [HOST, ...]` in the agent's file"
                .to_owned(),
        )),
        NetworkPolicy::Hosts(hosts) => {
            HostList::parse(hosts).map_err(SandboxError::Refused)?;
            provider.options.launcher.as_ref().map(|_| ()).ok_or_else(no_launcher)
        }
    }
}

fn no_launcher() -> SandboxError {
    SandboxError::Refused(
        "the provider `local` has no launcher, without which a sandbox can't be restricted to a \
         list of hosts; set `launcher` in its options, or `network: none` in the agent's file"
            .to_owned(),
    )
}
