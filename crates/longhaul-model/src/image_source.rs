//! Where an adapter gets the bytes of a picture that a message only names.
//!
//! Never: makes a turn fail. A picture that is not there is told of in words.

use async_trait::async_trait;
use longhaul_core::message::ImageRef;

/// Somebody who has the pictures.
#[async_trait]
pub trait ImageSource: Send + Sync + std::fmt::Debug {
    /// The bytes of a picture, if they are to be had.
    async fn bytes(&self, image: &ImageRef) -> Option<Vec<u8>>;
}
