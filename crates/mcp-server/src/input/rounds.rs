//! Rounds of questions to a call's client: asked by a result where the client repeats its request,
//! and by requests of the server's where it does not. Handlers do not know which.

use crate::{
    clock::Clock,
    input::request_state::{Bound, LIFETIME, Sealer},
    invocation::{
        Invocation, Invoked, answer::shortened, call_report::CallReport, failure::InvocationError,
    },
};
use adapter_tools::{Answers, Askable, Needed, Question};
use futures_util::future::try_join_all;
use jsonrpc_core::{ErrorCode, ErrorObject, RawJson};
use mcp_protocol::{
    Era, ProtocolError,
    model::{ClientCapabilities, InputRequest, InputRequired, InputRetry},
};
use mcp_service::{AskError, GivingUp, McpError, RequestCx, Service};
use serde_json::{Value, json, value::RawValue};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The longest time a legacy call waits for its client's answers. It keeps its place among the
/// requests in flight meanwhile.
const MAX_WAIT: Duration = Duration::from_secs(10 * 60);

/// Words for a call whose client has not answered until then.
const LATE: &str = "the client did not answer a question of this call within 10 minutes. The call was not \
                    completed: what it did before it asked stands; see what that is before you make it again, when the \
                    user is there to answer";

/// The most rounds of one call that waits for its answers. The last one may not ask.
pub(crate) const MAX_ROUNDS: usize = 16;

/// Parts of a request that its repetition must have as well.
pub(crate) struct Repeated<'a> {
    pub(crate) method: &'static str,
    pub(crate) name: &'a str,
    pub(crate) parameters: &'a RawJson,
}

/// Means to ask clients, and to hear that calls are not to wait for their answers any more.
pub(crate) struct Asks<'a> {
    pub(crate) sealer: &'a Sealer,
    pub(crate) clock: Clock,
    pub(crate) giving_up: &'a GivingUp,
}

/// Result of a call for now.
pub(crate) enum Progressed {
    /// The call has ended.
    Ended(Result<Invoked, InvocationError>, Arc<CallReport>),
    /// The call asks, and the questions are the answer for now.
    Asks(InputRequired),
    /// The call has asked, and its client cannot be asked or has not answered.
    Unanswered(McpError, Arc<CallReport>),
}

/// Calls, with what the client has answered before, until the call has ended or the client is to
/// ask again. Every time is an invocation of its own: governed, counted and recorded.
pub(crate) async fn call_with_input<S>(
    service: &S,
    Asks {
        sealer,
        clock,
        giving_up,
    }: Asks<'_>,
    cx: &RequestCx,
    repeated: Repeated<'_>,
    retry: InputRetry,
    invocation: impl Fn() -> Invocation,
) -> Result<Progressed, McpError>
where
    S: Service<Invocation, Response = Invoked, Error = InvocationError>,
{
    let mut answers = if retry.is_empty() {
        None
    } else {
        Some(Arc::new(opened(sealer, clock(), cx, &repeated, retry)?))
    };
    // Held until the call with the answers has been made.
    let mut _waiting = None;
    let mut visits: Vec<String> = Vec::new();
    let mut round = 0;
    // Of the rounds before, too: what a handler did before it asked stands, whatever is asked then.
    let (mut has_begun, mut begun) = (false, None);
    loop {
        round += 1;
        let invocation = Invocation {
            answers: answers.clone(),
            // A client that repeats its request goes on for as long as it likes.
            may_ask: round < MAX_ROUNDS,
            ..invocation()
        };
        let report = Arc::clone(&invocation.report);
        let needed = match service.call(cx, invocation).await {
            Ok(Invoked::NeedsInput(needed)) => {
                (has_begun, begun) = (true, report.call());
                needed
            }
            Ok(Invoked::NeedsConfirmation(needed)) => needed,
            outcome => {
                // What was to be done elsewhere is done, since the call has gone on.
                if outcome.is_ok() {
                    visits.iter().for_each(|it| cx.elicitation_completed(it));
                }
                return Ok(Progressed::Ended(outcome, report));
            }
        };
        if round == MAX_ROUNDS {
            let outcome = Err(InvocationError::AsksForEver);
            return Ok(Progressed::Ended(outcome, report));
        }
        _waiting = needed.waiting.clone();
        let requests = match declared(cx, needed.questions) {
            Ok(requests) => requests,
            Err(error) => return Ok(Progressed::Unanswered(error, report)),
        };
        if cx.version.era() == Era::Modern {
            let required = sealed(sealer, clock(), cx, &repeated, requests, needed.state);
            if let Some(waiting) = &needed.waiting {
                waiting.go_on();
            }
            return Ok(Progressed::Asks(required));
        }
        let asked = tokio::select! {
            biased;
            asked = ask_all(cx, &requests, None) => Some(asked),
            () = giving_up.given_up() => None,
        };
        let responses = match asked {
            Some(Ok(responses)) => responses,
            Some(Err(unanswered)) if !unanswered.is_gone => {
                return Ok(Progressed::Unanswered(unanswered.error, report));
            }
            // Its answer is that of any call that is given up with its connection or the server.
            Some(Err(_)) | None => {
                let call = report.call().or(begun);
                let outcome = Err(InvocationError::Stopped { call, has_begun });
                return Ok(Progressed::Ended(outcome, report));
            }
        };
        visits.extend(requests.into_iter().filter_map(|(key, it)| match it {
            InputRequest::ElicitUrl { elicitation_id, .. }
                if is_accepted(responses.get(&key).map(|it| &**it)) =>
            {
                Some(elicitation_id)
            }
            _ => None,
        }));
        answers = Some(Arc::new(Answers {
            responses,
            state: needed.state,
        }));
    }
}

/// True for the answer of a user who goes to the address.
fn is_accepted(answer: Option<&RawValue>) -> bool {
    let answer = answer.and_then(|it| serde_json::from_str::<Value>(it.get()).ok());
    answer.is_some_and(|it| it["action"] == "accept")
}

/// Questions that a modern client is asked by a result, which it answers by asking again.
pub(crate) fn sealed(
    sealer: &Sealer,
    now_us: u64,
    cx: &RequestCx,
    repeated: &Repeated<'_>,
    requests: BTreeMap<String, InputRequest>,
    state: Option<Value>,
) -> InputRequired {
    let state = state.map(|state| sealer.seal(bound(cx, repeated), &state, now_us));
    InputRequired { requests, state }
}

/// Questions that the client has declared that it answers.
pub(crate) fn askable(cx: &RequestCx) -> Askable {
    let declared = &cx.capabilities;
    Askable {
        form: declared.elicitation.is_some_and(|modes| modes.form),
        url: declared.elicitation.is_some_and(|modes| modes.url),
        sample: declared.sampling.is_some(),
        roots: declared.roots,
        pages: declared.has_apps(),
    }
}

pub(crate) fn opened(
    sealer: &Sealer,
    now_us: u64,
    cx: &RequestCx,
    repeated: &Repeated<'_>,
    retry: InputRetry,
) -> Result<Answers, McpError> {
    let state = match &retry.state {
        None => None,
        Some(sealed) => {
            let opened = sealer.open(bound(cx, repeated), sealed, now_us);
            Some(opened.map_err(|error| {
                McpError::new(
                    ErrorCode::INVALID_PARAMS,
                    format!(
                        "invalid params: {error}; it is valid for {} minutes",
                        LIFETIME.as_secs() / 60
                    ),
                )
            })?)
        }
    };
    let responses = retry.responses.into_iter();
    Ok(Answers {
        responses: responses
            .filter_map(|(key, raw)| Some((key, boxed(&raw)?)))
            .collect(),
        state,
    })
}

pub(crate) fn boxed(raw: &RawJson) -> Option<Box<RawValue>> {
    RawValue::from_string(raw.as_str().to_owned()).ok()
}

fn bound<'a>(cx: &'a RequestCx, repeated: &'a Repeated<'_>) -> Bound<'a> {
    Bound {
        principal: cx.principal.as_str(),
        method: repeated.method,
        name: repeated.name,
        // A client may write the same parameters in another order when it asks again.
        parameters: redaction::digest(repeated.parameters.as_str()),
    }
}

/// The questions as the protocol has them, if the client has declared that it can be asked all of
/// them.
pub(crate) fn declared(
    cx: &RequestCx,
    questions: BTreeMap<String, Question>,
) -> Result<BTreeMap<String, InputRequest>, McpError> {
    let requests: BTreeMap<_, _> = questions
        .into_iter()
        .map(|(key, question)| (key, request(question)))
        .collect();
    let undeclared = requests
        .values()
        .find(|it| !it.is_declared_by(&cx.capabilities));
    match undeclared {
        None => Ok(requests),
        Some(request) => Err(missing_capability(cx, request)),
    }
}

fn missing_capability(cx: &RequestCx, request: &InputRequest) -> McpError {
    let required = request.required_capability();
    if cx.version.era() == Era::Modern {
        return McpError(ProtocolError::MissingClientCapability { required }.to_error_object());
    }
    let (needed, capability) = match request {
        InputRequest::ElicitForm { .. } => ("input of the user by a form", "elicitation"),
        InputRequest::ElicitUrl { .. } => ("the user to visit an address", "elicitation.url"),
        InputRequest::CreateMessage(_) if needs_tools(&required) => (
            "a message of the client's model that may call tools",
            "sampling.tools",
        ),
        InputRequest::CreateMessage(_) => ("a message of the client's model", "sampling"),
        InputRequest::ListRoots => ("the client's roots", "roots"),
    };
    // Legacy revisions have no code of their own for it.
    let error = McpError::new(
        ErrorCode::INVALID_REQUEST,
        format!(
            "this call needs {needed}, which this client does not offer: it has not declared `{capability}`. \
             The call was not completed, and fails again if it is repeated: go on without it, or tell the \
             user to make it from a client that has `{capability}`"
        ),
    );
    McpError(
        error
            .0
            .with(&json!({ "requiredCapabilities": required, "retryable": false })),
    )
}

fn needs_tools(required: &ClientCapabilities) -> bool {
    required.sampling.is_some_and(|it| it.tools)
}

fn request(question: Question) -> InputRequest {
    match question {
        Question::Form { message, schema } => InputRequest::ElicitForm {
            message,
            requested_schema: RawJson::from_serialized(schema.as_str().as_bytes().to_vec()),
        },
        Question::Url { message, url } => InputRequest::ElicitUrl {
            message,
            url,
            elicitation_id: uuid::Uuid::new_v4().to_string(),
        },
        Question::Sample(params) => InputRequest::CreateMessage(params),
        Question::Roots => InputRequest::ListRoots,
    }
}

/// Reason why a legacy client's answers are missing.
pub(crate) struct Unanswered {
    /// The error for the caller.
    pub(crate) error: McpError,
    /// True if the client has refused, so that asking again would not help.
    pub(crate) refused: bool,
    /// True if the connection takes no answers any more.
    pub(crate) is_gone: bool,
}

/// Asks a legacy client everything at once, and waits for all answers. One that is refused
/// withdraws the others: a user should not fill in a form for a call that has failed. `task` is the
/// id of the task that asks, if it is one.
pub(crate) async fn ask_all(
    cx: &RequestCx,
    requests: &BTreeMap<String, InputRequest>,
    task: Option<&str>,
) -> Result<BTreeMap<String, Box<RawValue>>, Unanswered> {
    let failed = |why, retryable| {
        let error = ErrorObject::new(ErrorCode::INTERNAL_ERROR, why);
        Unanswered {
            error: McpError(error.with(&json!({ "retryable": retryable }))),
            refused: false,
            is_gone: false,
        }
    };
    let asked = requests.iter().map(|(key, request)| async move {
        let answer = cx.ask(request, task).await.map_err(|error| Unanswered {
            refused: matches!(error, AskError::NotDeclared(_) | AskError::Refused(_)),
            is_gone: matches!(error, AskError::Gone),
            error: unanswered(cx, request, &error),
        })?;
        let answer = boxed(&answer)
            .ok_or_else(|| failed("an answer of the client cannot be read", false))?;
        Ok::<_, Unanswered>((key.clone(), answer))
    });
    let answers = tokio::time::timeout(MAX_WAIT, try_join_all(asked)).await;
    let answers = answers.map_err(|_elapsed| failed(LATE, false))??;
    Ok(answers.into_iter().collect())
}

fn unanswered(cx: &RequestCx, request: &InputRequest, error: &AskError) -> McpError {
    match error {
        AskError::NotDeclared(_) => missing_capability(cx, request),
        AskError::Refused(refusal) => {
            let why = shortened(&refusal.message);
            let error = McpError::new(
                ErrorCode::INTERNAL_ERROR,
                format!(
                    "the client refused to answer a question of this call ({why}). The call was not completed: \
                     go on without it, or ask the user what to do"
                ),
            );
            McpError(error.0.with(&json!({
                "details": refusal.message,
                "code": refusal.code.0,
                "retryable": false,
            })))
        }
        AskError::NoWay | AskError::Overrun(_) | AskError::Gone => {
            let details = error.to_string();
            let error = McpError::new(
                ErrorCode::INTERNAL_ERROR,
                format!(
                    "the client could not be asked what this call needs to know: {details}. The call was not \
                     completed: go on without it"
                ),
            );
            McpError(
                error
                    .0
                    .with(&json!({ "details": details, "retryable": false })),
            )
        }
    }
}

/// The ledger's record of questions: their keys.
pub(crate) fn recorded_needs(needed: &Needed) -> String {
    let keys: Vec<_> = needed.questions.keys().collect();
    json!({ "inputRequired": keys }).to_string()
}
