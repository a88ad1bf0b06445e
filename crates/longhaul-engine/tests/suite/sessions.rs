//! Tickets and sessions are valid once and never outlive their key.

use longhaul_core::port::auth::ApiKeyRef;
use longhaul_core::raw::Hash;

use crate::suite::harness::engine_with;

#[tokio::test]
async fn tickets_and_sessions_of_the_local_key_end_with_it() {
    let engine = engine_with([]).build();
    let longhaul = &engine.longhaul;
    let (old, new) = (Hash::digest(b"old"), Hash::digest(b"new"));
    let ticket = longhaul.create_login_ticket(ApiKeyRef::Local, old).await.unwrap();
    assert!(longhaul.exchange_ticket_for_session(&ticket, new).await.unwrap().is_none());
    let session = longhaul.exchange_ticket_for_session(&ticket, old).await.unwrap().unwrap();
    assert!(longhaul.exchange_ticket_for_session(&ticket, old).await.unwrap().is_none());
    assert!(longhaul.authenticate_session(&session, old).await.unwrap().is_some());
    assert!(longhaul.authenticate_session(&session, new).await.unwrap().is_none());
}
