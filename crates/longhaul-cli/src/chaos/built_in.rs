//! The built-in project for chaos tests: twelve turns, three tools of different effect classes
//! (whether a call may be repeated after a crash), and delays in which a kill can happen. The
//! project needs no key, no network and no file outside its folder.

/// Name of the built-in agent for chaos tests.
pub(crate) const AGENT_NAME: &str = "chaos";

/// Files of the built-in project, as path and content.
pub(crate) const FILES: &[(&str, &str)] =
    &[("longhaul.toml", ""), ("agents/chaos.md", AGENT_FILE), ("scripts/chaos.yaml", SCRIPT)];

const AGENT_FILE: &str = "---
description: Twelve turns of probe calls, to be interrupted by kills.
model: scripted/chaos
tools: [probe_read, probe_write, probe_send]
max_turns: 12
---
You append records to a file.
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
