//! Values that a publisher leaves to whoever runs the server, and what an operator has answered.

use std::collections::BTreeMap;

/// A value, as its publisher describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Input {
    /// Description for people.
    pub description: Option<String>,
    /// True if nothing works without it.
    pub is_required: bool,
    /// True if it must not be in a file that others read.
    pub is_secret: bool,
    /// Form: `string`, `number`, `boolean` or `filepath`.
    pub format: Option<String>,
    /// Value that nobody may change.
    pub value: Option<String>,
    /// Value where no other is given.
    pub default: Option<String>,
    /// The only values that it can have; empty for any.
    pub choices: Vec<String>,
}

/// A value with variables in braces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variable {
    /// The value.
    pub input: Input,
    /// Variables in it, by name.
    pub variables: Vec<(String, Input)>,
}

/// A part of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text of the publisher, which is taken as it is: it refers to nothing here.
    Theirs(String),
    /// Text of the operator, which may have references.
    Yours(String),
    /// A secret, whose value is in the vault, or will be.
    Secret {
        /// Name that the publisher has given it.
        name: String,
        /// Value, if the operator has given it now.
        value: Option<String>,
    },
}

/// A value in parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Words(pub Vec<Piece>);

impl Words {
    pub(crate) fn theirs(text: impl Into<String>) -> Self {
        Self(vec![Piece::Theirs(text.into())])
    }

    /// The value as a configuration has it, each secret as the reference that `refer` makes of its name and value.
    pub fn written(&self, mut refer: impl FnMut(&str, Option<&str>) -> String) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            // What a stranger has written must not lead to a variable, a file or a secret of the server.
            Piece::Theirs(text) => text.replace("${", "$${"),
            Piece::Yours(text) => text.clone(),
            Piece::Secret { name, value } => refer(name, value.as_deref()),
        });
        pieces.collect()
    }

    /// True if the operator has given or will give all of it.
    pub(crate) fn is_yours(&self) -> bool {
        let mut pieces = self.0.iter();
        pieces.all(|it| !matches!(it, Piece::Theirs(_)))
    }

    /// The value without secrets, as far as it is known.
    #[must_use]
    pub fn plain(&self) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Theirs(text) | Piece::Yours(text) => text.as_str(),
            Piece::Secret { .. } => "",
        });
        pieces.collect()
    }

    fn all_secret(self, name: &str) -> Self {
        let secret = |piece| match piece {
            Piece::Yours(text) if !text.contains("${") => Piece::Secret {
                name: name.to_owned(),
                value: Some(text),
            },
            piece => piece,
        };
        Self(self.0.into_iter().map(secret).collect())
    }
}

/// Answers of an operator, by the names of what was asked.
pub type Answers = BTreeMap<String, Vec<String>>;

/// Question that an operator may answer, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Name to answer by.
    pub name: String,
    /// Description of the publisher.
    pub description: Option<String>,
    /// True if nothing works without it.
    pub is_required: bool,
    /// True if it goes into the vault.
    pub is_secret: bool,
    /// Value where no other is given.
    pub default: Option<String>,
    /// The only values that it can have; empty for any.
    pub choices: Vec<String>,
    /// True if the operator has given a value.
    pub is_given: bool,
}

/// Puts answers in the places of inputs.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    answers: &'a Answers,
    pub(crate) asked: Vec<Asked>,
    /// Answers that cannot be, with the reasons.
    pub(crate) wrong: Vec<String>,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(answers: &'a Answers) -> Self {
        Self {
            answers,
            asked: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// The value of a variable; `None` if it has none and needs none.
    pub(crate) fn value(&mut self, name: &str, variable: &Variable) -> Option<Words> {
        self.values(name, variable, false).pop()
    }

    /// The values of a variable that may be there more than once.
    pub(crate) fn values(&mut self, name: &str, variable: &Variable, repeats: bool) -> Vec<Words> {
        match &variable.input.value {
            Some(template) => self.filled(template, name, variable).into_iter().collect(),
            None => self.answered(name, &variable.input, repeats),
        }
    }

    /// A value with its variables; `None` if one of them has no value and needs none, without which it would say something
    /// else, such as `Bearer ` and nothing.
    fn filled(&mut self, template: &str, name: &str, variable: &Variable) -> Option<Words> {
        let mut words = Vec::new();
        let mut is_whole = true;
        let mut rest = template;
        while let Some(at) = rest.find('{') {
            let known = rest[at + 1..].split_once('}').and_then(|(inner, after)| {
                let found = variable.variables.iter().find(|(it, _)| it == inner)?;
                Some((found, after))
            });
            let Some(((inner, input), after)) = known else {
                words.push(Piece::Theirs(rest[..=at].to_owned()));
                rest = &rest[at + 1..];
                continue;
            };
            words.push(Piece::Theirs(rest[..at].to_owned()));
            let filled = match &input.value {
                Some(fixed) => vec![Words::theirs(fixed.clone())],
                None => self.answered(inner, input, false),
            };
            is_whole &= !filled.is_empty() || input.is_required;
            words.extend(filled.into_iter().flat_map(|it| it.0));
            rest = after;
        }
        words.push(Piece::Theirs(rest.to_owned()));
        words.retain(|it| *it != Piece::Theirs(String::new()));
        is_whole.then(|| match variable.input.is_secret {
            true => Words(words).all_secret(name),
            false => Words(words),
        })
    }

    fn answered(&mut self, name: &str, input: &Input, repeats: bool) -> Vec<Words> {
        let given = self.answers.get(name).map_or(&[][..], Vec::as_slice);
        if self.asked.iter().all(|it| it.name != name) {
            self.asked.push(Asked {
                name: name.to_owned(),
                description: input.description.clone(),
                is_required: input.is_required,
                is_secret: input.is_secret,
                default: input.default.clone(),
                choices: input.choices.clone(),
                is_given: !given.is_empty(),
            });
        }
        if given.len() > 1 && !repeats {
            self.wrong.push(format!("`{name}` can be given once"));
        }
        for value in given {
            if let Err(why) = fits(value, input) {
                self.wrong.push(format!("`{name}` {why}"));
            }
        }
        if !given.is_empty() {
            let piece = |value: &String| match input.is_secret && !value.contains("${") {
                true => Piece::Secret {
                    name: name.to_owned(),
                    value: Some(value.clone()),
                },
                false => Piece::Yours(value.clone()),
            };
            return given.iter().map(|it| Words(vec![piece(it)])).collect();
        }
        match &input.default {
            Some(default) => vec![Words::theirs(default.clone())],
            None if input.is_secret && input.is_required => vec![Words(vec![Piece::Secret {
                name: name.to_owned(),
                value: None,
            }])],
            None => Vec::new(),
        }
    }

    /// Names of what is asked and cannot be left out.
    pub(crate) fn missing(&self) -> Vec<String> {
        let missing = self
            .asked
            .iter()
            .filter(|it| it.is_required && !it.is_given && !it.is_secret && it.default.is_none());
        missing.map(|it| it.name.clone()).collect()
    }

    /// Answers to what was not asked.
    pub(crate) fn strangers(&self) -> Vec<String> {
        let is_known = |name: &str| self.asked.iter().any(|it| it.name == name);
        let names = self.answers.keys().filter(|it| !is_known(it));
        names.cloned().collect()
    }
}

/// Refuses a value that an input cannot have.
fn fits(value: &str, input: &Input) -> Result<(), String> {
    if value.chars().any(|it| it.is_control()) {
        return Err("has a line end or another control character".to_owned());
    }
    if value.contains("${") {
        // It is known where the server starts.
        return Ok(());
    }
    if !input.choices.is_empty() && !input.choices.iter().any(|it| it == value) {
        return Err(format!("must be one of {}", input.choices.join(", ")));
    }
    match input.format.as_deref() {
        Some("number") if value.parse::<f64>().is_err() => Err("must be a number".to_owned()),
        Some("boolean") if !matches!(value, "true" | "false") => {
            Err("must be `true` or `false`".to_owned())
        }
        _ => Ok(()),
    }
}
