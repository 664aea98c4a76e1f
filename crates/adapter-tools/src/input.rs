//! Questions that a tool puts to its caller's side while it runs.
//!
//! A tool that needs answers ends with [`ToolError::NeedsInput`](crate::ToolError::NeedsInput), and
//! is called again from its beginning with them. The tool need not know whether the client is asked
//! by a result or by a request, and how many times.
//! A handler in another process can instead wait where it has asked ([`Needed::waiting`]), and go on there.

use crate::{
    CallMeter,
    schema::{self, NameOrder, take_out_nulls},
};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// Questions that a tool needs answered before it can go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needed {
    /// Questions, under keys of the tool's choice.
    pub questions: BTreeMap<String, Question>,
    /// State for the next call of the tool. It travels through the client, sealed: the client can
    /// neither read nor change it.
    pub state: Option<Value>,
    /// The handler that waits for the answers where it has asked, if it does: [`state`](Self::state) leads
    /// back to it. It is given up when this is dropped, unless it is told to go on waiting.
    pub waiting: Option<Waiting>,
}

/// Hold on a handler that waits for answers. The handler is given up when the last of its clones is dropped.
#[derive(Clone)]
pub struct Waiting {
    give_up: Arc<GiveUp>,
    meter: Option<Arc<CallMeter>>,
}

/// Function that gives a handler up.
struct GiveUp(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Waiting {
    /// A handler that `give_up` gives up. It must neither block nor panic.
    pub fn new(give_up: impl FnOnce() + Send + 'static) -> Self {
        Self {
            give_up: Arc::new(GiveUp(Mutex::new(Some(Box::new(give_up))))),
            meter: None,
        }
    }

    /// The same, of a handler that may go on without the answers: `meter` has what it uses after its question.
    /// The call that brings the answers takes that over; otherwise it is left in the meter once that is unused,
    /// and whoever has the call charges it.
    #[must_use]
    pub fn with_meter(self, meter: Arc<CallMeter>) -> Self {
        let meter = Some(meter);
        Self { meter, ..self }
    }

    /// Meter of what the handler uses after its question.
    pub fn meter(&self) -> Option<&Arc<CallMeter>> {
        self.meter.as_ref()
    }

    /// Has the handler wait on without this: its client comes back with the answers, or does not.
    pub fn go_on(&self) {
        drop(self.give_up.take());
    }
}

impl GiveUp {
    fn take(&self) -> Option<Box<dyn FnOnce() + Send>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        if let Some(give_up) = self.take() {
            give_up();
        }
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.give_up, &other.give_up)
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}

/// JSON Schema of a form as its author wrote it. The order of the fields is kept, since forms are shown in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct FormSchema(Box<RawValue>);

impl FormSchema {
    /// The text of the schema.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The schema without the order of its members.
    pub fn value(&self) -> Value {
        serde_json::from_str(self.0.get()).unwrap_or_default()
    }

    /// The schema as `change` makes it; members stay in their order.
    #[must_use]
    pub fn changed(&self, change: impl FnOnce(Value) -> Value) -> Self {
        let order = NameOrder::of(&self.0);
        Self(written(order.write(&change(self.value()))))
    }
}

impl From<Value> for FormSchema {
    fn from(schema: Value) -> Self {
        Self(written(schema.to_string()))
    }
}

impl From<Box<RawValue>> for FormSchema {
    fn from(schema: Box<RawValue>) -> Self {
        // Without line breaks, which separate messages on standard streams.
        Self(schema).changed(|schema| schema)
    }
}

impl PartialEq for FormSchema {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

fn written(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("a tree of values is written as JSON")
}

/// One question.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// The user fills in a form.
    Form {
        /// Message for the user.
        message: String,
        /// A flat JSON Schema object of the form's fields.
        schema: FormSchema,
    },
    /// The user is sent to a URL.
    Url {
        /// Message for the user.
        message: String,
        /// Address to visit.
        url: String,
    },
    /// The client's model writes a message; the parameters are those of `sampling/createMessage`.
    Sample(Value),
    /// The client says which roots it has.
    Roots,
}

/// Kinds of questions that the client can be asked, others are refused, and what else it can do for a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Askable {
    /// Forms.
    pub form: bool,
    /// URLs.
    pub url: bool,
    /// Messages of its model.
    pub sample: bool,
    /// Roots.
    pub roots: bool,
    /// True if it shows pages of apps. That is no question.
    pub pages: bool,
}

impl Askable {
    /// Returns true if the client can be asked anything.
    pub fn is_any(self) -> bool {
        self.form || self.url || self.sample || self.roots
    }
}

/// Answers of the client so far, and the state that the tool left for itself.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// The answers by the questions' keys, as they were sent. Not to be trusted: a client may send
    /// anything, asked or not.
    pub responses: BTreeMap<String, Box<RawValue>>,
    /// The state of [`Needed::state`].
    pub state: Option<Value>,
}

/// Answer of a user to a form or a URL.
#[derive(Clone, Debug, PartialEq)]
pub enum Elicited {
    /// Filled in.
    Accepted(Map<String, Value>),
    /// Refused.
    Declined,
    /// Closed without an answer.
    Cancelled,
}

impl Question {
    /// Returns true if the client can be asked it.
    pub fn is_askable(&self, askable: Askable) -> bool {
        match self {
            Self::Form { .. } => askable.form,
            Self::Url { .. } => askable.url,
            Self::Sample(_) => askable.sample,
            Self::Roots => askable.roots,
        }
    }

    /// Capability that a client declares if it can be asked it.
    pub fn capability(&self) -> &'static str {
        match self {
            Self::Form { .. } => "elicitation.form",
            Self::Url { .. } => "elicitation.url",
            Self::Sample(_) => "sampling",
            Self::Roots => "roots",
        }
    }
}

impl Needed {
    /// One form, under `key`.
    pub fn form(
        key: impl Into<String>,
        message: impl Into<String>,
        schema: impl Into<FormSchema>,
    ) -> Self {
        Self::default().and(
            key,
            Question::Form {
                message: message.into(),
                schema: schema.into(),
            },
        )
    }

    /// One message of the client's model, under `key`.
    pub fn sample(key: impl Into<String>, params: Value) -> Self {
        Self::default().and(key, Question::Sample(params))
    }

    /// The client's roots, under `key`.
    pub fn roots(key: impl Into<String>) -> Self {
        Self::default().and(key, Question::Roots)
    }

    /// Another question besides.
    #[must_use]
    pub fn and(mut self, key: impl Into<String>, question: Question) -> Self {
        self.questions.insert(key.into(), question);
        self
    }

    /// With something to find again.
    #[must_use]
    pub fn with_state(mut self, state: impl Into<Value>) -> Self {
        self.state = Some(state.into());
        self
    }
}

impl Answers {
    /// Answer of the user to the form or URL that `asked` has under `key`; `None` if there is no such answer, or none
    /// that makes sense: then the tool is to ask again. What was filled in is judged by the schema that was asked, as
    /// arguments are by the tool's: a client may send anything.
    pub fn elicited(&self, key: &str, asked: &Needed) -> Option<Elicited> {
        #[derive(Deserialize)]
        struct Wire {
            action: String,
            #[serde(default)]
            content: Option<Map<String, Value>>,
        }
        let wire: Wire = serde_json::from_str(self.responses.get(key)?.get()).ok()?;
        match wire.action.as_str() {
            "accept" => {
                let content = wire.content.unwrap_or_default();
                match asked.questions.get(key)? {
                    Question::Form { schema, .. } => filled_in(content, &schema.value()),
                    Question::Url { .. } => Some(content),
                    Question::Sample(_) | Question::Roots => None,
                }
                .map(Elicited::Accepted)
            }
            "decline" => Some(Elicited::Declined),
            "cancel" => Some(Elicited::Cancelled),
            _ => None,
        }
    }

    /// The text the client's model has written under `key`; `None` as above.
    pub fn sampled_text(&self, key: &str) -> Option<String> {
        let wire: Value = serde_json::from_str(self.responses.get(key)?.get()).ok()?;
        let content = wire.get("content")?;
        // One block, or since 2025-11-25 perhaps several.
        let block = content
            .as_array()
            .map_or(Some(content), |blocks| blocks.first())?;
        block.get("text")?.as_str().map(str::to_owned)
    }

    /// The URIs of the client's roots under `key`; `None` as above.
    pub fn root_uris(&self, key: &str) -> Option<Vec<String>> {
        #[derive(Deserialize)]
        struct Wire {
            roots: Vec<Root>,
        }
        #[derive(Deserialize)]
        struct Root {
            uri: String,
        }
        let wire: Wire = serde_json::from_str(self.responses.get(key)?.get()).ok()?;
        Some(wire.roots.into_iter().map(|root| root.uri).collect())
    }
}

/// Content of a form that a user has filled in, if it fits. Fields that may be left out and are null count as left out.
fn filled_in(content: Map<String, Value>, schema: &Value) -> Option<Map<String, Value>> {
    let compiled = schema::compile(schema);
    let compiled = compiled.inspect_err(|error| {
        tracing::error!(
            error = error as &dyn std::error::Error,
            "the schema of a form cannot be used, and so no answer to it"
        );
    });
    let compiled = compiled.ok()?;
    let mut content = Value::Object(content);
    let fits = |content: &Value| {
        let bytes = content.to_string().len();
        compiled.check(content, bytes, 1).is_ok()
    };
    let fits = fits(&content) || take_out_nulls(&mut content, schema) && fits(&content);
    if !fits {
        return None;
    }
    match content {
        Value::Object(content) => Some(content),
        _ => None,
    }
}

/// Severity of a message that a tool logs for its caller, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named by RFC 5424")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answers(key: &str, json: &str) -> Answers {
        let raw = RawValue::from_string(json.to_owned()).unwrap();
        Answers {
            responses: [(key.to_owned(), raw)].into(),
            state: None,
        }
    }

    #[test]
    fn an_accepted_form_is_judged_by_the_schema_that_was_asked() {
        let schema = json!({
            "type": "object",
            "properties": {
                "size": { "enum": ["S", "L"] },
                "count": { "type": "integer", "minimum": 1 },
                "note": { "type": "string" },
            },
            "required": ["size"],
            "additionalProperties": false,
        });
        let asked = Needed::form("k", "Which?", schema);
        let given = |content: &str| {
            let answer = format!(r#"{{"action":"accept","content":{content}}}"#);
            answers("k", &answer).elicited("k", &asked)
        };
        for bad in [
            "{}",
            r#"{"size":"M"}"#,
            r#"{"size":"S","count":0}"#,
            r#"{"size":"S","count":"1"}"#,
            r#"{"size":"S","admin":true}"#,
            r#"{"size":null}"#,
        ] {
            assert_eq!(given(bad), None, "{bad}");
        }
        let without_note = given(r#"{"size":"S","count":2,"note":null}"#);
        let expected = json!({ "size": "S", "count": 2 });
        assert_eq!(
            without_note.map(|it| match it {
                Elicited::Accepted(content) => Value::Object(content),
                other => panic!("{other:?}"),
            }),
            Some(expected)
        );
        let declined = answers("k", r#"{"action":"decline"}"#);
        assert_eq!(declined.elicited("k", &asked), Some(Elicited::Declined));
        let visit = Question::Url {
            message: "Pay".to_owned(),
            url: "https://example.org".to_owned(),
        };
        let asked = Needed::default().and("k", visit);
        let visited = answers("k", r#"{"action":"accept"}"#).elicited("k", &asked);
        assert_eq!(visited, Some(Elicited::Accepted(Map::new())));
        let broken = Needed::form("k", "Which?", json!({ "type": "objekt" }));
        let given = answers("k", r#"{"action":"accept","content":{}}"#);
        assert_eq!(given.elicited("k", &broken), None);
    }

    #[test]
    fn answers_that_make_no_sense_are_none() {
        let form = Needed::form("k", "What?", json!({ "type": "object" }));
        for bad in [
            "7",
            "{}",
            r#"{"action":"perhaps"}"#,
            r#"{"action":"accept","content":7}"#,
        ] {
            assert_eq!(answers("k", bad).elicited("k", &form), None, "{bad}");
        }
        let accepted = answers("k", r#"{"action":"accept","content":{"a":1}}"#);
        assert!(
            matches!(accepted.elicited("k", &form), Some(Elicited::Accepted(content)) if content["a"] == 1)
        );
        assert_eq!(accepted.elicited("other", &form), None);
        assert_eq!(
            answers("k", r#"{"action":"decline"}"#).elicited("k", &form),
            Some(Elicited::Declined)
        );
        let sampled = answers(
            "k",
            r#"{"role":"assistant","model":"m","content":{"type":"text","text":"hi"}}"#,
        );
        assert_eq!(sampled.sampled_text("k").as_deref(), Some("hi"));
        let sampled = answers("k", r#"{"content":[{"type":"text","text":"hi"}]}"#);
        assert_eq!(sampled.sampled_text("k").as_deref(), Some("hi"));
        let roots = answers("k", r#"{"roots":[{"uri":"file:///a"}]}"#);
        assert_eq!(roots.root_uris("k"), Some(vec!["file:///a".to_owned()]));
        assert_eq!(answers("k", "{}").root_uris("k"), None);
    }
}
