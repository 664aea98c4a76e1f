//! Errors of requests to upstreams: what became of the call, what its client is told, and what is noted of the upstream.

use super::{
    Flight, Item, RETRY_AFTER, SIGN_IN, SIGNING_IN,
    questions::{question, undeclared},
};
use crate::{
    store::with_causes,
    text::{self, Cleaner},
    upstream::{
        desk::unfit,
        slot::{Down, Wants},
    },
};
use adapter_tools::{InvalidArguments, Needed, Question, ToolCx, ToolError};
use mcp_client::Error;
use mcp_protocol::{client::ServerError, model::InputRequest};
use serde_json::{Value, json};

impl Item<'_> {
    /// Error of a call that has begun elsewhere, whose outcome cannot be asked for.
    pub(super) fn unreachable(&self, down: &Down) -> ToolError {
        self.lost(
            "it cannot be asked for the result of its task",
            &down.reason,
        )
    }

    /// Error of a call that was not begun; the question for a credential where the client can be asked, and was not yet.
    pub(super) fn refused(&self, down: &Down, cx: &ToolCx) -> ToolError {
        let name = &self.upstream.spec.name;
        let Wants::Own(why) = &down.wants else {
            return self.unavailable(down);
        };
        let Some(url) = self.upstream.sign_in_address(&cx.principal) else {
            return self.unavailable(down);
        };
        if cx.askable().url && cx.answers().state.is_none() {
            let message = format!(
                "`{name}` needs an account or a secret of your own, which you give on a page of this server. The call \
                 goes on afterwards"
            );
            return ToolError::NeedsInput(Needed {
                questions: [(SIGN_IN.to_owned(), Question::Url { message, url })].into(),
                state: Some(json!({ SIGNING_IN: true })),
                ..Needed::default()
            });
        }
        ToolError::Unavailable {
            message: format!(
                "upstream `{name}` {why}, or open {url} in a browser; the call was not begun"
            ),
            retry_after: None,
            detail: down.reason.clone(),
        }
    }

    /// Error of a call whose upstream asks what is put to no client.
    pub(super) fn unfit<'q>(
        &self,
        questions: impl IntoIterator<Item = &'q InputRequest>,
    ) -> Option<ToolError> {
        let upstream = &self.upstream.spec.name;
        let (method, why) = questions
            .into_iter()
            .find_map(|it| Some((it.method(), unfit(it)?)))?;
        tracing::warn!(
            upstream,
            method,
            why,
            "a question of an upstream was refused"
        );
        Some(ToolError::failed(format!(
            "upstream `{upstream}` asks what is put to no client: {why}"
        )))
    }

    pub(super) fn failed(&self, error: Error, flight: &Flight, cx: &ToolCx) -> ToolError {
        let upstream = self.upstream;
        let name = &upstream.spec.name;
        let text = text::clean(&with_causes(&error)).into_owned();
        match error {
            Error::TaskUntold { error } => {
                upstream.answered();
                self.lost(
                    "it does not tell what has become of its task",
                    &text::clean(&error.message),
                )
            }
            Error::Server { meaning, error } => {
                upstream.answered();
                match meaning {
                    ServerError::InvalidParams => ToolError::Rejected(InvalidArguments::because(
                        format!("upstream `{name}`: {}", text::clean(&error.message)),
                    )),
                    ServerError::UrlElicitationRequired { elicitations }
                        if cx.askable().url && !elicitations.is_empty() =>
                    {
                        if let Some(error) = self.unfit(&elicitations) {
                            return error;
                        }
                        let elicitations = elicitations.into_iter().enumerate();
                        let questions =
                            elicitations.map(|(at, it)| (format!("url-{}", at + 1), question(it)));
                        ToolError::NeedsInput(Needed {
                            questions: questions.collect(),
                            state: Some(json!({ "again": true })),
                            ..Needed::default()
                        })
                    }
                    ServerError::MissingClientCapability { required }
                        if let Some(question) = undeclared(&required, cx.askable()) =>
                    {
                        // It is not asked: the client is told what it would have to declare.
                        ToolError::NeedsInput(Needed::default().and("undeclared", question))
                    }
                    _ => ToolError::failed_with(
                        format!("upstream `{name}`: {}", text::clean(&error.message)),
                        json!({
                            "upstream": name,
                            "code": error.code.0,
                            "data": error.data.as_ref().and_then(|it| {
                                let mut data = it.parse::<Value>().ok()?;
                                Cleaner::new(true).value(&mut data);
                                Some(data)
                            }),
                        }),
                    ),
                }
            }
            Error::TimedOut { .. } => ToolError::TimedOut,
            Error::Unanswered(_) | Error::TaskCancelled { .. } => {
                ToolError::failed(format!("upstream `{name}`: {text}"))
            }
            Error::Unauthorized { .. } if upstream.has_own() => {
                let down = upstream.refused(&cx.principal, &text);
                upstream.leave(cx, &flight.live);
                self.refused(&down, cx)
            }
            Error::Unauthorized { .. } => {
                upstream.failed(&text, true);
                // The next connection uses what somebody has signed in for meanwhile.
                upstream.leave(cx, &flight.live);
                self.unavailable(&Down {
                    reason: "it wants authorization".to_owned(),
                    retry_after: None,
                    wants: Wants::Login,
                })
            }
            Error::AuthorizationMisconfigured { cure, .. } => {
                upstream.misconfigured(&text, &cure);
                upstream.leave(cx, &flight.live);
                self.unavailable(&Down {
                    reason: text,
                    retry_after: None,
                    wants: Wants::Setting,
                })
            }
            Error::AuthorizationUnavailable { retry_after, .. } => {
                upstream.failed(&text, false);
                self.unavailable(&Down {
                    reason: text,
                    retry_after: Some(retry_after.unwrap_or(RETRY_AFTER)),
                    wants: Wants::Authority,
                })
            }
            error if error.has_reached("max_message") => {
                let most = upstream.spec.max_message;
                upstream.failed(&text, false);
                upstream.leave(cx, &flight.live);
                let why = format!(
                    "its answer is longer than {most} bytes (`upstreams.{name}.max_message_bytes`)"
                );
                self.lost(&why, &text)
            }
            _ if !error.may_have_run() => {
                upstream.failed(&text, false);
                ToolError::Unavailable {
                    message: format!("upstream `{name}` cannot be reached; the call was not begun"),
                    retry_after: Some(RETRY_AFTER),
                    detail: text,
                }
            }
            // It was not begun (RFC 6585, section 4), and the connection is as good as before.
            Error::Status {
                status: 429,
                retry_after,
                ..
            } => ToolError::Unavailable {
                message: format!(
                    "upstream `{name}` is asked too often (HTTP 429); the call was not begun"
                ),
                retry_after: Some(retry_after.unwrap_or(RETRY_AFTER)),
                detail: text,
            },
            Error::Status { status, .. } if (400..500).contains(&status) => {
                // Some answer 400 for a session that they have forgotten: the next call has a new one.
                upstream.leave(cx, &flight.live);
                ToolError::failed(format!("upstream `{name}`: {text}"))
            }
            Error::Status { status, .. } => {
                upstream.failed(&text, false);
                upstream.leave(cx, &flight.live);
                self.lost(&format!("it answered with HTTP {status}"), &text)
            }
            // Of no use is this answer; the connection is, to others.
            Error::Protocol(_) | Error::Result(_) => {
                upstream.answered();
                self.lost("its answer cannot be used", &text)
            }
            _ => {
                upstream.failed(&text, false);
                upstream.leave(cx, &flight.live);
                self.lost("the connection was lost", &text)
            }
        }
    }

    fn unavailable(&self, down: &Down) -> ToolError {
        unavailable(&self.upstream.spec.name, down)
    }

    pub(crate) fn lost(&self, why: &str, detail: &str) -> ToolError {
        self.upstream.lost();
        let name = &self.upstream.spec.name;
        ToolError::Lost {
            message: format!(
                "upstream `{name}`: {why}. The outcome of the call is unknown: it may have been done. \
                 It is not repeated by the server"
            ),
            detail: detail.to_owned(),
        }
    }
}

/// Error of a call that was not begun, since there is no connection.
pub(crate) fn unavailable(name: &str, down: &Down) -> ToolError {
    let why = match &down.wants {
        Wants::Login => "needs a login: its operator has to sign in",
        Wants::Own(why) => why,
        Wants::Setting => {
            "cannot be used until what its tokens come from is set right: its operator has the reason"
        }
        Wants::Authority => {
            "cannot be used at the moment: its authorization server is out of order"
        }
        Wants::Room => "has no room for another connection of this client, all of whose are in use",
        Wants::Nothing => "cannot be reached",
    };
    ToolError::Unavailable {
        message: format!("upstream `{name}` {why}; the call was not begun"),
        retry_after: down.retry_after,
        detail: down.reason.clone(),
    }
}

/// Kind of an error, for tracing.
pub(super) fn kind_of(error: &Error) -> &'static str {
    match error {
        Error::Server { .. } => "server_error",
        Error::TimedOut { .. } => "timed_out",
        Error::Unauthorized { .. } => "unauthorized",
        Error::AuthorizationMisconfigured { .. } => "authorization_misconfigured",
        Error::AuthorizationUnavailable { .. } => "authorization_unavailable",
        Error::Closed { .. } => "closed",
        _ => "failed",
    }
}

/// True if an error says what became of a task, and not of the question for it.
pub(super) fn is_outcome(error: &Error) -> bool {
    matches!(
        error,
        Error::Server { .. }
            | Error::TimedOut { .. }
            | Error::Unanswered(_)
            | Error::TaskCancelled { .. }
            | Error::TaskUntold { .. }
    )
}
