//! Requests to metadata, registration and token endpoints, with their bounds.

use crate::{AuthorizationError, address::Address};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_client::{AllowPrivate, Client, ClientOptions, Reach, SendError};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Most bytes of a document or an answer.
pub(crate) const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
/// Time for one exchange.
const TIMEOUT: Duration = Duration::from_secs(15);
/// A server that is out of order is asked again after so long at the latest, whatever it wants.
const LONGEST_REST: Duration = Duration::from_secs(300);

const PRIVATE: &str =
    "it is in a network that is not public, and `Options::allow_private` does not name it";

/// Sends to addresses that servers name. Nothing is sent in the clear, redirects are not followed, and no
/// private network is reached that the options do not allow.
#[derive(Clone, Debug)]
pub(crate) struct Web {
    client: Client,
    plain_http: bool,
}

/// Content of the address of a document.
pub(crate) enum Document {
    Found(Bytes),
    /// The server says that there is none.
    Absent(String),
    /// The server is out of order.
    Out(AuthorizationError),
    /// Another answer.
    Broken(String),
}

impl Web {
    /// `named` are addresses that the user has given, whose hosts may be private.
    pub(crate) fn new(
        named: &[&Address],
        allow_private: &[String],
        plain_http: bool,
        authorities: &[u8],
    ) -> Result<Self, AuthorizationError> {
        let options = |text: String| AuthorizationError::Options(text);
        let mut allowed: Vec<&str> = allow_private.iter().map(String::as_str).collect();
        allowed.extend(named.iter().map(|address| address.host()));
        if named.first().is_some_and(|server| server.is_loopback()) {
            allowed.extend(["127.0.0.0/8", "::1", "localhost"]);
        }
        let allowed = AllowPrivate::parse(allowed).map_err(|error| options(error.to_string()))?;
        let client = Client::new(ClientOptions {
            reach: Reach::Public(allowed),
            authorities: authorities.to_vec(),
            max_connections: 4,
            timeout: TIMEOUT,
            max_body: MAX_DOCUMENT_BYTES,
            ..ClientOptions::default()
        });
        let client = client.map_err(|error| options(crate::error::with_causes(&error)))?;
        Ok(Self { client, plain_http })
    }

    /// An address that a server names, if it may be used.
    pub(crate) fn check(
        &self,
        address: &str,
        named_by: &'static str,
    ) -> Result<Address, AuthorizationError> {
        let refused = |why| AuthorizationError::Address {
            address: crate::error::said(address),
            named_by,
            why,
        };
        let parsed = Address::parse(address)
            .ok_or_else(|| refused("it is not an absolute address of https"))?;
        if !parsed.is_private_on_the_way() && !self.plain_http {
            return Err(refused("it is not https"));
        }
        let checked = self.client.check_host(parsed.host());
        checked.map_err(|_| refused(PRIVATE))?;
        Ok(parsed)
    }

    /// The JSON document at `address`.
    pub(crate) async fn document(&self, address: &Address) -> Result<Document, AuthorizationError> {
        let response = self.send(Request::get(address.to_string()), address, Bytes::new());
        let response = response.await?;
        let status = response.status();
        Ok(if status.is_success() {
            Document::Found(response.into_body())
        } else if is_outage(status) {
            let why = format!("the answer is {status}");
            Document::Out(out_of_order(address, why, response.headers()))
        } else if status.is_client_error() {
            Document::Absent(format!("the answer is {status}"))
        } else if status.is_redirection() {
            Document::Broken(format!(
                "the answer is {status}, and redirects are not followed"
            ))
        } else {
            Document::Broken(format!("the answer is {status}"))
        })
    }

    /// Sends `body` as it is.
    pub(crate) async fn send(
        &self,
        request: http::request::Builder,
        address: &Address,
        body: Bytes,
    ) -> Result<Response<Bytes>, AuthorizationError> {
        let json = HeaderValue::from_static("application/json");
        let request: Result<Request<Bytes>, _> = request.header(header::ACCEPT, json).body(body);
        let request = request.map_err(|error| AuthorizationError::Options(error.to_string()))?;
        let response = self.client.send(request).await;
        response.map_err(|error| match error {
            SendError::Forbidden(_) => AuthorizationError::Address {
                address: address.to_string(),
                named_by: "the server or its authorization server",
                why: PRIVATE,
            },
            error => AuthorizationError::Send {
                address: address.without_query(),
                source: Arc::new(error),
            },
        })
    }
}

/// True for an answer that says how its server is, and nothing about what was asked.
pub(crate) fn is_outage(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        )
}

/// Error for a server at `address` that is out of order, with these headers of its answer.
pub(crate) fn out_of_order(
    address: &Address,
    why: String,
    headers: &HeaderMap,
) -> AuthorizationError {
    AuthorizationError::OutOfOrder {
        address: address.without_query(),
        why,
        retry_after: http_client::retry_after(headers, SystemTime::now(), LONGEST_REST),
    }
}
