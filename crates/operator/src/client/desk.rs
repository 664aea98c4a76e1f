//! Questions of a server, answered on the terminal or by what the command line has for them.

use std::io::{self, BufRead, IsTerminal, Write};

use futures_util::future::BoxFuture;
use mcp_client::{Handlers, Visited, visited};
use mcp_protocol::model::{
    Choices, ClientCapabilities, Content, CreateMessageResult, ElicitAction, ElicitResult,
    ElicitationCapability, Form, FormField, FormKind, FormValue, InputRequest, InputResponse,
    ListRootsResult, LoggingLevel, ResultMeta, Role, Root, SamplingCapability, SamplingContent,
    ServerNotification,
};
use oauth_client::Browser;
use serde_json::{Map, Number, Value};
use tokio::sync::Mutex;

use super::{quoted, shown};
use crate::terminal::{relay, remark, tell};
use config::{nearest, printable};

/// The side of the connection that answers.
#[derive(Debug)]
pub(super) struct Desk {
    roots: Vec<Root>,
    answers: Option<Map<String, Value>>,
    /// Text that stands in for a model's.
    sampled: Option<String>,
    /// The mildest log messages that are printed; none without it.
    log: Option<LoggingLevel>,
    has_terminal: bool,
    /// Held while a person is asked: one question after the other.
    turn: Mutex<()>,
}

impl Desk {
    /// A desk for these roots; forms are answered with `answers`, or else on the terminal if there is one.
    pub(super) fn new(roots: Vec<Root>, answers: Option<Map<String, Value>>) -> Self {
        Self {
            roots,
            answers,
            sampled: None,
            log: None,
            has_terminal: io::stdin().is_terminal() && io::stderr().is_terminal(),
            turn: Mutex::default(),
        }
    }

    /// The same desk, which prints log messages from `level` on, whatever the server sends.
    pub(super) fn logging(self, level: Option<LoggingLevel>) -> Self {
        Self { log: level, ..self }
    }

    /// The same desk, which answers requests for a model's text with `text`, if there is one.
    pub(super) fn sampling(self, text: Option<String>) -> Self {
        Self {
            sampled: text,
            ..self
        }
    }
}

impl Handlers for Desk {
    fn capabilities(&self) -> ClientCapabilities {
        let form = self.has_terminal || self.answers.is_some();
        ClientCapabilities {
            roots: !self.roots.is_empty(),
            sampling: self.sampled.is_some().then(SamplingCapability::default),
            elicitation: form.then_some(ElicitationCapability {
                form,
                url: self.has_terminal,
            }),
            ..ClientCapabilities::default()
        }
    }

    fn answer(&self, question: InputRequest) -> BoxFuture<'_, Result<InputResponse, String>> {
        Box::pin(async move {
            match question {
                InputRequest::ListRoots => Ok(InputResponse::ListRoots(ListRootsResult {
                    roots: self.roots.clone(),
                    ..ListRootsResult::default()
                })),
                InputRequest::CreateMessage(_) => match &self.sampled {
                    Some(text) => Ok(written(text.clone())),
                    None => Err("this client has no model".to_owned()),
                },
                InputRequest::ElicitForm {
                    message,
                    requested_schema,
                } => {
                    let form = Form::of(&requested_schema);
                    let form = form.map_err(|error| format!("this is no form: {error}"))?;
                    match &self.answers {
                        Some(answers) => filled_in(&message, &form, answers),
                        None => {
                            let _turn = self.turn.lock().await;
                            on_terminal(move || ask(&message, &form)).await
                        }
                    }
                }
                InputRequest::ElicitUrl { message, url, .. } => {
                    let _turn = self.turn.lock().await;
                    visit(message, url).await
                }
            }
            .map_err(|error: String| printable(&error))
        })
    }

    fn notified(&self, notification: &ServerNotification) {
        if let ServerNotification::Log {
            level,
            logger,
            data,
        } = notification
            && self.log.is_some_and(|least| least <= *level)
        {
            remark(&shown::log(*level, logger.as_deref(), data));
        }
    }
}

/// The text of the command line, in the place of a model's.
fn written(text: String) -> InputResponse {
    InputResponse::CreateMessage(CreateMessageResult {
        role: Role::Assistant,
        content: vec![SamplingContent::Content(Content::text(text))],
        model: "none".to_owned(),
        stop_reason: Some("endTurn".to_owned()),
        meta: ResultMeta::default(),
    })
}

fn accepted(content: Option<std::collections::BTreeMap<String, FormValue>>) -> InputResponse {
    InputResponse::Elicit(ElicitResult {
        action: ElicitAction::Accept,
        content,
        meta: ResultMeta::default(),
    })
}

fn without_content(action: ElicitAction) -> InputResponse {
    InputResponse::Elicit(ElicitResult::without_content(action))
}

/// The form with the values of the command line, as far as there are fields for them.
fn filled_in(
    message: &str,
    form: &Form,
    answers: &Map<String, Value>,
) -> Result<InputResponse, String> {
    remark(&format!("the server asks: {}", quoted(message, "  ")));
    let names = || form.fields.iter().map(|(name, _)| name.as_str());
    // They may be for another form of the server's.
    for name in answers.keys().filter(|name| !names().any(|it| it == *name)) {
        let meant = nearest(name, names()).map(|it| format!("; did you mean `{it}`?"));
        let text = format!("the form has no `{name}`{}", meant.unwrap_or_default());
        remark(&format!("warning: {}", printable(&text)));
    }
    let mut content = std::collections::BTreeMap::new();
    for (name, field) in &form.fields {
        match answers.get(name) {
            Some(value) => {
                let value = serde_json::from_value(value.clone());
                let value = value.map_err(|_| "it is none that a form can have".to_owned());
                let value = value.and_then(|value| fits(&value, field).map(|()| value));
                let value = value
                    .map_err(|why| format!("`{name}` in --answers does not fit the form: {why}"))?;
                content.insert(name.clone(), value);
            }
            None if form.required.contains(name) => {
                return Err(format!(
                    "the form needs `{name}`, which --answers does not have"
                ));
            }
            None => {}
        }
    }
    Ok(accepted(Some(content)))
}

/// Lets `question` read from the terminal, without holding up the connection.
async fn on_terminal(
    question: impl FnOnce() -> io::Result<InputResponse> + Send + 'static,
) -> Result<InputResponse, String> {
    match tokio::task::spawn_blocking(question).await {
        Ok(Ok(answer)) => Ok(answer),
        // The end of the input is an answer too: none.
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Ok(without_content(ElicitAction::Cancel))
        }
        Ok(Err(error)) => Err(format!("the terminal cannot be read: {error}")),
        Err(_) => Err("the program is ending".to_owned()),
    }
}

/// A line that a person types after `prompt`.
fn line(prompt: &str) -> io::Result<String> {
    relay::flush();
    {
        let mut output = io::stderr().lock();
        write!(output, "{prompt}")?;
        output.flush()?;
    }
    let mut text = String::new();
    match io::stdin().lock().read_line(&mut text)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(text.trim().to_owned()),
    }
}

/// The person's consent: yes, no, or neither.
fn consent(prompt: &str) -> io::Result<ElicitAction> {
    let said = line(&format!("{prompt} [y = yes, n = no, Enter = cancel] "))?;
    Ok(match said.to_lowercase().as_str() {
        "y" | "yes" => ElicitAction::Accept,
        "n" | "no" => ElicitAction::Decline,
        _ => ElicitAction::Cancel,
    })
}

fn ask(message: &str, form: &Form) -> io::Result<InputResponse> {
    tell(&format!("the server asks: {}", quoted(message, "  ")));
    match consent("Answer?")? {
        ElicitAction::Accept => {}
        action => return Ok(without_content(action)),
    }
    let mut content = std::collections::BTreeMap::new();
    for (name, field) in &form.fields {
        let is_required = form.required.contains(name);
        let prompt = prompt(name, field, is_required);
        let value = loop {
            let typed = line(&prompt)?;
            match value(&typed, field) {
                Ok(None) if is_required => tell("  a value is needed"),
                Ok(value) => break value,
                Err(why) => tell(&format!("  {why}")),
            }
        };
        if let Some(value) = value {
            content.insert(name.clone(), value);
        }
    }
    Ok(accepted(Some(content)))
}

/// Sends a person to an address, by the system's browser.
async fn visit(message: String, url: String) -> Result<InputResponse, String> {
    tell(&format!("the server asks: {}", quoted(&message, "  ")));
    let Visited { url, warnings, .. } = match visited(&url) {
        Ok(visited) => visited,
        Err(why) => {
            let url = printable(&url);
            tell(&format!(
                "  it wants {url} visited, which is not opened, since {why}; declined"
            ));
            return Ok(without_content(ElicitAction::Decline));
        }
    };
    tell(&format!(
        "  it wants this address visited: {}",
        printable(&url)
    ));
    for warning in warnings {
        tell(&format!("warning: {}", printable(&warning)));
    }
    let agreed = on_terminal(|| consent("Open it?").map(without_content)).await?;
    let InputResponse::Elicit(ElicitResult {
        action: ElicitAction::Accept,
        ..
    }) = agreed
    else {
        return Ok(agreed);
    };
    let browser = oauth_client::SystemBrowser::new(|_| {});
    browser
        .open(&url)
        .await
        .map_err(|error| error.to_string())?;
    Ok(accepted(None))
}

/// The line that asks for a field: its name, what it takes, and what it has if nothing is typed.
fn prompt(name: &str, field: &FormField, is_required: bool) -> String {
    let title = field.title.as_deref().unwrap_or(name);
    let mut about: Vec<String> = field.description.iter().cloned().collect();
    let mut default = None;
    match &field.kind {
        FormKind::Text {
            format,
            default: it,
            ..
        } => {
            about.extend(format.clone());
            default.clone_from(it);
        }
        FormKind::Number {
            integer,
            minimum,
            maximum,
            default: it,
        } => {
            about.push(if *integer { "whole number" } else { "number" }.to_owned());
            about.extend(minimum.iter().map(|it| format!("at least {it}")));
            about.extend(maximum.iter().map(|it| format!("at most {it}")));
            default = it.as_ref().map(Number::to_string);
        }
        FormKind::Boolean { default: it } => {
            about.push("y or n".to_owned());
            default = it.map(|it| if it { "y" } else { "n" }.to_owned());
        }
        FormKind::One {
            choices,
            default: it,
        } => {
            about.push(format!("one of {}", listed(choices)));
            default.clone_from(it);
        }
        FormKind::Many {
            choices,
            default: it,
            ..
        } => {
            about.push(format!("some of {}, with commas between", listed(choices)));
            default = it.as_ref().map(|it| it.join(", "));
        }
    }
    if !is_required {
        about.push("may be left out".to_owned());
    }
    let about = match about.is_empty() {
        true => String::new(),
        false => format!(" ({})", about.join("; ")),
    };
    let default = default.map_or_else(String::new, |it| format!(" [{it}]"));
    printable(&format!("  {title}{about}{default}: "))
}

/// The choices as a person types them: their values, with names behind those that have one.
fn listed(choices: &Choices) -> String {
    let named = |(value, name): (&String, &String)| match value == name {
        true => value.clone(),
        false => format!("{value} = {name}"),
    };
    let texts: Vec<String> = match choices {
        Choices::Plain(values) => values.clone(),
        Choices::Titled(choices) => {
            let pairs = choices.iter().map(|it| (&it.value, &it.title));
            pairs.map(named).collect()
        }
        Choices::Named { values, names } => values.iter().zip(names).map(named).collect(),
    };
    texts.join(", ")
}

fn values(choices: &Choices) -> Vec<&str> {
    match choices {
        Choices::Plain(values) | Choices::Named { values, .. } => {
            values.iter().map(String::as_str).collect()
        }
        Choices::Titled(choices) => choices.iter().map(|it| it.value.as_str()).collect(),
    }
}

/// The value of what was typed; none for a field that is left out.
fn value(typed: &str, field: &FormField) -> Result<Option<FormValue>, String> {
    let is_empty = typed.is_empty();
    let value = match &field.kind {
        FormKind::Text { default, .. } | FormKind::One { default, .. } if is_empty => {
            return Ok(default.clone().map(FormValue::Text));
        }
        FormKind::Number { default, .. } if is_empty => {
            return Ok(default.clone().map(FormValue::Number));
        }
        FormKind::Boolean { default } if is_empty => return Ok(default.map(FormValue::Boolean)),
        FormKind::Many { default, .. } if is_empty => {
            return Ok(default.clone().map(FormValue::Many));
        }
        FormKind::Text { .. } | FormKind::One { .. } => FormValue::Text(typed.to_owned()),
        FormKind::Number { .. } => {
            FormValue::Number(typed.parse().map_err(|_| "it must be a number")?)
        }
        FormKind::Boolean { .. } => match typed.to_lowercase().as_str() {
            "y" | "yes" | "true" => FormValue::Boolean(true),
            "n" | "no" | "false" => FormValue::Boolean(false),
            _ => return Err("it must be y or n".to_owned()),
        },
        FormKind::Many { .. } => {
            FormValue::Many(typed.split(',').map(|it| it.trim().to_owned()).collect())
        }
    };
    fits(&value, field)?;
    Ok(Some(value))
}

/// Checks a value against its field.
fn fits(value: &FormValue, field: &FormField) -> Result<(), String> {
    let known = |chosen: &str, choices: &Choices| {
        let known = values(choices);
        match known.contains(&chosen) {
            true => Ok(()),
            false => Err(format!(
                "it must be one of {}",
                printable(&known.join(", "))
            )),
        }
    };
    let is_within = |count: u64, least: &Option<u64>, most: &Option<u64>| {
        least.is_none_or(|it| it <= count) && most.is_none_or(|it| count <= it)
    };
    match (&field.kind, value) {
        (
            FormKind::Text {
                min_length,
                max_length,
                ..
            },
            FormValue::Text(text),
        ) => match is_within(text.chars().count() as u64, min_length, max_length) {
            true => Ok(()),
            false => Err("its length does not fit".to_owned()),
        },
        (
            FormKind::Number {
                integer,
                minimum,
                maximum,
                ..
            },
            FormValue::Number(number),
        ) => {
            let size = number.as_f64().unwrap_or(f64::NAN);
            let bound = |it: &Option<Number>| it.as_ref().and_then(Number::as_f64);
            if *integer && number.as_i64().is_none() && number.as_u64().is_none() {
                return Err("it must be a whole number".to_owned());
            }
            if bound(minimum).is_some_and(|it| size < it)
                || bound(maximum).is_some_and(|it| it < size)
            {
                return Err("it is out of the bounds".to_owned());
            }
            Ok(())
        }
        (FormKind::Boolean { .. }, FormValue::Boolean(_)) => Ok(()),
        (FormKind::One { choices, .. }, FormValue::Text(text)) => known(text, choices),
        (
            FormKind::Many {
                choices,
                min_items,
                max_items,
                ..
            },
            FormValue::Many(chosen),
        ) => {
            chosen.iter().try_for_each(|it| known(it, choices))?;
            match is_within(chosen.len() as u64, min_items, max_items) {
                true => Ok(()),
                false => Err("that is another number of choices than is wanted".to_owned()),
            }
        }
        (kind, _) => Err(format!(
            "it must be {}",
            match kind {
                FormKind::Text { .. } | FormKind::One { .. } => "a string",
                FormKind::Number { .. } => "a number",
                FormKind::Boolean { .. } => "a boolean",
                FormKind::Many { .. } => "a list of strings",
            }
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form() -> Form {
        // A text, since a tree of values loses the order.
        let schema = r#"{"type": "object", "required": ["name", "count"], "properties": {
            "name": {"type": "string", "minLength": 2, "description": "of \u001b[2Jwhom"},
            "count": {"type": "integer", "minimum": 1, "maximum": 9},
            "sure": {"type": "boolean", "default": true},
            "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["small", "large"]},
            "with": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1}
        }}"#;
        let schema: Box<serde_json::value::RawValue> = serde_json::from_str(schema).unwrap();
        Form::of(&mcp_protocol::RawJson::from_value(&schema).unwrap()).unwrap()
    }

    #[test]
    fn typed_values_have_the_kind_of_their_field() {
        let form = form();
        let field = |name: &str| &form.fields.iter().find(|(it, _)| it == name).unwrap().1;
        for (name, typed, expected) in [
            ("name", "Ada", json!("Ada")),
            ("count", "3", json!(3)),
            ("sure", "N", json!(false)),
            ("sure", "", json!(true)),
            ("size", "l", json!("l")),
            ("with", "a, b", json!(["a", "b"])),
        ] {
            let value = value(typed, field(name)).unwrap();
            assert_eq!(json!(value), expected, "{name} {typed}");
        }
        assert_eq!(value("", field("name")), Ok(None));
        for (name, typed) in [
            ("name", "A"),
            ("count", "0"),
            ("count", "1.5"),
            ("count", "many"),
            ("sure", "perhaps"),
            ("size", "small"),
            ("with", "c"),
        ] {
            assert!(value(typed, field(name)).is_err(), "{name} {typed}");
        }
    }

    #[test]
    fn prompts_say_what_is_wanted_and_command_no_terminal() {
        let form = form();
        let prompts: Vec<_> = form
            .fields
            .iter()
            .map(|(name, field)| prompt(name, field, form.required.contains(name)))
            .collect();
        assert_eq!(
            prompts,
            [
                "  name (of \u{fffd}[2Jwhom): ",
                "  count (whole number; at least 1; at most 9): ",
                "  sure (y or n; may be left out) [y]: ",
                "  size (one of s = small, l = large; may be left out): ",
                "  with (some of a, b, with commas between; may be left out): ",
            ]
        );
    }

    #[test]
    fn forms_take_what_the_command_line_has_for_them() {
        let answers = |value: Value| value.as_object().unwrap().clone();
        let given = answers(json!({"name": "Ada", "count": 2, "other": 1}));
        let InputResponse::Elicit(filled) = filled_in("m", &form(), &given).unwrap() else {
            panic!("it is an answer to a form");
        };
        assert_eq!(json!(filled.content), json!({"name": "Ada", "count": 2}));
        let missing = answers(json!({"name": "Ada"}));
        let refused = filled_in("m", &form(), &missing).unwrap_err();
        assert!(refused.contains("`count`"), "{refused}");
        for (unfit, why) in [
            (json!({"name": {}, "count": 2}), "`name`"),
            (json!({"name": 5, "count": 2}), "it must be a string"),
            (json!({"name": "A", "count": 2}), "its length"),
            (json!({"name": "Ada", "count": 0}), "out of the bounds"),
            (json!({"name": "Ada", "count": 1.5}), "a whole number"),
            (json!({"name": "Ada", "count": "2"}), "it must be a number"),
            (
                json!({"name": "Ada", "count": 2, "sure": "y"}),
                "it must be a boolean",
            ),
            (
                json!({"name": "Ada", "count": 2, "size": "small"}),
                "one of s, l",
            ),
            (
                json!({"name": "Ada", "count": 2, "with": "a"}),
                "a list of strings",
            ),
            (
                json!({"name": "Ada", "count": 2, "with": ["c"]}),
                "one of a, b",
            ),
            (
                json!({"name": "Ada", "count": 2, "with": []}),
                "number of choices",
            ),
        ] {
            let refused = filled_in("m", &form(), &answers(unfit)).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
