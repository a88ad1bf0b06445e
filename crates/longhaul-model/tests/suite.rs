//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod anthropic;
    mod cassette;
    mod chat;
    mod cuts;
    mod kit;
    mod mock;
    mod prices;
    mod responses;
    mod roll;
    mod scripted;
    mod secrets;
    mod spec;
    mod wires;
    mod words;
}
