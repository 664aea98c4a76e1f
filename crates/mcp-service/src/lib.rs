//! The seam between transports and handlers.
//!
//! A transport hands over *one frame and the place its answers go*: stdio is many exchanges that
//! share a connection, a modern HTTP POST is one exchange by itself. [`Engine`] turns each request
//! into one call of a [`Service`]; whatever acts on every request is a service around that service, so
//! a batch element, a legacy call and a modern one all pass the same layers.
//!
//! Three rules hold for every transport:
//!
//! * An exchange is a future and not a task. Whoever polls it may drop it, and dropping it *is* the
//!   cancellation: nothing is sent afterwards. What must happen all the same happens in a `Drop`.
//! * A request is registered as in flight while its frame is accepted, before it is first polled:
//!   its cancellation may be the very next frame.
//! * A panic in a service is caught, answered with `-32603` and logged; the connection lives on.

mod context;
mod duplex;
mod engine;
mod error;
mod fair_share;
mod flood;
mod giving_up;
mod outgoing;
mod principal;
mod service;
mod session;
mod told;
mod unsaid;

pub use crate::{
    context::{LogReporter, ProgressReporter, RequestCx, StreamRelease},
    duplex::{Drain, End, Framing, Input, serve_duplex},
    engine::{
        Engine, EngineLimits, ServerIdentity,
        exchange::{Accepted, Answer, Exchange, Reply},
        observe::{Answered, Observe},
        panic_text,
    },
    error::McpError,
    fair_share::{FairShare, Slot},
    flood::{Allowance, Floods},
    giving_up::{GivingUp, LAST_ANSWERS},
    outgoing::{
        outbox::{HeldAnswer, Outbox, OutboxError},
        server_requests::AskError,
        subscriptions::{Change, SubscriptionLimits, Subscriptions, TooManySubscriptions},
    },
    principal::{Header, Principal, Revocation},
    service::{McpService, Service},
    session::{
        connection::{Connection, TransportKind},
        state::SessionState,
    },
};
