//! Makes the adapter that asks a model: the one place that knows which there are.
//!
//! Never: looks for a key or a price. It is handed all that it needs.

use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use longhaul_core::usage::ModelPricing;
use longhaul_model::chat::Quirks;
use longhaul_model::http::Http;
use longhaul_model::image_source::ImageSource;
use longhaul_model::key::ApiKey;
use longhaul_model::settings::Settings;
use longhaul_model::{anthropic, chat, responses};

use crate::assemble::providers::Provider;
use crate::config::built_in_providers::Api;

/// A model that somebody wants to ask.
#[derive(Debug)]
pub(crate) struct ModelSpec<'a> {
    /// Whose it is.
    pub(crate) provider: &'a Provider,
    /// Its name there.
    pub(crate) model: &'a str,
    /// The key of the account; none where none is needed.
    pub(crate) key: Option<ApiKey>,
    /// What it costs and how much fits in.
    pub(crate) pricing: ModelPricing,
}

/// What an adapter works with.
#[derive(Debug)]
pub(crate) struct AdapterContext {
    /// The way to the server, shared by all models of a provider.
    pub(crate) http: Http,
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
    /// Who has the pictures of conversations, if somebody has.
    pub(crate) image_source: Option<Arc<dyn ImageSource>>,
}

/// The model, ready to be asked; the error is a sentence.
pub(crate) fn open(
    wanted: ModelSpec<'_>,
    around: AdapterContext,
) -> Result<Arc<dyn Model>, String> {
    let provider = wanted.provider;
    let fields = (!provider.fields.is_empty()).then(|| RawJson::from_serialize(&provider.fields));
    let settings = Settings {
        headers: provider.headers(),
        fields,
        pricing: wanted.pricing,
        image_source: around.image_source,
        ..Settings::new(&provider.name, wanted.model, wanted.key)
    };
    let model = match provider.api {
        Api::Anthropic => anthropic::model(around.http, settings, around.clock),
        Api::Responses => responses::model(around.http, settings, around.clock),
        Api::Chat => {
            let quirks = match provider.quirks.as_slice() {
                [] => Quirks::for_provider(&provider.name),
                words => Quirks::parse(words)
                    .map_err(|bad| format!("`[providers.{}] quirks`: {bad}", provider.name))?,
            };
            chat::model(around.http, settings, quirks, around.clock)
        }
    };
    model.map_err(|bad| format!("`{}` can't be asked: {bad}.", provider.name))
}
