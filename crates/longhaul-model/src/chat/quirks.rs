//! Where servers differ from each other, by name.
//!
//! Never: a quirk that no server is known to have.

use longhaul_core::suggest;

/// What a server wants otherwise than most do. Each name is also the word for it
/// in a configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quirks {
    /// The longest reply is called `max_completion_tokens`, not `max_tokens`:
    /// OpenAI's models that think refuse the old name.
    pub max_completion_tokens: bool,
    /// No `stream_options` are sent: Mistral refuses what it does not know, and
    /// counts tokens without being asked.
    pub no_stream_options: bool,
    /// The prompt is told by the `developer`, not by the `system`.
    pub developer_role: bool,
    /// A reply with calls goes back with its `reasoning_content`: Kimi and
    /// DeepSeek refuse a conversation in which it is missing.
    pub send_reasoning: bool,
    /// No pictures are sent; the model is told of them in words.
    pub text_only: bool,
    /// A reply of nothing but calls has the content `""`, not `null`: some
    /// templates trip over `null`.
    pub empty_content: bool,
    /// Arguments that are no object go back inside one: servers that read them
    /// before they render a template refuse the whole conversation otherwise.
    pub json_arguments: bool,
    /// Fields of a reply that we don't know are not sent back.
    pub no_extras: bool,
}

type Flag = fn(&mut Quirks) -> &mut bool;

const FLAGS: &[(&str, Flag)] = &[
    ("max_completion_tokens", |all| &mut all.max_completion_tokens),
    ("no_stream_options", |all| &mut all.no_stream_options),
    ("developer_role", |all| &mut all.developer_role),
    ("send_reasoning", |all| &mut all.send_reasoning),
    ("text_only", |all| &mut all.text_only),
    ("empty_content", |all| &mut all.empty_content),
    ("json_arguments", |all| &mut all.json_arguments),
    ("no_extras", |all| &mut all.no_extras),
];

/// The quirks of the providers that are known to have some.
const PROVIDERS: &[(&str, &[&str])] = &[
    ("openai", &["max_completion_tokens", "developer_role"]),
    ("azure", &["max_completion_tokens"]),
    ("moonshot", &["send_reasoning"]),
    ("kimi", &["send_reasoning"]),
    ("deepseek", &["send_reasoning"]),
    ("mistral", &["no_stream_options", "no_extras"]),
    ("ollama", &["json_arguments"]),
    ("vllm", &["json_arguments"]),
    ("sglang", &["json_arguments"]),
    ("llamacpp", &["json_arguments"]),
    ("llama.cpp", &["json_arguments"]),
    ("lmstudio", &["json_arguments", "empty_content"]),
];

impl Quirks {
    /// The quirks of a provider by its name; one that is not known has none.
    pub fn for_provider(provider: &str) -> Self {
        let known = PROVIDERS.iter().find(|(name, _)| name.eq_ignore_ascii_case(provider));
        let words = known.map_or(&[][..], |(_, words)| *words);
        let mut all = Self::default();
        for (word, flag) in FLAGS {
            *flag(&mut all) = words.contains(word);
        }
        all
    }

    /// The quirks that these words name, and no others.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut all = Self::default();
        for word in words {
            let known = FLAGS.iter().find(|(name, _)| name == word);
            let (_, flag) = known.ok_or_else(|| unknown_quirk(word))?;
            *flag(&mut all) = true;
        }
        Ok(all)
    }
}

fn unknown_quirk(word: &str) -> String {
    let names: Vec<&str> = FLAGS.iter().map(|(name, _)| *name).collect();
    suggest::unknown_message("quirk", word, &names)
}
