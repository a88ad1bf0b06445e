//! The only integration test binary of this crate. Each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod anthropic;
    mod cassette;
    mod chat;
    mod chunking;
    mod fixtures;
    mod harness;
    mod mock;
    mod model_list;
    mod prices;
    mod responses;
    mod scripted;
    mod secrets;
    mod spec;
    mod wires;
}
