//! The scripted model: what it plays, what it refuses, and what never moves it.

mod kit;
mod laws;
mod mistakes;
mod play;
mod shape;
