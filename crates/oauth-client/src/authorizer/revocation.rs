//! Revocation of tokens that nobody uses any more (RFC 7009).

use super::{Inner, grants::lacks};
use crate::{
    AuthorizationError, Credentials, discovery,
    token::{self, ClientAt},
};
use std::time::Duration;

/// Time for telling an authorization server, whatever becomes of it.
const WITHIN: Duration = Duration::from_secs(20);

impl Inner {
    /// Has the authorization server revoke the refresh token, and the access token, which some keep good otherwise.
    pub(super) async fn revoke(&self, credentials: &Credentials) -> Result<(), AuthorizationError> {
        let Some(tokens) = &credentials.tokens else {
            return Ok(());
        };
        let failed = |why: &str| AuthorizationError::Revocation {
            address: credentials.issuer.clone(),
            why: why.to_owned(),
        };
        let client = self.client_of(credentials, tokens);
        let client =
            client.ok_or_else(|| failed("the client that they were given to is not known here"))?;
        let refresh = tokens
            .refresh_token
            .as_ref()
            .map(|it| ("refresh_token", it));
        let all = refresh
            .into_iter()
            .chain([("access_token", &tokens.access_token)]);
        let all: Vec<_> = all.map(|(kind, it)| (kind, it.reveal())).collect();
        let revoked = tokio::time::timeout(WITHIN, self.tell(&credentials.issuer, &client, &all));
        let revoked = revoked.await;
        revoked.unwrap_or_else(|_| Err(failed("it does not answer")))
    }

    async fn tell(
        &self,
        issuer: &str,
        client: &ClientAt,
        tokens: &[(&str, &str)],
    ) -> Result<(), AuthorizationError> {
        let server = discovery::authorization_server(&self.web, issuer).await?;
        let endpoint = server.revocation_endpoint.as_deref();
        let endpoint = endpoint.ok_or_else(|| lacks(&server, "revokes no tokens"))?;
        let endpoint = self
            .web
            .check(endpoint, "the authorization server's metadata")?;
        for (at, (kind, token)) in tokens.iter().enumerate() {
            let fields = [("token", *token), ("token_type_hint", *kind)];
            let revoked = token::revoke(&self.web, &endpoint, issuer, client, &fields).await?;
            // Section 2.2.1: access tokens of some cannot be.
            if !revoked && at == 0 {
                return Err(lacks(&server, "revokes no tokens of this kind"));
            }
        }
        Ok(())
    }
}
