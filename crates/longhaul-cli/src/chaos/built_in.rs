//! The project that is stormed when nobody names an agent: twelve turns, one
//! tool of each class, and pauses in which a kill can land.
//!
//! Never: a key, a network or a file outside its folder.

/// The agent's name.
pub(crate) const AGENT_NAME: &str = "chaos";

/// Its files, by path.
pub(crate) const FILES: &[(&str, &str)] =
    &[("longhaul.toml", ""), ("agents/chaos.md", AGENT_FILE), ("scripts/chaos.yaml", SCRIPT)];

const AGENT_FILE: &str = "---
description: Twelve turns of looking, putting and sending, to be killed in the middle.
model: scripted/chaos
tools: [probe_read, probe_write, probe_send]
max_turns: 12
---
You leave lines in a file.
";

const SCRIPT: &str = "replies:
  - { delay: 8ms, tools: [ { name: probe_read, input: { note: 'look 1', delay_ms: 6 } } ] }
  - { delay: 2ms, tools: [ { name: probe_send, input: { note: 'send 2', delay_ms: 6 } } ] }
  - { delay: 8ms, tools: [ { name: probe_write, input: { note: 'put 3', delay_ms: 8 } } ] }
  - delay: 4ms
    tools:
      - { name: probe_read, input: { note: 'look 4', delay_ms: 4 } }
      - { name: probe_write, input: { note: 'put 4', delay_ms: 12 } }
      - { name: probe_send, input: { note: 'send 4', delay_ms: 8 } }
  - delay: 2ms
    tools:
      - { name: probe_send, input: { note: 'first send 5', delay_ms: 4 } }
      - { name: probe_send, input: { note: 'second send 5', delay_ms: 4 } }
  - { delay: 20ms, text: 'Thinking for a while.', tools: [ { name: probe_write, input: { note: 'put 6' } } ] }
  - { tools: [ { name: probe_send, input: { note: 'send 7', delay_ms: 16 } } ] }
  - { delay: 2ms, tools: [ { name: probe_read, input: { note: 'look 8' } } ] }
  - delay: 4ms
    tools:
      - { name: probe_write, input: { note: 'first put 9', delay_ms: 8 } }
      - { name: probe_write, input: { note: 'second put 9', delay_ms: 2 } }
  - { delay: 6ms, tools: [ { name: probe_send, input: { note: 'send 10', delay_ms: 2 } } ] }
  - { delay: 2ms, tools: [ { name: probe_send, input: { note: 'send 11' } } ] }
  - { delay: 4ms, text: 'Done.' }
";
