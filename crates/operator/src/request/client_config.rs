//! The words of `client-config`.

use clap::{Args, ValueEnum};

/// For which client, and how it reaches the server.
#[derive(Debug, Args)]
pub struct ClientConfig {
    /// The client
    #[arg(value_enum)]
    pub client: ClientName,
    #[command(flatten)]
    pub settings: super::Settings,
    /// Name of the server in the client's configuration
    #[arg(long, value_name = "NAME", default_value = "owlclaw")]
    pub name: String,
    /// Address of the server [default: that of the configuration, under `transport: http`]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Send a key or a token: the place for it is left open, to be filled in where the client keeps it
    #[arg(long)]
    pub with_key: bool,
    /// Principal of calls, where the client starts the server: MCP_CLIENT_ID
    #[arg(long = "as", value_name = "CLIENT")]
    pub principal: Option<String>,
}

/// A client that is configured by a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClientName {
    /// Claude Code: .mcp.json
    ClaudeCode,
    /// Claude Desktop: claude_desktop_config.json
    ClaudeDesktop,
    /// Codex: ~/.codex/config.toml
    Codex,
    /// Cursor: .cursor/mcp.json
    Cursor,
    /// Gemini CLI: ~/.gemini/settings.json
    Gemini,
    /// goose: ~/.config/goose/config.yaml
    Goose,
    /// MCP Inspector: mcp.json for --config
    Inspector,
    /// Kiro: .kiro/settings/mcp.json
    Kiro,
    /// Visual Studio Code: .vscode/mcp.json
    Vscode,
}
