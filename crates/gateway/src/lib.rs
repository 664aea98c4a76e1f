//! Other MCP servers, *upstreams*, as sources of tools, resources and prompts.
//!
//! A [`Gateway`] is a [`mcp_server::ToolSource`]: what it offers passes visibility, permission, budgets and the
//! ledger like anything else. Each upstream is kept by an actor that opens its connection when it is needed.
//!
//! # What holds
//!
//! * **Lists wait for nobody.** They come from what was read the last time, which is stored over restarts.
//! * **A call is sent once.** If the connection ends after it was sent, its outcome is unknown, and the answer
//!   says so. A session that the upstream has forgotten (404) is opened again, since the call did not run.
//! * **Names are found in a table** and never split; who has one keeps it.
//! * **An upstream is told of abilities that the caller has**, where the revision lets a request say so; a
//!   question that its caller cannot answer, or that nobody can tell whose it is, is refused.
//!
//! ```
//! use gateway::{Gateway, GatewayOptions, Reach, State, UpstreamSpec};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! let time = UpstreamSpec::new("time", Reach::Child {
//!     program: "python3".to_owned(),
//!     arguments: vec!["-m".to_owned(), "mcp_server_time".to_owned()],
//!     environment: Vec::new(),
//!     directory: None,
//! });
//! let gateway = Gateway::new(GatewayOptions::default(), vec![time]);
//! // It is started when its tools are asked for, or called.
//! assert_eq!(gateway.status()[0].state, State::Configured);
//! gateway.shut_down().await;
//! # });
//! ```

mod catalogue;
mod credentials;
mod exchange;
mod gateway;
mod given;
pub mod hosts;
mod manager;
mod names;
mod pins;
mod sign_ins;
mod spec;
mod store;
mod text;
mod tokens;
mod upstream;

pub use mcp_client::is_of_transport;
pub use mcp_server::UPSTREAM_META;

pub use crate::{
    catalogue::{Catalogue, Unfit},
    credentials::{Bindings, Credentials, Template, TemplatePart},
    exchange::Subjects,
    gateway::{COMPONENT, Gateway, GatewayOptions},
    given::{Asked, SigningIn},
    hosts::HostFile,
    manager::{
        CallError, MAX_RESULT_CHARS, ManagerOptions, McpManager, ToolDef, ToolRegistry, result_text,
    },
    names::{MAX_NAME, NameTable, NameTemplate, Origin, offered_uri, original_uri, scheme_key},
    pins::{
        Approved, ChangeKind, Difference, HeldDefinition, Pin, PinApproval, PinError, PinEvent,
        PinKind, PinnedItem, Pins, PinsWanted, Severity, differences,
    },
    sign_ins::{BadTicket, SIGN_IN_LIFETIME, SIGN_IN_PATH, SignIns},
    spec::{Isolation, Reach, Tokens, UpstreamSpec, Uris},
    tokens::{KeptCredential, KeptKind, SealedTokens, kept_credentials},
    upstream::{
        meter::{Figures, SECONDS},
        own::RefusedClient,
        state::{State, Status},
    },
};
