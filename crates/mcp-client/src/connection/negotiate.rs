//! Finding out which revision a server speaks.

use crate::{CallOptions, Connection, Error, Speak, wire::shared::Agreed};
use futures_util::{FutureExt, future::FusedFuture};
use mcp_protocol::{
    Era, ProtocolVersion, RequestedVersion,
    client::{Answer, Discovered, ServerError},
    model::{ClientNotification, ClientRequest, Implementation, Initialize},
};
use tokio::time::timeout;

/// Result of the probe.
enum Found {
    Modern,
    Legacy(ProtocolVersion),
}

impl Connection {
    pub(crate) async fn negotiate(&self) -> Result<(), Error> {
        match self.options().speak {
            Speak::Only(version) if version.era() == Era::Legacy => self.initialize(version).await,
            Speak::Only(_) => match self.discover().await? {
                Found::Modern => Ok(()),
                Found::Legacy(version) => Err(Error::NoCommonVersion {
                    theirs: format!("{version} or older"),
                }),
            },
            Speak::Remembered(version) if version.era() == Era::Legacy => {
                match self.initialize(version).await {
                    Err(error) if error.is_disagreement() => self.probe().await,
                    told => told,
                }
            }
            Speak::Remembered(_) | Speak::Probe => self.probe().await,
        }
    }

    /// The revision in which to begin anew with a server that is lost because of the probe, if that is what `error` says.
    pub(super) fn lost_by_probing(&self, error: &Error) -> Option<ProtocolVersion> {
        let spoken = self.shared().version();
        let has_probed = match self.options().speak {
            Speak::Only(_) => false,
            Speak::Remembered(version) if version.era() == Era::Legacy => {
                spoken.era() == Era::Modern
            }
            Speak::Remembered(_) | Speak::Probe => true,
        };
        let is_lost = matches!(error, Error::Closed { .. } | Error::NotSent { .. });
        (has_probed && is_lost && self.is_closed()).then_some(match spoken.era() {
            Era::Modern => ProtocolVersion::NEWEST_LEGACY,
            Era::Legacy => spoken,
        })
    }

    /// True if the server cannot be spoken to at all after this answer to the probe, or not without authorization.
    fn is_hopeless(&self, error: &Error) -> bool {
        match error {
            Error::NotSent { .. }
            | Error::Unauthorized { .. }
            | Error::AuthorizationMisconfigured { .. }
            | Error::AuthorizationUnavailable { .. }
            | Error::NoCommonVersion { .. } => true,
            Error::Http(error) | Error::Broken { cause: error, .. } => !error.was_sent(),
            // Over HTTP an answer that ends early or is too long ends its own request alone.
            Error::Closed { .. } => self.is_closed(),
            Error::Bound { name, .. } => {
                self.is_closed()
                    || matches!(*name, "max_open" | "max_authorizations" | "max_redirects")
            }
            _ => false,
        }
    }

    pub(super) async fn probe(&self) -> Result<(), Error> {
        let speaks = Agreed::on(ProtocolVersion::NEWEST);
        self.shared().agree(speaks);
        let bounds = &self.options().bounds;
        let patience = match self.shared().link().http() {
            None => bounds.probe,
            // Signing in takes as long as it takes; an endpoint that says nothing is no legacy server either.
            Some(link) if link.authorize.is_some() => bounds.timeout,
            Some(_) => bounds.probe_http,
        };
        let mut discover = Box::pin(self.discover().fuse());
        let version = match timeout(patience, &mut discover).await {
            Ok(Ok(Found::Modern)) => return Ok(()),
            Ok(Ok(Found::Legacy(version))) => version,
            Ok(Err(error)) if self.is_hopeless(&error) => return Err(error),
            Ok(Err(_)) | Err(_) => ProtocolVersion::NEWEST_LEGACY,
        };
        // A server that is slow to start may still answer the probe, which is then worth more than that
        // it does not know `initialize`.
        match self.initialize(version).await {
            Err(Error::Server { meaning, error }) => {
                // Servers of the modern era alone have these codes, so its answer is worth waiting for.
                let modern = (-32022..=-32020).contains(&error.code.0);
                let late = match modern && !discover.is_terminated() {
                    true => Some(discover.await),
                    false => discover.now_or_never(),
                };
                match late {
                    Some(Ok(Found::Modern)) => Ok(()),
                    _ => Err(Error::Server { meaning, error }),
                }
            }
            told => told,
        }
    }

    async fn discover(&self) -> Result<Found, Error> {
        let options = CallOptions::default();
        let deadline = self.deadline(&options);
        let mut repeated = false;
        loop {
            let version = ProtocolVersion::NEWEST;
            let asked = self
                .once(version, &ClientRequest::Discover, &options, deadline)
                .await;
            return match asked {
                Ok(answered) => match answered.answer {
                    Answer::Discover(found) => self.discovered(found, answered.server_info),
                    _ => Err(Error::Protocol(
                        "the probe was answered with something else".to_owned(),
                    )),
                },
                Err(Error::Server {
                    meaning: ServerError::UnsupportedVersion { supported, .. },
                    error,
                }) => match best(&supported) {
                    Some(version) if version.era() == Era::Modern => match repeated {
                        false => {
                            repeated = true;
                            continue;
                        }
                        true => Err(Error::Server {
                            meaning: ServerError::of(version, &error),
                            error,
                        }),
                    },
                    Some(version) => Ok(Found::Legacy(version)),
                    None if supported.is_empty() => {
                        Ok(Found::Legacy(ProtocolVersion::NEWEST_LEGACY))
                    }
                    None => Err(unknown(&supported)),
                },
                Err(error) => Err(error),
            };
        }
    }

    fn discovered(&self, found: Discovered, info: Option<Implementation>) -> Result<Found, Error> {
        match best(&found.supported_versions) {
            Some(version) if version.era() == Era::Modern => {
                self.shared().agree(Agreed {
                    version,
                    named: None,
                    offer: found.offer,
                    server_info: info,
                    instructions: found.instructions,
                });
                Ok(Found::Modern)
            }
            Some(version) => Ok(Found::Legacy(version)),
            None => Err(unknown(&found.supported_versions)),
        }
    }

    /// Opens a legacy session, in `version` or what the server makes of it.
    pub(crate) async fn initialize(&self, version: ProtocolVersion) -> Result<(), Error> {
        if self.shared().version() != version {
            self.shared().agree(Agreed::on(version));
        }
        let request = ClientRequest::Initialize(Box::new(Initialize {
            protocol_version: version.as_str().to_owned(),
            capabilities: self.options().handlers.capabilities(),
            client_info: self.options().client_info.clone(),
        }));
        let options = CallOptions::default();
        let deadline = self.deadline(&options);
        let answered = self.once(version, &request, &options, deadline).await?;
        let Answer::Initialize(told) = answered.answer else {
            return Err(Error::Protocol(
                "`initialize` was answered with something else".to_owned(),
            ));
        };
        let (version, named) = match &told.protocol_version {
            RequestedVersion::Known(version) if version.era() == Era::Legacy => (*version, None),
            // It has answered `initialize`, and so does what the last revision with it does.
            RequestedVersion::Known(version) => (
                ProtocolVersion::NEWEST_LEGACY,
                Some(version.as_str().to_owned()),
            ),
            RequestedVersion::Unknown(text) if told.protocol_version.is_modern() => {
                return Err(Error::NoCommonVersion {
                    theirs: text.chars().take(64).collect(),
                });
            }
            // Something older than all revisions, such as "1.0": served as far as it can be.
            RequestedVersion::Unknown(text) => (
                ProtocolVersion::V2024_11_05,
                Some(text.chars().take(64).collect()),
            ),
        };
        self.shared().agree(Agreed {
            version,
            named,
            offer: told.offer,
            server_info: told.server_info,
            instructions: told.instructions,
        });
        self.notify(&ClientNotification::Initialized).await?;
        self.hear();
        Ok(())
    }
}

fn best(versions: &[RequestedVersion]) -> Option<ProtocolVersion> {
    let known = versions.iter().filter_map(|version| match version {
        RequestedVersion::Known(version) => Some(*version),
        RequestedVersion::Unknown(_) => None,
    });
    known.max()
}

fn unknown(versions: &[RequestedVersion]) -> Error {
    let texts: Vec<_> = versions
        .iter()
        .take(8)
        .map(RequestedVersion::as_str)
        .collect();
    let theirs = match texts.is_empty() {
        true => "no version at all".to_owned(),
        false => texts.join(", ").chars().take(256).collect(),
    };
    Error::NoCommonVersion { theirs }
}
