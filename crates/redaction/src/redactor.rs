pub(crate) mod given;
pub(crate) mod known;
pub(crate) mod lines;

use crate::{
    canonical::canonical,
    company::{self, Company, Role},
    detect::{Detect, Hints},
    names::{Meaning, Names},
    placeholder::{self, Label, Placeholders},
    pointers::{Pointer, Pointers, Trail},
    redactor::{
        known::{without_known, without_known_json},
        lines::OpenKey,
    },
    scan::{NotJson, Scanner, Text, Token},
    spec::{BadSpec, Spec},
    string,
};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    ops::Range,
    sync::{
        Arc, LazyLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// Depth to which strings of JSON are searched for JSON of their own; deeper strings are treated as
/// plain text.
const MAX_EMBEDDED: usize = 4;

/// The fewest characters in which a secret can be told by its looks.
const SHORTEST: usize = 4;

/// Takes secrets out.
pub struct Redactor {
    names: Names,
    pointers: Pointers,
    detect: Detect,
    placeholders: Placeholders,
    finds_private_keys: bool,
    /// True if members are secret by what stands beside them.
    judges_company: bool,
    /// Pointers that capabilities declare themselves.
    declared: RwLock<Arc<Pointers>>,
    has_declared: AtomicBool,
}

/// Without the key.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("pointers", &self.pointers)
            .finish_non_exhaustive()
    }
}

/// Redacts by the default specification.
static DEFAULT: LazyLock<Option<Redactor>> =
    LazyLock::new(|| Redactor::new(&Spec::default(), [0; 32]).ok());

/// Returns true if a text has something that is redacted without any configuration because of its looks.
#[must_use]
pub fn looks_secret(text: &str) -> bool {
    let redactor = DEFAULT.as_ref();
    redactor.is_some_and(|it| matches!(it.text(text), Cow::Owned(_)))
}

/// Places of what is redacted without any configuration in a text that is taken for no JSON.
pub(crate) fn secret_spans(text: &str) -> Vec<Range<usize>> {
    let spans = DEFAULT
        .as_ref()
        .map(|it| it.detect.find(text, Hints::ALL, &it.names));
    let spans = spans.into_iter().flatten();
    spans.map(|it| it.start..it.end).collect()
}

impl Redactor {
    /// Prepares to redact by `spec`. `key` makes the digests of placeholders; an attacker who has
    /// it can try out guesses.
    ///
    /// # Errors
    ///
    /// [`BadSpec`] for the first thing in `spec` that cannot be used.
    pub fn new(spec: &Spec, key: [u8; 32]) -> Result<Self, BadSpec> {
        Ok(Self {
            names: spec.names()?,
            pointers: Pointers::new(&spec.pointers)?,
            detect: Detect::new(spec.detectors),
            placeholders: Placeholders::new(&key),
            finds_private_keys: spec.detectors.private_keys,
            judges_company: spec.built_in_keys,
            declared: RwLock::default(),
            has_declared: AtomicBool::new(false),
        })
    }

    /// Takes out, besides what the specification says, what `pointers` lead to: by capability, as in
    /// [`Spec::pointers`]. They take the place of those that were declared before.
    ///
    /// # Errors
    ///
    /// [`BadSpec`] for the first thing in `pointers` that cannot be used; those before stay.
    pub fn declare(&self, pointers: &BTreeMap<String, Vec<String>>) -> Result<(), BadSpec> {
        let declared = Arc::new(Pointers::new(pointers)?);
        *self
            .declared
            .write()
            .unwrap_or_else(PoisonError::into_inner) = declared;
        let has_declared = !pointers.is_empty();
        self.has_declared.store(has_declared, Ordering::Release);
        Ok(())
    }

    /// The pointers that capabilities declare; `None` if there are none.
    fn declared(&self) -> Option<Arc<Pointers>> {
        self.has_declared.load(Ordering::Acquire).then(|| {
            let declared = self.declared.read();
            Arc::clone(&declared.unwrap_or_else(PoisonError::into_inner))
        })
    }

    /// A text of JSON without the secrets, some of which depend on `capability`
    /// ([`Spec::pointers`]). It is JSON again, and parts without secrets are the same to the byte.
    /// A text that is not JSON is treated as [text](Self::text).
    ///
    /// A secret value, an object or an array as a whole too, becomes a string. Values that are
    /// `null`, booleans or empty strings are not secret because of their name, but they are where a
    /// pointer leads to them.
    #[must_use]
    pub fn json<'a>(&self, capability: &str, json: &'a str) -> Cow<'a, str> {
        let declared = self.declared();
        let mut pointers = self.pointers.of(capability);
        if let Some(declared) = &declared {
            pointers.extend(declared.of(capability));
        }
        self.after_known(json, |json| self.outermost(json, &pointers))
    }

    /// The same for what a capability was to take that does not exist: its name may be a mistake, so
    /// that the pointers of all capabilities count.
    #[must_use]
    pub fn json_for_any<'a>(&self, json: &'a str) -> Cow<'a, str> {
        let declared = self.declared();
        let mut pointers = self.pointers.all();
        if let Some(declared) = &declared {
            pointers.extend(declared.all());
        }
        self.after_known(json, |json| self.outermost(json, &pointers))
    }

    /// Returns true if no value is secret because of one of `names`, or by what stands beside a member of that name.
    #[must_use]
    pub fn has_plain_names<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> bool {
        names.into_iter().all(|name| {
            self.names.meaning(name.as_bytes(), 0, name.len()).is_none() && company::is_plain(name)
        })
    }

    /// As [`json`](Self::json), of an object whose members are known, so that it need not be read: their names are
    /// [plain](Self::has_plain_names), no value is an object, an array or a number of 13 digits, and the insides of
    /// all string values that may have a secret are at `strings`, in order.
    #[must_use]
    pub fn flat_json<'a>(
        &self,
        capability: &str,
        json: &'a str,
        strings: impl IntoIterator<Item = Range<usize>>,
    ) -> Cow<'a, str> {
        let declared = self.declared();
        let has_pointers = !self.pointers.of(capability).is_empty()
            || declared.is_some_and(|it| !it.of(capability).is_empty());
        if has_pointers || matches!(without_known_json(json), Cow::Owned(_)) {
            return self.json(capability, json);
        }
        let known = Hints::of(json, self.detect.is_anchored(json));
        let mut splice = Splice::new(json);
        for Range { start, end } in strings {
            let is_escaped = memchr::memchr(b'\\', &json.as_bytes()[start..end]).is_some();
            let text = Text {
                start,
                end,
                is_escaped,
            };
            self.string(&mut splice, text, known, &[], 0);
        }
        splice.finish()
    }

    /// JSON without known values, and then without what `rest` takes out.
    fn after_known<'a>(
        &self,
        json: &'a str,
        rest: impl for<'b> FnOnce(&'b str) -> Cow<'b, str>,
    ) -> Cow<'a, str> {
        match without_known_json(json) {
            Cow::Borrowed(json) => rest(json),
            Cow::Owned(json) => Cow::Owned(rest(&json).into_owned()),
        }
    }

    fn outermost<'a>(&self, json: &'a str, pointers: &[&Pointer]) -> Cow<'a, str> {
        match self.walk(json, pointers, 0) {
            Ok(redacted) => redacted,
            Err(NotJson) => self.plain(json),
        }
    }

    /// A text without the secrets. If it is JSON as a whole, it is read as such.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match without_known(text) {
            Cow::Borrowed(text) => self.embedded(text, &[], 0),
            Cow::Owned(text) => Cow::Owned(self.embedded(&text, &[], 0).into_owned()),
        }
    }

    /// A digest of what a text of JSON says, as [`digest`](crate::digest) but with the key: for
    /// texts of which parts have been taken out, whose plain digest would tell who guesses that they
    /// have guessed right.
    #[must_use]
    pub fn digest(&self, json: &str) -> [u8; 32] {
        self.placeholders.keyed(&crate::digest(json))
    }

    /// A text that is JSON or not; that has been found in `level` texts of JSON, one in the other.
    /// Pointers lead into it as into the outermost: tools give JSON as text.
    fn embedded<'a>(&self, text: &'a str, pointers: &[&Pointer], level: usize) -> Cow<'a, str> {
        if level < MAX_EMBEDDED
            && text.trim_start().starts_with(['{', '['])
            && let Ok(redacted) = self.walk(text, pointers, level)
        {
            return redacted;
        }
        self.plain(text)
    }

    /// A text that is not JSON.
    fn plain<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut splice = Splice::new(text);
        for span in self.detect.find(text, Hints::ALL, &self.names) {
            let (start, end) = (span.start, span.end);
            splice.replace(start, end, |out| {
                self.placeholders.write(span.label, &text[start..end], out);
            });
        }
        splice.finish()
    }

    fn walk<'a>(
        &self,
        json: &'a str,
        pointers: &[&Pointer],
        level: usize,
    ) -> Result<Cow<'a, str>, NotJson> {
        match self.pass(json, pointers, level, None)? {
            Some(redacted) => Ok(redacted),
            None => {
                let company = company::find(json, &self.names)?;
                let redacted = self.pass(json, pointers, level, Some(&company))?;
                Ok(redacted.unwrap_or(Cow::Borrowed(json)))
            }
        }
    }

    /// One pass over a text of JSON. Without `company`, none if there may be members that are secret by what stands
    /// beside them, before or after, which hardly a text has.
    fn pass<'a>(
        &self,
        json: &'a str,
        pointers: &[&Pointer],
        level: usize,
        company: Option<&Company>,
    ) -> Result<Option<Cow<'a, str>>, NotJson> {
        let looks_for_company = self.judges_company && company.is_none();
        // True if the string that comes next may be a name.
        let mut is_name_next = false;
        let mut trail = (!pointers.is_empty()).then(|| Trail::new(pointers));
        let known = Hints::of(json, self.detect.is_anchored(json));
        let mut scanner = Scanner::new(json);
        let mut splice = Splice::new(json);
        // What the name before says of the value that comes next.
        let mut named: Option<Meaning> = None;
        // The object or array that is being taken out as a whole.
        let mut whole: Option<Whole> = None;
        // The private key whose lines are elements of an array, and the depth in there.
        let mut lines = (OpenKey::default(), 0);
        while let Some(token) = scanner.next()? {
            if let Some(Whole {
                start,
                depth,
                label,
            }) = whole
            {
                if let Token::End(end) = token
                    && scanner.depth() < depth
                {
                    self.replace(&mut splice, label, start, end);
                    whole = None;
                }
                continue;
            }
            // How a value is secret, whatever it looks like.
            let mut label = None;
            match (&mut trail, token) {
                (_, Token::Name(_)) | (None, Token::End(_)) => {}
                (Some(trail), Token::End(_)) => trail.close(),
                (trail, _) => {
                    label = named.take().and_then(|it| label_of(it, token, json));
                    if trail.as_mut().is_some_and(Trail::value) {
                        label = Some(Label::Value);
                    }
                }
            }
            match token {
                Token::Name(name) => {
                    if let Some(trail) = &mut trail {
                        trail.name(&json[name.range()], name.is_escaped);
                    }
                    named = self.names.meaning_of(json, name);
                    is_name_next = false;
                    if looks_for_company && company::may_matter(json, name) {
                        match company::role(json, name) {
                            Some(Role::KeyType) => return Ok(None),
                            role => is_name_next = role == Some(Role::Name),
                        }
                    }
                    if let Some(company) = company {
                        named = named.or_else(|| company.meaning(name.start));
                    }
                    self.string(&mut splice, name, known, &[], level);
                }
                Token::Object(start) | Token::Array(start) => match label {
                    Some(label) => {
                        let depth = scanner.depth();
                        whole = Some(Whole {
                            start,
                            depth,
                            label,
                        });
                    }
                    None => {
                        if let Some(trail) = &mut trail {
                            trail.open(matches!(token, Token::Array(_)));
                        }
                    }
                },
                Token::End(_) => {
                    if scanner.depth() < lines.1 {
                        lines = (OpenKey::default(), 0);
                    }
                }
                Token::String(text)
                    if is_name_next && self.names.meaning_of(json, text).is_some() =>
                {
                    return Ok(None);
                }
                Token::String(text) => match label {
                    Some(label) if label == Label::Value || !is_kept(&json[text.range()]) => {
                        self.replace(&mut splice, label, text.start - 1, text.end + 1);
                    }
                    Some(_) => {}
                    None if lines.0.is_open() && scanner.depth() == lines.1 => {
                        lines.0.see(&json[text.range()]);
                        if !is_kept(&json[text.range()]) {
                            let (start, end) = (text.start - 1, text.end + 1);
                            self.replace(&mut splice, Label::PrivateKey, start, end);
                        }
                    }
                    None => {
                        let is_changed = self.string(&mut splice, text, known, pointers, level);
                        if is_changed && self.finds_private_keys && scanner.is_in_array() {
                            let mut key = OpenKey::default();
                            key.see(&json[text.range()]);
                            if key.is_open() {
                                lines = (key, scanner.depth());
                            }
                        }
                    }
                },
                Token::Number(start, end) => match label {
                    Some(label) => self.replace(&mut splice, label, start, end),
                    None if self.detect.is_card(&json[start..end]) => {
                        self.replace(&mut splice, Label::Card, start, end);
                    }
                    None => {}
                },
                Token::Literal(start, end) => {
                    if label == Some(Label::Value) {
                        self.replace(&mut splice, Label::Value, start, end);
                    }
                }
            }
        }
        Ok(Some(splice.finish()))
    }

    pub(crate) fn finds_private_keys(&self) -> bool {
        self.finds_private_keys
    }

    pub(crate) fn write_placeholder(&self, label: Label, secret: &str, into: &mut String) {
        self.placeholders.write(label, secret, into);
    }

    /// Takes out of a string, or of a name, what looks like a secret. True if there is something.
    fn string(
        &self,
        splice: &mut Splice<'_>,
        text: Text,
        known: Hints,
        pointers: &[&Pointer],
        level: usize,
    ) -> bool {
        let raw = &splice.text[text.range()];
        if raw.len() < SHORTEST {
            return false;
        }
        if text.is_escaped {
            let decoded = string::decoded(raw);
            let Cow::Owned(redacted) = self.embedded(&decoded, pointers, level + 1) else {
                return false;
            };
            splice.replace(text.start, text.end, |out| string::encode(&redacted, out));
            return true;
        }
        let hints = Hints::of_part(raw, known.is_anchored, known.digits);
        let spans = self.detect.find(raw, hints, &self.names);
        for span in &spans {
            let (start, end) = (text.start + span.start, text.start + span.end);
            splice.replace(start, end, |out| {
                self.placeholders
                    .write(span.label, &raw[span.start..span.end], out);
            });
        }
        !spans.is_empty()
    }

    /// Puts a string with a placeholder in the place of a value.
    fn replace(&self, splice: &mut Splice<'_>, label: Label, start: usize, end: usize) {
        let value = &splice.text[start..end];
        // However it is written, what is equal has the same digest.
        let said: Cow<'_, str> = match value.as_bytes()[0] {
            b'"' if value.contains('\\') => string::decoded(&value[1..value.len() - 1]).into(),
            b'"' => value[1..value.len() - 1].into(),
            b'{' | b'[' => canonical(value).map_or(value.into(), Cow::Owned),
            _ => value.into(),
        };
        splice.replace(start, end, |out| {
            out.push('"');
            self.placeholders.write(label, &said, out);
            out.push('"');
        });
    }
}

/// Label of a value that is secret by the meaning of its name.
fn label_of(meaning: Meaning, value: Token, json: &str) -> Option<Label> {
    let is_secret = match (meaning, value) {
        (Meaning::Secret | Meaning::SecretLine, _) => true,
        (Meaning::SecretToken, Token::String(text)) => Detect::is_token(&json[text.range()]),
        (Meaning::SecretToken | Meaning::Harmless, _) => false,
    };
    is_secret.then_some(Label::Secret)
}

/// Returns true if a string is kept although its name marks it as secret: it is empty, or redacted
/// already.
fn is_kept(raw: &str) -> bool {
    raw.is_empty() || placeholder::length_at_start(raw) == Some(raw.len())
}

/// A value of many tokens that is taken out.
#[derive(Clone, Copy)]
struct Whole {
    start: usize,
    /// Number of levels open inside of it.
    depth: usize,
    label: Label,
}

/// A text with parts replaced, from the left to the right. Nothing is copied before the first.
struct Splice<'a> {
    text: &'a str,
    out: String,
    copied: usize,
}

impl<'a> Splice<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            out: String::new(),
            copied: 0,
        }
    }

    fn replace(&mut self, start: usize, end: usize, write: impl FnOnce(&mut String)) {
        self.out.push_str(&self.text[self.copied..start]);
        write(&mut self.out);
        self.copied = end;
    }

    fn finish(mut self) -> Cow<'a, str> {
        // Whatever has been replaced is not empty.
        if self.copied == 0 {
            return Cow::Borrowed(self.text);
        }
        self.out.push_str(&self.text[self.copied..]);
        Cow::Owned(self.out)
    }
}
