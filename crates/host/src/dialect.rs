//! Sessions, and the methods of their clients.

mod events;
mod methods;
mod prompts;
mod resources;
mod servers;
mod session;
mod sessions;
mod stored;
mod tools;
mod watching;

pub use self::{
    events::EventStream,
    sessions::{Host, NoSession},
    stored::StateError,
};
