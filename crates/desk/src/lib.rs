//! The desk of operators: an API for programs (`/admin/v1`) and a page for people, on which they decide
//! approvals and look at calls, tools, upstreams and rules of a running server.
//!
//! The desk listens at an address of its own, beside the server's, and is off by default. Its answers have the
//! content that the commands of `operator` print, made by the same functions. Every act of an operator is on record
//! before it is done: who, how they proved it, and from where.
//!
//! `routes.rs` has the table of routes, of which the OpenAPI document is made; `sign_in.rs` says who a
//! request is from, `api/` answers it, and `page.rs` has the files of the page.

mod api;
mod begin;
mod call;
mod command;
mod inner;
mod openapi;
mod page;
mod place;
mod reply;
mod routes;
mod sign_in;

pub use begin::{Desk, beside};
pub use command::open;
pub use openapi::document;
pub use page::{MAX_PAGE_BYTES, files};
pub use place::{Place, PlaceError};
pub use routes::{Route, routes};
