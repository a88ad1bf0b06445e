//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod agents;
    mod agents_cli;
    mod bench;
    mod chaos;
    mod config;
    mod config_cli;
    mod demo;
    mod docs;
    mod front;
}
