//! Questions to the client while one of its requests is handled.

use crate::{
    context::RequestCx,
    outgoing::{outbox::Outbox, server_requests::AskError},
    session::connection::Connection,
};
use jsonrpc_core::{Frame, Id, Message, RawJson};
use mcp_protocol::{
    Era, ProtocolVersion, encode_input_request, encode_notification,
    model::{InputRequest, ServerNotification},
};

impl RequestCx {
    /// Asks the client something and waits for the answer: the result object of the question's
    /// method. For legacy clients; modern ones are asked by a result, and ask again.
    ///
    /// `task` is the id of the task that asks, if it is one. It waits for as long as the client
    /// takes: bound it.
    ///
    /// # Errors
    ///
    /// [`AskError`] when there is no answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the question and tells the client so.
    pub async fn ask(
        &self,
        question: &InputRequest,
        task: Option<&str>,
    ) -> Result<RawJson, AskError> {
        if self.version.era() == Era::Modern {
            return Err(AskError::NoWay);
        }
        let (Some(connection), Some(outbox)) = (self.connection(), self.outbox()) else {
            return Err(AskError::NoWay);
        };
        if !question.is_declared_by(&self.capabilities) {
            return Err(AskError::NotDeclared(Box::new(
                question.required_capability(),
            )));
        }
        let (id, answer) = connection.questions().open()?;
        let withdrawal = Withdrawal {
            connection,
            outbox,
            version: self.version,
            id: id.clone(),
        };
        let request = encode_input_request(self.version, id, question, task);
        let frame = Frame::message(&Message::Request(request)).into_bytes();
        outbox
            .push(frame)
            .map_err(|error| AskError::Overrun(Some(error)))?;
        let answer = answer.await;
        drop(withdrawal);
        match answer {
            Ok(Ok(result)) => Ok(result.detach()),
            Ok(Err(error)) => Err(AskError::Refused(error)),
            Err(_closed) => Err(AskError::Gone),
        }
    }

    /// Tells a client that what it was asked to have done at an address is done (2025-11-25, elicitation). No other
    /// revision has such a notification, and a client that reads too slowly is not told.
    pub fn elicitation_completed(&self, elicitation_id: &str) {
        if self.version != ProtocolVersion::V2025_11_25 {
            return;
        }
        let notification = ServerNotification::ElicitationComplete {
            elicitation_id: elicitation_id.to_owned(),
        };
        let notification = encode_notification(self.version, &notification, None);
        let frame = Frame::message(&Message::Notification(notification)).into_bytes();
        if let Some(outbox) = self.outbox()
            && let Err(error) = outbox.push(frame)
        {
            tracing::debug!(%error, "a client is not told that an elicitation is complete");
        }
    }
}

/// Withdraws a question, when dropped, for which no handler waits any more.
struct Withdrawal<'a> {
    connection: &'a Connection,
    outbox: &'a Outbox,
    version: ProtocolVersion,
    id: Id,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if !self.connection.questions().withdraw(&self.id) {
            return; // answered
        }
        let notification = ServerNotification::Cancelled {
            request: self.id.clone(),
            reason: Some("the answer is no longer needed".to_owned()),
        };
        let notification = encode_notification(self.version, &notification, None);
        let frame = Frame::message(&Message::Notification(notification)).into_bytes();
        if let Err(error) = self.outbox.push(frame) {
            tracing::debug!(%error, "a question could not be withdrawn");
        }
    }
}
