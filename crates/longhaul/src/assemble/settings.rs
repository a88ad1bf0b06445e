//! The settings of a runtime: from its project, or from environment variables.

use std::sync::Arc;

use longhaul_core::port::redact::Redact;
use longhaul_engine::agent::RunPolicyDefaults;
use longhaul_engine::background::spend_caps::SpendCaps;
use longhaul_engine::worker::WorkerOptions;
use longhaul_model::providers::model_choice::ModelSelector;

use crate::error::Error;

/// Default number of runs that a worker of a program drives at the same time.
const CONCURRENCY: usize = 1;

/// Settings of a runtime.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Models that agents can use. The error says which setting is invalid.
    pub(crate) selector: Result<ModelSelector, String>,
    pub(crate) redact: Arc<dyn Redact>,
    pub(crate) caps: SpendCaps,
    pub(crate) run_defaults: RunPolicyDefaults,
    pub(crate) worker: WorkerOptions,
    /// All settings of the project, or of the environment.
    #[cfg(feature = "project")]
    pub(crate) config: longhaul_project::config::settings::Config,
}

#[cfg(feature = "project")]
mod from_config {
    use std::path::PathBuf;

    use longhaul_project::assemble::{model_selector, project_redactor, worker_options};
    use longhaul_project::config::load;
    use longhaul_project::config::settings::Config;
    use longhaul_project::config::value::SettingOrigin;
    use longhaul_project::process::process_env_in_folder;

    use super::*;

    impl Settings {
        /// Reads the settings from environment variables.
        pub(crate) fn from_environment() -> Result<Self, Error> {
            let process_env = process_env_in_folder(PathBuf::new());
            let config = load::load_from_environment(&process_env);
            Self::from_config(config.map_err(Error::invalid_settings)?)
        }

        /// Returns the settings of a project.
        pub(crate) fn from_config(config: Config) -> Result<Self, Error> {
            let mut worker = worker_options(&config).map_err(|error| {
                Error::Settings(format!("invalid settings: `worker.inboxes`: {error}"))
            })?;
            let setting = config.settings.get("worker.concurrency");
            if setting.is_none_or(|setting| matches!(setting.origin, SettingOrigin::Default)) {
                worker.concurrency = CONCURRENCY;
            }
            Ok(Self {
                selector: model_selector(&config),
                redact: project_redactor(&config),
                caps: SpendCaps::new(config.spend_caps()).map_err(Error::Settings)?,
                run_defaults: config.run_policy_defaults(),
                worker,
                config,
            })
        }
    }
}

#[cfg(not(feature = "project"))]
mod from_variables {
    use std::collections::BTreeMap;

    use longhaul_core::id::InboxName;
    use longhaul_core::redact::Redactor;
    use longhaul_core::time::Millis;
    use longhaul_engine::background::sweep::RunRetention;
    use longhaul_model::prices::PriceTable;
    use longhaul_model::providers::Providers;

    use super::*;

    /// Settings whose variables only the feature `project` reads, and that nobody wants ignored:
    /// limits, and the names of secrets.
    const REFUSED_PREFIXES: [&str; 2] = ["LONGHAUL_BUDGET_", "LONGHAUL_SECRETS_"];

    /// How long ended runs are kept.
    const RETENTION: Millis = Millis::from_secs(90 * 24 * 60 * 60);

    impl Settings {
        /// Reads the API keys of providers from environment variables. All other settings have their
        /// default values.
        pub(crate) fn from_environment() -> Result<Self, Error> {
            refuse_ignored_limits()?;
            let providers = Providers::new(&BTreeMap::new(), variable);
            let names = providers.as_slice().iter().flat_map(|provider| &provider.key_env);
            let keys: Vec<(&str, String)> =
                names.filter_map(|name| Some((name.as_str(), variable(name)?))).collect();
            let keys = keys.iter().map(|(name, value)| (*name, value.as_str()));
            let redact = Arc::new(Redactor::new(keys));
            let selector = PriceTable::load_built_in()
                .map(|prices| ModelSelector::new(providers, prices, BTreeMap::new(), variable));
            Ok(Self {
                selector: selector.map_err(|error| error.to_string()),
                redact,
                caps: SpendCaps::default(),
                run_defaults: RunPolicyDefaults::default(),
                worker: WorkerOptions {
                    concurrency: CONCURRENCY,
                    retention: RunRetention { runs: Some(RETENTION) },
                    ..WorkerOptions::new(InboxName::new("default")?)
                },
            })
        }
    }

    /// Fails if a variable is set that this build would ignore although it limits what agents do.
    fn refuse_ignored_limits() -> Result<(), Error> {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let is_limit = |name: &str| REFUSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        match names.into_iter().find(|name| is_limit(name)) {
            None => Ok(()),
            Some(name) => Err(Error::Settings(format!(
                "`{name}` is set, but this program is built without the feature `project` of the \
                 crate `longhaul`, which reads it: add the feature, or unset the variable"
            ))),
        }
    }

    /// Returns the value of an environment variable. `None` means that it is not set or blank.
    fn variable(name: &str) -> Option<String> {
        let value = std::env::var(name).ok()?.trim().to_owned();
        (!value.is_empty()).then_some(value)
    }
}
