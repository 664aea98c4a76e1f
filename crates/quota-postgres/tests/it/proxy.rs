//! Proxy between a node and the database, which can fail at the worst moment.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    thread,
};

/// Fate of the next answer of the database, or of the next query.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Next {
    Pass,
    /// The message is lost, and the connection with it. After that all is well.
    Lose,
    /// The same, and nobody gets through until told otherwise.
    LoseAndRefuse,
    /// The message is lost, and the connection stays.
    Swallow,
    /// The next question is lost, and the connection with it.
    LoseQuestion,
}

/// Forwards connections to a port.
pub(crate) struct Proxy {
    port: u16,
    next: Arc<AtomicU8>,
    refuses: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let this = Self {
            port: listener.local_addr().unwrap().port(),
            next: Arc::new(AtomicU8::new(Next::Pass as u8)),
            refuses: Arc::default(),
        };
        let (next, refuses) = (Arc::clone(&this.next), Arc::clone(&this.refuses));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if refuses.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let question = Arc::clone(&next);
                thread::spawn(move || {
                    forward(from, to, || !is(&question, Next::LoseQuestion));
                });
                let (next, refuses) = (Arc::clone(&next), Arc::clone(&refuses));
                thread::spawn(move || {
                    forward(server, client, || {
                        if is(&next, Next::LoseAndRefuse) {
                            refuses.store(true, Ordering::SeqCst);
                            return false;
                        }
                        if is(&next, Next::Swallow) {
                            loop {
                                thread::park();
                            }
                        }
                        !is(&next, Next::Lose)
                    });
                });
            }
        });
        this
    }

    /// The URL with this port for the other.
    pub(crate) fn url(&self, url: &str, port: u16) -> String {
        let proxied = url.replace(&format!(":{port}/"), &format!(":{}/", self.port));
        assert_ne!(proxied, url);
        proxied
    }

    pub(crate) fn next(&self, next: Next) {
        self.next.store(next as u8, Ordering::SeqCst);
    }

    /// Returns true if the fault has happened.
    pub(crate) fn is_done(&self) -> bool {
        self.next.load(Ordering::SeqCst) == Next::Pass as u8
    }

    pub(crate) fn let_through(&self) {
        self.refuses.store(false, Ordering::SeqCst);
    }
}

/// Returns true if this fault is due now. Each happens once.
fn is(next: &AtomicU8, what: Next) -> bool {
    let (what, pass) = (what as u8, Next::Pass as u8);
    next.compare_exchange(what, pass, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok()
}

fn forward(mut from: TcpStream, mut to: TcpStream, mut passes: impl FnMut() -> bool) {
    let mut buffer = [0; 65_536];
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 || !passes() || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
