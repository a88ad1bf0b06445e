//! The wires that are spoken.
//!
//! Never: where they are found. Addresses belong to whoever listens.

/// Whose words a request is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiKind {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Responses.
    Responses,
    /// OpenAI Chat Completions.
    Chat,
}

impl ApiKind {
    /// The header under which this provider names a request.
    pub(crate) const fn request_id_header(self) -> &'static str {
        match self {
            Self::Messages => "request-id",
            Self::Responses | Self::Chat => "x-request-id",
        }
    }
}
