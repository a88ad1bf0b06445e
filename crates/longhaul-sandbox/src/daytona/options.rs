//! How Daytona is reached.

use std::fmt;
use std::time::Duration;

/// Default of [`DaytonaOptions::change_timeout`]. The first sandbox of an image is built meanwhile.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(900);

/// How Daytona is reached.
#[derive(Clone)]
pub struct DaytonaOptions {
    /// Address of the API, such as `https://app.daytona.io/api`.
    pub url: String,
    pub api_key: String,
    /// Region of new sandboxes. `None` means the default of the organization.
    pub target: Option<String>,
    /// Certificates, in PEM, of authorities that are trusted in addition to those of the machine.
    pub ca_pem: Option<Vec<u8>>,
    /// Maximum time for a sandbox to start, stop or disappear.
    pub change_timeout: Duration,
}

impl DaytonaOptions {
    /// Creates options for Daytona's own service.
    pub fn new(api_key: String) -> Self {
        let url = "https://app.daytona.io/api".to_owned();
        Self { url, api_key, target: None, ca_pem: None, change_timeout: CHANGE_TIMEOUT }
    }
}

impl fmt::Debug for DaytonaOptions {
    /// Formats the options without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("DaytonaOptions");
        out.field("url", &self.url).field("target", &self.target).finish_non_exhaustive()
    }
}
