-- The complete schema of a store.
--
-- Ids are 16 bytes and hashes 32. Timestamps (`at`, `*_at`, `since`, `*_since`, `*_until`,
-- `deadline`) are microseconds since 1970, `*_ms` are milliseconds, `*_micro_usd` are
-- millionths of a US dollar. Columns named `data`, `spec`, `answers`, `message`, `tags`,
-- `progress`, `effect`, `inboxes` and `types`, and `timer.kind`, hold JSON; anything that is searched for has a column of its own.
--
-- WITHOUT ROWID is used only for tables with narrow rows. For journal and blob it would
-- take up to 3.5 times the space.

CREATE TABLE meta (
  name  TEXT NOT NULL PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT;
INSERT INTO meta (name, value) VALUES ('boot', 0);

-- A run as it was submitted. Only lane_position changes later.
CREATE TABLE run (
  id            BLOB NOT NULL PRIMARY KEY,
  root          BLOB NOT NULL,
  parent        BLOB,
  agent         TEXT NOT NULL,
  definition    BLOB NOT NULL,
  inbox         TEXT NOT NULL,
  kind          TEXT,
  priority      INTEGER NOT NULL,
  lane          TEXT,
  takes_lane    INTEGER NOT NULL,  -- 0 for a step of a chain, which uses the lane of its root
  lane_position INTEGER,           -- null if the run is not in its lane
  collect_ms    INTEGER,           -- how long the run waits for messages after the last one
  thread        TEXT,
  resource      TEXT,
  submitter     TEXT,
  chain_step    INTEGER,           -- from 0; null if the run belongs to no chain
  batch         BLOB,              -- the runs of a batch are ordered by their ids
  retry_of      BLOB,              -- the failed run that this run retries
  account       BLOB,              -- the run whose budget this run uses; null means its root
  created_at    INTEGER NOT NULL,
  title         TEXT NOT NULL,     -- the first words of the task
  tags          TEXT               -- null if there are none
) STRICT;
CREATE INDEX run_tree ON run (root, id);
CREATE INDEX run_agent ON run (agent, id);
CREATE INDEX run_inbox ON run (inbox, id);
CREATE INDEX run_retry_of ON run (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX run_account ON run (account) WHERE account IS NOT NULL;
CREATE INDEX run_lane ON run (lane, id) WHERE lane IS NOT NULL;
CREATE INDEX run_thread ON run (thread, id) WHERE thread IS NOT NULL;
CREATE INDEX run_resource ON run (resource, id) WHERE resource IS NOT NULL;
CREATE INDEX run_batch ON run (batch, id) WHERE batch IS NOT NULL;
CREATE UNIQUE INDEX run_lane_position ON run (lane, lane_position) WHERE lane_position IS NOT NULL;

-- The beginning of each task in lower case, in which lists of runs search.
CREATE TABLE run_text (
  run  BLOB NOT NULL PRIMARY KEY,
  text TEXT NOT NULL
) STRICT;

-- Chains by their first run, with the number of their steps and their newest run. Retries belong to
-- the chain of the failed run, whose first run is also their account.
CREATE TABLE chain (
  first_run BLOB NOT NULL PRIMARY KEY,
  name      TEXT,                  -- null if the steps were given in the request itself
  steps     INTEGER NOT NULL,
  current   BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX chain_current ON chain (current);

-- The current state of a run. Every append updates this row.
-- state: 0 ready, 1 leased, 2 parked, 3 waiting for its lane, 4 paused, 5 ended
CREATE TABLE run_head (
  run                BLOB NOT NULL PRIMARY KEY,
  inbox              TEXT NOT NULL,      -- as in the table run; here so that indexes count by it
  state              INTEGER NOT NULL,
  epoch              INTEGER NOT NULL,
  last_seq           INTEGER NOT NULL,
  worker             BLOB,
  format             INTEGER NOT NULL,
  reason             TEXT,
  blocked            INTEGER NOT NULL DEFAULT 0,
  outcome            INTEGER,
  code               TEXT,
  started_at         INTEGER,
  finished_at        INTEGER,
  turns              INTEGER NOT NULL DEFAULT 0,
  input_tokens       INTEGER NOT NULL DEFAULT 0,
  output_tokens      INTEGER NOT NULL DEFAULT 0,
  cached_tokens      INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0,
  reasoning_tokens   INTEGER NOT NULL DEFAULT 0,
  estimated          INTEGER NOT NULL DEFAULT 0,
  cost_micro_usd     INTEGER NOT NULL DEFAULT 0,
  cost_unknown       INTEGER NOT NULL DEFAULT 0,  -- 1 if the price of any call is unknown
  active_ms          INTEGER NOT NULL DEFAULT 0,
  progress           TEXT,                        -- as the agent reported it last
  open_descendants   INTEGER NOT NULL DEFAULT 0   -- of a root: other runs of its tree that have not ended
) STRICT, WITHOUT ROWID;
CREATE INDEX run_head_leased ON run_head (worker) WHERE worker IS NOT NULL;
CREATE INDEX run_head_open ON run_head (run) WHERE state <> 5;
CREATE INDEX run_head_open_inbox ON run_head (inbox, state, epoch) WHERE state <> 5;
CREATE INDEX run_head_failed ON run_head (run) WHERE outcome = 6;
CREATE INDEX run_head_failed_inbox ON run_head (inbox, run) WHERE outcome = 6;
CREATE INDEX run_head_finished ON run_head (finished_at) WHERE finished_at IS NOT NULL;

-- The queue. It holds only runs that a worker may claim now.
CREATE TABLE ready (
  inbox    TEXT NOT NULL,
  rank     INTEGER NOT NULL,  -- the negated priority
  sort_key INTEGER NOT NULL,
  run      BLOB NOT NULL,
  kind     TEXT,
  host     TEXT,
  PRIMARY KEY (inbox, rank, sort_key, run)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX ready_run ON ready (run);
CREATE INDEX ready_kind ON ready (inbox, kind, rank, sort_key, run) WHERE kind IS NOT NULL;

-- The events of all runs, in the order in which they were written (rowid).
-- A body is in `body`, or in the blob table under the hash in `blob`.
CREATE TABLE journal (
  id    INTEGER PRIMARY KEY AUTOINCREMENT,  -- the global sequence number, which is never reused
  run   BLOB NOT NULL,
  seq   INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  at    INTEGER NOT NULL,
  kind  TEXT NOT NULL,
  v     INTEGER NOT NULL,
  body  TEXT,
  blob  BLOB
) STRICT;
CREATE UNIQUE INDEX journal_run_seq ON journal (run, seq);

CREATE TABLE blob (
  hash       BLOB NOT NULL,
  touched_at INTEGER NOT NULL,
  content    BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX blob_hash ON blob (hash);
CREATE INDEX blob_touched ON blob (touched_at, hash);

CREATE TABLE blob_ref (
  run  BLOB NOT NULL,
  hash BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX blob_ref_run ON blob_ref (run, hash);
CREATE INDEX blob_ref_hash ON blob_ref (hash);

CREATE TABLE definition (
  hash    BLOB NOT NULL,
  content BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX definition_hash ON definition (hash);

-- status: 0 open, 1 answered, 2 expired, 3 withdrawn
CREATE TABLE gate (
  id        BLOB NOT NULL PRIMARY KEY,
  run       BLOB NOT NULL,
  status    INTEGER NOT NULL,
  raised_at INTEGER NOT NULL,
  deadline  INTEGER,
  submitter TEXT,
  spec      TEXT NOT NULL,
  answers   TEXT NOT NULL
) STRICT;
CREATE INDEX gate_run ON gate (run, status);
CREATE INDEX gate_open ON gate (id) WHERE status = 0;

-- Approvals that are remembered for a run, an agent or the project.
CREATE TABLE rule (
  rule    BLOB NOT NULL PRIMARY KEY,
  run     BLOB NOT NULL,       -- in which the approval was given; it may have been pruned
  scope   TEXT NOT NULL,       -- run:ID, agent:NAME or project
  pattern TEXT NOT NULL,
  revoked INTEGER NOT NULL,
  data    TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX rule_active ON rule (scope, pattern) WHERE revoked = 0;
CREATE INDEX rule_run ON rule (run);

CREATE TABLE timer (
  fire_at INTEGER NOT NULL,
  timer   BLOB NOT NULL,
  run     BLOB NOT NULL,
  kind    TEXT NOT NULL,
  PRIMARY KEY (fire_at, timer)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX timer_timer ON timer (timer);
CREATE INDEX timer_run ON timer (run);

-- Messages to a run. queued is 1 until the message is delivered, dropped or withdrawn.
CREATE TABLE steer (
  id     INTEGER PRIMARY KEY,
  run    BLOB NOT NULL,
  steer  BLOB NOT NULL,
  queued INTEGER NOT NULL,
  data   TEXT NOT NULL
) STRICT;
CREATE INDEX steer_run ON steer (run, id);
CREATE INDEX steer_queued ON steer (run) WHERE queued = 1;

-- holder is the run that holds the lane, depth the number of runs in it. A paused lane gets no
-- new holder.
CREATE TABLE lane (
  lane          TEXT NOT NULL PRIMARY KEY,
  holder        BLOB,
  depth         INTEGER NOT NULL,
  next_position INTEGER NOT NULL,
  paused        INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Sandboxes that occupy a slot of their provider.
CREATE TABLE sandbox_slot (
  sandbox  BLOB NOT NULL PRIMARY KEY,
  provider TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sandbox_slot_provider ON sandbox_slot (provider);

-- Runs that wait for a slot of a provider. A woken run keeps its row until it acquires the slot that
-- is kept for it.
CREATE TABLE sandbox_slot_wait (
  run      BLOB NOT NULL PRIMARY KEY,
  provider TEXT NOT NULL,
  woken    INTEGER NOT NULL,
  rank     INTEGER NOT NULL,  -- the negated priority
  since    INTEGER NOT NULL,
  agent    TEXT NOT NULL
) STRICT;
CREATE INDEX sandbox_slot_wait_order ON sandbox_slot_wait (provider, woken, rank, since, run, agent);

-- The budget of a tree of runs and of its retries, by the root of the tree that was not a retry.
-- A cap that is null is no limit.
CREATE TABLE budget (
  root            BLOB NOT NULL PRIMARY KEY,
  cap_micro_usd   INTEGER,
  cap_tokens      INTEGER,
  spent_micro_usd INTEGER NOT NULL DEFAULT 0,
  spent_tokens    INTEGER NOT NULL DEFAULT 0,
  lost_micro_usd  INTEGER NOT NULL DEFAULT 0,
  lost_tokens     INTEGER NOT NULL DEFAULT 0,
  held_micro_usd  INTEGER NOT NULL DEFAULT 0,
  held_tokens     INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Runs that wait until other runs release what they hold of the budget, with the amount that they
-- need, in the order in which they began to wait. A woken run keeps its row until it holds its amount.
-- A row counts only while its run is ready, claimed, or parked for the reason `budget_held`.
CREATE TABLE budget_wait (
  position  INTEGER PRIMARY KEY,
  run       BLOB NOT NULL UNIQUE,
  account   BLOB NOT NULL,
  micro_usd INTEGER NOT NULL,
  tokens    INTEGER NOT NULL
) STRICT;
CREATE INDEX budget_wait_account ON budget_wait (account);

-- What spend caps have counted, by cap, subject and window. A higher raised_limit replaces the
-- limit of the configuration.
CREATE TABLE spend (
  cap          TEXT NOT NULL,
  subject      TEXT NOT NULL,
  window_start INTEGER NOT NULL,
  window_end   INTEGER NOT NULL,
  cap_limit    INTEGER NOT NULL,
  raised_limit INTEGER,
  spent        INTEGER NOT NULL DEFAULT 0,
  lost         INTEGER NOT NULL DEFAULT 0,
  held         INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (cap, subject, window_start)
) STRICT, WITHOUT ROWID;
CREATE INDEX spend_window ON spend (window_end);

-- Runs that wait at a spend cap, with the amount that they need. A row counts only while its
-- run is parked for the reason `cap`.
CREATE TABLE spend_wait (
  run          BLOB NOT NULL PRIMARY KEY,
  cap          TEXT NOT NULL,
  subject      TEXT NOT NULL,
  window_start INTEGER NOT NULL,
  amount       INTEGER NOT NULL,
  timer        BLOB NOT NULL,
  since        INTEGER NOT NULL
) STRICT;
CREATE INDEX spend_wait_cap ON spend_wait (cap, subject, window_start, since, run);

-- Effect keys by their hashes, and the calls that have claimed them. A row is never pruned: it
-- prevents that the effect happens again.
-- state: 0 held by a call in progress, 1 done, 2 the outcome of the call is unknown
CREATE TABLE effect_key (
  key   BLOB NOT NULL PRIMARY KEY,
  run   BLOB NOT NULL,      -- of the call; it may have been pruned
  call  TEXT NOT NULL,
  state INTEGER NOT NULL,
  at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX effect_key_in_doubt ON effect_key (run, call) WHERE state = 2;

-- Runs that wait until a key is settled. A row counts only while its run is parked.
CREATE TABLE effect_key_wait (
  key BLOB NOT NULL,
  run BLOB NOT NULL,
  PRIMARY KEY (key, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX effect_key_wait_run ON effect_key_wait (run);

-- Results of tool calls that arrived after their run had ended, and who freed the key of a call.
CREATE TABLE late_result (
  id   INTEGER PRIMARY KEY,
  run  BLOB NOT NULL,
  call TEXT NOT NULL,
  text TEXT NOT NULL
) STRICT;
CREATE INDEX late_result_run ON late_result (run);

-- One row per model call.
CREATE TABLE usage (
  run                BLOB NOT NULL,
  at                 INTEGER NOT NULL,
  model              TEXT NOT NULL,
  input_tokens       INTEGER NOT NULL,
  output_tokens      INTEGER NOT NULL,
  cached_tokens      INTEGER NOT NULL,
  cache_write_tokens INTEGER NOT NULL,
  reasoning_tokens   INTEGER NOT NULL,
  estimated          INTEGER NOT NULL,
  cost_micro_usd     INTEGER            -- null if the price is unknown
) STRICT;
CREATE INDEX usage_run ON usage (run);
CREATE INDEX usage_at ON usage (at);

-- Idempotency keys of submissions, and the ids of the runs that were created.
CREATE TABLE submit_key (
  principal  TEXT NOT NULL,
  key        TEXT NOT NULL,
  body_hash  BLOB NOT NULL,
  runs       BLOB NOT NULL,
  expires_at INTEGER            -- null if the key is deleted together with its only run
) STRICT;
CREATE UNIQUE INDEX submit_key_key ON submit_key (principal, key);
CREATE INDEX submit_key_expires ON submit_key (expires_at);
CREATE INDEX submit_key_run ON submit_key (runs) WHERE expires_at IS NULL;

-- Messages that are still to be delivered to an endpoint.
CREATE TABLE outbox (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  run      BLOB NOT NULL,
  endpoint TEXT NOT NULL,
  body     TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  due_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX outbox_run ON outbox (run);
CREATE INDEX outbox_endpoint ON outbox (endpoint, due_at);

-- A cache of folded run states. fold_hash identifies the code that folded it.
CREATE TABLE checkpoint (
  run       BLOB NOT NULL PRIMARY KEY,
  seq       INTEGER NOT NULL,
  fold_hash TEXT NOT NULL,
  state     BLOB NOT NULL
) STRICT;

-- Model providers that must not be called before a point in time.
CREATE TABLE provider_block (
  provider      TEXT NOT NULL PRIMARY KEY,
  blocked_until INTEGER NOT NULL
) STRICT;

-- liveness: 0 live, 1 draining, 2 dead
CREATE TABLE worker (
  id              BLOB NOT NULL PRIMARY KEY,
  host            TEXT NOT NULL,
  build           TEXT NOT NULL,
  liveness        INTEGER NOT NULL,
  ttl_ms          INTEGER NOT NULL,
  heartbeat_at    INTEGER NOT NULL,
  connected_since INTEGER NOT NULL,  -- start of the current series of heartbeats without a gap
  inboxes         TEXT NOT NULL,     -- from which it claims, as JSON
  types           TEXT NOT NULL      -- of the tasks that it claims, as JSON; an empty list means all
) STRICT;
CREATE INDEX worker_alive ON worker (id) WHERE liveness <> 2;

CREATE TABLE thread (
  id      INTEGER PRIMARY KEY,
  thread  TEXT NOT NULL,
  message TEXT NOT NULL
) STRICT;
CREATE INDEX thread_thread ON thread (thread, id);

CREATE TABLE sandbox (
  sandbox    BLOB NOT NULL PRIMARY KEY,
  owner      BLOB NOT NULL,      -- the run
  holds_slot INTEGER NOT NULL,   -- 1 if the sandbox may keep its slot
  gone       INTEGER NOT NULL,   -- 1 if the sandbox no longer exists
  data       TEXT NOT NULL
) STRICT;
CREATE INDEX sandbox_owner ON sandbox (owner);
CREATE INDEX sandbox_existing ON sandbox (sandbox) WHERE gone = 0;

-- Schedules. due_at is null if the schedule never fires again. last_run and last_fired_at are
-- those of the last firing that started a run, last_error is null if the last firing did.
CREATE TABLE schedule (
  name          TEXT NOT NULL PRIMARY KEY,
  due_at        INTEGER,
  last_run      BLOB,
  last_fired_at INTEGER,
  last_error    TEXT,
  data          TEXT NOT NULL
) STRICT;
CREATE INDEX schedule_due ON schedule (due_at) WHERE due_at IS NOT NULL;

-- Authentication. Secrets of callers are stored only as hashes: nobody can get a key
-- from the contents of these tables.

-- API keys. A key is never deleted, so that its name stays known for what was done with it.
CREATE TABLE api_key (
  id           INTEGER PRIMARY KEY,
  name         TEXT NOT NULL,
  role         TEXT NOT NULL,
  hash         BLOB NOT NULL,
  created_by   TEXT NOT NULL,
  created_at   INTEGER NOT NULL,
  expires_at   INTEGER,          -- null if the key does not expire
  revoked_at   INTEGER,
  last_used_at INTEGER
) STRICT;
CREATE UNIQUE INDEX api_key_by_hash ON api_key (hash);
CREATE UNIQUE INDEX api_key_name ON api_key (name) WHERE revoked_at IS NULL;

-- Session tokens (reusable) and tickets (one-time), issued for a key.
-- kind: 0 session, 1 ticket
CREATE TABLE token (
  hash         BLOB NOT NULL,
  kind         INTEGER NOT NULL,
  api_key_hash BLOB,             -- null for the local key of this machine
  expires_at   INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX token_hash ON token (hash, kind);
CREATE INDEX token_api_key ON token (api_key_hash) WHERE api_key_hash IS NOT NULL;
CREATE INDEX token_expires ON token (expires_at);

-- Links that let a recipient answer one gate. They are deleted with their gate.
CREATE TABLE gate_link (
  hash       BLOB NOT NULL,
  gate       BLOB NOT NULL,
  digest     BLOB,
  recipient  TEXT NOT NULL,
  created_by TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX gate_link_hash ON gate_link (hash);
CREATE INDEX gate_link_gate ON gate_link (gate);

-- Requests with an idempotency key, and their responses. A request without a status is
-- still in progress.
CREATE TABLE idempotent_request (
  principal     TEXT NOT NULL,
  key           TEXT NOT NULL,
  body_hash     BLOB NOT NULL,
  expires_at    INTEGER NOT NULL,
  lease_until   INTEGER NOT NULL, -- after this the attempt counts as abandoned
  status        INTEGER,
  location      TEXT,
  response_body BLOB,
  effect        TEXT              -- what the request has changed, written in the transaction of
                                  -- the change; null if it has changed nothing yet
) STRICT;
CREATE UNIQUE INDEX idempotent_request_key ON idempotent_request (principal, key);
CREATE INDEX idempotent_request_expires ON idempotent_request (expires_at);

-- What agents wrote down about a resource. Notes are deleted only at a person's request,
-- and a number is never reused.
CREATE TABLE note (
  number   INTEGER PRIMARY KEY AUTOINCREMENT, -- in the order of writing
  id       BLOB NOT NULL,
  resource TEXT NOT NULL,
  key      TEXT NOT NULL,       -- chosen by the writer: a second note with it is not stored
  text     TEXT NOT NULL,
  tags     TEXT NOT NULL,
  run      BLOB,                -- the writer; it may have been pruned
  at       INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX note_id ON note (id);
CREATE UNIQUE INDEX note_key ON note (resource, key);
CREATE INDEX note_order ON note (resource, number);

-- The full-text index of the notes, by note.number, without their text. The resource is
-- indexed as a single token, so that a search does not scan the notes of other resources.
CREATE VIRTUAL TABLE note_fts USING fts5(
  resource, words, tags,
  content = '', contentless_delete = 1,
  tokenize = "unicode61 remove_diacritics 2"
);
