//! Lanes: queues of runs that are driven one at a time.

use longhaul_core::id::{IdError, LaneKey};
use longhaul_engine::Longhaul;

use crate::error::Error;

/// A lane of a runtime: its runs are driven one at a time, in order.
///
/// ```no_run
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
/// let lane = runtime.lane("npc-7");
/// if lane.is_busy().await? && lane.len().await? > 10 {
///     lane.pause().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Lane<'a> {
    longhaul: &'a Longhaul,
    /// Key of the lane. An invalid key is reported by the first method that uses it.
    key: Result<LaneKey, IdError>,
}

impl<'a> Lane<'a> {
    pub(crate) fn new(longhaul: &'a Longhaul, lane_key: &str) -> Self {
        Self { longhaul, key: LaneKey::new(lane_key) }
    }

    /// Returns the number of runs that wait for the lane, without the run that holds it.
    ///
    /// # Errors
    /// The name of the lane is invalid, or the store failed.
    pub async fn len(&self) -> Result<u32, Error> {
        Ok(self.longhaul.lane(self.valid_lane_key()?).await?.waiting)
    }

    /// Returns whether no run waits for the lane. A run may still hold the lane.
    ///
    /// # Errors
    /// The name of the lane is invalid, or the store failed.
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len().await? == 0)
    }

    /// Returns whether a run holds the lane: it is running, or waits for something other than the
    /// lane.
    ///
    /// # Errors
    /// The name of the lane is invalid, or the store failed.
    pub async fn is_busy(&self) -> Result<bool, Error> {
        Ok(self.longhaul.lane(self.valid_lane_key()?).await?.busy)
    }

    /// Returns whether the lane is paused.
    ///
    /// # Errors
    /// The name of the lane is invalid, or the store failed.
    pub async fn is_paused(&self) -> Result<bool, Error> {
        Ok(self.longhaul.lane(self.valid_lane_key()?).await?.paused)
    }

    /// Pauses the lane until [`resume`](Self::resume) is called: no run of it starts. A run that
    /// has started continues.
    ///
    /// # Errors
    /// The name of the lane is invalid, or the store failed.
    pub async fn pause(&self) -> Result<(), Error> {
        self.longhaul.pause_lane(self.valid_lane_key()?).await?;
        Ok(())
    }

    /// Resumes the lane. Does nothing if it is not paused.
    ///
    /// # Errors
    /// The name of the lane is invalid, or the store failed.
    pub async fn resume(&self) -> Result<(), Error> {
        self.longhaul.resume_lane(self.valid_lane_key()?).await?;
        Ok(())
    }

    fn valid_lane_key(&self) -> Result<&LaneKey, Error> {
        self.key.as_ref().map_err(|error| error.clone().into())
    }
}
