//! Providers, short names and prices as they follow from settings and environment,
//! which are data here: nothing of this process is read.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use longhaul::assemble::model_choice::{ChoiceReason, ModelSelector};
use longhaul::assemble::model_resolver;
use longhaul::config::built_in_providers::Api;
use longhaul::config::error::ConfigError;
use longhaul::config::load::load;
use longhaul::config::process_env::ProcessEnv;
use longhaul::config::settings::Config;
use longhaul_core::time::Clock;
use longhaul_engine::clock::SystemClock;

const KEY: &str = "sk-ant-very-secret-0123456789";

fn load_config(toml: &str, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("longhaul.toml"), toml).unwrap();
    let here = ProcessEnv {
        cwd: folder.path().to_path_buf(),
        env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..ProcessEnv::default()
    };
    load(&here, &[])
}

fn selector(toml: &str, env: &[(&str, &str)]) -> ModelSelector {
    ModelSelector::from_config(&load_config(toml, env).unwrap()).unwrap()
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

/// Settings, environment and what is named; the model, and why. Ollama answers.
#[rustfmt::skip]
const CHOICES: &[(&str, Vars, Option<&str>, &str, &str)] = &[
    // Whoever names one gets it, and nothing else is looked at.
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
    // OpenRouter has no default of its own.
    ("", &[ROUTER], None, "ollama/qwen3:8b", "ollama"),
    // An empty key is none, and blanks are empty.
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
    for (toml, env, named, name, why) in CHOICES {
        let choice = selector(toml, env).choose(*named, |_| Some("qwen3:8b".to_owned()));
        let choice = choice.unwrap_or_else(|why| panic!("{toml} {named:?}: {why}"));
        let said = match choice.reason {
            ChoiceReason::Named => "named".to_owned(),
            ChoiceReason::Default(origin) => origin,
            ChoiceReason::Key(variable) => variable,
            ChoiceReason::Ollama => "ollama".to_owned(),
        };
        assert_eq!((choice.name.as_str(), said.as_str()), (*name, *why), "{toml}");
    }
}

#[test]
fn without_a_model_the_error_lists_every_way_to_set_one() {
    for (toml, env, named, said) in [
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
        let why = selector(toml, env).choose(named, |_| None).unwrap_err();
        assert!(why.contains(said), "{named:?}: {why}");
        assert!(!why.contains("scripted"), "{why}");
        assert!(!why.contains(KEY), "{why}");
    }
}

#[test]
fn an_unusable_model_names_what_is_missing() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    for (toml, env, name, said) in [
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
            "There is no provider `antropic`. Did you mean `anthropic`? Another one is four lines of longhaul.toml:\n  [providers.antropic]\n  api = \"chat\"\n  base_url = \"https://HOST/v1\"\n  key_env = \"ANTROPIC_API_KEY\"",
        ),
        ("", &[], "a b/c", "[providers.NAME]"),
        ("", &[], "scripted/none", "Write scripts/none.yaml."),
    ] {
        let config = load_config(toml, env).unwrap();
        let why = model_resolver(&config, &clock).resolve(Some(name)).unwrap_err().to_string();
        assert!(why.contains(said), "{name}: {why}");
        assert!(!why.contains(KEY), "{why}");
    }
    let config = load_config("", &[ANTHROPIC]).unwrap();
    let shelf = model_resolver(&config, &clock);
    let found = shelf.resolve(None).unwrap();
    assert_eq!(found.name, "anthropic/claude-sonnet-5-5");
    let again = shelf.resolve(Some("anthropic/claude-sonnet-5-5")).unwrap();
    assert!(Arc::ptr_eq(&found.model, &again.model), "it is opened once");
    assert!(!format!("{shelf:?} {found:?} {config:?}").contains(KEY));
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
    let menu = ModelSelector::from_config(&config).unwrap();
    let names: Vec<&str> = menu.providers.all().iter().map(|one| one.name.as_str()).collect();
    assert_eq!(
        names,
        ["anthropic", "openai", "moonshot", "openrouter", "ollama", "open-ai-too", "vllm"]
    );
    let one = menu.providers.find("anthropic").unwrap();
    assert_eq!(one.api, Api::Anthropic);
    assert_eq!(one.base_url, "https://proxy.example");
    assert_eq!(one.key_env, ["ANTHROPIC_API_KEY"]);
    assert_eq!(one.key(&menu.env).unwrap().0, "ANTHROPIC_API_KEY");
    assert_eq!(one.fields["temperature"], 0.5);
    assert_eq!(one.fields["thinking"]["type"], "enabled");
    assert_eq!(one.limits.connect, Duration::from_secs(3));
    assert_eq!(one.limits.first_byte, Duration::from_secs(300));
    assert_eq!(one.limits.idle, Duration::from_secs(90));
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        one.headers(),
        [pair("anthropic-beta", "context-1m"), pair("x-team", "tell-nobody")]
    );
    // A header may be a key too.
    assert!(!format!("{one:?} {config:?}").contains("tell-nobody"));
    let shown = config.settings["providers.anthropic.headers.x-team"].value.redacted_json();
    assert_eq!(shown, "***");
    let two = menu.providers.find("vllm").unwrap();
    assert!(!two.needs_key());
    assert_eq!(two.quirks, ["no_stream_options", "text_only"]);
    let three = menu.providers.find("open-ai-too").unwrap();
    assert_eq!((three.api, three.key_variables()), (Api::Responses, "OTHER_KEY".to_owned()));
    let local = menu.providers.find("ollama").unwrap();
    assert_eq!(local.base_url, "http://gpu.local:11434/v1");
    assert!(local.is_configured && !menu.providers.find("openai").unwrap().is_configured);
}

/// Settings, and what is said of them.
const INVALID_SETTINGS: &[(&str, &str)] = &[
    (
        "[providers.a]\napi = \"chat\"\n",
        "longhaul.toml:2:1: `[providers.a]` is a provider of your own and needs `base_url`, such as",
    ),
    (
        "[providers.a]\nkey_env = \"A\"\n",
        "longhaul.toml:2:1: `[providers.a]` is a provider of your own and needs `api` and `base_url`, such as",
    ),
    ("[providers.scripted]\napi = \"chat\"\n", "longhaul.toml:2:1: `scripted` is built in"),
    (
        "[providers.\"a/b\"]\napi = \"chat\"\nbase_url = \"http://h\"\n",
        "longhaul.toml:2:1: `providers.a/b`: a provider's name has letters",
    ),
    (
        "[providers.\"a.b\"]\napi = \"chat\"\nbase_url = \"http://h\"\n",
        "longhaul.toml:2:1: `providers.a...`: a provider's name has no point",
    ),
    (
        "[providers.openai]\nbase_url = \"https://me:secret@h/v1\"\n",
        "longhaul.toml:2:1: `providers.openai.base_url`: a name, a password or a query has no place in it",
    ),
    (
        "[providers.openai]\nbase_url = \"https://h/v1?key=secret\"\n",
        "longhaul.toml:2:1: `providers.openai.base_url`: a name",
    ),
    (
        "[providers.openai]\nbase_url = \"h\"\n",
        "longhaul.toml:2:12: `providers.openai.base_url`: \"h\" does not fit",
    ),
    (
        "[providers.openai.headers]\n\"a b\" = \"secret\"\n",
        "longhaul.toml:2:1: `a b` is no name of a header",
    ),
    (
        "[providers.openai.headers]\na = \"sec\\nret\"\n",
        "longhaul.toml:2:5: `providers.openai.headers.a`: this text does not fit here",
    ),
    (
        "[providers.openai]\nidle_timeout = 5\n",
        "longhaul.toml:2:16: `providers.openai.idle_timeout`: 5 does not fit here, write a span of time",
    ),
    (
        "[providers.openai]\nquirks = \"a\"\n",
        "longhaul.toml:2:10: `providers.openai.quirks`: \"a\" does not fit here",
    ),
    (
        "[providers.openai]\nkey = \"secret\"\n",
        "longhaul.toml:2:1: unknown key `providers.openai.key`, did you mean `providers.openai.key_env`?",
    ),
    (
        "[providers.openai]\nquirks = [\"text_only\"]\n",
        "longhaul.toml:2:1: `providers.openai.quirks`: `text_only` is for servers that speak `chat`, and this one speaks `responses`",
    ),
    (
        "[providers.ollama]\nquirks = [\"text_only\", \"txt_only\"]\n",
        "longhaul.toml:2:1: `providers.ollama.quirks`: unknown quirk `txt_only`, did you mean `text_only`?",
    ),
    (
        "[providers.openai]\napi = \"chat\"\nquirks = [\"nosuch\"]\n",
        "longhaul.toml:3:1: `providers.openai.quirks`: unknown quirk `nosuch`, there are `max_completion_tokens`",
    ),
    (
        "[providers.anthropic]\nfields = { temperature = 0.5, stream = false }\n",
        "longhaul.toml:2:1: `providers.anthropic.fields.stream`: the field `stream` of a request can't be set",
    ),
    (
        "[providers.a]\napi = \"chat\"\nbase_url = \"http://h\"\n[providers.a.fields]\nn = 2\n",
        "longhaul.toml:5:1: `providers.a.fields.n`: the field `n` of a request can't be set",
    ),
    (
        "[providers.openai.fields]\nstore = true\n",
        "longhaul.toml:2:1: `providers.openai.fields.store`: the field `store` of a request can't be set",
    ),
    (
        "[providers.openai.fields]\ninclude = \"all\"\n",
        "longhaul.toml:2:1: `providers.openai.fields.include`: the field `include` is no list of names",
    ),
    (
        "[models]\nfast = \"fast\"\n",
        "longhaul.toml:2:1: `models.fast` stands for itself: write `provider/model`",
    ),
    (
        "[models]\ndefault = \"default\"\n",
        "longhaul.toml:2:1: `models.default` stands for itself: write `provider/model`",
    ),
    (
        "[models]\na = \"b\"\nb = \"c/d\"\n",
        "longhaul.toml:2:1: `models.a` stands for `b`, another short name, which only `default` may: write `provider/model`",
    ),
    (
        "[models]\nfast = \"default\"\ndefault = \"c/d\"\n",
        "longhaul.toml:2:1: `models.fast` stands for `default`, another short name",
    ),
    (
        "[models]\ndefault = \"fats\"\nfast = \"c/d\"\n",
        "longhaul.toml:2:1: `models.default` stands for `fats`, which is no model: write `provider/model`",
    ),
    (
        "[models]\nfast = \"openai/\"\n",
        "longhaul.toml:2:1: `models.fast` stands for `openai/`, which is no model",
    ),
    (
        "[prices.\"openai/gpt-4.1\"]\ninput = 1\n",
        "longhaul.toml:2:1: `[prices.\"openai/gpt-4.1\"]`: `output` is missing beside `input`",
    ),
    (
        "[prices.gpt]\ninput = 1\noutput = 2\n",
        "longhaul.toml:2:1: `[prices.\"gpt\"]`: write the model as `provider/model`",
    ),
    (
        "[prices.\"a/b\"]\ninput = -1\noutput = 2\n",
        "longhaul.toml:2:9: `prices.a/b.input`: -1 does not fit here, write dollars for a million tokens",
    ),
    (
        "[prices.\"a/b\"]\ninput = 0.0000001\noutput = 2\n",
        "longhaul.toml:2:9: `prices.a/b.input`: 0.0000001 does not fit here",
    ),
    (
        "[prices.\"a/b\"]\ninput = \"1\"\noutput = 2\n",
        "longhaul.toml:2:9: `prices.a/b.input`: \"1\" does not fit here",
    ),
    (
        "[prices.\"a/b\"]\nwindow = 0\n",
        "longhaul.toml:2:10: `prices.a/b.window`: 0 does not fit here",
    ),
    (
        "[prices.\"a/b\"]\nwindow = 5\n",
        "longhaul.toml:2:1: `[prices.\"a/b\"]`: a reply of 8192 tokens leaves nothing of a window of 5",
    ),
    (
        "[prices.\"a/b\"]\ninptu = 1\n",
        "longhaul.toml:2:1: unknown key `prices.a/b.inptu`, did you mean `prices.a/b.input`?",
    ),
];

#[test]
fn incomplete_providers_and_prices_are_refused_with_their_position() {
    for (toml, said) in INVALID_SETTINGS {
        let faults = load_config(toml, &[]).unwrap_err().to_string();
        assert!(faults.starts_with(said), "{toml}: {faults}");
        assert_eq!(faults.lines().count(), 1, "{faults}");
        let hidden = !toml.contains("key =") || !faults.contains("secret");
        assert!(hidden && !faults.contains("sec\\nret"), "{faults}");
    }
}

#[test]
fn a_price_that_is_set_is_exact_and_wins() {
    let toml = "[prices.\"openai/gpt-4.1\"]\ninput = 0.07\noutput = 0.29\ncached = 0.000001\n\
                [prices.\"here/big\"]\nwindow = 32_000\nmax_output = 4_000\n";
    let menu = selector(toml, &[]);
    let tariff = menu.pricing("openai", "gpt-4.1-2025-04-14");
    let price = tariff.price.unwrap();
    assert_eq!((price.input, price.output), (70_000, 290_000));
    assert_eq!((price.cached, price.cache_write), (1, 70_000));
    assert_eq!(tariff.window_tokens, 1_047_576);
    let tariff = menu.pricing("here", "big");
    assert_eq!(tariff.price, None);
    assert_eq!((tariff.window_tokens, tariff.max_output_tokens), (32_000, 4_000));
    // What nobody knows has no price, and what is free costs nothing.
    assert_eq!(menu.pricing("openrouter", "openai/gpt-4.1").price, None);
    assert_eq!(menu.pricing("ollama", "qwen3:8b").price.unwrap().output, 0);
}
