use crate::lines::{Line, Lines};
use bytes::BytesMut;
use jsonrpc_core::{ErrorObject, Limits, Message, Payload, Response, decode, encode};
use std::{io, pin::pin, time::Duration};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Answers the requests of a client with `error`, for a server that cannot start: hosts show what
/// `initialize` was answered with, and nothing of standard error.
///
/// Ends with `initialize`, since nothing can follow; with anything that is no request or
/// notification of JSON-RPC, to which nothing is said; with the input; or when `within` has passed.
/// A client that asks for something else first may begin with that again by `initialize`.
///
/// # Errors
///
/// When the input cannot be read, or the output cannot be written.
///
/// # Cancel safety
///
/// Dropping the future may leave part of an answer behind.
pub async fn refuse(
    input: impl AsyncRead,
    output: impl AsyncWrite,
    error: &ErrorObject,
    within: Duration,
) -> io::Result<()> {
    let answering = answer(input, output, error);
    tokio::time::timeout(within, answering)
        .await
        .unwrap_or(Ok(()))
}

async fn answer(
    input: impl AsyncRead,
    output: impl AsyncWrite,
    error: &ErrorObject,
) -> io::Result<()> {
    let (mut input, mut output) = (pin!(input), pin!(output));
    let limits = Limits::default();
    let mut lines = Lines::new(limits.max_frame);
    loop {
        let is_over = input.read_buf(lines.room()).await? == 0;
        let mut next = || match lines.next() {
            None if is_over => lines.rest(),
            line => line,
        };
        while let Some(line) = next() {
            let Line::Whole(line) = line else {
                return Ok(());
            };
            let request = match decode(&line, limits) {
                Ok(Payload::Single(Ok(Message::Request(request)))) => request,
                Ok(Payload::Single(Ok(Message::Notification(_)))) => continue,
                _ => return Ok(()),
            };
            let mut text = BytesMut::new();
            let response = Response {
                id: Some(request.id),
                outcome: Err(error.clone()),
            };
            encode(&Message::Response(response), &mut text);
            text.extend_from_slice(b"\n");
            output.write_all(&text).await?;
            output.flush().await?;
            if &*request.method == "initialize" {
                return Ok(());
            }
        }
        if is_over {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonrpc_core::ErrorCode;

    const LONG: Duration = Duration::from_secs(600);

    /// The answer to a message, and whether the client may go on.
    async fn said_to(sent: &str, closes: bool) -> (String, bool) {
        let error = ErrorObject::lasting(ErrorCode::INTERNAL_ERROR, "no ledger");
        let (mut client, input) = tokio::io::duplex(64 * 1024);
        let mut output = Vec::new();
        client.write_all(sent.as_bytes()).await.unwrap();
        if closes {
            client.shutdown().await.unwrap();
        }
        let began = tokio::time::Instant::now();
        refuse(input, &mut output, &error, LONG).await.unwrap();
        (String::from_utf8(output).unwrap(), began.elapsed() >= LONG)
    }

    #[tokio::test(start_paused = true)]
    async fn initialize_is_answered_with_the_reason_and_the_process_ends() {
        let discover = r#"{"jsonrpc":"2.0","id":"a","method":"server/discover"}"#;
        let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
        let told = |id| {
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-32603,\"message\":\"no ledger\",\"data\":{{\"retryable\":false}}}}}}\n"
            )
        };
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
        for (sent, said) in [
            (format!("{initialize}\n"), told("1")),
            (format!("{initialize}\n{discover}\n"), told("1")),
            (
                format!("{notification}\n{discover}\n\n{initialize}\n"),
                told("\"a\"") + &told("1"),
            ),
        ] {
            assert_eq!(said_to(&sent, false).await, (said, false), "{sent}");
        }
        // One that closes its end meanwhile, and one that says no more.
        assert_eq!(said_to(initialize, true).await, (told("1"), false));
        assert_eq!(
            said_to(&format!("{discover}\n"), false).await,
            (told("\"a\""), true)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn input_that_is_no_json_rpc_is_not_answered() {
        let many = format!("{}\n", "x".repeat(32 * 1024));
        for sent in ["ls -l\n", "{}\n", "[]\n", "{\"id\":1}\n", "[1,2]\n", &many] {
            assert_eq!(said_to(sent, false).await, (String::new(), false), "{sent}");
        }
        assert_eq!(said_to("", true).await, (String::new(), false));
        assert_eq!(said_to("{\"jsonrpc\"", false).await, (String::new(), true));
    }
}
