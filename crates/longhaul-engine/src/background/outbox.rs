//! Delivers the messages in the store's outbox: at least once, with a backoff after each failure.
//!
//! A message is written in the transaction of the change that it reports, so a crash loses none.

use async_trait::async_trait;
use longhaul_core::port::records::{DueOutboxMessage, OUTBOX_DELAY_MAX};
use longhaul_core::time::Millis;

use crate::error::Result;
use crate::panics::guard;
use crate::services::Services;

/// Maximum number of outbox messages that are read from the store at once.
const BATCH_MAX: usize = 64;

/// Maximum time for delivering one message.
const DELIVERY_TIMEOUT: Millis = Millis::from_secs(30);

/// Delay before the second attempt to deliver a message. Each further attempt doubles the delay.
const FIRST_DELAY: Millis = Millis::from_secs(1);

/// Receiver to which the messages of one outbox endpoint, such as an external inbox, are delivered.
#[async_trait]
pub trait OutboxReceiver: Send + Sync {
    /// Delivers one message. The same message may be delivered more than once.
    ///
    /// # Errors
    /// The reason why the delivery failed. The delivery is repeated later.
    async fn deliver(&self, message: &DueOutboxMessage) -> Result<(), String>;

    /// Called after a message was delivered and removed from the outbox.
    async fn on_delivered(&self, _message: &DueOutboxMessage) {}
}

/// Delivers all outbox messages for an endpoint, such as an external inbox, that are due now.
pub async fn deliver_due_messages(
    services: &Services,
    endpoint: &str,
    receiver: &dyn OutboxReceiver,
) -> Result<()> {
    loop {
        let due = services.records.due_outbox_messages(endpoint, BATCH_MAX).await?;
        if due.is_empty() {
            return Ok(());
        }
        for message in &due {
            deliver_message(services, message, receiver).await?;
        }
    }
}

async fn deliver_message(
    services: &Services,
    message: &DueOutboxMessage,
    receiver: &dyn OutboxReceiver,
) -> Result<()> {
    let delivery = guard(&*services.clock, DELIVERY_TIMEOUT, receiver.deliver(message)).await;
    let result = delivery.unwrap_or_else(|error| Err(format!("the delivery {error}")));
    let Err(reason) = result else {
        services.records.record_outbox_attempt(message.id, None).await?;
        let delivered = receiver.on_delivered(message);
        if let Err(error) = guard(&*services.clock, DELIVERY_TIMEOUT, delivered).await {
            tracing::warn!(run = %message.run, "the call of `on_delivered` {error}");
        }
        return Ok(());
    };
    let delay = retry_delay(message.attempts);
    let (run, endpoint) = (message.run, &message.row.endpoint);
    tracing::warn!(%run, %endpoint, %reason, delay_ms = delay.0, "the delivery of a message failed; it is retried");
    services.records.record_outbox_attempt(message.id, Some(delay)).await?;
    Ok(())
}

/// Returns the delay after a failed attempt to deliver a message. `earlier_attempts` is the number
/// of attempts before it.
fn retry_delay(earlier_attempts: u32) -> Millis {
    let factor = 1_u64.checked_shl(earlier_attempts).unwrap_or(u64::MAX);
    Millis(FIRST_DELAY.0.saturating_mul(factor).min(OUTBOX_DELAY_MAX.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delivery_retry_delay_doubles_up_to_a_maximum() {
        let delays = [0, 1, 2, 8, 9, 63, 64, u32::MAX].map(|earlier| retry_delay(earlier).0);
        let max = OUTBOX_DELAY_MAX.0;
        assert_eq!(delays, [1_000, 2_000, 4_000, 256_000, max, max, max, max]);
    }
}
