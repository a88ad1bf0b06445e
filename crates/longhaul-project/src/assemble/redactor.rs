//! Replaces the secrets of a project in all texts that models read and journals store.

use std::borrow::Cow;

use longhaul_core::port::redact::Redact;
use longhaul_core::redact::Redactor;

use crate::assemble::mcp_servers::{partial_token_suffix_len, redact_tokens};
use crate::config::settings::Config;
use longhaul_model::providers::Providers;

/// Builds a redactor that replaces the secret values of a project's variables.
pub fn build_redactor(config: &Config) -> Redactor {
    let providers = Providers::new(&config.provider_settings(), |_| None);
    let key_names = providers.as_slice().iter().flat_map(|provider| &provider.key_env);
    let mut names = config.secret_names();
    names.extend(key_names.cloned());
    names.sort_unstable();
    names.dedup();
    let secrets = names.iter().flat_map(|name| {
        let values = config.env.values_to_redact(name).into_iter();
        values.map(move |value| (name.as_str(), value))
    });
    Redactor::new(secrets)
}

/// Redactor that replaces the secrets of a project and the login tokens of its MCP servers.
#[derive(Debug)]
pub struct ProjectRedactor(pub Redactor);

impl Redact for ProjectRedactor {
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let text = redact_tokens(text);
        match self.0.redact(&text) {
            Cow::Owned(redacted) => Cow::Owned(redacted),
            Cow::Borrowed(_) => text,
        }
    }

    fn partial_secret_suffix_len(&self, text: &str) -> usize {
        self.0.partial_secret_suffix_len(text).max(partial_token_suffix_len(text))
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "mcp")]
    #[test]
    fn a_partial_secret_or_token_is_detected() {
        use std::sync::Arc;

        use longhaul_engine::clock::SystemClock;

        use super::*;

        let redactor = ProjectRedactor(Redactor::new([("KEY", "s3cret-of-a-project")]));
        let oauth = longhaul_mcp::OAuthConfig {
            client_secret: Some("t0ken-of-a-login".to_owned()),
            ..longhaul_mcp::OAuthConfig::default()
        };
        _ = longhaul_mcp::LoginContext::new("/nowhere".into(), oauth, Arc::new(SystemClock));
        for (text, partial) in [
            ("it is s3cret-of", "s3cret-of"),
            ("it is t0ken-of-a", "t0ken-of-a"),
            ("it is nothing", ""),
        ] {
            assert_eq!(redactor.partial_secret_suffix_len(text), partial.len(), "{text}");
        }
        let redacted = redactor.redact("t0ken-of-a-login, s3cret-of-a-project");
        assert!(!redacted.contains("of-a"), "{redacted}");
    }
}
