//! Lists the tools of a server and calls one: `tools (URL | PROGRAM [ARGUMENT]...) [-- TOOL JSON]`.

use mcp_client::{CallOptions, Connection, Dial, Options, RawJson};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (server, call) = match arguments.iter().position(|it| it == "--") {
        Some(at) => (&arguments[..at], &arguments[at + 1..]),
        None => (&arguments[..], &[][..]),
    };
    let dial = match server {
        [url] if url.contains("://") => Dial::url(url),
        [program, arguments @ ..] => Dial::child(program, arguments),
        [] => return Err("name a server".into()),
    };
    let connection = Connection::open(&dial, Options::default()).await?;
    let agreed = connection.agreed();
    let name = agreed
        .server_info
        .as_ref()
        .map_or("a server", |it| &it.name);
    say(&format!("{name} speaks {}", agreed.version));
    for tool in connection.tools().await? {
        let description = tool.description.unwrap_or_default();
        say(&format!(
            "{}: {}",
            tool.name,
            description.lines().next().unwrap_or_default()
        ));
    }
    if let [tool, json] = call {
        let json = RawJson::from_bytes(json.clone().into())?;
        let result = connection.call(tool, json, &CallOptions::default()).await?;
        say(&format!("{:?}", result.content));
    }
    connection.close().await;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn say(text: &str) {
    println!("{text}");
}
