//! Calls of `echo`, one after the other: `bench-client VERSION NUMBER (URL | PROGRAM [ARGUMENT]...)`.
//! `tests/client-cost/count.py` counts its instructions.

use mcp_client::{CallOptions, Connection, Dial, Options, RawJson, Speak};
use std::error::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [version, number, server @ ..] = arguments.as_slice() else {
        return Err("usage: bench-client VERSION NUMBER (URL | PROGRAM [ARGUMENT]...)".into());
    };
    let dial = match server {
        [url] if url.contains("://") => Dial::url(url),
        [program, arguments @ ..] => Dial::child(program, arguments),
        [] => return Err("name a server".into()),
    };
    let options = Options {
        speak: Speak::Only(version.parse()?),
        ..Options::default()
    };
    let connection = Connection::open(&dial, options).await?;
    let options = CallOptions::default();
    for _ in 0..number.parse()? {
        let message = r#"{"message":"m100000001xxxxxxxxxxxxxxxxxxxxxx"}"#;
        let arguments = RawJson::from_bytes(message.into())?;
        let result = connection.call("echo", arguments, &options).await?;
        assert_eq!(result.content.len(), 1);
    }
    connection.close().await;
    Ok(())
}
