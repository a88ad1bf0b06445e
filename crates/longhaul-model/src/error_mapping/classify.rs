//! Classifies an error of a provider by its name, its message and the HTTP status.
//!
//! Invariant: an error that the provider calls permanent is never classified as transient.

use longhaul_core::failure::FailureClass;

use crate::error_mapping::error_body::ErrorBody;

/// Maximum number of characters of an error message that are searched for known phrases.
const SEARCHED_CHARS_MAX: usize = 2_000;

/// Error names, as providers write them in `type` and in `code`, by failure class. `invalid_prompt`
/// means that the topic of the prompt is rejected, not its format.
const ERROR_NAMES: &[(FailureClass, &str)] = &[
    (
        FailureClass::RateLimit,
        "rate_limit_error rate_limit_exceeded rate_limit_reached_error too_many_requests",
    ),
    (
        FailureClass::Overloaded,
        "overloaded_error engine_overloaded_error server_overloaded server_is_overloaded \
         slow_down unavailable_error",
    ),
    (FailureClass::Timeout, "timeout_error vector_store_timeout"),
    (FailureClass::Server, "api_error server_error internal_server_error"),
    (
        FailureClass::ContextOverflow,
        "context_length_exceeded exceed_context_size_error request_too_large",
    ),
    (
        FailureClass::Auth,
        "authentication_error invalid_authentication_error incorrect_api_key_error \
         permission_error permission_denied_error invalid_api_key",
    ),
    (
        FailureClass::Quota,
        "billing_error insufficient_quota exceeded_current_quota_error \
         billing_hard_limit_reached",
    ),
    (
        FailureClass::Refused,
        "content_filter content_policy_violation image_content_policy_violation \
         invalid_prompt bio_policy cyber_policy",
    ),
    (
        FailureClass::InvalidRequest,
        "not_found_error resource_not_found_error model_not_found not_supported_error \
         invalid_request_error unknown_parameter unsupported_parameter unsupported_value \
         invalid_value data_residency_mismatch invalid_image invalid_image_format \
         invalid_base64_image invalid_image_url invalid_image_mode image_too_large \
         image_too_small image_parse_error image_file_too_large image_file_not_found \
         unsupported_image_media_type empty_image_file failed_to_download_image",
    ),
];

/// Phrases in error messages that are more specific than the error name, by failure class. "Tokens
/// must be reduced" means that the request alone exceeds the tokens per minute: waiting doesn't help.
const MESSAGE_PHRASES: &[(FailureClass, &str)] = &[
    (
        FailureClass::ContextOverflow,
        "prompt is too long|context length|context window|context limit|context size|\
         maximum context|exceeded model token limit|tokens must be reduced in order to run|\
         token length too long|input token count|maximum prompt length|\
         reduce the length of the",
    ),
    (
        FailureClass::Quota,
        "credit balance|insufficient credits|requires more credits|usage limits|\
         limit for this billing cycle|exceeded your current quota|insufficient balance",
    ),
    (
        FailureClass::Refused,
        "content filtering policy|content policy|considered high risk|your input was flagged",
    ),
    (FailureClass::Overloaded, "currently overloaded"),
];

/// Returns the failure class of an error body with this HTTP status.
pub(super) fn failure_class(error: &ErrorBody, status: u16) -> FailureClass {
    let class_of_name = |name: &Option<String>| {
        let name = name.as_deref()?;
        let row = ERROR_NAMES.iter().find(|(_, names)| names.split(' ').any(|known| known == name));
        row.map(|(class, _)| *class)
    };
    let class = class_of_name(&error.code).or_else(|| class_of_name(&error.kind));
    let class = match class {
        // Some servers use this name for every error; the status is more specific.
        Some(FailureClass::Server) | None => class_from_status(status),
        Some(class) => class,
    };
    let found = class_from_message(&error.message).filter(|found| {
        // Only the message tells apart the errors in these classes.
        matches!(class, FailureClass::InvalidRequest | FailureClass::RateLimit | FailureClass::Auth)
            // Some servers answer a conversation that is too long with a server error.
            || (class, *found) == (FailureClass::Server, FailureClass::ContextOverflow)
    });
    found.unwrap_or(class)
}

fn class_from_message(message: &str) -> Option<FailureClass> {
    let message: String = message.chars().take(SEARCHED_CHARS_MAX).collect();
    let message = message.to_lowercase();
    let has_phrase = |phrases: &str| phrases.split('|').any(|phrase| message.contains(phrase));
    let row = MESSAGE_PHRASES.iter().find(|(_, phrases)| has_phrase(phrases));
    row.map(|(class, _)| *class)
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
