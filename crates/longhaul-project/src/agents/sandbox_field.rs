//! Parses the field `sandbox` of an agent file.

use longhaul_core::port::sandbox::{Isolation, WORKSPACE};
use longhaul_core::suggest;
use longhaul_engine::agent::config::{IsolationLevel, SandboxConfig, SandboxVolume};
use longhaul_engine::sandboxes::SANDBOX_CACHES;

use crate::agents::diagnostics::{Diagnostics, Fields, integer, number};
use crate::spanned::TableEntry;

/// Maximum length of the name of a volume in bytes.
const VOLUME_NAME_BYTES_MAX: usize = 64;

/// Maximum number of hosts in `network`.
const HOSTS_MAX: usize = 256;

impl Diagnostics<'_> {
    /// Parses the field `sandbox` of an agent file.
    pub(crate) fn parse_sandbox(&mut self, entry: &TableEntry) -> Option<SandboxConfig> {
        let mut fields = Fields::new(self, entry, "provider")?;
        let mut config = SandboxConfig {
            provider: fields.parse("provider", Diagnostics::parse_sandbox_provider),
            image: fields.parse("image", Diagnostics::text),
            ..SandboxConfig::default()
        };
        fields.set("isolation", &mut config.isolation, Diagnostics::parse_isolation_level);
        fields.set("min_isolation", &mut config.min_isolation, Diagnostics::parse_min_isolation);
        fields.set("network", &mut config.network, Diagnostics::parse_network);
        fields.set("cache", &mut config.cache, Diagnostics::parse_caches);
        fields.set("memory_mb", &mut config.memory_mb, integer::<u64>(16));
        fields.set("cpus", &mut config.cpus, number(0.05, 1_024.0));
        fields.set("idle_stop", &mut config.idle_stop, Diagnostics::duration);
        fields.set("auto_stop", &mut config.auto_stop, Diagnostics::duration);
        fields.set("keep", &mut config.keep, Diagnostics::duration);
        fields.set("volume", &mut config.volume, Diagnostics::parse_volume);
        fields.set("only_for_repo", &mut config.only_for_repo, Diagnostics::boolean);
        fields.set("env_file", &mut config.env_file, Diagnostics::boolean);
        Some(config)
    }

    /// Parses the name of a provider. A name that is similar to a known one is a typo and is refused.
    /// Any other unknown name is only missing, because the runs may be executed by a program that
    /// registers a provider with that name.
    fn parse_sandbox_provider(&mut self, entry: &TableEntry) -> Option<String> {
        let name = self.text(entry)?;
        let known = self.ctx.sandbox_providers;
        if !known.contains(&name.as_str()) {
            let message = suggest::unknown_name_message("sandbox provider", &name, known);
            if suggest::most_similar_name(&name, known.iter().copied()).is_some() {
                return self.reject(entry.node.position, message);
            }
            let message = format!(
                "{message}; only a program that registers a provider `{name}` can execute runs of \
                 the agent"
            );
            self.report_missing(entry.node.position, message);
        }
        Some(name)
    }

    fn parse_isolation_level(&mut self, entry: &TableEntry) -> Option<IsolationLevel> {
        let text = self.text(entry)?;
        match text.as_str() {
            "none" => Some(IsolationLevel::None),
            "container" => Some(IsolationLevel::Container),
            _ => self.reject(
                entry.node.position,
                format!(
                    "`isolation: {text}` is not valid: leave it out for a sandbox, or write \
                     `container` if Longhaul itself runs in a container that isolates enough, or \
                     `none` to run unsandboxed"
                ),
            ),
        }
    }

    /// Parses the lowest isolation that the agent accepts. Only `isolation` can lower it to none.
    fn parse_min_isolation(&mut self, entry: &TableEntry) -> Option<Isolation> {
        let level = self.one_of::<Isolation>(entry)?;
        if level.is_at_least(Isolation::Landlock) {
            return Some(level);
        }
        let name = level.as_str();
        let message = format!("`min_isolation: {name}` is not valid: write `isolation: {name}`");
        self.reject(entry.node.position, message)
    }

    /// Parses `none`, `host` or a list of hosts and presets.
    fn parse_network(&mut self, entry: &TableEntry) -> Option<Vec<String>> {
        if entry.node.as_list().is_none() {
            let text = self.text(entry)?;
            return match text.as_str() {
                "none" => Some(Vec::new()),
                "host" => Some(vec![text]),
                _ => self.reject(
                    entry.node.position,
                    format!(
                        "`network: {text}` is not valid: write `none`, `host`, or a list such as \
                         `[packages, example.com]`"
                    ),
                ),
            };
        }
        let hosts = self.unique_texts(entry)?;
        if hosts.len() > HOSTS_MAX {
            let message = format!("`network` lists more than {HOSTS_MAX} hosts");
            return self.reject(entry.node.position, message);
        }
        match crate::assemble::sandboxes::host_list_problem(&hosts) {
            None => Some(hosts),
            Some(problem) => self.reject(entry.node.position, format!("`network`: {problem}")),
        }
    }

    fn parse_caches(&mut self, entry: &TableEntry) -> Option<Vec<String>> {
        let names = SANDBOX_CACHES.map(|(name, ..)| name);
        let caches = self.unique_texts(entry)?;
        match caches.iter().find(|cache| !names.contains(&cache.as_str())) {
            None => Some(caches),
            Some(unknown) => {
                let message = suggest::unknown_name_message("cache", unknown, &names);
                self.reject(entry.node.position, message)
            }
        }
    }

    fn parse_volume(&mut self, entry: &TableEntry) -> Option<SandboxVolume> {
        let mut fields = Fields::new(self, entry, "name")?;
        let name = fields.parse("name", Diagnostics::text);
        let path = fields.parse("path", Diagnostics::text);
        drop(fields);
        let position = entry.node.position;
        let (Some(name), Some(path)) = (name, path) else {
            return self.reject(position, "`volume` needs `name` and `path`");
        };
        let is_valid_name = !name.is_empty()
            && name.len() <= VOLUME_NAME_BYTES_MAX
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_valid_name {
            return self.reject(
                position,
                format!("`name: {name}` is not valid: use letters, digits and `-`, 64 at most"),
            );
        }
        let has_dots = path.split('/').any(|part| part == ".." || part == ".");
        if !path.starts_with('/') || path == "/" || path == WORKSPACE || has_dots {
            return self.reject(
                position,
                format!("`path: {path}` is not valid: write an absolute path such as `/data`"),
            );
        }
        Some(SandboxVolume { name, path })
    }
}
