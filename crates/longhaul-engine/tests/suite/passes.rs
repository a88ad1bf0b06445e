//! Tickets and sessions: each once, and none longer than its key.

use longhaul_core::port::keyring::Holder;
use longhaul_core::raw::Hash;

use crate::suite::house::plan;

#[tokio::test]
async fn what_the_machines_own_key_gave_out_ends_with_it() {
    let house = plan([]).open();
    let longhaul = &house.longhaul;
    let (old, new) = (Hash::of(b"old"), Hash::of(b"new"));
    let ticket = longhaul.give_ticket(Holder::Local, old).await.unwrap();
    assert!(longhaul.trade_ticket(&ticket, new).await.unwrap().is_none());
    let session = longhaul.trade_ticket(&ticket, old).await.unwrap().unwrap();
    assert!(longhaul.trade_ticket(&ticket, old).await.unwrap().is_none());
    assert!(longhaul.session(&session, old).await.unwrap().is_some());
    assert!(longhaul.session(&session, new).await.unwrap().is_none());
}
