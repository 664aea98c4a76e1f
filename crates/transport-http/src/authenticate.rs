use crate::refusal::{PlainResponse, refusal};
use http::{StatusCode, request::Parts};
use mcp_service::Principal;
use std::{
    net::SocketAddr,
    sync::{Mutex, OnceLock, PoisonError},
};

/// Says who is calling (decision D7). Runs for every request, on the connection's own task: what
/// must be fetched for it is to be fetched elsewhere and ahead of time.
pub trait Authenticate: Send + Sync + 'static {
    /// Who sent `request`.
    ///
    /// # Errors
    ///
    /// What to answer instead, such as 401 with a challenge. Boxed, because it is rare and large.
    fn authenticate(&self, request: &Parts, peer: &Peer) -> Result<Principal, Box<PlainResponse>>;
}

impl<F> Authenticate for F
where
    F: Fn(&Parts, &Peer) -> Result<Principal, Box<PlainResponse>> + Send + Sync + 'static,
{
    fn authenticate(&self, request: &Parts, peer: &Peer) -> Result<Principal, Box<PlainResponse>> {
        self(request, peer)
    }
}

/// The other end of a connection.
#[derive(Debug)]
pub struct Peer {
    address: SocketAddr,
    by_address: OnceLock<Principal>,
    last: Mutex<Option<Principal>>,
}

impl Peer {
    /// The peer at `address`.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            by_address: OnceLock::new(),
            last: Mutex::default(),
        }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The principal named after its IP address.
    pub fn by_address(&self) -> Principal {
        self.by_address
            .get_or_init(|| Principal::new(self.address.ip().to_canonical().to_string()))
            .clone()
    }

    /// The principal `name`. A connection has one and the same nearly always, so the last one is
    /// remembered instead of being made again.
    pub fn named(&self, name: &str) -> Principal {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(principal) if principal.as_str() == name => principal.clone(),
            _ => last.insert(Principal::new(name)).clone(),
        }
    }
}

/// Identity without authentication: what the client calls itself in `X-MCP-Client-ID`, else its IP
/// address. Anybody can claim any name.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientIdOrAddress;

impl ClientIdOrAddress {
    /// The header that is read.
    pub const HEADER: &'static str = "x-mcp-client-id";
}

impl Authenticate for ClientIdOrAddress {
    fn authenticate(&self, request: &Parts, peer: &Peer) -> Result<Principal, Box<PlainResponse>> {
        let mut values = request.headers.get_all(Self::HEADER).iter();
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
        ClientIdOrAddress
            .authenticate(&request.into_parts().0, &peer)
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

    #[test]
    fn a_name_is_made_once() {
        let peer = Peer::new("127.0.0.1:9".parse().unwrap());
        let first = peer.named("a");
        assert!(std::sync::Arc::ptr_eq(&first.0, &peer.named("a").0));
        assert_eq!(peer.named("b").as_str(), "b");
    }
}
