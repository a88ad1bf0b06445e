//! The class of a failure, by the name a provider gives it, by its words, and by
//! the status.
//!
//! Never: guesses that asking again helps where a provider says that it does not.

use longhaul_core::failure::FailureClass;

use crate::error_mapping::error_body::ErrorBody;

/// So much of the words is searched.
const SEARCHED_CHARS_MAX: usize = 2_000;

/// Names of errors, as providers spell them in `type` and in `code`.
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
    // What is wrong with the prompt is what it is about.
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

/// Words that tell more than the name they come under.
const MESSAGE_PHRASES: &[(&str, FailureClass)] = &[
    ("prompt is too long", FailureClass::ContextOverflow),
    ("context length", FailureClass::ContextOverflow),
    ("context window", FailureClass::ContextOverflow),
    ("context limit", FailureClass::ContextOverflow),
    ("context size", FailureClass::ContextOverflow),
    ("maximum context", FailureClass::ContextOverflow),
    ("exceeded model token limit", FailureClass::ContextOverflow),
    // More tokens than a whole minute has: to wait does not help.
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

/// The class of an answer with this status that says this.
pub(super) fn failure_class(said: &ErrorBody, status: u16) -> FailureClass {
    let named = |name: &Option<String>| {
        let name = name.as_deref()?;
        let row = ERROR_NAMES.iter().find(|(known, _)| *known == name);
        row.map(|(_, class)| *class)
    };
    let class = named(&said.code).or_else(|| named(&said.kind));
    let class = match class {
        // What some servers call everything: the status tells more.
        Some(FailureClass::Server) | None => by_status(status),
        Some(class) => class,
    };
    match class {
        // What these hold is told apart by nothing but words.
        FailureClass::InvalidRequest | FailureClass::RateLimit | FailureClass::Auth => {
            by_message(&said.message).unwrap_or(class)
        }
        // Some servers stumble over a conversation that is too long for them.
        FailureClass::Server => by_message(&said.message)
            .filter(|found| *found == FailureClass::ContextOverflow)
            .unwrap_or(class),
        FailureClass::Overloaded
        | FailureClass::Timeout
        | FailureClass::Network
        | FailureClass::ContextOverflow
        | FailureClass::Refused
        | FailureClass::Quota
        | FailureClass::Lost
        | FailureClass::Stopped => class,
    }
}

fn by_message(words: &str) -> Option<FailureClass> {
    let words: String = words.chars().take(SEARCHED_CHARS_MAX).collect();
    let words = words.to_lowercase();
    let row = MESSAGE_PHRASES.iter().find(|(known, _)| words.contains(known));
    row.map(|(_, class)| *class)
}

const fn by_status(status: u16) -> FailureClass {
    match status {
        401 | 403 | 407 => FailureClass::Auth,
        402 => FailureClass::Quota,
        408 | 504 | 524 => FailureClass::Timeout,
        // A conversation that is too long in bytes: what helps is to shorten it.
        413 => FailureClass::ContextOverflow,
        429 => FailureClass::RateLimit,
        503 | 529 => FailureClass::Overloaded,
        // Two requests met on the server, or it was too early: both pass.
        409 | 425 => FailureClass::Server,
        500..=599 => FailureClass::Server,
        _ => FailureClass::InvalidRequest,
    }
}
