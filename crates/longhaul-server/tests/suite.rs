//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod described;
    mod firehose;
    mod keys;
    mod kit;
    mod once;
    mod problems;
    mod routes;
    mod sessions;
    mod streams;
}
