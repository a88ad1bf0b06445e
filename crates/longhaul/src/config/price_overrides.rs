//! What the user says of models' prices, put together by model.
//!
//! Never: rounds. A price that is no whole number of millionths is not taken.

use std::collections::BTreeMap;

use longhaul_model::prices::{PriceOverride, parse_usd};

use crate::config::value::{Setting, Value};

/// A price as the millionths that are counted. The shortest text of a number is
/// the one that was written, so nothing is lost on the way.
pub(crate) fn exact_micros(dollars: f64) -> Option<u64> {
    parse_usd(&dollars.to_string())
}

/// The user's words by model, each with one of its settings, for its place.
pub(crate) fn collect(
    settings: &BTreeMap<String, Setting>,
) -> BTreeMap<&str, (PriceOverride, &Setting)> {
    let mut models: BTreeMap<&str, (PriceOverride, &Setting)> = BTreeMap::new();
    for (path, setting) in settings {
        // Names of models have points too, names of keys have none.
        let Some((model, key)) =
            path.strip_prefix("prices.").and_then(|path| path.rsplit_once('.'))
        else {
            continue;
        };
        let (own, _) = models.entry(model).or_insert((PriceOverride::default(), setting));
        let number = match &setting.value {
            Value::Float(dollars) => exact_micros(*dollars),
            Value::Integer(whole) => Some(*whole),
            Value::Text(_) | Value::Boolean(_) | Value::Duration(_) => None,
            Value::TextList(_) | Value::Secret(_) | Value::Any(_) => None,
        };
        match key {
            "input" => own.input = number,
            "output" => own.output = number,
            "cached" => own.cached = number,
            "cache_write" => own.cache_write = number,
            "window" => own.window = number,
            "max_output" => own.max_output = number,
            _ => {}
        }
    }
    models
}
