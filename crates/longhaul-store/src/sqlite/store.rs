//! The port of journal and queue, verb by verb.
//!
//! Never: more than handing a verb to the writer or the readers.

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::store::{
    Append, Appended, Author, Beat, ClaimAsk, Claimed, GatesAsk, OpenAsk, Opened, Page, PruneAsk,
    Pruned, ReadAsk, Renewed, RowsAsk, RunRow, Store, StoreError, Watch,
};

use crate::sqlite::append::{Growth, append};
use crate::sqlite::handle::SqliteStore;
use crate::sqlite::{claim, gate, journal, new_run, prune, renew, row};

#[async_trait]
impl Store for SqliteStore {
    async fn open(&self, ask: OpenAsk) -> Result<Opened, StoreError> {
        self.write(move |tx| new_run::open(tx, &ask)).await
    }

    async fn claim(&self, ask: ClaimAsk) -> Result<Vec<Claimed>, StoreError> {
        self.must_drive("claim runs")?;
        self.write(move |tx| claim::claim(tx, &ask)).await
    }

    async fn renew(&self, beat: Beat) -> Result<Renewed, StoreError> {
        self.must_drive("renew a worker")?;
        self.write(move |tx| renew::renew(tx, &beat)).await
    }

    async fn read(&self, ask: ReadAsk) -> Result<Page, StoreError> {
        self.look(move |tx| journal::read(tx, ask)).await
    }

    async fn append(&self, ask: Append) -> Result<Appended, StoreError> {
        if let Author::Driver { .. } = ask.author {
            self.must_drive("append as a run's driver")?;
        }
        match Growth::new(ask).map_err(|fault| fault.into_error(&self.at))? {
            Ok(growth) => self.write(move |tx| append(tx, &growth)).await,
            Err(refused) => Ok(Appended::Refused(refused)),
        }
    }

    async fn row(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        self.look(move |tx| row::row(tx, run)).await
    }

    async fn rows(&self, ask: RowsAsk) -> Result<Vec<RunRow>, StoreError> {
        self.look(move |tx| row::rows(tx, &ask)).await
    }

    async fn gates(&self, ask: GatesAsk) -> Result<Vec<GateRow>, StoreError> {
        self.look(move |tx| gate::gates(tx, &ask)).await
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.changes.listen()
    }

    async fn prune(&self, ask: PruneAsk) -> Result<Pruned, StoreError> {
        self.must_drive("prune")?;
        let steps = self.look(move |tx| prune::find(tx, ask)).await?;
        let mut pruned = Pruned::default();
        // Each step is a command of its own: appends come between.
        for step in steps {
            let done = self
                .write_quiet(move |tx| prune::prune(tx, ask, &step))
                .await?;
            pruned.runs += done.runs;
            pruned.blobs += done.blobs;
            pruned.keys += done.keys;
        }
        Ok(pruned)
    }
}
