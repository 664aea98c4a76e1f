//! JSON objects on the command line.

use std::io::Read;

use mcp_client::RawJson;
use serde::de::DeserializeOwned;

use crate::exact;
use config::printable;
use server::Failure;

/// Longer arguments are refused.
const MAX_ARGUMENTS_BYTES: u64 = 16 * 1024 * 1024;

/// A JSON object given by `flag`, as it was written: as it stands, in a file, or on standard input.
pub(crate) fn object(words: Option<&str>, flag: &str) -> Result<RawJson, Failure> {
    let (text, place) = match words {
        None => return Ok(RawJson::EMPTY_OBJECT),
        Some("-") => (read(std::io::stdin().lock())?, "standard input".to_owned()),
        Some(words) => match words.strip_prefix('@') {
            Some(path) => {
                let place = format!("`{path}`");
                let file = std::fs::File::open(path);
                let file = file.map_err(|error| format!("{place} cannot be read: {error}"))?;
                (read(file)?, place)
            }
            None => (words.to_owned(), flag.to_owned()),
        },
    };
    let json = RawJson::from_bytes(text.into());
    let json = json.map_err(|error| format!("{place} is not JSON: {error}"))?;
    if !json.is_object() {
        let why = format!("{place} must be a JSON object, such as {{\"city\": \"Oslo\"}}");
        return Err(why.into());
    }
    if let Some(name) = exact::repeated_member(json.as_str()) {
        let name = printable(&name);
        return Err(format!("{place} has the member `{name}` twice; leave one of them out").into());
    }
    Ok(json)
}

/// The members of such an object.
pub(crate) fn members<T: DeserializeOwned>(words: Option<&str>, flag: &str) -> Result<T, Failure> {
    let read = serde_json::from_str(object(words, flag)?.as_str());
    Ok(read.map_err(|error| format!("{flag} cannot be used: {error}"))?)
}

fn read(input: impl Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    input
        .take(MAX_ARGUMENTS_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_ARGUMENTS_BYTES {
        return Err(format!("arguments have more than {MAX_ARGUMENTS_BYTES} bytes").into());
    }
    Ok(String::from_utf8(bytes).map_err(|_| "arguments are not UTF-8")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_an_object_from_wherever_they_come() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("arguments.json");
        std::fs::write(&path, r#"{"a": 1}"#).unwrap();
        let file = format!("@{}", path.display());
        let arguments = |words| object(words, "--args");
        assert_eq!(arguments(None).unwrap().as_str(), "{}");
        let text = r#"{"a":123456789012345678901234567890,"b":0.1234567890123456789012,"c":1e400}"#;
        assert_eq!(arguments(Some(text)).unwrap().as_str(), text);
        assert_eq!(arguments(Some(&file)).unwrap().as_str(), r#"{"a": 1}"#);
        for (words, why) in [
            ("[1]", "--args must be a JSON object"),
            ("{a: 1}", "--args is not JSON: key must be a string"),
            (r#"{"a": 1, "a": 2}"#, "--args has the member `a` twice"),
            (
                r#"{"a": {"b": [{"c": 1, "c": 1}]}}"#,
                "--args has the member `c` twice",
            ),
            ("@/no/such/file", "`/no/such/file` cannot be read"),
        ] {
            let said = arguments(Some(words)).unwrap_err().to_string();
            assert!(said.starts_with(why), "{said}");
        }
    }
}
