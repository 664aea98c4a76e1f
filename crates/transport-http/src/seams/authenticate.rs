//! Authentication of requests.

use crate::{
    error_response::{PlainResponse, refusal},
    peer::Peer,
};
use http::{HeaderName, StatusCode, request::Parts};
use mcp_service::Principal;
use std::{fmt, pin::Pin};

/// Says who is calling (decision D7). Runs for every request, on the connection's own task, so it
/// must not block; what has to be fetched first is waited for with [`Authentication::Later`].
pub trait Authenticate: Send + Sync + 'static {
    /// Authenticates the sender of `request`.
    fn authenticate<'a>(&'a self, request: &'a Parts, peer: &'a Peer) -> Authentication<'a>;
}

/// Principal of a request, or the answer to send instead, such as 401 with a challenge. Boxed,
/// because it is rare and large.
pub type Authenticated = Result<Principal, Box<PlainResponse>>;

/// Result of [`Authenticate`].
pub enum Authentication<'a> {
    /// The result is known at once, which costs nothing.
    Done(Authenticated),
    /// The result needs a fetch first, such as a new key of an issuer. Dropped when the client
    /// hangs up.
    Later(Pin<Box<dyn Future<Output = Authenticated> + Send + 'a>>),
}

impl Authentication<'_> {
    /// The outcome, waited for where that is needed.
    ///
    /// # Errors
    ///
    /// What to answer instead.
    pub async fn outcome(self) -> Authenticated {
        match self {
            Self::Done(outcome) => outcome,
            Self::Later(outcome) => outcome.await,
        }
    }
}

impl fmt::Debug for Authentication<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(outcome) => f.debug_tuple("Done").field(outcome).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

impl<F> Authenticate for F
where
    F: Fn(&Parts, &Peer) -> Authenticated + Send + Sync + 'static,
{
    fn authenticate<'a>(&'a self, request: &'a Parts, peer: &'a Peer) -> Authentication<'a> {
        Authentication::Done(self(request, peer))
    }
}

/// Identity without authentication: the name that the client sends in `X-MCP-Client-ID`, else its
/// IP address. Any client can claim any name.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientIdOrAddress;

impl ClientIdOrAddress {
    /// The header that is read.
    pub const HEADER: &'static str = "x-mcp-client-id";
}

impl Authenticate for ClientIdOrAddress {
    fn authenticate<'a>(&'a self, request: &'a Parts, peer: &'a Peer) -> Authentication<'a> {
        Authentication::Done(Self::of(request, peer))
    }
}

impl ClientIdOrAddress {
    fn of(request: &Parts, peer: &Peer) -> Authenticated {
        const NAME: HeaderName = HeaderName::from_static(ClientIdOrAddress::HEADER);
        let mut values = request.headers.get_all(NAME).iter();
        let Some(value) = values.next() else {
            return Ok(peer.by_address());
        };
        let name = value.to_str().map(str::trim).unwrap_or_default();
        let printable = !name.is_empty() && name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if values.next().is_some() || !printable || Principal::MAX_LENGTH < name.len() {
            return Err(Box::new(refusal(
                StatusCode::BAD_REQUEST,
                format!(
                    "X-MCP-Client-ID must be one name of at most {} printable ASCII characters",
                    Principal::MAX_LENGTH
                ),
            )));
        }
        Ok(peer.named(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(headers: &[(&'static str, &str)]) -> Result<String, StatusCode> {
        let mut request = http::Request::new(());
        for (name, value) in headers {
            let value = http::HeaderValue::from_str(value).unwrap();
            request.headers_mut().append(*name, value);
        }
        let peer = Peer::new("[::ffff:10.0.0.7]:9".parse().unwrap());
        ClientIdOrAddress::of(&request.into_parts().0, &peer)
            .map(|principal| principal.as_str().to_owned())
            .map_err(|response| response.status())
    }

    #[test]
    fn the_header_wins_and_must_be_a_decent_name() {
        let header = ClientIdOrAddress::HEADER;
        assert_eq!(principal(&[]).unwrap(), "10.0.0.7");
        assert_eq!(principal(&[(header, "desk 4")]).unwrap(), "desk 4");
        let long = "x".repeat(Principal::MAX_LENGTH + 1);
        assert_eq!(principal(&[(header, &long[1..])]).unwrap(), &long[1..]);
        for bad in ["", "  ", "a\tb", "größe", &long] {
            assert!(principal(&[(header, bad)]).is_err(), "{bad:?}");
        }
        assert!(principal(&[(header, "a"), (header, "b")]).is_err());
    }
}
