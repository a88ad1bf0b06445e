//! Known differences between servers of the Chat Completions API.

use longhaul_core::suggest;

/// Quirks of a server: how it differs from most other servers of the API. The field names are also
/// the names used in the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerQuirks {
    /// Send the limit of output tokens as `max_completion_tokens` instead of `max_tokens`. OpenAI's
    /// reasoning models reject the old name.
    pub max_completion_tokens: bool,
    /// Don't send `stream_options`. Mistral rejects unknown fields and reports token counts anyway.
    pub no_stream_options: bool,
    /// Send the system prompt with the role `developer` instead of `system`.
    pub developer_role: bool,
    /// Send replies with tool calls back with their `reasoning_content`. Kimi and DeepSeek reject a
    /// conversation without this field.
    pub send_reasoning: bool,
    /// Don't send images; replace them by text.
    pub text_only: bool,
    /// Send the content `""` instead of `null` for a reply that has only tool calls. Some chat
    /// templates fail on `null`.
    pub empty_content: bool,
    /// Don't send the unknown fields of a reply back to the server.
    pub no_extras: bool,
}

type Flag = fn(&mut ServerQuirks) -> &mut bool;

const FLAGS: &[(&str, Flag)] = &[
    ("max_completion_tokens", |all| &mut all.max_completion_tokens),
    ("no_stream_options", |all| &mut all.no_stream_options),
    ("developer_role", |all| &mut all.developer_role),
    ("send_reasoning", |all| &mut all.send_reasoning),
    ("text_only", |all| &mut all.text_only),
    ("empty_content", |all| &mut all.empty_content),
    ("no_extras", |all| &mut all.no_extras),
];

/// Known providers, each with the names of its quirks.
const PROVIDERS: &[(&str, &[&str])] = &[
    ("openai", &["max_completion_tokens", "developer_role"]),
    ("azure", &["max_completion_tokens"]),
    ("moonshot", &["send_reasoning"]),
    ("kimi", &["send_reasoning"]),
    ("deepseek", &["send_reasoning"]),
    ("mistral", &["no_stream_options", "no_extras"]),
    ("lmstudio", &["empty_content"]),
];

impl ServerQuirks {
    /// Returns the quirks of a provider. An unknown provider has no quirks.
    pub fn for_provider(provider: &str) -> Self {
        let entry = PROVIDERS.iter().find(|(name, _)| name.eq_ignore_ascii_case(provider));
        let quirks = entry.map_or(&[][..], |(_, quirks)| *quirks);
        let mut all = Self::default();
        for (quirk, flag) in FLAGS {
            *flag(&mut all) = quirks.contains(quirk);
        }
        all
    }

    /// Parses a list of quirk names. Quirks that are not listed are off.
    pub fn from_names(quirk_names: &[String]) -> Result<Self, String> {
        let mut all = Self::default();
        for quirk in quirk_names {
            let Some((_, flag)) = FLAGS.iter().find(|(name, _)| name == quirk) else {
                let names: Vec<&str> = FLAGS.iter().map(|(name, _)| *name).collect();
                return Err(suggest::unknown_name_message("quirk", quirk, &names));
            };
            *flag(&mut all) = true;
        }
        Ok(all)
    }
}
