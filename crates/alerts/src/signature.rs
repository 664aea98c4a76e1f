use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Value of the header `X-OwlClaw-Signature` for a body that is sent at `time`, in seconds since
/// the epoch: `t=TIME,v1=` and, in hexadecimal, the HMAC-SHA256 with `secret` over `TIME.BODY`.
///
/// Receivers compute the same, compare it in constant time, and refuse times that are not near
/// their own, so that nobody can send the message again later.
#[must_use]
pub fn sign(secret: &str, time: u64, body: &[u8]) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key may have any length");
    mac.update(format!("{time}.").as_bytes());
    mac.update(body);
    let code = HEXLOWER.encode(&mac.finalize().into_bytes());
    format!("t={time},v1={code}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_others_compute() {
        // printf '1789000000.{"a":1}' | openssl dgst -sha256 -hmac whsec
        let expected =
            "t=1789000000,v1=70466e4b77ca37264d4bf63ec50568e6a77138f01baa2c92fcc9755aeaa00728";
        assert_eq!(sign("whsec", 1_789_000_000, br#"{"a":1}"#), expected);
    }
}
