use futures_util::future::BoxFuture;
use mcp_protocol::model::{
    ClientCapabilities, ElicitAction, ElicitResult, InputRequest, InputResponse, ListRootsResult,
    Root, ServerNotification,
};

/// The embedder's side of a connection: answers what the server asks, and hears what it tells.
///
/// Legacy servers ask by requests of their own, modern ones by results; a handler need not know which.
pub trait Handlers: Send + Sync + 'static {
    /// Capabilities that tell the server what it may ask. A question that is not declared here is refused without
    /// being put to [`Handlers::answer`].
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::default()
    }

    /// Answers one question.
    ///
    /// # Errors
    ///
    /// A reason for giving no answer; the server, or the caller of the request, is told.
    fn answer(&self, question: InputRequest) -> BoxFuture<'_, Result<InputResponse, String>> {
        let _ = question;
        Box::pin(async { Err("this client answers no questions".to_owned()) })
    }

    /// Takes note of a notification. It is called by the task that reads from the server, which reads on
    /// only when it has returned, so it must not wait.
    fn notified(&self, notification: &ServerNotification) {
        let _ = notification;
    }
}

/// Handlers that declare nothing and answer nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHandlers;

impl Handlers for NoHandlers {}

/// Handlers that declare roots alone.
#[derive(Clone, Debug, Default)]
pub struct OnlyRoots(pub Vec<Root>);

impl Handlers for OnlyRoots {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            roots: true,
            ..ClientCapabilities::default()
        }
    }

    fn answer(&self, question: InputRequest) -> BoxFuture<'_, Result<InputResponse, String>> {
        let answer = match question {
            InputRequest::ListRoots => Ok(InputResponse::ListRoots(ListRootsResult {
                roots: self.0.clone(),
                ..ListRootsResult::default()
            })),
            InputRequest::ElicitForm { .. } | InputRequest::ElicitUrl { .. } => Ok(
                InputResponse::Elicit(ElicitResult::without_content(ElicitAction::Decline)),
            ),
            InputRequest::CreateMessage(_) => Err("there is no model".to_owned()),
        };
        Box::pin(async { answer })
    }
}
