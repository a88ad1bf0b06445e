//! What a longer history costs in instructions, counted by callgrind: the same on
//! a busy machine as on an idle one.
//!
//! A turn at a history can't be counted alone, so lives are: what a hundred turns
//! cost at a history is what a life that goes on for them costs more than one that
//! doesn't. What is done once a life falls out.
//!
//! Valgrind counts an instruction for every byte of a long copy, where a machine
//! needs one for all of them: one copy of a request is one for each of its bytes.
//!
//! Never: the mock under valgrind. It is started outside, and its address handed in.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use longhaul_core::time::Millis;
use serde_json::{Value, json};

use crate::bench::turn::setting::{drive, longhaul, store, task};
use crate::bench::turn::source::{Source, Wire, write_script};
use crate::bench::turn::stand_in::StandIn;
use crate::bench::turn::words::{build, met};
use crate::fail::Failure;
use crate::runtime;

const VALGRIND: &str = "valgrind";

/// The results of these lives, in bytes.
const RESULT_BYTES: usize = 2_048;

/// Over so many turns. What is done by the clock or once in a while, such as a
/// sweep or a checkpoint, would tip the scales of fewer.
const WINDOW_TURNS: u32 = 100;

/// Histories of so many messages are compared.
const LENGTHS: [u32; 2] = [10, 1_000];

/// Instructions for each byte that a request has more.
const TARGET: f64 = 2.0;

/// Fails with a sentence where there is no valgrind.
pub(crate) fn check() -> anyhow::Result<()> {
    let asked = Command::new(VALGRIND)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match asked {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => bail!("`valgrind --version` ended with {status}"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let words = "instructions are counted by valgrind, which is not installed here";
            let failure = Failure::usage(words);
            Err(failure
                .hint("install it", "sudo apt-get install valgrind")
                .into())
        }
        Err(error) => Err(error).context("valgrind can't be started"),
    }
}

/// What is to be counted.
pub(crate) struct Count<'a> {
    pub(crate) wire: Wire,
    pub(crate) folder: &'a Path,
}

/// One life: what was counted in it.
#[derive(Debug, Clone, Copy)]
struct Counted {
    turns: u32,
    instructions: u64,
    body_bytes: u64,
}

/// The turns at one length of the history: a life without them, and one with.
#[derive(Debug, Clone, Copy)]
struct Pair {
    messages: u32,
    without: Counted,
    with: Counted,
}

impl Pair {
    fn instructions(&self) -> f64 {
        self.with.instructions as f64 - self.without.instructions as f64
    }

    fn body_bytes(&self) -> f64 {
        self.with.body_bytes as f64 - self.without.body_bytes as f64
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Instructions {
    wire: Wire,
    short: Pair,
    long: Pair,
}

impl Count<'_> {
    /// Lives four lives under callgrind.
    pub(crate) async fn count(&self, talk: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Instructions> {
        let scripts = &self.folder.join("counted");
        std::fs::create_dir_all(scripts)?;
        let mock = StandIn::start(scripts, Millis::ZERO)?;
        let mut pairs = Vec::new();
        for messages in LENGTHS {
            let turns = messages / 2;
            let mut pair = Vec::new();
            for turns in [turns, turns + WINDOW_TURNS] {
                talk(&format!("counting the instructions of {turns} turns ..."));
                write_script(scripts, turns)?;
                pair.push(self.life(&mock, turns).await?);
            }
            if let [without, with] = pair[..] {
                pairs.push(Pair {
                    messages,
                    without,
                    with,
                });
            }
        }
        match pairs[..] {
            [short, long] => Ok(Instructions {
                wire: self.wire,
                short,
                long,
            }),
            _ => bail!("two lengths are compared"),
        }
    }

    async fn life(&self, mock: &StandIn, turns: u32) -> anyhow::Result<Counted> {
        let before = mock.counted().await?.body_bytes;
        let out = self.folder.join(format!("callgrind-{turns}.out"));
        let program = std::env::current_exe().context("this program can't find its own file")?;
        let output = tokio::process::Command::new(VALGRIND)
            .args(["--tool=callgrind", "--quiet"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(program)
            .args(["bench", "turn", "--wire", self.wire.as_str()])
            .args(["--life-of", &turns.to_string(), "--life-at", &mock.url])
            .arg("--dir")
            .arg(self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("valgrind can't be started")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!(
                "a life under callgrind ended with {}: {said}",
                output.status
            );
        }
        let counts = std::fs::read_to_string(&out).context("callgrind has written nothing")?;
        Ok(Counted {
            turns,
            instructions: total(&counts).context("callgrind has counted nothing")?,
            body_bytes: mock.counted().await?.body_bytes - before,
        })
    }
}

/// The sum of what callgrind has counted.
fn total(counts: &str) -> Option<u64> {
    let line = counts.lines().find_map(|line| {
        let totals = line.strip_prefix("totals:");
        totals.or_else(|| line.strip_prefix("summary:"))
    })?;
    line.split_whitespace().next()?.parse().ok()
}

/// Lives one life and nothing else: this is what runs under callgrind.
pub(crate) fn life(source: &Source, turns: u32, folder: &Path) -> anyhow::Result<()> {
    let file = folder.join("life.db");
    runtime::driving()?.block_on(async {
        let store = Arc::new(store(&file)?);
        let longhaul = longhaul(&store, source.model(turns)?, RESULT_BYTES)?;
        let run = longhaul.submit(task()).await?;
        drive(&longhaul, &[run], turns).await
    })
}

impl Instructions {
    fn per_byte(&self) -> f64 {
        let bytes = self.long.body_bytes() - self.short.body_bytes();
        (self.long.instructions() - self.short.instructions()) / bytes.max(1.0)
    }

    pub(crate) fn as_json(&self) -> Value {
        let life = |life: &Counted| {
            json!({
                "turns": life.turns,
                "instructions": life.instructions,
                "body_bytes": life.body_bytes,
            })
        };
        let pair = |pair: &Pair| {
            json!({
                "messages": pair.messages,
                "lives": [life(&pair.without), life(&pair.with)],
                "instructions": pair.instructions(),
                "body_bytes": pair.body_bytes(),
            })
        };
        json!({
            "wire": self.wire.as_str(),
            "result_bytes": RESULT_BYTES,
            "window_turns": WINDOW_TURNS,
            "histories": [pair(&self.short), pair(&self.long)],
            "instructions_per_additional_byte": self.per_byte(),
        })
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "instructions by callgrind: {WINDOW_TURNS} turns over the {} wire without TLS, {RESULT_BYTES} bytes of \
                 result, the mock not counted, {}",
                self.wire,
                build()
            ),
            String::new(),
            "messages   shorter life    longer life  instructions a turn  request bytes a turn"
                .to_owned(),
        ];
        let turns = f64::from(WINDOW_TURNS);
        for pair in [&self.short, &self.long] {
            lines.push(format!(
                "{:>8}  {:>13}  {:>13}  {:>19.0}  {:>20.0}",
                pair.messages,
                pair.without.instructions,
                pair.with.instructions,
                pair.instructions() / turns,
                pair.body_bytes() / turns,
            ));
        }
        lines.push(String::new());
        let verdict = match cfg!(debug_assertions) {
            true => "only a release build is judged",
            false => met(self.per_byte() <= TARGET),
        };
        lines.push(format!(
            "W2  {:.2} instructions for each byte that a request has more (target {TARGET}: {verdict})",
            self.per_byte(),
        ));
        lines
    }
}
