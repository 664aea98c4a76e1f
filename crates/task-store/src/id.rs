use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use std::{fmt, str::FromStr, sync::Arc};

const RANDOM_BYTES: usize = 32;

/// Characters shown of an id where the whole must not be given away.
const SHOWN: usize = 6;

/// The name of a task: 256 random bits as base64url without padding, 43 characters.
///
/// Nobody can guess one, and whoever has one may get at the task, as far as other checks do not
/// prevent it. So [`Debug`](fmt::Debug) shows only its first characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(Arc<str>);

/// A text is not the name of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a task is named by 43 characters of base64url")]
pub struct ParseTaskIdError;

impl TaskId {
    /// A new one.
    ///
    /// # Panics
    ///
    /// If the system gives no random bytes.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes).expect("the system gives random bytes");
        Self(URL_SAFE_NO_PAD.encode(bytes).into())
    }

    /// The 43 characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TaskId {
    type Err = ParseTaskIdError;

    fn from_str(text: &str) -> Result<Self, ParseTaskIdError> {
        let mut bytes = [0; RANDOM_BYTES];
        // The decoder also refuses a last character with bits that no byte has.
        match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
            Ok(RANDOM_BYTES) => Ok(Self(text.into())),
            _ => Err(ParseTaskIdError),
        }
    }
}

impl AsRef<str> for TaskId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.get(..SHOWN).unwrap_or_default();
        write!(formatter, "TaskId({shown}…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ids_differ_and_are_read_back() {
        let (first, second) = (TaskId::random(), TaskId::random());
        assert_ne!(first, second);
        assert_eq!(first.as_str().len(), 43);
        assert_eq!(first.to_string().parse(), Ok(first));
    }

    #[test]
    fn only_what_random_could_have_made_is_an_id() {
        let id = format!("{}A", "a-_9".repeat(10) + "bc");
        assert!(id.parse::<TaskId>().is_ok(), "{id}");
        for wrong in [
            String::new(),
            id[1..].to_owned(),
            format!("{id}A"),
            format!("{id}="),
            format!(" {}", &id[1..]),
            format!("+{}", &id[1..]),
            format!("é{}", &id[2..]),
            // The last character has four bits of the last byte; the other two are zero.
            format!("{}B", &id[..42]),
            "A".repeat(1_000_000),
        ] {
            assert_eq!(wrong.parse::<TaskId>(), Err(ParseTaskIdError), "{wrong}");
        }
    }

    #[test]
    fn debug_does_not_give_an_id_away() {
        let id = TaskId::random();
        let shown = format!("{id:?}");
        assert_eq!(shown, format!("TaskId({}…)", &id.as_str()[..6]));
    }
}
