-- What a request under an idempotency key has changed, as JSON. It is written in the
-- transaction of the change itself; null: it has changed nothing yet.
ALTER TABLE reply ADD COLUMN effect TEXT;
