//! Classifies an error of a provider by its name, its message and the HTTP status.
//!
//! Invariant: an error that the provider calls permanent is never classified as transient.

use longhaul_core::failure::FailureClass;

use crate::error_mapping::error_body::ErrorBody;

/// Maximum number of characters of an error message that are searched for known phrases.
const SEARCHED_CHARS_MAX: usize = 2_000;

/// Error names, as providers write them in `type` and in `code`, with their failure classes.
const ERROR_NAMES: &[(&str, FailureClass)] = &[
    ("rate_limit_error", FailureClass::RateLimit),
    ("rate_limit_exceeded", FailureClass::RateLimit),
    ("rate_limit_reached_error", FailureClass::RateLimit),
    ("too_many_requests", FailureClass::RateLimit),
    ("overloaded_error", FailureClass::Overloaded),
    ("engine_overloaded_error", FailureClass::Overloaded),
    ("server_overloaded", FailureClass::Overloaded),
    ("server_is_overloaded", FailureClass::Overloaded),
    ("slow_down", FailureClass::Overloaded),
    ("unavailable_error", FailureClass::Overloaded),
    ("timeout_error", FailureClass::Timeout),
    ("vector_store_timeout", FailureClass::Timeout),
    ("api_error", FailureClass::Server),
    ("server_error", FailureClass::Server),
    ("internal_server_error", FailureClass::Server),
    ("context_length_exceeded", FailureClass::ContextOverflow),
    ("exceed_context_size_error", FailureClass::ContextOverflow),
    ("request_too_large", FailureClass::ContextOverflow),
    ("authentication_error", FailureClass::Auth),
    ("invalid_authentication_error", FailureClass::Auth),
    ("incorrect_api_key_error", FailureClass::Auth),
    ("permission_error", FailureClass::Auth),
    ("permission_denied_error", FailureClass::Auth),
    ("invalid_api_key", FailureClass::Auth),
    ("billing_error", FailureClass::Quota),
    ("insufficient_quota", FailureClass::Quota),
    ("exceeded_current_quota_error", FailureClass::Quota),
    ("billing_hard_limit_reached", FailureClass::Quota),
    ("content_filter", FailureClass::Refused),
    ("content_policy_violation", FailureClass::Refused),
    ("image_content_policy_violation", FailureClass::Refused),
    // The topic of the prompt is rejected, not its format.
    ("invalid_prompt", FailureClass::Refused),
    ("bio_policy", FailureClass::Refused),
    ("cyber_policy", FailureClass::Refused),
    ("not_found_error", FailureClass::InvalidRequest),
    ("resource_not_found_error", FailureClass::InvalidRequest),
    ("model_not_found", FailureClass::InvalidRequest),
    ("not_supported_error", FailureClass::InvalidRequest),
    ("invalid_request_error", FailureClass::InvalidRequest),
    ("unknown_parameter", FailureClass::InvalidRequest),
    ("unsupported_parameter", FailureClass::InvalidRequest),
    ("unsupported_value", FailureClass::InvalidRequest),
    ("invalid_value", FailureClass::InvalidRequest),
    ("data_residency_mismatch", FailureClass::InvalidRequest),
    ("invalid_image", FailureClass::InvalidRequest),
    ("invalid_image_format", FailureClass::InvalidRequest),
    ("invalid_base64_image", FailureClass::InvalidRequest),
    ("invalid_image_url", FailureClass::InvalidRequest),
    ("invalid_image_mode", FailureClass::InvalidRequest),
    ("image_too_large", FailureClass::InvalidRequest),
    ("image_too_small", FailureClass::InvalidRequest),
    ("image_parse_error", FailureClass::InvalidRequest),
    ("image_file_too_large", FailureClass::InvalidRequest),
    ("image_file_not_found", FailureClass::InvalidRequest),
    ("unsupported_image_media_type", FailureClass::InvalidRequest),
    ("empty_image_file", FailureClass::InvalidRequest),
    ("failed_to_download_image", FailureClass::InvalidRequest),
];

/// Phrases in error messages that are more specific than the error name, with their failure
/// classes.
const MESSAGE_PHRASES: &[(&str, FailureClass)] = &[
    ("prompt is too long", FailureClass::ContextOverflow),
    ("context length", FailureClass::ContextOverflow),
    ("context window", FailureClass::ContextOverflow),
    ("context limit", FailureClass::ContextOverflow),
    ("context size", FailureClass::ContextOverflow),
    ("maximum context", FailureClass::ContextOverflow),
    ("exceeded model token limit", FailureClass::ContextOverflow),
    // The request alone exceeds the tokens allowed per minute: waiting does not help.
    ("tokens must be reduced in order to run", FailureClass::ContextOverflow),
    ("token length too long", FailureClass::ContextOverflow),
    ("input token count", FailureClass::ContextOverflow),
    ("maximum prompt length", FailureClass::ContextOverflow),
    ("reduce the length of the", FailureClass::ContextOverflow),
    ("credit balance", FailureClass::Quota),
    ("insufficient credits", FailureClass::Quota),
    ("requires more credits", FailureClass::Quota),
    ("usage limits", FailureClass::Quota),
    ("limit for this billing cycle", FailureClass::Quota),
    ("exceeded your current quota", FailureClass::Quota),
    ("insufficient balance", FailureClass::Quota),
    ("content filtering policy", FailureClass::Refused),
    ("content policy", FailureClass::Refused),
    ("considered high risk", FailureClass::Refused),
    ("your input was flagged", FailureClass::Refused),
    ("currently overloaded", FailureClass::Overloaded),
];

/// Returns the failure class of an error body with this HTTP status.
pub(super) fn failure_class(error: &ErrorBody, status: u16) -> FailureClass {
    let class_of_name = |name: &Option<String>| {
        let name = name.as_deref()?;
        let row = ERROR_NAMES.iter().find(|(error_name, _)| *error_name == name);
        row.map(|(_, class)| *class)
    };
    let class = class_of_name(&error.code).or_else(|| class_of_name(&error.kind));
    let class = match class {
        // Some servers use this name for every error; the status is more specific.
        Some(FailureClass::Server) | None => class_from_status(status),
        Some(class) => class,
    };
    match class {
        // Only the message tells apart the errors in these classes.
        FailureClass::InvalidRequest | FailureClass::RateLimit | FailureClass::Auth => {
            class_from_message(&error.message).unwrap_or(class)
        }
        // Some servers answer a conversation that is too long with a server error.
        FailureClass::Server => class_from_message(&error.message)
            .filter(|found| *found == FailureClass::ContextOverflow)
            .unwrap_or(class),
        FailureClass::Overloaded
        | FailureClass::Timeout
        | FailureClass::Network
        | FailureClass::ContextOverflow
        | FailureClass::Refused
        | FailureClass::Quota
        | FailureClass::Lost
        | FailureClass::Stopped
        | FailureClass::HandlerFailed
        | FailureClass::HandlerFailedTransiently => class,
    }
}

fn class_from_message(message: &str) -> Option<FailureClass> {
    let message: String = message.chars().take(SEARCHED_CHARS_MAX).collect();
    let message = message.to_lowercase();
    let row = MESSAGE_PHRASES.iter().find(|(phrase, _)| message.contains(phrase));
    row.map(|(_, class)| *class)
}

const fn class_from_status(status: u16) -> FailureClass {
    match status {
        401 | 403 | 407 => FailureClass::Auth,
        402 => FailureClass::Quota,
        408 | 504 | 524 => FailureClass::Timeout,
        // The conversation has too many bytes: a shorter one helps.
        413 => FailureClass::ContextOverflow,
        429 => FailureClass::RateLimit,
        503 | 529 => FailureClass::Overloaded,
        // Conflict and Too Early are transient.
        409 | 425 => FailureClass::Server,
        500..=599 => FailureClass::Server,
        _ => FailureClass::InvalidRequest,
    }
}
