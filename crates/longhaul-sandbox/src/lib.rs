//! Places where an agent's commands run, apart from the host.
//!
//! Never: knows which tool is calling, and never counts seats: who may have a
//! sandbox is decided in the heart and queued in the engine.
