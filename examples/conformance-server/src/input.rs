//! Tools that ask their client's side. Each asks by [`ToolError::NeedsInput`] and is called again
//! with the answers; that a legacy client is asked by a request and a modern one by a result does
//! not show here.

use adapter_tools::{Answers, Elicited, Needed, NoArguments, Question, Tool, ToolCx, ToolError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

type Said = Result<String, ToolError>;

pub(crate) fn tools() -> Vec<Tool> {
    vec![
        Tool::native("test_sampling", sample).describe("Lets the client's model answer."),
        Tool::native("test_elicitation", elicit).describe("Asks the user for name and address."),
        asks("test_elicitation_sep1034_defaults", |cx| {
            completed(cx, "Please check what is filled in.", defaults())
        })
        .describe("Asks with defaults of every kind."),
        asks("test_elicitation_sep1330_enums", |cx| {
            completed(cx, "Please choose.", choices())
        })
        .describe("Asks with choices of every kind."),
        asks("test_missing_capability", |cx| {
            capital(cx.answers()).map(|text| format!("The model says: {text}"))
        })
        .describe("Needs a client that can sample."),
        asks("test_streaming_elicitation", greet).describe("Asks the user for a name."),
        asks("test_input_required_result_elicitation", greet).describe("Asks the user for a name."),
        asks("test_input_required_result_sampling", |cx| {
            capital(cx.answers())
        })
        .describe("Asks the client's model for a capital."),
        asks("test_input_required_result_list_roots", list_roots)
            .describe("Asks for the client's roots."),
        asks("test_input_required_result_request_state", confirm)
            .describe("Asks the user, and remembers something meanwhile."),
        asks("test_input_required_result_tampered_state", confirm)
            .describe("Remembers something that no client can change."),
        asks("test_input_required_result_multiple_inputs", ask_everybody)
            .describe("Asks user, model and client at once."),
        asks("test_input_required_result_multi_round", two_steps)
            .describe("Asks twice, the second time knowing the first answer."),
        asks(
            "test_input_required_result_capabilities",
            whatever_can_be_asked,
        )
        .describe("Asks whatever the client can be asked."),
    ]
}

/// A tool without arguments that answers or asks.
fn asks(name: &'static str, answer: fn(&ToolCx) -> Said) -> Tool {
    Tool::native(name, move |cx, _: NoArguments| async move { answer(&cx) })
}

#[derive(Deserialize, JsonSchema)]
struct Sample {
    /// The prompt to send to the model.
    prompt: String,
}

async fn sample(cx: ToolCx, Sample { prompt }: Sample) -> Said {
    match cx.answers().sampled_text("answer") {
        Some(text) => Ok(format!("LLM response: {text}")),
        None => needs(Needed::sample("answer", user_says(&prompt, 100))),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Elicit {
    /// The message to show the user.
    message: String,
}

async fn elicit(cx: ToolCx, Elicit { message }: Elicit) -> Said {
    let schema = json!({
        "type": "object",
        "properties": {
            "username": { "type": "string", "description": "User's response" },
            "email": { "type": "string", "description": "User's email address" }
        },
        "required": ["username", "email"]
    });
    let asked = Needed::form("user", message, schema);
    match cx.answers().elicited("user", &asked) {
        Some(answer) => Ok(format!("User response: {}", shown(&answer))),
        None => needs(asked),
    }
}

fn completed(cx: &ToolCx, message: &str, properties: Value) -> Said {
    let schema = json!({ "type": "object", "properties": properties });
    let asked = Needed::form("form", message, schema);
    match cx.answers().elicited("form", &asked) {
        Some(answer) => Ok(format!("Elicitation completed: {}", shown(&answer))),
        None => needs(asked),
    }
}

fn defaults() -> Value {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active"
        },
        "verified": { "type": "boolean", "default": true }
    })
}

fn choices() -> Value {
    let plain = ["option1", "option2", "option3"];
    let titled = |titles: [&str; 3]| {
        let values = ["value1", "value2", "value3"];
        let both = values.iter().zip(titles);
        let titled = both.map(|(value, title)| json!({ "const": value, "title": title }));
        titled.collect::<Vec<_>>()
    };
    json!({
        "untitledSingle": { "type": "string", "enum": plain },
        "titledSingle": {
            "type": "string",
            "oneOf": titled(["First Option", "Second Option", "Third Option"])
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"]
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
        "titledMulti": {
            "type": "array",
            "items": { "anyOf": titled(["First Choice", "Second Choice", "Third Choice"]) }
        }
    })
}

fn greet(cx: &ToolCx) -> Said {
    let asked = Needed::default().and("user_name", name("What is your name?"));
    match filled_in(cx.answers(), "user_name", &asked, "name")? {
        Some(name) => Ok(format!("Hello, {name}!")),
        None => needs(asked),
    }
}

fn capital(answers: &Answers) -> Said {
    let question = user_says("What is the capital of France?", 100);
    let text = answers.sampled_text("capital_question");
    text.ok_or_else(|| ToolError::NeedsInput(Needed::sample("capital_question", question)))
}

fn list_roots(cx: &ToolCx) -> Said {
    match cx.answers().root_uris("client_roots") {
        Some(uris) => Ok(format!("The client's roots: {}", uris.join(", "))),
        None => needs(Needed::roots("client_roots")),
    }
}

/// Reads the remembered state, which is unchanged: a call with a changed one is refused before it
/// gets here.
fn confirm(cx: &ToolCx) -> Said {
    const STATE: &str = "waiting for the user";
    let answers = cx.answers();
    let remembered = answers.state.as_ref().and_then(Value::as_str);
    let schema = json!({
        "type": "object",
        "properties": { "ok": { "type": "boolean" } },
        "required": ["ok"]
    });
    let asked = Needed::form("confirm", "Please confirm", schema).with_state(STATE);
    match answers.elicited("confirm", &asked) {
        Some(answer) if remembered == Some(STATE) => Ok(format!("state-ok: {}", shown(&answer))),
        _ => needs(asked),
    }
}

fn ask_everybody(cx: &ToolCx) -> Said {
    let answers = cx.answers();
    // All again: an answer that comes back need not be kept meanwhile.
    let needed = Needed::default()
        .and("user_name", name("What is your name?"))
        .and(
            "greeting",
            Question::Sample(user_says("Generate a greeting", 50)),
        )
        .and("client_roots", Question::Roots);
    let name_given = filled_in(answers, "user_name", &needed, "name")?;
    let greeting = answers.sampled_text("greeting");
    let roots = answers.root_uris("client_roots");
    if let (Some(name), Some(greeting), Some(roots)) = (name_given, greeting, roots) {
        return Ok(format!("{greeting} {name}, of {} roots", roots.len()));
    }
    needs(needed.with_state("all or nothing"))
}

/// The first answer is not sent again: it is what the second round remembers.
fn two_steps(cx: &ToolCx) -> Said {
    let answers = cx.answers();
    let remembered = answers.state.as_ref().and_then(|state| state.get("name"));
    let needed = Needed::default().and("step1", name("Step 1: What is your name?"));
    let first = match remembered.and_then(Value::as_str) {
        Some(name) => Some(name.to_owned()),
        None => filled_in(answers, "step1", &needed, "name")?,
    };
    let Some(first) = first else {
        return needs(needed.with_state(json!({ "step": 1 })));
    };
    let schema = json!({
        "type": "object",
        "properties": { "color": { "type": "string" } },
        "required": ["color"]
    });
    let needed = Needed::form("step2", "Step 2: What is your favorite color?", schema);
    match filled_in(answers, "step2", &needed, "color")? {
        Some(color) => Ok(format!("{first} likes {color}.")),
        None => needs(needed.with_state(json!({ "step": 2, "name": first }))),
    }
}

fn whatever_can_be_asked(cx: &ToolCx) -> Said {
    let (askable, answers) = (cx.askable(), cx.answers());
    let mut needed = Needed::default();
    let asked = Needed::default().and("user_name", name("What is your name?"));
    if askable.form && answers.elicited("user_name", &asked).is_none() {
        needed = asked;
    }
    if askable.sample && answers.sampled_text("greeting").is_none() {
        let question = Question::Sample(user_says("Generate a greeting", 50));
        needed = needed.and("greeting", question);
    }
    if askable.roots && answers.root_uris("client_roots").is_none() {
        needed = needed.and("client_roots", Question::Roots);
    }
    if needed.questions.is_empty() {
        return Ok("Everything that could be asked has been answered.".to_owned());
    }
    needs(needed)
}

fn needs(needed: Needed) -> Said {
    Err(ToolError::NeedsInput(needed))
}

fn name(message: &str) -> Question {
    Question::Form {
        message: message.to_owned(),
        schema: json!({
            "type": "object",
            "properties": { "name": { "type": "string" } },
            "required": ["name"]
        })
        .into(),
    }
}

fn user_says(text: &str, max_tokens: u32) -> Value {
    json!({
        "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
        "maxTokens": max_tokens
    })
}

/// The text in one field of a form; none if it is to be asked again, which is so for answers that
/// make no sense as well. A user who does not want to answer ends the call.
fn filled_in(
    answers: &Answers,
    key: &str,
    asked: &Needed,
    field: &str,
) -> Result<Option<String>, ToolError> {
    match answers.elicited(key, asked) {
        None => Ok(None),
        Some(Elicited::Accepted(form)) => {
            Ok(form.get(field).and_then(Value::as_str).map(str::to_owned))
        }
        Some(Elicited::Declined | Elicited::Cancelled) => {
            Err(ToolError::failed("the user does not want to answer"))
        }
    }
}

fn shown(answer: &Elicited) -> String {
    let (action, content) = match answer {
        Elicited::Accepted(form) => ("accept", form.clone()),
        Elicited::Declined => ("decline", Map::new()),
        Elicited::Cancelled => ("cancel", Map::new()),
    };
    format!("action={action}, content={}", Value::Object(content))
}
