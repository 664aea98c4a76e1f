//! Reading of what a trace has cost by the public API of Langfuse.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use governance::Micros;
use http::{Request, StatusCode, Uri, header};
use http_client::{Client, ClientOptions, Reach};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::{Failure, with_causes};
use config::{Config, LangfuseApi};

/// Longest time of one request.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The most bytes of an answer. Servers that do not know `fields` answer with all that a trace has.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// Longest time that an answer may ask to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// The most pages of observations, of [`PAGE`] each, that are read of one trace.
const MAX_PAGES: usize = 50;
const PAGE: usize = 1_000;

/// The most that a trace may have cost: more is taken for a mistake.
const MAX_USD: f64 = 1e9;

/// Langfuse as the configuration names it.
pub(super) struct Langfuse {
    client: Client,
    /// Address without a slash at its end.
    base: String,
    authorization: String,
    api: LangfuseApi,
}

/// Reason why no cost could be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// Langfuse does not take the keys.
    #[error(
        "Langfuse has refused the keys ({0}): see costs.langfuse.public_key and costs.langfuse.secret_key"
    )]
    Refused(StatusCode),
    /// Langfuse asks for fewer requests.
    #[error("Langfuse takes no more requests for now (429)")]
    Busy(Option<Duration>),
    /// No connection, no answer, or one that says nothing of costs.
    #[error("{0}")]
    Failed(String),
}

impl Langfuse {
    /// The server of the configuration, if it names one.
    ///
    /// # Errors
    ///
    /// When the address or a key cannot be used.
    pub(super) fn of(config: &Config) -> Result<Option<Self>, Failure> {
        let settings = &config.costs.langfuse;
        let Some(url) = &settings.url else {
            return Ok(None);
        };
        let missing =
            |key: &str| format!("costs.langfuse.{key} refers to a variable that is not set");
        let url = url
            .reveal(&config.environment)
            .ok_or_else(|| missing("url"))?;
        let url: Uri = http_client::parse_url(url.trim(), &["https", "http"])
            .map_err(|why| format!("costs.langfuse.url cannot be used: {why}"))?;
        if let Some(why) = config::Langfuse::address_fault(&url) {
            return Err(format!("costs.langfuse.url {why}").into());
        }
        let key = |secret: &Option<config::Secret>, key: &str| {
            let revealed = secret
                .as_ref()
                .and_then(|it| it.reveal(&config.environment));
            revealed
                .map(|it| it.trim().to_owned())
                .ok_or_else(|| missing(key))
        };
        let public = key(&settings.public_key, "public_key")?;
        let secret = key(&settings.secret_key, "secret_key")?;
        let basic = STANDARD.encode(format!("{public}:{secret}"));
        redaction::know([secret.as_str(), basic.as_str()]);
        let client = Client::new(ClientOptions {
            reach: Reach::Any,
            connect_timeout: TIMEOUT,
            timeout: TIMEOUT,
            max_body: MAX_ANSWER,
            ..ClientOptions::default()
        })?;
        Ok(Some(Self {
            client,
            base: url.to_string().trim_end_matches('/').to_owned(),
            authorization: format!("Basic {basic}"),
            api: settings.api,
        }))
    }

    /// Reads what a trace has cost so far; `None` while Langfuse does not know it.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub(super) async fn cost(&self, trace: &str) -> Result<Option<Micros>, ReadError> {
        let trace = utf8_percent_encode(trace, NON_ALPHANUMERIC);
        match self.api {
            LangfuseApi::Traces => {
                let path = format!("/api/public/traces/{trace}?fields=core,metrics");
                let Some(body) = self.get(&path).await? else {
                    return Ok(None);
                };
                let read: Trace = parse(&body)?;
                read.total_cost.map(micros).transpose()
            }
            LangfuseApi::Observations => self.observed(&trace.to_string()).await,
        }
    }

    async fn observed(&self, trace: &str) -> Result<Option<Micros>, ReadError> {
        let (mut total, mut any, mut cursor) = (0.0, false, None::<String>);
        for _ in 0..MAX_PAGES {
            let mut path = format!(
                "/api/public/v2/observations?traceId={trace}&fields=core,usage&limit={PAGE}"
            );
            if let Some(cursor) = &cursor {
                path.push_str("&cursor=");
                path.extend(utf8_percent_encode(cursor, NON_ALPHANUMERIC));
            }
            let Some(body) = self.get(&path).await? else {
                return Err(ReadError::Failed(
                    "this Langfuse does not know /api/public/v2/observations: set costs.langfuse.api to traces".to_owned(),
                ));
            };
            let page: Observations = parse(&body)?;
            any |= !page.data.is_empty();
            total += page.data.iter().filter_map(|it| it.total_cost).sum::<f64>();
            match page.meta.cursor.filter(|it| !it.is_empty()) {
                None => {
                    return if any {
                        micros(total).map(Some)
                    } else {
                        Ok(None)
                    };
                }
                next => cursor = next,
            }
        }
        Err(ReadError::Failed(format!(
            "the trace has more than {} observations",
            MAX_PAGES * PAGE
        )))
    }

    /// Body of an answer; `None` for 404.
    async fn get(&self, path: &str) -> Result<Option<Bytes>, ReadError> {
        let failed = |why: String| ReadError::Failed(why);
        let request = Request::get(format!("{}{path}", self.base))
            .header(header::ACCEPT, "application/json")
            .header(header::AUTHORIZATION, &self.authorization)
            .body(Bytes::new())
            .map_err(|error| failed(format!("the request cannot be made: {error}")))?;
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| {
            failed(format!("Langfuse cannot be asked: {}", with_causes(&error)))
        })?;
        match answer.status() {
            StatusCode::OK => Ok(Some(answer.into_body())),
            StatusCode::NOT_FOUND => Ok(None),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(ReadError::Refused(status))
            }
            StatusCode::TOO_MANY_REQUESTS => Err(ReadError::Busy(http_client::retry_after(
                answer.headers(),
                SystemTime::now(),
                LONGEST_WAIT,
            ))),
            status => Err(failed(format!("Langfuse has answered {status}"))),
        }
    }
}

/// The part that is read of a trace.
#[derive(Debug, Deserialize)]
struct Trace {
    #[serde(rename = "totalCost", default)]
    total_cost: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Observations {
    data: Vec<Trace>,
    meta: Meta,
}

#[derive(Debug, Deserialize)]
struct Meta {
    #[serde(default)]
    cursor: Option<String>,
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ReadError> {
    serde_json::from_slice(body).map_err(|error| {
        ReadError::Failed(format!("the answer of Langfuse cannot be read: {error}"))
    })
}

/// Millionths of an amount, to the nearest.
fn micros(usd: f64) -> Result<Micros, ReadError> {
    if !(0.0..=MAX_USD).contains(&usd) {
        return Err(ReadError::Failed(format!("Langfuse tells a cost of {usd}")));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is in bounds"
    )]
    let micros = (usd * 1e6).round() as u64;
    Ok(Micros(micros))
}
