//! Servers that others publish: [`ServerJson`] is an entry of a registry, [`bundle`] a file that has everything, and
//! [`Catalogue`] the entries that an operator keeps, which [`api`] shows to others.
//!
//! # What holds
//!
//! * **Nothing is started or written by reading.** [`plan`] says what would be run, with which variables, and what an
//!   operator has to give.
//! * **A stranger's text refers to nothing here.** It becomes a literal: no variable, file or secret of the server is
//!   put in its place, and no shell reads it.
//! * **Versions are single ones, and bundles have their digest.** What decides which code is run, or where it comes
//!   from, is not for an entry to say.
//! * **Everything has a bound**, and all mistakes are told at once with their places.

pub mod api;
pub mod bundle;
mod catalogue;
mod input;
mod launch;
mod reading;
mod runtime;
mod server_json;
mod written;

pub use crate::{
    catalogue::{Catalogue, CatalogueError, Entry, MAX_ENTRIES},
    input::{Answers, Asked, Input, Piece, Variable, Words},
    launch::{Launch, NoWay, Plan, Way, is_steering, plan, ways},
    reading::{Unfit, shown},
    server_json::{Argument, MAX_BYTES, Package, Remote, SCHEMA, ServerJson, Transport},
    written::{Described, described},
};
