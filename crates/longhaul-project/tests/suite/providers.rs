//! Tests of providers, aliases and prices from settings and environment. Both are test data: nothing of this
//! process is read.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::time::Clock;
use longhaul_engine::clock::SystemClock;
use longhaul_model::providers::built_in::ApiFormat;
use longhaul_model::providers::model_choice::{ModelChoiceReason, ModelSelector};
use longhaul_project::assemble::{model_selector, project_model_resolver};
use longhaul_project::config::error::ConfigError;
use longhaul_project::config::load::load;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::settings::Config;

const KEY: &str = "sk-ant-very-secret-0123456789";

fn load_config(toml: &str, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("longhaul.toml"), toml).unwrap();
    let process_env = ProcessEnv {
        cwd: folder.path().to_path_buf(),
        env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..ProcessEnv::default()
    };
    load(&process_env, &[])
}

fn selector(toml: &str, env: &[(&str, &str)]) -> ModelSelector {
    model_selector(&load_config(toml, env).unwrap()).unwrap()
}

const ANTHROPIC: (&str, &str) = ("ANTHROPIC_API_KEY", KEY);
const OPENAI: (&str, &str) = ("OPENAI_API_KEY", KEY);
const KIMI: (&str, &str) = ("KIMI_API_KEY", KEY);
const MOONSHOT: (&str, &str) = ("MOONSHOT_API_KEY", KEY);
const ROUTER: (&str, &str) = ("OPENROUTER_API_KEY", KEY);

type Vars = &'static [(&'static str, &'static str)];

const DEFAULT_SET: &str = "[models]\ndefault = \"fast\"\nfast = \"openai/gpt-5-mini\"\n";
const OWN_KEY: &str = "[providers.openai]\nkey_env = [\"A\", \"B\"]\n";
const IDLE_SET: &str = "[models]\ndefault = \"idle\"\n";
const OWN_IDLE: &str = "[models]\nidle = \"a/b\"\n";

/// Settings, environment and requested name; the selected model and the reason. Ollama is running.
#[rustfmt::skip]
const CHOICES: &[(&str, Vars, Option<&str>, &str, &str)] = &[
    // A named model is used without any other checks.
    (DEFAULT_SET, &[ANTHROPIC], Some("x/y"), "x/y", "named"),
    (DEFAULT_SET, &[], Some("fast"), "openai/gpt-5-mini", "named"),
    (DEFAULT_SET, &[ANTHROPIC], None, "openai/gpt-5-mini", "project file longhaul.toml:2"),
    (DEFAULT_SET, &[ANTHROPIC], Some("default"), "openai/gpt-5-mini", "project file longhaul.toml:2"),
    ("", &[ANTHROPIC, OPENAI, KIMI, ROUTER], None, "anthropic/claude-sonnet-5-5", "ANTHROPIC_API_KEY"),
    ("", &[ANTHROPIC], Some("default"), "anthropic/claude-sonnet-5-5", "ANTHROPIC_API_KEY"),
    ("", &[OPENAI, KIMI], None, "openai/gpt-6.1-terra", "OPENAI_API_KEY"),
    ("", &[KIMI, ROUTER], None, "moonshot/kimi-k2.5", "KIMI_API_KEY"),
    ("", &[KIMI, MOONSHOT], None, "moonshot/kimi-k2.5", "MOONSHOT_API_KEY"),
    ("", &[KIMI, ("KIMI_CONVERSATION_MODEL", "kimi-k3")], None, "moonshot/kimi-k3", "KIMI_API_KEY"),
    // OpenRouter has no default model.
    ("", &[ROUTER], None, "ollama/qwen3:8b", "ollama"),
    // A blank key counts as missing.
    ("", &[("ANTHROPIC_API_KEY", " "), KIMI], None, "moonshot/kimi-k2.5", "KIMI_API_KEY"),
    ("", &[], None, "ollama/qwen3:8b", "ollama"),
    (OWN_KEY, &[("B", KEY), OPENAI], None, "openai/gpt-6.1-terra", "B"),
    ("", &[], Some("idle"), "moonshot/kimi-k2-0905-chat", "named"),
    (IDLE_SET, &[], None, "moonshot/kimi-k2-0905-chat", "project file longhaul.toml:2"),
    ("", &[("KIMI_IDLE_MODEL", "k")], Some("idle"), "moonshot/k", "named"),
    (OWN_IDLE, &[("KIMI_IDLE_MODEL", "k")], Some("idle"), "a/b", "named"),
];

#[test]
fn the_model_is_chosen_in_the_documented_order() {
    for (toml, env, requested_model, name, expected_reason) in CHOICES {
        let choice =
            selector(toml, env).choose_model(*requested_model, |_| Some("qwen3:8b".to_owned()));
        let choice = choice.unwrap_or_else(|error| panic!("{toml} {requested_model:?}: {error}"));
        let reason = match choice.reason {
            ModelChoiceReason::Named => "named".to_owned(),
            ModelChoiceReason::Default(origin) => origin,
            ModelChoiceReason::Key(variable) => variable,
            ModelChoiceReason::Ollama => "ollama".to_owned(),
        };
        assert_eq!((choice.name.as_str(), reason.as_str()), (*name, *expected_reason), "{toml}");
    }
}

#[test]
fn an_idle_tick_without_an_idle_model_gets_that_of_the_provider() {
    for (toml, env, requested_model, expected) in [
        ("", &[KIMI][..], None, Some("moonshot/kimi-k2-0905-chat")),
        ("", &[], Some("moonshot/kimi-k2.5"), Some("moonshot/kimi-k2-0905-chat")),
        ("", &[("KIMI_IDLE_MODEL", "k")], Some("moonshot/kimi-k2.5"), Some("moonshot/k")),
        (
            "[models]\nfast = \"moonshot/x\"\n",
            &[("KIMI_IDLE_MODEL", "k")],
            Some("fast"),
            Some("moonshot/k"),
        ),
        ("", &[ANTHROPIC, ("KIMI_IDLE_MODEL", "k")], None, None),
        ("", &[("KIMI_IDLE_MODEL", "k")], Some("scripted/tidy"), None),
        ("", &[], None, None),
    ] {
        let idle_model = selector(toml, env).idle_tick_model_of_same_provider(requested_model);
        assert_eq!(idle_model.as_deref(), expected, "{toml} {env:?} {requested_model:?}");
    }
}

#[test]
fn without_a_model_the_error_lists_every_way_to_set_one() {
    for (toml, env, requested_model, expected) in [
        (
            "",
            &[][..],
            None,
            "Set ANTHROPIC_API_KEY, OPENAI_API_KEY, MOONSHOT_API_KEY or KIMI_API_KEY; or start Ollama; or name one: --model PROVIDER/MODEL",
        ),
        (
            "",
            &[ROUTER],
            None,
            "OPENROUTER_API_KEY is set, but openrouter has no default: name a model as `openrouter/VENDOR/MODEL`.",
        ),
        (
            "",
            &[ANTHROPIC],
            Some("sonnet"),
            "There is no model `sonnet`. Name one as `provider/model`",
        ),
        ("[models]\nfast = \"a/b\"\n", &[], Some("fats"), "Did you mean `fast`?"),
        ("", &[], Some("anthropic/"), "There is no model `anthropic/`."),
    ] {
        let error = selector(toml, env).choose_model(requested_model, |_| None).unwrap_err();
        assert!(error.contains(expected), "{requested_model:?}: {error}");
        assert!(!error.contains("scripted"), "{error}");
        assert!(!error.contains(KEY), "{error}");
    }
}

#[test]
fn an_unusable_model_names_what_is_missing() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    for (toml, env, name, expected) in [
        (
            "",
            &[][..],
            "anthropic/claude-sonnet-5-5",
            "There is no key for `anthropic`: set ANTHROPIC_API_KEY.",
        ),
        (
            "",
            &[],
            "moonshot/kimi-k3",
            "There is no key for `moonshot`: set MOONSHOT_API_KEY or KIMI_API_KEY.",
        ),
        (
            "",
            &[],
            "antropic/claude",
            "There is no provider `antropic`. Did you mean `anthropic`? To define it, add to longhaul.toml:\n  [providers.antropic]\n  api = \"chat\"\n  base_url = \"https://HOST/v1\"\n  key_env = \"ANTROPIC_API_KEY\"",
        ),
        ("", &[], "a b/c", "[providers.NAME]"),
        ("", &[], "scripted/none", "Write scripts/none.yaml."),
    ] {
        let config = load_config(toml, env).unwrap();
        let error = project_model_resolver(&config, &clock)
            .resolve_model_name(Some(name))
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{name}: {error}");
        assert!(!error.contains(KEY), "{error}");
    }
    let config = load_config("", &[ANTHROPIC]).unwrap();
    let models = project_model_resolver(&config, &clock);
    let found = models.resolve_model_name(None).unwrap();
    assert_eq!(found.name, "anthropic/claude-sonnet-5-5");
    let second_model = models.resolve_model_name(Some("anthropic/claude-sonnet-5-5")).unwrap();
    assert!(Arc::ptr_eq(&found.model, &second_model.model), "the model was opened twice");
    assert!(!format!("{models:?} {found:?} {config:?}").contains(KEY));
}

const OVERRIDES: &str = r#"
[providers.anthropic]
base_url = "https://proxy.example"
headers = { anthropic-beta = "context-1m", x-team = "tell-nobody" }
fields = { temperature = 0.5, thinking = { type = "enabled" } }
connect_timeout = "3s"
first_byte_timeout = "5m"
idle_timeout = "90s"

[providers.vllm]
api = "chat"
base_url = "http://127.0.0.1:8000/v1"
quirks = ["no_stream_options", "text_only"]

[providers.open-ai-too]
api = "responses"
base_url = "https://other.example/v1"
key_env = "OTHER_KEY"
"#;

#[test]
fn built_in_providers_can_be_overridden_and_others_added() {
    let config = load_config(OVERRIDES, &[ANTHROPIC, ("OLLAMA_HOST", "gpu.local")]).unwrap();
    let selector = model_selector(&config).unwrap();
    let names: Vec<&str> =
        selector.providers.as_slice().iter().map(|one| one.name.as_str()).collect();
    assert_eq!(
        names,
        ["anthropic", "openai", "moonshot", "openrouter", "ollama", "open-ai-too", "vllm"]
    );
    let anthropic = selector.providers.find_provider("anthropic").unwrap();
    assert_eq!(anthropic.api, ApiFormat::Anthropic);
    assert_eq!(anthropic.base_url, "https://proxy.example");
    assert_eq!(anthropic.key_env, ["ANTHROPIC_API_KEY"]);
    assert_eq!(anthropic.variable_and_api_key().unwrap().0, "ANTHROPIC_API_KEY");
    assert_eq!(anthropic.settings.fields["temperature"], 0.5);
    assert_eq!(anthropic.settings.fields["thinking"]["type"], "enabled");
    assert_eq!(anthropic.limits.connect, Duration::from_secs(3));
    assert_eq!(anthropic.limits.first_byte, Duration::from_secs(300));
    assert_eq!(anthropic.limits.idle, Duration::from_secs(90));
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        anthropic.unredacted_headers(),
        [pair("anthropic-beta", "context-1m"), pair("x-team", "tell-nobody")]
    );
    // A header value may be a key.
    assert!(!format!("{anthropic:?} {config:?}").contains("tell-nobody"));
    let displayed = config.settings["providers.anthropic.headers.x-team"].value.redacted_json();
    assert_eq!(displayed, "***");
    let vllm = selector.providers.find_provider("vllm").unwrap();
    assert!(!vllm.needs_api_key());
    assert_eq!(vllm.settings.quirks, ["no_stream_options", "text_only"]);
    let open_ai = selector.providers.find_provider("open-ai-too").unwrap();
    assert_eq!(
        (open_ai.api, open_ai.joined_api_key_variable_names()),
        (ApiFormat::Responses, "OTHER_KEY".to_owned())
    );
    let local = selector.providers.find_provider("ollama").unwrap();
    assert_eq!(local.base_url, "http://gpu.local:11434/v1");
    assert!(
        local.is_configured && !selector.providers.find_provider("openai").unwrap().is_configured
    );
}

/// Settings with the expected error.
const INVALID_SETTINGS: &[(&str, &str)] = &[
    (
        "[providers.a]\napi = \"chat\"\n",
        "longhaul.toml:2:1: `[providers.a]` is a custom provider and needs `base_url`, such as",
    ),
    (
        "[providers.a]\nkey_env = \"A\"\n",
        "longhaul.toml:2:1: `[providers.a]` is a custom provider and needs `api` and `base_url`, such as",
    ),
    (
        "[providers.scripted]\napi = \"chat\"\n",
        "longhaul.toml:2:1: the provider `scripted` is built in",
    ),
    (
        "[providers.\"a/b\"]\napi = \"chat\"\nbase_url = \"http://h\"\n",
        "longhaul.toml:2:1: `providers.a/b`: a provider's name may contain only letters",
    ),
    (
        "[providers.\"a.b\"]\napi = \"chat\"\nbase_url = \"http://h\"\n",
        "longhaul.toml:2:1: `providers.a...`: a provider's name must not contain a dot",
    ),
    (
        "[providers.openai]\nbase_url = \"https://me:secret@h/v1\"\n",
        "longhaul.toml:2:1: `providers.openai.base_url`: the URL must not contain a user name, password or query",
    ),
    (
        "[providers.openai]\nbase_url = \"https://h/v1?key=secret\"\n",
        "longhaul.toml:2:1: `providers.openai.base_url`: the URL must not contain",
    ),
    (
        "[providers.openai]\nbase_url = \"h\"\n",
        "longhaul.toml:2:12: `providers.openai.base_url`: \"h\" is not valid here",
    ),
    (
        "[providers.openai.headers]\n\"a b\" = \"secret\"\n",
        "longhaul.toml:2:1: `a b` is not a valid header name",
    ),
    (
        "[providers.openai.headers]\na = \"sec\\nret\"\n",
        "longhaul.toml:2:5: `providers.openai.headers.a`: this text is not valid here",
    ),
    (
        "[providers.openai]\nidle_timeout = 5\n",
        "longhaul.toml:2:16: `providers.openai.idle_timeout`: 5 is not valid here: write a duration",
    ),
    (
        "[providers.openai]\nquirks = \"a\"\n",
        "longhaul.toml:2:10: `providers.openai.quirks`: \"a\" is not valid here",
    ),
    (
        "[providers.openai]\nkey = \"secret\"\n",
        "longhaul.toml:2:1: unknown key `providers.openai.key`, did you mean `providers.openai.key_env`?",
    ),
    (
        "[providers.openai]\nquirks = [\"text_only\"]\n",
        "longhaul.toml:2:1: `providers.openai.quirks`: `text_only` is only for the API `chat`, and this provider uses `responses`",
    ),
    (
        "[providers.ollama]\nquirks = [\"text_only\", \"txt_only\"]\n",
        "longhaul.toml:2:1: `providers.ollama.quirks`: unknown quirk `txt_only`, did you mean `text_only`?",
    ),
    (
        "[providers.openai]\napi = \"chat\"\nquirks = [\"nosuch\"]\n",
        "longhaul.toml:3:1: `providers.openai.quirks`: unknown quirk `nosuch`, expected one of `max_completion_tokens`",
    ),
    (
        "[providers.anthropic]\nfields = { temperature = 0.5, stream = false }\n",
        "longhaul.toml:2:1: `providers.anthropic.fields.stream`: the request field `stream` is reserved",
    ),
    (
        "[providers.a]\napi = \"chat\"\nbase_url = \"http://h\"\n[providers.a.fields]\nn = 2\n",
        "longhaul.toml:5:1: `providers.a.fields.n`: the request field `n` is reserved",
    ),
    (
        "[providers.openai.fields]\nstore = true\n",
        "longhaul.toml:2:1: `providers.openai.fields.store`: the request field `store` is reserved",
    ),
    (
        "[providers.openai.fields]\ninclude = \"all\"\n",
        "longhaul.toml:2:1: `providers.openai.fields.include`: the field `include` is not a list of strings",
    ),
    (
        "[models]\nfast = \"fast\"\n",
        "longhaul.toml:2:1: `models.fast` refers to itself: write `provider/model`",
    ),
    (
        "[models]\ndefault = \"default\"\n",
        "longhaul.toml:2:1: `models.default` refers to itself: write `provider/model`",
    ),
    (
        "[models]\na = \"b\"\nb = \"c/d\"\n",
        "longhaul.toml:2:1: `models.a` refers to `b`, which is another short name (only `default` may refer to one): write `provider/model`",
    ),
    (
        "[models]\nfast = \"default\"\ndefault = \"c/d\"\n",
        "longhaul.toml:2:1: `models.fast` refers to `default`, which is another short name",
    ),
    (
        "[models]\ndefault = \"fats\"\nfast = \"c/d\"\n",
        "longhaul.toml:2:1: `models.default` refers to `fats`, which is not a model: write `provider/model`",
    ),
    (
        "[models]\nfast = \"openai/\"\n",
        "longhaul.toml:2:1: `models.fast` refers to `openai/`, which is not a model",
    ),
    (
        "[prices.\"openai/gpt-4.1\"]\ninput = 1\n",
        "longhaul.toml:2:1: `[prices.\"openai/gpt-4.1\"]`: `input` is set, but `output` is missing",
    ),
    (
        "[prices.gpt]\ninput = 1\noutput = 2\n",
        "longhaul.toml:2:1: `[prices.\"gpt\"]`: write the model as `provider/model`",
    ),
    (
        "[prices.\"a/b\"]\ninput = -1\noutput = 2\n",
        "longhaul.toml:2:9: `prices.a/b.input`: -1 is not valid here: write dollars for a million tokens",
    ),
    (
        "[prices.\"a/b\"]\ninput = 0.0000001\noutput = 2\n",
        "longhaul.toml:2:9: `prices.a/b.input`: 0.0000001 is not valid here",
    ),
    (
        "[prices.\"a/b\"]\ninput = \"1\"\noutput = 2\n",
        "longhaul.toml:2:9: `prices.a/b.input`: \"1\" is not valid here",
    ),
    (
        "[prices.\"a/b\"]\nwindow = 0\n",
        "longhaul.toml:2:10: `prices.a/b.window`: 0 is not valid here",
    ),
    (
        "[prices.\"a/b\"]\nwindow = 5\n",
        "longhaul.toml:2:1: `[prices.\"a/b\"]`: a reply of 8192 tokens leaves no room for the request in a window of 5",
    ),
    (
        "[prices.\"a/b\"]\ninptu = 1\n",
        "longhaul.toml:2:1: unknown key `prices.a/b.inptu`, did you mean `prices.a/b.input`?",
    ),
];

#[test]
fn incomplete_providers_and_prices_are_refused_with_their_position() {
    for (toml, expected) in INVALID_SETTINGS {
        let errors = load_config(toml, &[]).unwrap_err().to_string();
        assert!(errors.starts_with(expected), "{toml}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        let is_redacted = !toml.contains("key =") || !errors.contains("secret");
        assert!(is_redacted && !errors.contains("sec\\nret"), "{errors}");
    }
}

#[test]
fn a_price_that_is_set_is_exact_and_wins() {
    let toml = "[prices.\"openai/gpt-4.1\"]\ninput = 0.07\noutput = 0.29\ncached = 0.000001\n\
                [prices.\"here/big\"]\nwindow = 32_000\nmax_output = 4_000\n";
    let model_selector = selector(toml, &[]);
    let pricing = model_selector.model_pricing("openai", "gpt-4.1-2025-04-14");
    let price = pricing.price.unwrap();
    assert_eq!((price.input, price.output), (70_000, 290_000));
    assert_eq!((price.cached, price.cache_write), (1, 70_000));
    assert_eq!(pricing.window_tokens, 1_047_576);
    let pricing = model_selector.model_pricing("here", "big");
    assert_eq!(pricing.price, None);
    assert_eq!((pricing.window_tokens, pricing.max_output_tokens), (32_000, 4_000));
    // An unknown model has no price, and a local model is free.
    assert_eq!(model_selector.model_pricing("openrouter", "openai/gpt-4.1").price, None);
    assert_eq!(model_selector.model_pricing("ollama", "qwen3:8b").price.unwrap().output, 0);
}
