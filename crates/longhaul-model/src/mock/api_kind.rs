//! APIs that the mock provider simulates.

/// API that a request to the mock provider uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiKind {
    /// The Messages API of Anthropic.
    Messages,
    /// The Responses API of OpenAI.
    Responses,
    /// The Chat Completions API of OpenAI.
    Chat,
}

impl ApiKind {
    /// Returns the name of the response header with the request ID.
    pub(crate) const fn request_id_header(self) -> &'static str {
        match self {
            Self::Messages => "request-id",
            Self::Responses | Self::Chat => "x-request-id",
        }
    }
}
