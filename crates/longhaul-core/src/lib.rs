//! The words of Longhaul and the ports through which it meets the world.
//!
//! Never: reads a clock, draws a random number, waits for anything, or speaks
//! SQL, HTTP or a provider's JSON. Time and ids are handed in by the caller.
