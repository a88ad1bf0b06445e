//! The pictures of a message, ready to be sent.
//!
//! Never: a picture that no provider looks at, or one that is too long.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::message::{ImageRef, Message, Part};
use longhaul_core::raw::Hash;

use crate::pictures::Pictures;

/// The kinds of picture that are looked at.
const MEDIA_TYPES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];

/// The longest picture that is taken, as base64.
const PICTURE_MAX: u64 = 5 * 1024 * 1024;

/// Pictures by their hash, as base64.
#[derive(Debug, Default)]
pub(crate) struct Album(HashMap<Hash, String>);

impl Album {
    /// Gets the pictures that a message shows.
    pub(crate) async fn fill(&mut self, message: &Message, from: &dyn Pictures) {
        let parts: Vec<&Part> = match message {
            Message::User(parts) => parts.iter().collect(),
            Message::Results(results) => results.iter().flat_map(|one| &one.content).collect(),
            Message::Assistant(_) => return,
        };
        for part in parts {
            let Part::Image(image) = part else { continue };
            if may_be_shown(image)
                && let Some(bytes) = from.bytes(image).await
            {
                self.0.insert(image.blob.hash, STANDARD.encode(bytes));
            }
        }
    }

    /// A picture as base64; none: it can't be shown.
    pub(crate) fn picture(&self, image: &ImageRef) -> Option<&str> {
        let data = self.0.get(&image.blob.hash);
        data.map(String::as_str).filter(|_| may_be_shown(image))
    }
}

/// What a model is told in the place of a picture that can't be shown.
pub(crate) fn in_words(image: &ImageRef) -> String {
    let (kind, size) = (&image.media_type, image.blob.size);
    format!("[a picture that can't be shown: {kind}, {size} bytes]")
}

fn may_be_shown(image: &ImageRef) -> bool {
    let known = MEDIA_TYPES.contains(&image.media_type.as_str());
    known && image.blob.size / 3 < PICTURE_MAX / 4
}
