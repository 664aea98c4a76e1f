//! The words of `tools call`.

use clap::Args;

/// Tool to call, with its arguments, its caller and the server.
#[derive(Debug, Args)]
pub struct ToolCall {
    /// The tool
    #[arg(value_name = "NAME")]
    pub tool: String,
    /// The arguments: a JSON object, @FILE with one, or - for standard input [default: {}]
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub args: Option<String>,
    /// Principal of the call [default: MCP_CLIENT_ID, else stdio-client; with --url, the principal
    /// that the server finds]
    #[arg(long = "as", value_name = "CLIENT")]
    pub client: Option<String>,
    /// A running server to call, such as http://127.0.0.1:8080/mcp [default: one of our own]
    ///
    /// The key or token in OWLCLAW_API_KEY is sent, if there is one. The key is no argument since
    /// others could read it there.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Certificate authorities (PEM) to trust for --url besides the system's
    #[arg(long, value_name = "PATH", requires = "url")]
    pub ca: Option<std::path::PathBuf>,
    /// Idempotency key: the call runs at most once under it
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Seconds to wait for --url
    #[arg(long, value_name = "SECONDS", default_value_t = 300, requires = "url",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: super::ReportFormat,
}
