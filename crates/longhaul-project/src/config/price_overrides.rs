//! Model prices that the settings override. Prices are never rounded: a price with more than six
//! decimals is rejected.

use std::collections::BTreeMap;

use longhaul_model::prices::{PriceOverride, parse_usd};

use crate::config::value::Setting;

/// Converts a price in dollars to micro-dollars. `None` means that it has too many decimals. The
/// conversion uses the shortest decimal text of the number, which is the text in the file, so no
/// precision is lost.
pub(crate) fn usd_to_exact_micros(dollars: f64) -> Option<u64> {
    parse_usd(&dollars.to_string())
}

/// Collects the price overrides by model. One setting of each model is returned with them, as the
/// location for error messages.
pub(crate) fn collect_price_overrides(
    settings: &BTreeMap<String, Setting>,
) -> BTreeMap<&str, (PriceOverride, &Setting)> {
    let mut models: BTreeMap<&str, (PriceOverride, &Setting)> = BTreeMap::new();
    for (path, setting) in settings {
        // Model names may contain dots; names of settings do not.
        let Some((model, key)) =
            path.strip_prefix("prices.").and_then(|path| path.rsplit_once('.'))
        else {
            continue;
        };
        let (price_override, _) =
            models.entry(model).or_insert((PriceOverride::default(), setting));
        let value = setting.value.as_json();
        let dollars = value.and_then(|value| usd_to_exact_micros(value.as_f64()?));
        let count = value.and_then(serde_json::Value::as_u64);
        match key {
            "input" => price_override.input = dollars,
            "output" => price_override.output = dollars,
            "cached" => price_override.cached = dollars,
            "cache_write" => price_override.cache_write = dollars,
            "window" => price_override.window = count,
            "max_output" => price_override.max_output = count,
            _ => {}
        }
    }
    models
}
