//! The table of routes: methods, paths, rights, and the types of what is asked and answered.

use config::DeskRole;
use http::Method;
use percent_encoding::percent_decode_str;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::api::{
    approvals, credentials, health, keys, ledger, offer, pins, rules, secrets, session, tasks,
    tools, upstreams,
};
use crate::call::{Answering, Call, EVENTS, ROOT};

/// One route of the API.
pub struct Route {
    /// Method.
    pub method: Method,
    /// Path below `/admin/v1`; a part in braces is any text.
    pub path: &'static str,
    /// Rights that it takes; `None` if it establishes them.
    pub role: Option<DeskRole>,
    /// Description, in a sentence.
    pub about: &'static str,
    /// Media type of its answer.
    pub media_type: &'static str,
    pub(crate) query: Option<fn(&mut SchemaGenerator) -> Schema>,
    pub(crate) body: Option<fn(&mut SchemaGenerator) -> Schema>,
    pub(crate) answer: fn(&mut SchemaGenerator) -> Schema,
    pub(crate) handle: for<'a> fn(Call<'a>) -> Answering<'a>,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {ROOT}{}", self.method, self.path)
    }
}

/// Schema of a type.
fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

macro_rules! route {
    (
        $method:ident $path:literal, $role:expr, $about:literal, $handle:path,
        $(query $query:ty,)? $(body $body:ty,)? answer $answer:ty $(, as $media:expr)?
    ) => {
        Route {
            method: Method::$method,
            path: $path,
            role: $role,
            about: $about,
            media_type: route!(@media $($media)?),
            query: route!(@type $($query)?),
            body: route!(@type $($body)?),
            answer: of::<$answer>,
            handle: |call| Box::pin($handle(call)),
        }
    };
    (@media) => { JSON };
    (@media $media:expr) => { $media };
    (@type) => { None };
    (@type $type:ty) => { Some(of::<$type>) };
}

const VIEWER: Option<DeskRole> = Some(DeskRole::Viewer);
const APPROVER: Option<DeskRole> = Some(DeskRole::Approver);
const OPERATOR: Option<DeskRole> = Some(DeskRole::Operator);

/// All routes of the API.
pub fn routes() -> &'static [Route] {
    static ROUTES: std::sync::LazyLock<Vec<Route>> = std::sync::LazyLock::new(all);
    &ROUTES
}

fn all() -> Vec<Route> {
    vec![
        route!(GET "/session", VIEWER, "Says who is signed in.", session::show, answer session::Session),
        route!(POST "/session", None, "Signs in with a key, token or certificate of the request, or with a one-time sign-in.", session::begin, body session::SignInWith, answer session::Session),
        route!(GET "/sign-in", None, "Lists issuers at which people can sign in.", session::issuers, answer session::SignInIssuers),
        route!(POST "/sign-in", None, "Begins a sign-in at an issuer of OpenID Connect, for the page. The issuer sends the browser back to `/sign-in/NAME`, and `POST /session` takes what it brings.", session::leave, body session::SignInAt, answer session::SignInUrl),
        route!(DELETE "/session", VIEWER, "Signs out.", session::end, query session::Where, answer session::Ended),
        route!(POST "/tickets", None, "Makes a one-time sign-in for who has the secret beside the ledger.", session::ticket, answer session::Ticket),
        route!(GET "/openapi.json", VIEWER, "Describes this API.", session::openapi, answer operator::look::Cell),
        route!(GET "/approvals", VIEWER, "Lists calls that wait, or have waited, for a decision, the newest first.", approvals::list, query approvals::Wanted, answer approvals::Approvals),
        route!(GET "/approvals/{id}", VIEWER, "Shows one of them, and the last call of the same that was agreed to.", approvals::show, answer approvals::Shown),
        route!(POST "/approvals/{id}/decision", APPROVER, "Approves, denies, or takes a decision back.", approvals::decide, body approvals::Deciding, answer operator::look::ApprovalRow),
        route!(GET "/calls", VIEWER, "Lists calls in the ledger, the newest first.", ledger::calls, query ledger::CallQuery, answer ledger::Calls),
        route!(GET "/calls/{call}", VIEWER, "Shows a call, and what proves its entries.", ledger::call, answer ledger::ShownCall),
        route!(GET "/notes", VIEWER, "Lists events in the ledger other than calls, the newest first.", ledger::notes, query ledger::NoteQuery, answer ledger::Notes),
        route!(GET "/activity", VIEWER, "Streams entries of the ledger as they come: events `entry`, `lagged` and `failed`.", ledger::activity, query ledger::Since, answer ledger::Activity, as EVENTS),
        route!(GET "/ledger", VIEWER, "Says how long the ledger is, and how far it is sealed.", ledger::summary, answer ledger::Summary),
        route!(POST "/ledger/verify", VIEWER, "Verifies the whole ledger; this reads all of it.", ledger::verify, answer operator::look::Cell),
        route!(GET "/ledger/export", VIEWER, "Exports calls and events, one object in a line.", ledger::export, query ledger::CallQuery, answer operator::look::Cell, as LINES),
        route!(GET "/tools", VIEWER, "Lists tools on offer by their names.", tools::list, query tools::ToolQuery, answer tools::Tools),
        route!(GET "/tools/{name}", VIEWER, "Shows a tool with its schema, origin and pin.", tools::show, answer tools::ShownTool),
        route!(POST "/tools/{name}/explain", VIEWER, "Says whether a client could call it, and by which rule.", tools::explain, body tools::Question, answer operator::look::Cell),
        route!(POST "/tools/{name}/call", OPERATOR, "Calls it as the person who is signed in, governed and recorded like any call.", tools::call, body tools::Arguments, answer operator::look::Cell),
        route!(GET "/upstreams", VIEWER, "Lists upstreams with their states.", upstreams::list, answer upstreams::Upstreams),
        route!(GET "/upstreams/{name}", VIEWER, "Shows an upstream, its tools, what is held of it, and the end of its log.", upstreams::show, answer upstreams::ShownUpstream),
        route!(POST "/upstreams/{name}/recheck", OPERATOR, "Connects an upstream anew and reads its lists.", upstreams::recheck, answer upstreams::Rechecked),
        route!(POST "/upstreams/{name}/pins/approve", OPERATOR, "Approves a definition that is held, by the digest of what was looked at.", pins::approve, body pins::Approving, answer pins::DecidedPins),
        route!(POST "/upstreams/{name}/pins/hold", OPERATOR, "Holds a definition: calls of it are refused until it is approved.", pins::hold, body pins::Holding, answer pins::DecidedPins),
        route!(GET "/pins", VIEWER, "Lists definitions of upstreams that are pinned, and how those that are held differ.", pins::list, query pins::PinQuery, answer pins::PinPage),
        route!(GET "/usage", VIEWER, "Sums up calls by client and capability.", ledger::usage, query ledger::UsageQuery, answer ledger::UsageRows),
        route!(GET "/limits", VIEWER, "Says what every client has used of its limits now.", rules::limits, answer operator::look::Cell),
        route!(GET "/health", VIEWER, "Says what works and what does not, with remedies.", health::show, answer health::Health),
        route!(GET "/rules", VIEWER, "Shows the rules in force, and as they stand in the configuration file.", rules::show, answer rules::Rules),
        route!(PUT "/rules", OPERATOR, "Replaces the rules in the configuration file, which is put in force. `If-Match` has the `ETag` of the rules that were looked at: 428 without it, 412 if they have changed, 422 if the new ones cannot be used.", rules::save, body rules::NewRules, answer rules::Saved),
        route!(POST "/rules/check", OPERATOR, "Says what other rules would change, and what is wrong with them.", rules::check, body rules::NewRules, answer rules::Checked),
        route!(POST "/rules/dry-run", OPERATOR, "Decides recent calls again by other rules, and says which of them would be decided differently.", rules::dry_run, body rules::DryRunOf, answer rules::DryRun),
        route!(GET "/keys", VIEWER, "Lists keys of clients; the keys themselves are nowhere.", keys::list, answer keys::Keys),
        route!(POST "/keys", OPERATOR, "Makes a key, which is told this once.", keys::create, body keys::NewKeyFor, answer keys::Made),
        route!(DELETE "/keys/{id}", OPERATOR, "Revokes a key, for good.", keys::revoke, answer keys::Revoked),
        route!(GET "/secrets", VIEWER, "Lists secrets of the vault by name, with what refers to them; their values are told to nobody.", secrets::list, answer secrets::Secrets),
        route!(POST "/secrets", OPERATOR, "Sets a secret of the vault. The value is told by nothing any more.", secrets::set, body secrets::NewSecret, answer secrets::SecretIsSet),
        route!(DELETE "/secrets/{name}", OPERATOR, "Removes a secret from the vault.", secrets::remove, answer secrets::SecretIsRemoved),
        route!(GET "/credentials", VIEWER, "Lists credentials of clients at upstreams, and those that are missed; their values are told to nobody.", credentials::list, query credentials::CredentialQuery, answer credentials::CredentialPage),
        route!(POST "/credentials/forget", OPERATOR, "Forgets a credential at an upstream; connections opened with it are closed.", credentials::forget, body credentials::Forgetting, answer credentials::Forgotten),
        route!(GET "/skills", VIEWER, "Lists skills.", offer::skills, answer offer::Skills),
        route!(GET "/prompts", VIEWER, "Lists prompts.", offer::prompts, answer offer::Prompts),
        route!(GET "/tasks", VIEWER, "Lists tasks of all clients, the newest first.", tasks::list, query tasks::TaskQuery, answer tasks::Tasks),
        route!(POST "/tasks/{id}/cancel", OPERATOR, "Cancels a task: 409 if it is over.", tasks::cancel, answer tasks::Cancelled),
        route!(GET "/nodes", VIEWER, "Lists the servers that share the ledger's database, with their last signs of life.", tasks::nodes, answer tasks::Nodes),
        route!(GET "/sessions", VIEWER, "Lists sessions of legacy clients over HTTP.", offer::sessions, answer offer::Sessions),
        route!(DELETE "/sessions/{id}", OPERATOR, "Ends a session of a legacy client.", offer::end_session, answer session::Ended),
    ]
}

/// The parts of `path` in braces, if it is that of the route.
pub(crate) fn matched(pattern: &str, path: &str) -> Option<Vec<String>> {
    let (mut names, mut given) = (Vec::new(), path.split('/'));
    for part in pattern.split('/') {
        let text = given.next()?;
        if part.starts_with('{') {
            let name = percent_decode_str(text).decode_utf8().ok()?;
            if name.is_empty() {
                return None;
            }
            names.push(name.into_owned());
        } else if part != text {
            return None;
        }
    }
    given.next().is_none().then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_path_is_one_part_of_it() {
        let names = |path| matched("/tools/{name}/call", path);
        assert_eq!(names("/tools/a%2Fb/call"), Some(vec!["a/b".to_owned()]));
        for other in [
            "/tools//call",
            "/tools/a/b/call",
            "/tools/a",
            "/tools/a/call/",
            "/tools/%ff/call",
        ] {
            assert_eq!(names(other), None, "{other}");
        }
    }

    #[test]
    fn no_two_routes_are_the_same() {
        let all: Vec<String> = routes().iter().map(|it| format!("{it:?}")).collect();
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
