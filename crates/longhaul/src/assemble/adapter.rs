//! Creates the adapter (the client for one API format) of a model. No other module creates
//! adapters; API keys and prices are passed in.

use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use longhaul_core::usage::ModelPricing;
use longhaul_model::chat::ServerQuirks;
use longhaul_model::http::HttpClient;
use longhaul_model::image_source::ImageSource;
use longhaul_model::key::ApiKey;
use longhaul_model::settings::ModelSettings;
use longhaul_model::{anthropic, chat, responses};

use crate::assemble::providers::Provider;
use crate::config::built_in_providers::ApiFormat;

/// A model for which an adapter (client for one API format) is created, with its API key and
/// prices.
#[derive(Debug)]
pub(crate) struct ModelSpec<'a> {
    pub(crate) provider: &'a Provider,
    /// Name of the model at its provider, without the prefix `provider/`.
    pub(crate) model: &'a str,
    /// API key of the provider. `None` means that the provider needs no key.
    pub(crate) key: Option<ApiKey>,
    /// Prices and context window of the model.
    pub(crate) pricing: ModelPricing,
}

/// HTTP client, clock and image source that the adapter of a model uses to call the provider's API.
#[derive(Debug)]
pub(crate) struct ModelAdapterContext {
    /// HTTP client, shared by all models of a provider.
    pub(crate) http: HttpClient,
    /// Clock that gives the current time to the adapter.
    pub(crate) clock: Arc<dyn Clock>,
    /// Source of the images in conversations. `None` means that images can't be loaded.
    pub(crate) image_source: Option<Arc<dyn ImageSource>>,
}

/// Creates the adapter of a model: the client for its provider's API format. The error is a message
/// for people.
pub(crate) fn create_model_adapter(
    spec: ModelSpec<'_>,
    ctx: ModelAdapterContext,
) -> Result<Arc<dyn Model>, String> {
    let provider = spec.provider;
    let fields = (!provider.fields.is_empty()).then(|| RawJson::from_serialize(&provider.fields));
    let settings = ModelSettings {
        headers: provider.unredacted_headers(),
        fields,
        pricing: spec.pricing,
        image_source: ctx.image_source,
        ..ModelSettings::new(&provider.name, spec.model, spec.key)
    };
    let model = match provider.api {
        ApiFormat::Anthropic => anthropic::new_model(ctx.http, settings, ctx.clock),
        ApiFormat::Responses => responses::new_model(ctx.http, settings, ctx.clock),
        ApiFormat::Chat => {
            let quirks = match provider.quirks.as_slice() {
                [] => ServerQuirks::for_provider(&provider.name),
                names => ServerQuirks::from_names(names)
                    .map_err(|error| format!("`[providers.{}] quirks`: {error}", provider.name))?,
            };
            chat::new_model(ctx.http, settings, quirks, ctx.clock)
        }
    };
    model.map_err(|error| format!("The provider `{}` can't be used: {error}.", provider.name))
}
