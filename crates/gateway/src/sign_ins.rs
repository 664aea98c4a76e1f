//! Addresses at which clients' people give credentials in their own browsers.

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Path of the pages, below the origin of the server.
pub const SIGN_IN_PATH: &str = "/sign-in";
/// Time for which an address is good, and for which somebody may sign in.
pub const SIGN_IN_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// Addresses that are good at once; the oldest go first.
const MAX_TICKETS: usize = 4_096;
/// Wrong proofs after which an address is good no more.
const MAX_FAULTS: u8 = 5;

/// Addresses at which single clients sign in at upstreams.
///
/// Each belongs to one client and one upstream, is good once and for [`SIGN_IN_LIFETIME`], and proves nothing: who opens it
/// has to prove to be that client, so that nobody gives an account to another client by following it.
pub struct SignIns {
    origin: String,
    tickets: Mutex<Vec<Ticket>>,
}

struct Ticket {
    id: String,
    upstream: String,
    client: Arc<str>,
    made: Instant,
    faults: u8,
}

/// Reason why an address leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTicket {
    /// Used, too old, or never made.
    #[error("this address was used, or is too old: call the tool again for another")]
    Gone,
    /// Another client has proved who it is.
    #[error("this address belongs to another client than the one that you have proved to be")]
    OtherClient,
}

impl fmt::Debug for SignIns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SignIns").field(&self.origin).finish()
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

impl SignIns {
    /// Addresses below `origin`, such as `https://tools.example.com`: that of the server as browsers know it.
    #[must_use]
    pub fn new(origin: impl Into<String>) -> Self {
        Self {
            origin: origin.into(),
            tickets: Mutex::default(),
        }
    }

    /// The origin.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The address that authorization servers send browsers back to.
    #[must_use]
    pub fn redirect_uri(&self) -> String {
        format!("{}{SIGN_IN_PATH}/callback", self.origin)
    }

    /// The address at which any client gives its credential for an upstream.
    #[must_use]
    pub fn page(&self, upstream: &str) -> String {
        // No name of an upstream has a character that needs to be escaped.
        format!("{}{SIGN_IN_PATH}?upstream={upstream}", self.origin)
    }

    fn tickets(&self) -> MutexGuard<'_, Vec<Ticket>> {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.retain(|it| it.made.elapsed() < SIGN_IN_LIFETIME);
        tickets
    }

    /// The address for a client: the one that it was given before, as long as that is good. `None` without randomness.
    pub(crate) fn address(&self, upstream: &str, client: &Arc<str>) -> Option<String> {
        let mut tickets = self.tickets();
        let known = tickets
            .iter()
            .find(|it| it.upstream == upstream && it.client == *client);
        let id = match known {
            Some(known) => known.id.clone(),
            None => {
                let mut bytes = [0; 24];
                getrandom::fill(&mut bytes).ok()?;
                let id = HEXLOWER.encode(&bytes);
                if MAX_TICKETS <= tickets.len() {
                    tickets.remove(0);
                }
                tickets.push(Ticket {
                    id: id.clone(),
                    upstream: upstream.to_owned(),
                    client: Arc::clone(client),
                    made: Instant::now(),
                    faults: 0,
                });
                id
            }
        };
        Some(format!("{}{SIGN_IN_PATH}?ticket={id}", self.origin))
    }

    /// The upstream that an address is for, which stays good.
    ///
    /// # Errors
    ///
    /// [`BadTicket::Gone`].
    pub fn upstream_of(&self, ticket: &str) -> Result<String, BadTicket> {
        let tickets = self.tickets();
        // Digests are compared, so that the time says nothing of tickets that are good.
        let wanted = digest(ticket);
        let found = tickets.iter().find(|it| digest(&it.id) == wanted);
        found.map(|it| it.upstream.clone()).ok_or(BadTicket::Gone)
    }

    /// Uses an address up, for the client that has proved who it is. Returns the upstream.
    ///
    /// # Errors
    ///
    /// [`BadTicket`]; after five times the address is good no more.
    pub fn redeem(&self, ticket: &str, client: &str) -> Result<String, BadTicket> {
        let mut tickets = self.tickets();
        let wanted = digest(ticket);
        let found = tickets.iter().position(|it| digest(&it.id) == wanted);
        let at = found.ok_or(BadTicket::Gone)?;
        if *tickets[at].client == *client {
            return Ok(tickets.remove(at).upstream);
        }
        Self::fault(&mut tickets, at);
        Err(BadTicket::OtherClient)
    }

    /// Counts a proof that was none.
    pub fn failed(&self, ticket: &str) {
        let mut tickets = self.tickets();
        let wanted = digest(ticket);
        if let Some(at) = tickets.iter().position(|it| digest(&it.id) == wanted) {
            Self::fault(&mut tickets, at);
        }
    }

    fn fault(tickets: &mut Vec<Ticket>, at: usize) {
        tickets[at].faults += 1;
        if MAX_FAULTS <= tickets[at].faults {
            tickets.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_good_once_and_for_the_client_that_it_was_made_for() {
        let sign_ins = SignIns::new("https://tools.example");
        let (ana, bob): (Arc<str>, Arc<str>) = ("ana".into(), "bob".into());
        let of = |url: &str| url.split_once("?ticket=").unwrap().1.to_owned();
        let url = sign_ins.address("mail", &ana).unwrap();
        assert!(url.starts_with("https://tools.example/sign-in?ticket="));
        // Many calls at once lead to one page.
        assert_eq!(sign_ins.address("mail", &ana).unwrap(), url);
        let ticket = of(&url);
        for other in [
            sign_ins.address("mail", &bob).unwrap(),
            sign_ins.address("other", &ana).unwrap(),
        ] {
            assert_ne!(of(&other), ticket);
        }
        assert_eq!(sign_ins.redeem(&ticket, "bob"), Err(BadTicket::OtherClient));
        assert_eq!(sign_ins.upstream_of(&ticket).unwrap(), "mail");
        assert_eq!(sign_ins.redeem(&ticket, "ana").unwrap(), "mail");
        assert_eq!(sign_ins.redeem(&ticket, "ana"), Err(BadTicket::Gone));
        assert_eq!(sign_ins.redeem("", "ana"), Err(BadTicket::Gone));
        // Somebody who tries has five times.
        let ticket = of(&sign_ins.address("mail", &ana).unwrap());
        for _ in 0..4 {
            sign_ins.failed(&ticket);
        }
        assert!(sign_ins.upstream_of(&ticket).is_ok());
        assert_eq!(sign_ins.redeem(&ticket, "bob"), Err(BadTicket::OtherClient));
        assert_eq!(sign_ins.redeem(&ticket, "ana"), Err(BadTicket::Gone));
    }

    #[test]
    fn addresses_are_bounded_in_time_and_number() {
        let sign_ins = SignIns::new("https://tools.example");
        for number in 0..=MAX_TICKETS {
            let client: Arc<str> = format!("c{number}").into();
            sign_ins.address("mail", &client).unwrap();
        }
        assert_eq!(sign_ins.tickets().len(), MAX_TICKETS);
        assert_eq!(*sign_ins.tickets()[0].client, *"c1");
        let Some(long_ago) = Instant::now().checked_sub(SIGN_IN_LIFETIME) else {
            return; // the machine has just been started
        };
        sign_ins.tickets()[0].made = long_ago;
        assert_eq!(sign_ins.tickets().len(), MAX_TICKETS - 1);
    }
}
