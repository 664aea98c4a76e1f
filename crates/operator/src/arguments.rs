//! JSON objects on the command line.

use std::io::Read;

use serde_json::{Map, Value};

use server::Failure;

/// Longer arguments are refused.
const MAX_ARGUMENTS_BYTES: u64 = 16 * 1024 * 1024;

/// A JSON object given by `flag`: as it stands, in a file, or on standard input.
pub(crate) fn object(words: Option<&str>, flag: &str) -> Result<Map<String, Value>, Failure> {
    let (text, place) = match words {
        None => return Ok(Map::new()),
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
    match serde_json::from_str(&text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => {
            Err(format!("{place} must be a JSON object, such as {{\"city\": \"Oslo\"}}").into())
        }
        Err(error) => Err(format!("{place} is not JSON: {error}").into()),
    }
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
        assert_eq!(arguments(None).unwrap(), Map::new());
        for words in [r#"{"a":1}"#, &file] {
            assert_eq!(arguments(Some(words)).unwrap()["a"], 1, "{words}");
        }
        for (words, why) in [
            ("[1]", "--args must be a JSON object"),
            ("{a: 1}", "--args is not JSON: key must be a string"),
            ("@/no/such/file", "`/no/such/file` cannot be read"),
        ] {
            let said = arguments(Some(words)).unwrap_err().to_string();
            assert!(said.starts_with(why), "{said}");
        }
    }
}
