//! The HTTP face: API, event streams and pages over the engine's handle.
//!
//! Never: reaches a store or a model past the engine.
