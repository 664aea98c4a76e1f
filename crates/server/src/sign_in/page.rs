//! The pages as HTML: without scripts, frames, or anything from elsewhere.

use gateway::SIGN_IN_PATH;
use http::{HeaderValue, Response, StatusCode, header};
use transport_http::PlainResponse;

use super::body;

const STYLE: &str = "body{font:1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:3rem auto;padding:0 1rem}\
    input{font:inherit;display:block;width:100%;box-sizing:border-box;margin:.25rem 0 1rem;padding:.4rem}\
    button,a.go{font:inherit;display:inline-block;padding:.5rem 1rem}code{font-weight:bold}.fault{color:#b00020}";

/// A page on its way.
pub(super) struct Page {
    status: StatusCode,
    content: String,
    cookie: Option<String>,
}

impl Page {
    fn new(status: StatusCode, content: String) -> Self {
        Self {
            status,
            content,
            cookie: None,
        }
    }

    /// A page that says why nothing is done.
    pub(super) fn refusal(status: StatusCode, why: &str) -> Self {
        Self::new(status, format!("<p class=fault>{}</p>", escaped(why)))
    }

    /// The page that asks somebody to prove who they are.
    pub(super) fn who(
        upstream: &str,
        ticket: Option<&str>,
        has_certificate: bool,
        issuers: &[&str],
        fault: Option<&str>,
    ) -> Self {
        let fault = fault.map_or_else(String::new, |it| {
            format!("<p class=fault>{}</p>", escaped(it))
        });
        let (how, required) = match has_certificate {
            true => (
                "Your certificate is shown. With a key or token, that counts besides.",
                "",
            ),
            false => (
                "Show that you are the client of this server that asks for it: with the API key or the access \
                 token that your client uses here.",
                " required",
            ),
        };
        let others: String = issuers
            .iter()
            .map(|it| {
                let it = escaped(it);
                format!(
                    " <button name=issuer value=\"{it}\" formnovalidate>Sign in with {it}</button>"
                )
            })
            .collect();
        let upstream = escaped(upstream);
        let ticket = escaped(ticket.unwrap_or_default());
        let content = format!(
            "<h1>Your own access to <code>{upstream}</code></h1>{fault}\
             <p>What you give here is used for your calls alone. Go on only if you have just been asked for it \
             by your own program.</p>\
             <form method=post action=\"{SIGN_IN_PATH}/prove\"><p>{how}</p>\
             <input type=hidden name=ticket value=\"{ticket}\"><input type=hidden name=upstream value=\"{upstream}\">\
             <label>Key or token<input type=password name=credential autocomplete=off{required}></label>\
             <button>Go on</button>{others}</form>"
        );
        Self::new(StatusCode::OK, content)
    }

    /// The page that leads to an issuer that proves who somebody is.
    pub(super) fn prove_at(issuer: &str, url: &str) -> Self {
        let host = escaped(host_of(url));
        let content = format!(
            "<h1>Sign in with <code>{}</code></h1><p>You come back here from <code>{host}</code>.</p>\
             <p><a class=go href=\"{}\">Sign in at {host}</a></p>",
            escaped(issuer),
            escaped(url),
        );
        Self::new(StatusCode::OK, content)
    }

    /// The page that leads to the authorization server.
    pub(super) fn leave(client: &str, upstream: &str, url: &str) -> Self {
        let host = host_of(url);
        let content = format!(
            "<h1>Sign in for <code>{}</code></h1><p>You are <code>{}</code> here. The account that you sign in \
             with at <code>{}</code> is the one that your calls use from then on.</p>\
             <p><a class=go href=\"{}\">Sign in at {}</a></p>",
            escaped(upstream),
            escaped(client),
            escaped(host),
            escaped(url),
            escaped(host),
        );
        Self::new(StatusCode::OK, content)
    }

    /// The page that asks for secrets.
    pub(super) fn secrets(client: &str, upstream: &str, names: &[String], csrf: &str) -> Self {
        let fields: String = names
            .iter()
            .map(|name| {
                let name = escaped(name);
                format!(
                    "<label><code>{name}</code><input type=password name=\"secret.{name}\" autocomplete=off \
                     required></label>"
                )
            })
            .collect();
        let content = format!(
            "<h1>Your secrets for <code>{}</code></h1><p>You are <code>{}</code> here. They are kept encrypted, \
             and sent to this server alone.</p>\
             <form method=post action=\"{SIGN_IN_PATH}/secrets\"><input type=hidden name=csrf value=\"{csrf}\">\
             {fields}<button>Keep</button></form>",
            escaped(upstream),
            escaped(client),
        );
        Self::new(StatusCode::OK, content)
    }

    /// The page at the end.
    pub(super) fn done(client: &str, upstream: &str) -> Self {
        let content = format!(
            "<h1>Done</h1><p><code>{}</code> has its own access to <code>{}</code>. You can close this window; a \
             call that waits goes on.</p>",
            escaped(client),
            escaped(upstream),
        );
        Self::new(StatusCode::OK, content)
    }

    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    pub(super) fn with_cookie(self, cookie: String) -> Self {
        Self {
            cookie: Some(cookie),
            ..self
        }
    }

    pub(super) fn response(self) -> PlainResponse {
        let page = format!(
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
             <title>OwlClaw MCP</title><style>{STYLE}</style><main>{}</main></html>",
            self.content
        );
        let mut response = Response::new(body(page));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CACHE_CONTROL, "no-store"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::X_FRAME_OPTIONS, "DENY"),
            // With `no-referrer` a browser would not say of its own pages where a form is from.
            (header::REFERRER_POLICY, "same-origin"),
            (
                header::CONTENT_SECURITY_POLICY,
                "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; \
                 base-uri 'none'",
            ),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let Some(cookie) = self.cookie
            && let Ok(cookie) = HeaderValue::try_from(cookie)
        {
            headers.insert(header::SET_COOKIE, cookie);
        }
        response
    }
}

/// Host of an address, for people.
fn host_of(url: &str) -> &str {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    host.split(['/', '?', '#']).next().unwrap_or_default()
}

/// Text as HTML has it, in content and in quoted attributes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_named_is_text_on_a_page() {
        let evil = "\"><script>alert('x')</script>&";
        for page in [
            Page::who(evil, Some(evil), false, &[evil], Some(evil)),
            Page::prove_at(evil, evil),
            Page::leave(evil, evil, evil),
            Page::secrets(evil, evil, &[evil.to_owned()], "00"),
            Page::done(evil, evil),
            Page::refusal(StatusCode::GONE, evil),
        ] {
            let response = page.response();
            let text = String::from_utf8(response.body().to_vec()).unwrap();
            assert!(!text.contains("<script"), "{text}");
            assert!(text.contains("&quot;&gt;&lt;script&gt;"), "{text}");
            let policy = &response.headers()[header::CONTENT_SECURITY_POLICY];
            assert!(policy.to_str().unwrap().contains("frame-ancestors 'none'"));
        }
    }
}
