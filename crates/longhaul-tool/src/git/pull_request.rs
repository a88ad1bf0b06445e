//! The tool `open_pull_request`, which asks the owners of the run's repository to merge a branch.
//!
//! Invariant: a branch has at most one open pull request, which is found before another is opened.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::effect_facts::PredictedEffects;
use longhaul_core::port::outbound::{NetworkScope, OutboundHttpClient, OutboundRequest};
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::repo::{RepoSource, is_rev};
use longhaul_core::time::Millis;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::prediction::no_effects;
use crate::typed::{TypedToolError, parse_input, tool_spec};

/// Address of GitHub's API.
const GITHUB_API: &str = "https://api.github.com";

/// Host of GitHub's repositories.
const GITHUB: &str = "github.com";

const TIMEOUT: Millis = Millis::from_secs(30);
const RESPONSE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The tool `open_pull_request`.
pub struct OpenPullRequestTool {
    spec: ToolSpec,
    client: Arc<dyn OutboundHttpClient>,
    /// Access token. `None` means that a person opens the pull request.
    token: Option<String>,
    api: String,
}

impl std::fmt::Debug for OpenPullRequestTool {
    /// Formats the tool without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenPullRequestTool").field("api", &self.api).finish_non_exhaustive()
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PullRequestInput {
    /// The change in one line
    #[schemars(length(min = 1, max = 256))]
    title: String,
    /// What was changed and why, and how it was tested, as Markdown
    #[schemars(length(max = 60000))]
    body: String,
    /// The pushed branch to merge
    #[schemars(length(min = 1, max = 200))]
    branch: String,
    /// The branch to merge into; default: the default branch of the repository
    #[schemars(length(min = 1, max = 200))]
    base: Option<String>,
}

/// An answer of GitHub.
struct Answer {
    status: u16,
    body: Value,
}

impl OpenPullRequestTool {
    /// Creates the tool, which sends its requests with this client and this access token of GitHub.
    pub fn new(
        client: Arc<dyn OutboundHttpClient>,
        token: Option<String>,
    ) -> Result<Self, TypedToolError> {
        let description = "Opens a pull request for a branch that was pushed with git_push. If the \
            branch has an open pull request, that one is returned. Where it can't be opened \
            automatically, the result says how a person opens it.";
        let spec = tool_spec::<PullRequestInput>("open_pull_request", description)?;
        let spec = ToolSpec { can_verify: true, ..spec };
        let token = token.filter(|token| !token.is_empty());
        Ok(Self { spec, client, token, api: GITHUB_API.to_owned() })
    }

    /// Sets another address of GitHub's API.
    #[must_use]
    pub fn with_api(self, api: impl Into<String>) -> Self {
        Self { api: api.into(), ..self }
    }

    async fn open(
        &self,
        input: &PullRequestInput,
        repo: &RepoSource,
    ) -> Result<String, ToolFailure> {
        let (Some(path), Some(_)) = (github_path(repo), &self.token) else {
            return Ok(manual_instructions(input, repo));
        };
        if let Some(url) = self.find_open(path, &input.branch).await? {
            return Ok(format!("The pull request of `{}` is open: {url}", input.branch));
        }
        let base = match input.base.as_ref().or(repo.rev.as_ref()) {
            Some(base) => base.clone(),
            None => self.default_branch(path).await?,
        };
        let PullRequestInput { title, body, branch, .. } = input;
        let request = json!({ "title": title, "body": body, "head": branch, "base": base });
        let answer = self.send("POST", &format!("/repos/{path}/pulls"), Some(request)).await?;
        match answer.body["html_url"].as_str().filter(|_| answer.status == 201) {
            Some(url) => Ok(format!("Opened the pull request {url}")),
            None => Err(answer.failure("the pull request was not opened")),
        }
    }

    async fn find_open(&self, path: &str, branch: &str) -> Result<Option<String>, ToolFailure> {
        let owner = path.split('/').next().unwrap_or_default();
        // A branch has no character that a URL gives a meaning, except `+`.
        let head = branch.replace('+', "%2B");
        let path = format!("/repos/{path}/pulls?state=open&per_page=1&head={owner}:{head}");
        let answer = self.send("GET", &path, None).await?;
        match answer.status {
            200 => Ok(answer.body[0]["html_url"].as_str().map(str::to_owned)),
            _ => Err(answer.failure("the pull requests can't be read")),
        }
    }

    async fn default_branch(&self, path: &str) -> Result<String, ToolFailure> {
        let answer = self.send("GET", &format!("/repos/{path}"), None).await?;
        let branch = answer.body["default_branch"].as_str().filter(|_| answer.status == 200);
        branch.map(str::to_owned).ok_or_else(|| answer.failure("the repository can't be read"))
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Result<Answer, ToolFailure> {
        let token = self.token.as_deref().unwrap_or_default();
        let headers = [
            ("accept", "application/vnd.github+json".to_owned()),
            ("x-github-api-version", "2022-11-28".to_owned()),
            ("authorization", format!("Bearer {token}")),
        ];
        let request = OutboundRequest {
            method: method.to_owned(),
            url: format!("{}{path}", self.api),
            headers: headers.map(|(name, value)| (name.to_owned(), value)).into(),
            body: body.map(|body| body.to_string().into_bytes()).unwrap_or_default(),
            timeout: TIMEOUT,
            bytes_max: RESPONSE_BYTES_MAX,
            network_scope: NetworkScope::Public,
        };
        let response = self.client.send(request).await;
        let response = response
            .map_err(|error| ToolFailure::transient(format!("GitHub can't be reached: {error}")))?;
        let body = serde_json::from_slice(&response.body).unwrap_or_default();
        Ok(Answer { status: response.status, body })
    }
}

impl Answer {
    fn failure(&self, problem: &str) -> ToolFailure {
        let reasons = self.body["errors"].as_array().into_iter().flatten();
        let reasons = reasons.filter_map(|error| error["message"].as_str());
        let reasons: Vec<&str> = self.body["message"].as_str().into_iter().chain(reasons).collect();
        let message = format!(
            "GitHub answered {} and {problem}: {}",
            self.status,
            reasons.join("; ").chars().take(1_000).collect::<String>()
        );
        match self.status {
            429 | 500.. => ToolFailure::transient(message),
            _ => ToolFailure::new(message),
        }
    }
}

/// Returns the owner and the name of a repository on GitHub, as `OWNER/NAME`.
fn github_path(repo: &RepoSource) -> Option<&str> {
    let (host, path) = repo.host_and_path()?;
    let is_name = |name: &str| {
        !name.is_empty()
            && name != ".."
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let (owner, name) = path.split_once('/')?;
    (host == GITHUB && is_name(owner) && is_name(name)).then_some(path)
}

/// Returns how a person opens the pull request.
fn manual_instructions(input: &PullRequestInput, repo: &RepoSource) -> String {
    let PullRequestInput { branch, base, .. } = input;
    let base = base.as_ref().or(repo.rev.as_ref());
    match github_path(repo) {
        Some(path) => {
            let range = base.map(|base| format!("{base}...")).unwrap_or_default();
            format!(
                "No pull request was opened, because the worker has no GITHUB_TOKEN. A person opens \
                 it at https://{GITHUB}/{path}/compare/{range}{branch}?expand=1"
            )
        }
        None => format!(
            "No pull request was opened, because {} is not on GitHub. The branch `{branch}` is \
             pushed: a person merges it there.",
            repo.url
        ),
    }
}

#[async_trait]
impl Tool for OpenPullRequestTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Returns `keyed`: an open pull request of the branch is found before another is opened.
    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Keyed
    }

    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        vec![input["branch"].as_str().unwrap_or_default().to_owned()]
    }

    fn find_call_problem(
        &self,
        input: &Value,
        _context: &std::collections::BTreeMap<String, longhaul_core::raw::RawJson>,
    ) -> Option<String> {
        let names =
            ["branch", "base"].iter().filter_map(|name| Some((name, input[*name].as_str()?)));
        let mut invalid = names.filter(|(_, branch)| !is_rev(branch));
        invalid.next().map(|(name, _)| format!("`{name}` is no valid name of a branch"))
    }

    async fn predict_effects(&self, _input: &Value, ctx: &ToolContext) -> PredictedEffects {
        let is_sent = ctx.repo.as_ref().and_then(github_path).is_some() && self.token.is_some();
        let network = is_sent.then(|| self.api.clone()).into_iter().collect();
        let undo = "close the pull request".to_owned();
        PredictedEffects { network: Some(network), undo: Some(undo), ..no_effects() }
    }

    fn needs_repo(&self) -> bool {
        true
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: PullRequestInput = parse_input(&self.spec, input)?;
        let repo = ctx.repo.as_ref();
        let repo = repo.ok_or_else(|| ToolFailure::new("The run has no repository."))?;
        self.open(&input, repo).await.map(ToolOutput::text)
    }

    async fn verify(&self, input: Value, ctx: &ToolContext) -> VerifyOutcome {
        let (Some(branch), Some(path), Some(_)) =
            (input["branch"].as_str(), ctx.repo.as_ref().and_then(github_path), &self.token)
        else {
            return VerifyOutcome::NotHappened;
        };
        match self.find_open(path, branch).await {
            Ok(Some(url)) => {
                let text = format!("The pull request of `{branch}` is open: {url}");
                VerifyOutcome::Happened(ToolOutput::text(text))
            }
            Ok(None) => VerifyOutcome::NotHappened,
            Err(_) => VerifyOutcome::Unknown,
        }
    }
}
