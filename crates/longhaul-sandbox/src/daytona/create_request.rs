//! Converts the specification of a sandbox into Daytona's request.

use longhaul_core::port::sandbox::{NetworkPolicy, SandboxError, SandboxSpec};
use serde_json::{Map, Value, json};

/// Bytes of the unit of memory and disk.
const GIB: u64 = 1 << 30;

/// Minimum and maximum number of vCPUs and of GiB in a request.
const AMOUNT_MAX: u64 = 1 << 20;

/// Milliseconds of the unit of intervals.
const MINUTE_MS: u64 = 60_000;

/// The image that a sandbox is created from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImageSource {
    /// The default snapshot of Daytona.
    Default,
    Snapshot(String),
    /// A container image, from which Daytona builds a snapshot.
    Image(String),
}

/// Builds the body of the request. The volumes are pairs of an id and a path.
pub(super) fn build(
    spec: &SandboxSpec,
    source: &ImageSource,
    volumes: &[(String, String)],
) -> Result<Value, SandboxError> {
    if let Some(secret) = spec.secrets.first() {
        // Daytona replaces placeholders only by secrets of its own vault, for hosts that are set
        // there.
        return Err(SandboxError::Refused(format!(
            "Daytona can't keep the value of the secret {} out of the sandbox; remove the secret \
             from the agent's file, or use another sandbox provider",
            secret.name
        )));
    }
    let mut body = Map::new();
    body.insert("name".into(), json!(spec.name));
    body.insert("labels".into(), json!(spec.labels));
    body.insert("env".into(), json!(spec.env));
    match source {
        ImageSource::Default => {}
        ImageSource::Snapshot(name) => _ = body.insert("snapshot".into(), json!(name)),
        ImageSource::Image(image) => {
            let build_info = json!({ "dockerfileContent": format!("FROM {image}\n") });
            body.insert("buildInfo".into(), build_info);
        }
    }
    let limits = &spec.limits;
    let units = |bytes: u64| bytes.div_ceil(GIB).clamp(1, AMOUNT_MAX);
    let amounts = [
        ("cpu", limits.cpus.map(|cpus| (cpus.ceil() as u64).clamp(1, AMOUNT_MAX))),
        ("memory", limits.memory_bytes.map(units)),
        ("disk", limits.disk_bytes.map(units)),
        // 0 turns the automatic stop off.
        ("autoStopInterval", Some(spec.auto_stop.map_or(0, |time| time.0.div_ceil(MINUTE_MS)))),
    ];
    for (name, amount) in amounts {
        body.extend(amount.map(|amount| (name.to_owned(), json!(amount))));
    }
    // Only the engine decides when files are deleted.
    body.insert("autoDeleteInterval".into(), json!(-1));
    if !volumes.is_empty() {
        let mounts = volumes.iter().map(|(id, path)| json!({ "volumeId": id, "mountPath": path }));
        body.insert("volumes".into(), mounts.collect());
    }
    match &spec.network {
        NetworkPolicy::None => _ = body.insert("networkBlockAll".into(), json!(true)),
        NetworkPolicy::Host => {}
        NetworkPolicy::Hosts(hosts) => {
            let domains = hosts.iter().map(|host| domain(host)).collect::<Result<Vec<_>, _>>()?;
            match domains.is_empty() {
                true => body.insert("networkBlockAll".into(), json!(true)),
                false => body.insert("domainAllowList".into(), json!(domains.join(","))),
            };
        }
    }
    Ok(Value::Object(body))
}

/// Returns an entry of a host list as a domain of Daytona's list, or why it can't be one.
fn domain(host: &str) -> Result<&str, SandboxError> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_label = |label: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !label.is_empty() && label.chars().all(is_allowed)
    };
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    if name.contains('.') && name.split('.').all(is_label) && !is_address {
        return Ok(host);
    }
    Err(SandboxError::Refused(format!(
        "Daytona can't limit the network to {host:?}: it takes only names such as example.com and \
         *.example.com, without ports, addresses, exclusions and presets; change `network` in the \
         agent's file, or use another sandbox provider"
    )))
}

/// Checks that a name can be part of an address.
pub(super) fn check_name(name: &str) -> Result<(), SandboxError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_bounded = (1..=100).contains(&name.len()) && !name.starts_with('-');
    match is_bounded && name.chars().all(is_allowed) {
        true => Ok(()),
        false => Err(SandboxError::Refused(format!(
            "{name:?} can't be the name of a sandbox or volume: use up to 100 letters, digits and \
             inner hyphens"
        ))),
    }
}

/// Checks that a name of an image or snapshot is a single argument of a Dockerfile.
pub(super) fn check_image(image: &str) -> Result<(), SandboxError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._/:@".contains(c);
    match !image.is_empty() && image.len() <= 300 && image.chars().all(is_allowed) {
        true => Ok(()),
        false => Err(SandboxError::Refused(format!(
            "{image:?} is no name of an image or of a snapshot of Daytona; correct `image` in the \
             agent's file"
        ))),
    }
}
